// One session: picture beside timeline, services, state, log, forks, files, and the actions on it.

import { PageElement, html, nothing } from "./render.js";
import { get } from "./api.js";
import { ago, bytes, hasBrowser, hasPicture, nameOf, ownerOf, purposeOf, until } from "./format.js";
import { driverTag, statusTag } from "./overview.js";
import "./actions.js";
import "./calls.js";
import "./forks.js";
import "./screen.js";
import "./state.js";
import "./timeline.js";

const VIEWS = { services: "Services", state: "State", log: "Log", forks: "Forks", files: "Files" };
const REFRESH_MILLISECONDS = 3000;
const SOON_MILLISECONDS = 100;

class Session extends PageElement {
  static properties = ["sessionId", "user", "sessions", "session", "problem", "view", "detail", "note"];

  connectedCallback() {
    super.connectedCallback();
    this._timer = setInterval(() => document.hidden || this._load(), REFRESH_MILLISECONDS);
    this._onSession = event => event.detail.session_id === this.sessionId && this._loadSoon();
    this.sessions.addEventListener("session", this._onSession);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._timer);
    clearTimeout(this._soon);
    this.sessions.removeEventListener("session", this._onSession);
  }

  willUpdate(changed) {
    if (changed.has("sessionId")) {
      this.session = this.detail = this.view = this.note = this.problem = this._node = null;
      this._load();
    }
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.sessionId)}`;
  }

  // To whom a session is shared, the page is that of a link.
  get viewer() {
    const { user, session } = this;
    if (!session?.access || session.access === "owner") return user;
    return { ...user, is_sharee: true, rights: session.access === "use" ? user.rights : "view" };
  }

  get views() {
    // A link shows one session alone.
    return Object.entries(VIEWS).filter(([view]) => view !== "forks" || !(this.user.session_id || this.viewer.is_sharee));
  }

  _loadSoon() {
    this._soon ??= setTimeout(() => {
      this._soon = null;
      this._load();
    }, SOON_MILLISECONDS);
  }

  async _load() {
    const id = this.sessionId;
    try {
      const session = await get(this.path);
      if (id !== this.sessionId) return;
      const old = this.session;
      this._noteMove(session);
      this.session = session;
      this.view ??= this._firstView(session);
      this.problem = null;
      if (old && session.journal?.at(-1)?.seq !== old.journal?.at(-1)?.seq) this.querySelector("sh-timeline")?.load();
      await this._loadView();
    } catch (error) {
      if (id !== this.sessionId) return;
      // A share has ended.
      if (error.status === 404 && this.viewer.is_sharee) this.session = null;
      this.problem = error;
    }
  }

  // Without a picture the words of its programs come first, then its state.
  _firstView(session) {
    if (hasBrowser(session, this.user.browsers)) return "services";
    return Object.values(session.stderr ?? {}).some(Boolean) ? "log" : "state";
  }

  // Between two processes a session is in none.
  _noteMove({ node, open_in: place }) {
    if (!node) return;
    if (this._node && this._node !== node) this.note = { text: `It moved: it is open in ${place} now.` };
    this._node = node;
  }

  async _loadView() {
    const part = { log: "stderr", files: "files" }[this.view];
    if (!part) return;
    const { view } = this;
    const detail = await get(`${this.path}/${part}`);
    if (view === this.view) this.detail = { view, ...detail };
  }

  render() {
    if (this.problem && !this.session) return this._renderProblem();
    if (!this.session) return html`<p class="page quiet" aria-busy="true">Loading …</p>`;
    const session = this.session;
    const isPictured = hasBrowser(session, this.user.browsers);
    const timeline = html`<sh-timeline .sessionId=${this.sessionId} .session=${session}></sh-timeline>`;
    return html`<div class="page session ${this.problem ? "stale" : ""}">
      <div class="tools head">
        ${this.user.session_id ? nothing : html`<a class="plain back" href=${this.sessions.address} aria-label="All sessions">←</a>`}
        <div class="title"><h1 class="cut ${session.name ? "" : "mono"}" title=${nameOf(session)}>${nameOf(session)}</h1><span class="quiet cut">${purposeOf(session)}</span></div>
        ${statusTag(session)}${isOpen(session) ? driverTag(session, this.user) : nothing}
        <span class="spacer"></span>
        ${this.viewer.is_sharee ? html`<span class="tag">Shared with you${this.viewer.rights === "view" ? ", to look only" : ""}</span>` : nothing}
        ${this.user.rights === "view" || this.user.session_id || this.viewer.is_sharee || !isOpen(session) ? nothing : html`<sh-actions .session=${session} .user=${this.user}
          @acted=${event => this._onActed(event.detail)}></sh-actions>`}
      </div>
      ${this._renderNotices(session)}
      ${session.calls?.length ? html`<sh-calls .session=${session} .user=${this.viewer} @acted=${event => this._onActed(event.detail)}></sh-calls>` : nothing}
      <div class="columns ${isPictured ? "" : "bare"}">
        <div class="first">
          ${isPictured ? html`<sh-screen .sessionId=${this.sessionId} .session=${session} .user=${this.viewer}
            .isOpen=${hasPicture(session, this.user.browsers)} @changed=${() => this._load()}></sh-screen>${this._renderViews(session)}` : timeline}
        </div>
        ${isPictured ? timeline : html`<div class="first">${this._renderViews(session)}</div>`}
      </div></div>`;
  }

  _renderProblem() {
    const isGone = this.problem.status === 404;
    return html`<div class="page empty"><h1>${isGone ? "There is no such session" : this.problem.message}</h1>
      <p>${isGone ? "It may have been deleted, or it is another person's." : this.problem.recovery || "It is tried again. If it stays away, run `statehold console`."}</p>
      ${this.user.session_id ? nothing : html`<p><a href="#/">All sessions</a></p>`}</div>`;
  }

  _renderNotices(session) {
    const { note, problem } = this;
    const owner = isOpen(session) ? ownerOf(session) : "";
    return html`
      ${problem ? html`<p class="notice" role="status"><span><b>${problem.message}</b> What you see may be old. It is tried again; if it stays away, run <code>statehold console</code>.</span></p>` : nothing}
      ${owner ? html`<p class="notice" role="status"><span>${owner === "gone"
        ? html`<b>The process that held this session has ended.</b> The session goes on in another one with its next call; what was saved comes back.`
        : html`<b>The process that holds this session does not answer.</b> This page goes on by itself when it does, or when another one takes the session over.`}</span></p>` : nothing}
      ${session.status === "closed" ? html`<p class="notice" role="status"><span><b>Closed ${since(session.closed_at)}</b>${session.reason ? ` (${session.reason.replaceAll("_", " ")})` : ""}.
        ${session.reason === "login_returned" ? html`Sessions get the login with <code>login_use</code>; <a href="#/logins">Logins</a> shows its state.` : nothing}
        Its timeline and its last state stay${session.ends_at ? ` until they are deleted ${until(session.ends_at)}` : ""}.</span></p>` : nothing}
      ${session.status === "paused" ? html`<p class="notice" role="status"><span><b>Paused ${since(session.since)}.</b> It is saved, and its next call resumes it.</span></p>` : nothing}
      ${note ? html`<p class="notice ${note.bad ? "bad" : ""}" role=${note.bad ? "alert" : "status"}><span>${note.text}
        ${(note.links ?? []).map(child => html` <a href="#/s/${child.session_id}">${nameOf(child)}</a>`)}</span>
        <button class="plain" @click=${() => { this.note = null; }} aria-label="Close this note">✕</button></p>` : nothing}`;
  }

  _onActed(note) {
    this.note = note;
    this._load();
  }

  _renderViews(session) {
    return html`<div class="card parts"><div class="views" role="tablist" aria-label="Parts of the session">${this.views.map(([view, title]) => html`
      <button role="tab" id="tab-${view}" aria-selected=${this.view === view} aria-controls="view" tabindex=${this.view === view ? 0 : -1}
        @click=${() => this._choose(view)} @keydown=${this._onTabKey}>${title}</button>`)}</div>
      <div id="view" role="tabpanel" aria-labelledby="tab-${this.view}" tabindex="0">${this._renderView(session)}</div></div>`;
  }

  _onTabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = this.views.map(([view]) => view);
    const next = names[(names.indexOf(this.view) + step + names.length) % names.length];
    this._choose(next);
    this.updateComplete.then(() => this.querySelector(`#tab-${next}`).focus());
  }

  async _choose(view) {
    this.view = view;
    this.detail = null;
    try {
      await this._loadView();
    } catch (error) {
      this.problem = error;
    }
  }

  _renderView(session) {
    if (this.view === "services") return html`${servicesTable(session)}${facts(session)}`;
    if (this.view === "state") return html`<sh-state .sessionId=${this.sessionId} .version=${session.state_version}></sh-state>`;
    if (this.view === "forks") return html`<sh-forks .session=${session}></sh-forks>`;
    if (this.detail?.view !== this.view) return html`<p class="quiet" aria-busy="true">Loading …</p>`;
    if (this.view === "log") {
      const tails = Object.entries(this.detail.stderr ?? {}).filter(([, text]) => text);
      return tails.length ? tails.map(([service, text]) => html`<h3>${service}, stderr</h3><pre>${text}</pre>`)
        : html`<p class="quiet">Its programs wrote nothing to stderr.</p>`;
    }
    const files = this.detail.files ?? [];
    return files.length ? html`<ul class="files">${files.map(file => html`<li><a class="cut" download href="/api/v1${this.path}/files/${encodeURIComponent(file.name)}">${file.name}</a>
      <span class="quiet nowrap">${bytes(file.bytes)}, ${ago(file.changed_at)}</span></li>`)}</ul>`
      : html`<p class="quiet">No files. Downloads, videos and screenshots appear here.</p>`;
  }
}

const since = time => ago(time).replace(/^now$/, "just now");
const isOpen = session => !["closed", "closing"].includes(session.status);

const facts = session => html`<dl class="facts">${[
  ["Id", html`<span class="mono">${session.session_id}</span>`, "all"], ["Owner", session.owner], ["Open in", session.open_in, "all"],
  ["Created", ago(session.created_at)], ["Used", ago(session.used_at)], [session.status === "closed" ? "Deleted" : "Ends", session.ends_at ? until(session.ends_at) : "never"],
].map(([title, value, width]) => (value ? html`<div class=${width ?? ""}><dt>${title}</dt><dd>${value}</dd></div>` : nothing))}</dl>`;

const servicesTable = session => html`<div class="scroll"><table class="rows"><thead><tr><th scope="col">Service</th><th scope="col">Status</th>
  <th scope="col" class="roomy">Process</th><th scope="col">Memory</th><th scope="col">CPU</th><th scope="col" class="roomy">Last hour</th></tr></thead><tbody>${(session.services ?? []).map(service => {
  const process = (session.processes ?? []).find(entry => entry.service === service.service) ?? {};
  return html`<tr><td><b>${service.service}</b>${service.last_error ? html`<div class="quiet">${service.last_error}</div>` : nothing}</td>
    <td>${service.status}${service.generation > 1 ? html` <span class="quiet" title="Connections so far">× ${service.generation}</span>` : nothing}</td>
    <td class="mono roomy">${process.pid ?? ""}</td><td class="nowrap">${bytes(process.memory_bytes)}</td>
    <td class="nowrap">${process.cpu_seconds == null ? "" : `${process.cpu_seconds.toFixed(1)} s`}</td>
    <td class="roomy">${lastHour(service.last_hour)}</td></tr>`;
})}</tbody></table></div>`;

const lastHour = use => (use?.calls ? html`${use.calls} calls${use.errors ? `, ${use.errors} failed` : ""}${use.restarts ? `, ${use.restarts} restarts` : ""}
  <div class="quiet">p50 ${milliseconds(use.p50_seconds)}, p95 ${milliseconds(use.p95_seconds)}${use.cpu_seconds ? `, CPU ${use.cpu_seconds.toFixed(1)} s` : ""}</div>` : nothing);
const milliseconds = seconds => `${Math.round(seconds * 1000)} ms`;

Session.define("sh-session");
