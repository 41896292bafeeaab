// The bar below the list with what a person can do to the sessions that it chose, and the dialog that asks first.

import { PageElement, html, nothing } from "./render.js";
import { act } from "./api.js";
import { nameOf, plural } from "./format.js";

// Requests at once. A browser has six connections to a server.
const AT_ONCE = 3;
const ACTIONS = {
  pause: { title: "Pause", busy: "Pausing", about: "Saves them and frees what they take. The next call of each resumes it.", body: {} },
  close: { title: "Close", busy: "Closing", about: "Ends them for good, with their logins, tabs and calls.", body: { force: true }, bad: true },
};

class Choice extends PageElement {
  static properties = ["sessions", "shown", "action", "targets", "done", "failures", "busy"];

  render() {
    const { chosen } = this.sessions;
    const isAll = this.shown.every(session => chosen.has(session.session_id));
    return html`${chosen.size ? html`<section class="choice" aria-label="Chosen sessions">
        <b role="status">${chosen.size} chosen</b>
        ${isAll ? nothing : html`<button class="plain" @click=${() => this._all()}>All ${this.shown.length} on this page</button>`}
        <button class="plain" @click=${() => this._clear()}>None</button><span class="spacer"></span>
        <button @click=${() => this._ask("pause")}>Pause …</button>
        <button class="danger" @click=${() => this._ask("close")}>Close …</button></section>` : nothing}
      <dialog class="ask" aria-labelledby="choice-title" @close=${() => this._onClose()} @cancel=${event => this.busy && event.preventDefault()}>
        ${this.action ? this._renderDialog() : nothing}</dialog>`;
  }

  _renderDialog() {
    const { title, about, busy, bad } = ACTIONS[this.action];
    const { targets, failures } = this;
    return html`<form class="fields" @submit=${this._submit}>
      <h2 id="choice-title">${title} ${plural(targets.length, "session")}</h2>
      <p class="quiet">${about}</p>
      <ul class="names" tabindex="0" aria-label="Sessions">${targets.map(session => html`<li><span class="cut ${session.name ? "" : "mono"}" title=${nameOf(session)}>${nameOf(session)}</span>
        ${failures.has(session.session_id) ? html`<span class="problem">${failures.get(session.session_id)}</span>` : nothing}</li>`)}</ul>
      ${failures.size ? html`<p class="problem" role="alert">${plural(failures.size, "session")} could not be changed.</p>` : nothing}
      <div class="right"><span class="quiet" role="status">${this.busy ? `${busy} ${this.done} of ${targets.length}` : ""}</span>
        <button type="button" ?disabled=${this.busy} @click=${() => this._dialog.close()}>Cancel</button>
        <button class=${bad ? "danger" : "main"} ?disabled=${this.busy || !targets.length}>${failures.size ? "Try again" : `${title} ${targets.length > 1 ? "them" : "it"}`}</button></div></form>`;
  }

  get _dialog() {
    return this.querySelector("dialog");
  }

  _all() {
    for (const session of this.shown) this.sessions.choose(session, true);
  }

  _clear() {
    this.sessions.chosen.clear();
    this.sessions.dispatchEvent(new Event("change"));
    document.querySelector("#content").focus();
  }

  async _ask(action) {
    const isFor = session => action !== "pause" || session.status !== "paused";
    this.targets = [...this.sessions.chosen.values()].filter(isFor);
    this.failures = new Map();
    this.done = 0;
    this.action = action;
    await this.updateComplete;
    this._dialog.showModal();
  }

  async _submit(event) {
    event.preventDefault();
    const { action } = this;
    const waiting = [...this.targets];
    const failures = new Map();
    this.busy = true;
    this.done = 0;
    const work = async () => {
      for (let session = waiting.shift(); session; session = waiting.shift()) {
        try {
          await act(session.session_id, action, ACTIONS[action].body);
        } catch (error) {
          // Somebody else may have closed it.
          if (error.status !== 404) failures.set(session.session_id, `${error.message} ${error.recovery}`);
        }
        this.done += 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    this.busy = false;
    this.failures = failures;
    for (const session of this.targets) if (!failures.has(session.session_id)) this.sessions.choose(session, false);
    this.targets = this.targets.filter(session => failures.has(session.session_id));
    this.sessions.load();
    if (!failures.size) this._dialog.close();
  }

  _onClose() {
    this.action = null;
    if (!this.sessions.chosen.size) document.querySelector("#content")?.focus();
  }
}

Choice.define("sh-choice");
