// One session: picture beside timeline, services, state, log, files, and the actions on it.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { act, get } from "./api.js";
import { ago, bytes, hasPicture, nameOf, purposeOf } from "./format.js";
import { driverTag, statusTag } from "./overview.js";
import "./screen.js";
import "./timeline.js";

const VIEWS = { services: "Services", state: "State", log: "Log", files: "Files" };
const REFRESH_MILLISECONDS = 3000;

class Session extends LitElement {
  static properties = {
    sessionId: {}, user: {}, session: { state: true }, problem: { state: true }, view: { state: true }, detail: { state: true },
    note: { state: true },
  };

  constructor() {
    super();
    this.view = "services";
  }

  createRenderRoot() {
    return this;
  }

  connectedCallback() {
    super.connectedCallback();
    this._timer = setInterval(() => document.hidden || this._load(), REFRESH_MILLISECONDS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._timer);
  }

  willUpdate(changed) {
    if (changed.has("sessionId")) {
      this.session = this.detail = null;
      this._load();
    }
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.sessionId)}`;
  }

  async _load() {
    try {
      const session = await get(this.path);
      const isNew = this.session && session.journal?.at(-1)?.seq !== this.session.journal?.at(-1)?.seq;
      this.session = session;
      this.problem = null;
      if (isNew) this.querySelector("sh-timeline")?.load();
      await this._loadView();
    } catch (error) {
      this.problem = error;
    }
  }

  async _loadView() {
    if (this.view === "services") return;
    const part = { state: "state", log: "stderr", files: "files" }[this.view];
    this.detail = { view: this.view, ...(await get(`${this.path}/${part}`)) };
  }

  render() {
    if (this.problem && !this.session) return this._renderProblem();
    if (!this.session) return html`<p class="page quiet" aria-busy="true">Loading …</p>`;
    const session = this.session;
    return html`<div class="page session">
      <div class="tools">
        <a class="plain back" href="#/" aria-label="All sessions">←</a>
        <div class="title"><h1 class="cut">${nameOf(session)}</h1><span class="quiet cut">${purposeOf(session)}</span></div>
        ${statusTag(session)}${driverTag(session)}
        <span class="spacer"></span>${this._renderActions(session)}
      </div>
      ${this.note ? html`<p class="notice ${this.note.bad ? "bad" : ""}" role=${this.note.bad ? "alert" : "status"}>${this.note.text}
        <button class="plain" @click=${() => { this.note = null; }} aria-label="Close this note">✕</button></p>` : nothing}
      <div class="columns">
        <div class="first">
          ${hasPicture(session, this.user.browsers) ? html`<sh-screen .sessionId=${this.sessionId} .session=${session} .user=${this.user}
            @changed=${() => this._load()}></sh-screen>` : nothing}
          ${this._renderViews(session)}
        </div>
        <sh-timeline .sessionId=${this.sessionId}></sh-timeline>
      </div></div>`;
  }

  _renderProblem() {
    const isGone = this.problem.status === 404;
    return html`<div class="page empty"><h2>${isGone ? "There is no such session" : this.problem.message}</h2>
      <p>${isGone ? "It may have been deleted, or it is another person's." : this.problem.recovery}</p>
      <p><a href="#/">All sessions</a></p></div>`;
  }

  _renderActions(session) {
    if (this.user.rights === "view" || this.user.session_id) return nothing;
    const isOpen = !["closed", "closing"].includes(session.status);
    if (!isOpen) return html`<span class="quiet">closed ${ago(session.closed_at)}${session.reason ? `, ${session.reason}` : ""}</span>`;
    return html`<div class="actions">
      ${session.status === "paused"
        ? html`<button @click=${() => this._act("resume")}>Resume</button>`
        : html`<button @click=${() => this._act("pause")}>Pause</button>`}
      <button @click=${() => this._act("restart")}>Restart</button>
      <button class="danger" @click=${this._askClose}>Close …</button>
      <dialog class="ask" aria-label="Close the session"><h2>Close ${nameOf(session)}?</h2>
        <p>Its logins, tabs and state are gone for good. Calls that run are cancelled.</p>
        <form method="dialog" class="right"><button value="">Keep it</button><button class="danger" value="close"
          @click=${() => this._act("close", { force: true })}>Close it</button></form></dialog>
    </div>`;
  }

  _askClose() {
    this.querySelector("dialog.ask").showModal();
  }

  async _act(action, body = {}) {
    try {
      await act(this.sessionId, action, body);
      this.note = null;
      await this._load();
    } catch (error) {
      this.note = { text: `${error.message} ${error.recovery}`, bad: true };
    }
  }

  _renderViews(session) {
    return html`<div class="views" role="tablist" aria-label="Parts of the session">${Object.entries(VIEWS).map(([view, title]) => html`
      <button role="tab" id="tab-${view}" aria-selected=${this.view === view} aria-controls="view" tabindex=${this.view === view ? 0 : -1}
        @click=${() => this._choose(view)} @keydown=${this._onTabKey}>${title}</button>`)}</div>
      <div id="view" role="tabpanel" aria-labelledby="tab-${this.view}" tabindex="0">${this._renderView(session)}</div>`;
  }

  _onTabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = Object.keys(VIEWS);
    const next = names[(names.indexOf(this.view) + step + names.length) % names.length];
    this._choose(next);
    this.updateComplete.then(() => this.querySelector(`#tab-${next}`).focus());
  }

  _choose(view) {
    this.view = view;
    this.detail = null;
    this._loadView();
  }

  _renderView(session) {
    if (this.view === "services") return servicesTable(session);
    if (this.detail?.view !== this.view) return html`<p class="quiet">Loading …</p>`;
    if (this.view === "state") {
      return html`<p class="quiet">Version ${this.detail.version}</p><pre>${JSON.stringify(this.detail.value, null, 2)}</pre>`;
    }
    if (this.view === "log") {
      const tails = Object.entries(this.detail.stderr ?? {});
      return tails.length ? tails.map(([service, text]) => html`<h3>${service}</h3><pre>${text}</pre>`)
        : html`<p class="quiet">Its programs wrote nothing.</p>`;
    }
    const files = this.detail.files ?? [];
    return files.length ? html`<ul class="files">${files.map(file => html`<li><a download href="/api/v1${this.path}/files/${encodeURIComponent(file.name)}">${file.name}</a>
      <span class="quiet">${bytes(file.size ?? file.bytes)}</span></li>`)}</ul>` : html`<p class="quiet">No files.</p>`;
  }
}

const servicesTable = session => html`<div class="scroll"><table class="rows"><thead><tr><th scope="col">Service</th><th scope="col">Status</th>
  <th scope="col">Process</th><th scope="col">Memory</th><th scope="col">CPU</th></tr></thead><tbody>${(session.services ?? []).map(service => {
  const process = (session.processes ?? []).find(entry => entry.service === service.service) ?? {};
  return html`<tr><td><b>${service.service}</b>${service.last_error ? html`<div class="quiet">${service.last_error}</div>` : nothing}</td>
    <td>${service.status}${service.generation > 1 ? html` <span class="quiet" title="Connections so far">× ${service.generation}</span>` : nothing}</td>
    <td class="mono">${process.pid ?? ""}</td><td class="nowrap">${bytes(process.memory ?? process.memory_bytes)}</td>
    <td>${process.cpu_seconds == null ? "" : `${process.cpu_seconds.toFixed(1)} s`}</td></tr>`;
})}</tbody></table></div>`;

customElements.define("sh-session", Session);
