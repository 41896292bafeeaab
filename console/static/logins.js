// Logins at services and websites, and keys: their state, the sessions that have them, and what a person can do. Never a value.

import { LoadingElement, html, nothing, repeat } from "./render.js";
import { get, post, remove } from "./api.js";
import { ago } from "./format.js";
import { takeControl } from "./screen.js";

const KINDS = { oauth: "Service", browser: "Website", key: "Key" };
const STATES = {
  ok: "ready", needs_human: "needs its person", unchecked: "not checked", renewing: "being renewed", absent: "not there", new: "not logged in",
};

class Logins extends LoadingElement {
  static properties = ["user", "marked", "logins", "asking", "problem", "busy"];

  async _load() {
    try {
      this.logins = (await get("/logins")).logins;
      if (!this.asking) this.problem = null;
    } catch (error) {
      this.problem = error;
    }
  }

  render() {
    const problem = this.problem && !this.asking
      ? html`<p class="notice bad" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing;
    return html`<div class="page">
      <div class="tools"><h1>Logins</h1><span class="spacer"></span>
        ${this.user.rights === "view" ? nothing : html`<button @click=${() => this._ask("add_key", { name: "" })}>Add a key …</button>`}</div>
      <p class="quiet">Sessions use them, and nobody sees their values.</p>
      ${problem}
      ${this.logins ? this._renderTable() : html`<p class="quiet" aria-busy="true">Loading …</p>`}
      <dialog class="ask" aria-labelledby="ask-title" @close=${this._onClose}>${this.asking ? this._renderDialog(this.asking) : nothing}</dialog>
    </div>`;
  }

  _renderTable() {
    if (!this.logins.length) return html`<p class="empty">No service of this process asks for a login, no website has one, and none is stored.</p>`;
    return html`<div class="scroll"><table class="rows stack"><thead><tr>
      <th scope="col">Login</th><th scope="col">State</th><th scope="col">Used by</th>
      <th scope="col" class="roomy">Used</th><th scope="col" class="roomy">Ends</th><th scope="col"><span class="skip">Actions</span></th></tr></thead>
      <tbody>${repeat(this.logins, login => login.id, login => html`<tr aria-current=${login.name === this.marked ? "true" : "false"}>
        <td class="main"><b>${login.name}</b>${login.owner ? html` <bdi class="quiet">of ${login.owner}</bdi>` : nothing}
          <div class="quiet cut">${KINDS[login.kind] ?? login.kind}${login.site ? `, ${login.site}` : forOthers(login)}</div></td>
        <td><span class="tag ${login.state === "ok" ? "good" : "warn"}">${STATES[login.state] ?? login.state}</span>
          ${login.reason ? html`<div class="quiet">${login.reason}</div>` : nothing}
          ${login.since ? html`<div class="quiet nowrap">${ago(login.since)}</div>` : nothing}</td>
        <td class="cut">${login.session ? this._renderSession(login.session) : ""}</td>
        <td class="nowrap roomy">${login.used_at ? ago(login.used_at) : ""}</td>
        <td class="nowrap roomy">${login.expires_at ? new Date(login.expires_at).toLocaleString() : ""}</td>
        <td>${this._renderActions(login)}</td></tr>`)}</tbody></table></div>`;
  }

  _renderSession({ session_id, name, owner, is_visible }) {
    const by = owner ? html`<div class="quiet"><bdi>${owner}</bdi></div>` : nothing;
    return is_visible ? html`<a href="#/s/${encodeURIComponent(session_id)}"><bdi>${name ?? session_id}</bdi></a>${by}` : html`<span class="mono">${session_id}</span>`;
  }

  _renderActions(login) {
    const { actions, state, name, command } = login, isNew = state === "absent" || state === "new";
    return html`<div class="actions">
      ${actions.includes("log_in") ? html`<button class=${["ok", "unchecked"].includes(state) ? "" : "main"} aria-label="Log in at ${name}" ?disabled=${this.busy} @click=${() => this._logIn(login)}>${isNew ? "Log in" : "Log in again"}</button>` : nothing}
      ${actions.includes("add_key") ? html`<button class=${state === "ok" ? "" : "main"} aria-label="Add the key ${name}" @click=${() => this._ask("add_key", login)}>${isNew ? "Add the key …" : "Replace …"}</button>` : nothing}
      ${actions.includes("take_back") ? html`<button aria-label="Take back ${name}" ?disabled=${this.busy} @click=${() => this._takeBack(login)}>Take back</button>` : nothing}
      ${!actions.some(action => action !== "forget") && state !== "ok" ? html`<code>${command}</code>` : nothing}
      ${actions.includes("forget") ? html`<button class="danger" aria-label="Forget ${name}" @click=${() => this._ask("forget", login)}>Forget …</button>` : nothing}</div>`;
  }

  _renderDialog({ action, login }) {
    const problem = this.problem ? html`<p class="problem" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing;
    const cancel = html`<button type="button" @click=${() => this.querySelector("dialog").close()}>Cancel</button>`;
    if (action === "forget") {
      return html`<form class="fields" @submit=${event => this._run(event, () => remove(`/logins/${login.id}`))}>
        <h2 id="ask-title">Forget <bdi>${login.name}</bdi></h2>
        <p class="quiet">Sessions lose it within a second. ${login.kind === "key" ? "Its server still takes it." : "Its site may still know it."}</p>
        ${problem}<div class="right">${cancel}<button class="danger" ?disabled=${this.busy}>Forget it</button></div></form>`;
    }
    return html`<form class="fields" autocomplete="off" @submit=${this._addKey}>
      <h2 id="ask-title">Add a key</h2>
      <label>Name, as in <code>\${login:NAME}</code><input name="name" maxlength="128" required autocomplete="off" value=${login.name} ?readonly=${login.name}></label>
      <label>Key<input name="value" type="password" maxlength="65536" required autocomplete="new-password"></label>
      <p class="quiet">It is stored sealed, and shown nowhere. Your sessions use it from their next request on.</p>
      ${problem}<div class="right">${cancel}<button class="main" ?disabled=${this.busy}>Store it</button></div></form>`;
  }

  async _ask(action, login) {
    this.asking = { action, login };
    this.problem = null;
    await this.updateComplete;
    this.querySelector("dialog").showModal();
    this.querySelector("dialog input:not([readonly])")?.focus();
  }

  // The field of a key goes with its dialog.
  _onClose() {
    this.asking = this.problem = null;
  }

  _addKey(event) {
    const { name, value } = event.target.elements;
    const body = { name: name.value.trim(), value: value.value };
    value.value = "";
    return this._run(event, () => post("/logins/keys", body));
  }

  async _run(event, work) {
    event.preventDefault();
    this.busy = true;
    this.problem = null;
    try {
      await work();
      this.querySelector("dialog").close();
      await this._load();
    } catch (error) {
      this.problem = error;
    } finally {
      this.busy = false;
    }
  }

  async _takeBack({ id }) {
    this.busy = true;
    try {
      await post(`/logins/${id}/take-back`);
      await this._load();
    } catch (error) {
      this.problem = error;
    } finally {
      this.busy = false;
    }
  }

  async _logIn({ kind, name: service }) {
    this.busy = true;
    this.problem = null;
    try {
      if (kind === "browser") return await this._logInHere(service);
      // Opened by the click itself: a browser may stop a window that opens later.
      const page = window.open("about:blank", "_blank");
      const { address } = await post("/logins/visits", { service }).catch(error => { page?.close(); throw error; });
      if (page) { page.opener = null; page.location = address; } else location.assign(address);
    } catch (error) {
      this.problem = error;
    } finally {
      this.busy = false;
    }
  }

  // The session asks for its person: with control the page begins at the site, without it has a button.
  async _logInHere(login) {
    const { session_id } = await post("/logins/sessions", { login });
    await takeControl(session_id, this.user).catch(() => {});
    location.hash = `#/s/${encodeURIComponent(session_id)}`;
  }
}

const forOthers = ({ name, services }) => (services.some(service => service !== name) ? ` for ${services.join(", ")}` : "");

Logins.define("sh-logins");
