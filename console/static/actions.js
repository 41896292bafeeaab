// The actions on a session: a button each for the usual ones, a menu for the rest, a dialog for those that need words.

import { PageElement, html, nothing } from "./render.js";
import { act, get } from "./api.js";
import { download, nameOf, plural, purposeOf, until } from "./format.js";
import "./share.js";

const HOURS = { 1: "1 hour", 8: "8 hours", 24: "1 day", 168: "7 days" };

const ACTIONS = {
  rename: { title: "Rename", button: "Save", about: "Changes its name and its purpose." },
  extend: { title: "Extend", button: "Extend", about: "Moves the time at which it ends." },
  fork: { title: "Fork", button: "Fork", about: "Makes children from a copy of state, logins and tabs." },
  export: { title: "Export", button: "Download", about: "Downloads all that is kept of it, as JSON." },
  restart: { title: "Restart services", button: "Restart", about: "Replaces connections; what was saved comes back." },
  close: { title: "Close", button: "Close it", about: "Ends it for good, with its logins, tabs and calls.", bad: true },
};

class Actions extends PageElement {
  static properties = ["session", "user", "action", "problem", "busy"];

  get dialog() {
    return this.querySelector("dialog.ask");
  }

  render() {
    const { session } = this;
    return html`<div class="actions">
      ${session.status === "paused"
        ? html`<button title="Open it again, as it was saved" @click=${() => this._run("resume")}>Resume</button>`
        : html`<button title="Save it, and free what it takes" @click=${() => this._run("pause")}>Pause</button>`}
      <button @click=${() => this.querySelector("sh-share").open()}>Share …</button>
      <details class="menu" @toggle=${this._onToggle} @keydown=${this._onMenuKey} @focusout=${this._onLeave}>
        <summary class="button">More</summary>
        <div class="menu-list">${Object.entries(ACTIONS).map(([name, { title, about, bad }]) => html`
          <button class=${bad ? "danger" : ""} @click=${() => this._ask(name)}><b>${title} …</b><span class="quiet">${about}</span></button>`)}</div>
      </details>
      <dialog class="ask" aria-labelledby="ask-title" @close=${() => { this.action = null; }}>${this._renderDialog(session)}</dialog>
      <sh-share .sessionId=${session.session_id} .user=${this.user}></sh-share>
    </div>`;
  }

  _renderDialog(session) {
    if (!this.action) return nothing;
    const { title, about, button, bad } = ACTIONS[this.action];
    return html`<form class="fields" @submit=${this._submit}>
      <h2 id="ask-title">${title}</h2>
      <p class="cut"><bdi class="who">${nameOf(session)}</bdi></p>
      <p class="quiet">${about}</p>
      ${this._renderFields(session)}
      ${this.problem ? html`<p class="problem" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
      <div class="right"><button type="button" @click=${() => this.dialog.close()}>Cancel</button>
        <button class=${bad ? "danger" : "main"} ?disabled=${this.busy}>${button}</button></div></form>`;
  }

  _renderFields(session) {
    switch (this.action) {
      case "rename": return html`
        <label>Name<input name="name" maxlength="128" .value=${session.name ?? ""} autocomplete="off"></label>
        <label>Purpose<input name="purpose" maxlength="300" .value=${purposeOf(session)} autocomplete="off"></label>`;
      case "extend": return html`
        <label>By<select name="hours">${Object.entries(HOURS).map(([hours, title]) => html`<option value=${hours}>${title}</option>`)}</select></label>
        <p class="quiet">${session.ends_at ? `Unused, it ends ${until(session.ends_at)}.` : "It has no end now."}</p>`;
      case "fork": return html`
        <label>Children<input name="count" type="number" min="1" max="100" value="1" required @input=${() => this._suggest()}></label>
        <label>Names, separated by commas<input name="names" placeholder="none" autocomplete="off"></label>
        <p class="quiet">A copied login is the same login: a site may log out all copies when one renews it.</p>`;
      case "export": return this.user.is_machine_user ? html`
        <label class="check"><input type="checkbox" name="secrets">With logins and other secrets</label>` : nothing;
      case "restart": return html`<fieldset><legend>Services</legend>${(session.services ?? []).map(({ service, status }) => html`
        <label class="check"><input type="checkbox" name="service" value=${service} ?checked=${status === "open"}>${service}
          <span class="quiet">${status}</span></label>`)}</fieldset>`;
      default: return nothing;
    }
  }

  async _ask(action) {
    this.querySelector("details.menu").open = false;
    this.problem = this._taken = null;
    this.action = action;
    await this.updateComplete;
    this.dialog.showModal();
    if (action === "fork" && this.session.name) await this._nameChildren();
  }

  // Names that no session has yet: that of the session, with the next numbers.
  async _nameChildren() {
    const [, name, number] = this.session.name.replaceAll(",", " ").match(/^(.*?)(?:-(\d{1,6}))?$/s);
    this._suggested = "";
    this._base = name.slice(0, 120);
    this._first = number ? Number(number) + 1 : 2;
    try {
      const { sessions } = await get(`/sessions?${new URLSearchParams({ query: name || "-", limit: 200 })}`);
      this._taken = new Set(sessions.map(session => session.name));
    } catch {
      this._taken = new Set();
    }
    this._suggest();
  }

  _suggest() {
    const form = this.dialog.querySelector("form")?.elements;
    // What a person wrote stays.
    if (!form?.names || !this._taken || form.names.value !== this._suggested) return;
    const count = Math.min(100, Math.max(0, Number(form.count.value)));
    const names = [];
    for (let next = this._first; names.length < count; next += 1) {
      if (!this._taken.has(`${this._base}-${next}`)) names.push(`${this._base}-${next}`);
    }
    this._suggested = form.names.value = names.join(", ");
  }

  _onToggle(event) {
    if (event.target.open) event.target.querySelector(".menu-list button").focus();
  }

  _onMenuKey(event) {
    const menu = event.currentTarget;
    if (!menu.open) return;
    const buttons = [...menu.querySelectorAll(".menu-list button")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length].focus();
    } else if (event.key === "Escape") {
      event.preventDefault();
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }

  _onLeave(event) {
    if (!event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
  }

  async _submit(event) {
    event.preventDefault();
    const form = event.target.elements;
    let body;
    try {
      body = this._bodyOf(form);
    } catch (error) {
      this.problem = { message: error.message, recovery: "" };
      return;
    }
    await this._run(this.action, body);
  }

  _bodyOf(form) {
    switch (this.action) {
      case "rename": {
        const body = { name: form.name.value.trim() || null };
        const purpose = form.purpose.value.trim();
        if (purpose !== purposeOf(this.session)) body.metadata = { purpose: purpose || null };
        return body;
      }
      case "extend": return { seconds: 3600 * Number(form.hours.value) };
      case "fork": {
        const names = form.names.value.split(",").map(name => name.trim()).filter(Boolean);
        const count = Number(form.count.value);
        if (names.length && names.length !== count) throw new Error(`Give ${count === 1 ? "one name" : `${count} names`}, or none.`);
        return names.length ? { count, names } : { count };
      }
      case "export": return form.secrets?.checked ? { secrets: true } : {};
      case "restart": {
        const boxes = [...this.querySelectorAll("[name=service]:checked")];
        if (!boxes.length) throw new Error("Choose a service.");
        return { services: boxes.map(box => box.value) };
      }
      default: return { force: true };
    }
  }

  async _run(action, body = {}) {
    this.busy = true;
    try {
      const result = await act(this.session.session_id, action, body);
      this.dialog.close();
      this._tell(NOTES[action]?.(result, this.session));
    } catch (error) {
      if (this.action) this.problem = error;
      else this._tell({ text: `${error.message} ${error.recovery}`, bad: true });
    } finally {
      this.busy = false;
    }
  }

  _tell(note = null) {
    this.dispatchEvent(new CustomEvent("acted", { detail: note }));
  }
}

const NOTES = {
  extend: result => ({ text: result.expires_at ? `Unused, it ends ${until(result.expires_at)} now.` : "It has no end." }),
  fork: result => ({ text: `${plural(result.children.length, "child", "children")} made:`, links: result.children }),
  restart: () => ({ text: "Its services were restarted." }),
  export: (result, session) => {
    download(`${nameOf(session)}.json`, JSON.stringify(result.document, null, 2));
    return { text: "The file is among your downloads." };
  },
};

Actions.define("sh-actions");
