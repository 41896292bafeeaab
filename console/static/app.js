// The frame of the page: login, addresses, the bar at the top, the jump to a session.

import { PageElement, html, nothing } from "./render.js";
import { get, login, loginWays, logout, look, whoAmI } from "./api.js";
import { Attention } from "./attention.js";
import { Sessions } from "./sessions.js";
import "./jump.js";
import "./approvals.js";
import "./logins.js";
import "./operator.js";
import "./overview.js";
import { takeControl } from "./screen.js";
import "./services.js";
import "./session.js";

const PAGES = [["", "Sessions"], ["services", "Services"], ["approvals", "Approvals"], ["logins", "Logins"]];
const OPERATOR_PAGES = [...PAGES, ["operator", "All owners"]];
const FAILURES = {
  login_failed: "The login did not succeed. Try it again.",
  revoked: "This account may not use this Statehold; ask its administrator.",
  service_unavailable: "The accounts cannot be checked now. Try again later.",
  store_unavailable: "The server cannot read its store now. Try again later.",
};

class Console extends PageElement {
  static properties = ["user", "route", "problem", "ready", "connection", "ended", "ways", "offer"];

  constructor() {
    super();
    this.sessions = new Sessions();
    this.attention = new Attention(this.sessions, () => this.requestUpdate());
    this.route = [];
    this.connection = "loading";
    this.sessions.addEventListener("change", () => { this.connection = this.sessions.state; });
    window.addEventListener("hashchange", () => this._go());
    window.addEventListener("statehold-logout", () => this._expire());
    window.addEventListener("keydown", event => this._onKey(event));
  }

  async connectedCallback() {
    super.connectedCallback();
    // What begins with a slash is a page, and no login.
    const words = new URLSearchParams(location.hash.startsWith("#/") ? "" : location.hash.slice(1));
    const code = words.get("code");
    if (words.has("failed")) {
      this.problem = { message: FAILURES[words.get("failed")] ?? FAILURES.login_failed };
      history.replaceState(null, "", location.pathname);
    }
    // The code leaves the address before anything else can read it.
    if (code) history.replaceState(null, "", location.pathname + (words.get("at") ? `#/${words.get("at")}` : ""));
    this._go();
    if (code) {
      this._isTakeover = words.has("take");
      await this._open(code);
      if (!this.offer) await this._takeOver();
    } else {
      try {
        await this._begin(await whoAmI());
        this._goBack();
      } catch (error) {
        if (error.status !== 401) this.problem = error;
      }
    }
    this._go();
    if (!this.user) await this._findWays();
    this.ready = true;
  }

  async _findWays() {
    try {
      this.ways = await loginWays();
    } catch {
      this.ways = { token: true };
    }
  }

  // The way to the issuer of accounts loses the address of the session that a person wanted.
  _goBack() {
    const wanted = sessionStorage.getItem("wanted");
    sessionStorage.removeItem("wanted");
    if (wanted && !location.hash) location.hash = wanted;
  }

  // Any page can lead here with a code: it replaces no login unasked.
  async _open(code) {
    let problem;
    const found = await look(code).catch(error => { problem = error; return {}; });
    if (found.is_beside === false) return this._login({ code });
    try {
      await this._begin(await whoAmI());
    } catch {
      this.problem = problem;
      return;
    }
    const id = found.session_id;
    if (!problem && !id && this.user.is_machine_user) return;
    const own = id && await get(`/sessions/${id}`).catch(() => null);
    if (own?.access === "owner") location.hash = `#/s/${id}`;
    else this.offer = { code, problem, id, name: found.name };
  }

  // `statehold sessions open` leads here. Any page can lead here too, but has no code of the user of the machine.
  async _takeOver() {
    const [page, id] = this.route;
    if (!this._isTakeover || page !== "s" || !id || this.problem || !this.user?.is_machine_user) return;
    this._isTakeover = false;
    // Without control the page has a button, which says why.
    await takeControl(id, this.user).catch(() => {});
  }

  async _accept({ code, id }) {
    const { user } = this;
    await this._login({ code });
    await this._takeOver();
    this.offer = null;
    if (id && !user.session_id) this.user = user;
  }

  _renderOffer({ problem, id, name }) {
    return html`<main class="center"><div class="card login"><h1>${problem ? "The link does not work" : "Open this link?"}</h1>
      ${problem ? html`<p role="alert">${problem.message}</p>` : html`<p>You come as <bdi class="who">${name}</bdi></p>
      <p class="quiet">${id ? "Its owner sees what you do there." : "Your login ends."}</p>
      <button class="main" @click=${() => this._accept(this.offer)}>Open</button>`}
      <button @click=${() => { this.offer = null; }}>Back</button></div></main>`;
  }

  async _login(secret) {
    this.problem = null;
    try {
      await this._begin(await login(secret));
    } catch (error) {
      this.problem = error;
    }
  }

  async _begin(user) {
    this.user = user;
    this.ended = "";
    if (user.session_id) location.hash = `#/s/${user.session_id}`;
    else await this.sessions.start();
  }

  // The server no longer knows the login.
  _expire() {
    if (!this.user) return;
    this.ended = this.user.session_id ? "This link has ended. Ask for a new one."
      : "Your login has ended, or the server was started again. Log in once more.";
    this._end();
  }

  _end() {
    this.user = null;
    this.sessions.stop();
    if (!this.ways) this._findWays();
  }

  _go() {
    const [path, words] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    const parts = path.split("/");
    // An address with a percent sign that encodes nothing leads to the overview, as other unknown addresses do.
    try {
      this.route = parts.map(decodeURIComponent);
    } catch {
      this.route = [""];
    }
    if (!this.route[0]) this.sessions.follow(new URLSearchParams(words));
  }

  _onKey(event) {
    const isField = event.composedPath()[0].matches?.("input, textarea, select, [data-keys]");
    if (!this.user || isField || event.ctrlKey || event.metaKey || event.altKey) return;
    // Escape closes what is open first, and never leaves a page in which the person has control.
    const isBusy = event.defaultPrevented || this.querySelector("dialog[open], details.menu[open], .preview, .screen.held");
    if (event.key === "/" || event.key === "k") {
      event.preventDefault();
      this.querySelector("sh-jump")?.open();
    } else if (event.key === "Escape" && this.route[0] === "s" && !this.user.session_id && !isBusy) {
      location.hash = this.sessions.address;
    }
  }

  render() {
    if (!this.ready) return html`<main class="center" aria-busy="true"><p class="quiet">Connecting …</p></main>`;
    if (!this.user) return this._renderLogin();
    if (this.offer) return this._renderOffer(this.offer);
    return html`
      <a class="skip" href="#content" @click=${this._skip}>Skip to the content</a>
      <header class="bar">
        <a class="brand" href="#/" aria-label="Statehold"><img src="icon.svg" alt="" width="20" height="20"><span>Statehold</span></a>
        ${this.user.session_id ? nothing : html`
          <nav aria-label="Pages">${(hasRole(this.user) ? OPERATOR_PAGES : PAGES).map(([page, title]) => html`
            <a href="#/${page}" aria-current=${this._isAt(page) ? "page" : "false"}>${title}</a>`)}</nav>
          <button class="plain jump" @click=${() => this.querySelector("sh-jump").open()}>
            Jump<span> to a session</span> <kbd>/</kbd></button>`}
        <span class="spacer"></span>
        <span role="status">${this.attention.render()}${this._renderConnection()}</span>
        ${this.user.rights === "view" ? html`<span class="tag" title="You may look, and not act">View only</span>` : nothing}
        <span class="who cut" title="You">${this.user.name}</span>
        <button class="plain" @click=${this._logout}>Log out</button>
      </header>
      <main id="content" tabindex="-1">${this._renderPage()}</main>
      <sh-jump .sessions=${this.sessions}></sh-jump>`;
  }

  _isAt(page) {
    return page ? this.route[0] === page : !this.route[0] || this.route[0] === "s";
  }

  _renderConnection() {
    if (this.connection === "lost") return html`<span class="tag warn">Connection lost, trying again</span>`;
    return nothing;
  }

  _renderPage() {
    const [page, id] = this.route;
    if (page === "s" && id) {
      return html`<sh-session .sessionId=${id} .user=${this.user} .sessions=${this.sessions}></sh-session>`;
    }
    if (page === "operator" && hasRole(this.user)) return html`<sh-operator></sh-operator>`;
    if (page === "services") return html`<sh-services .user=${this.user}></sh-services>`;
    if (page === "approvals") return html`<sh-approvals .user=${this.user} .marked=${id}></sh-approvals>`;
    if (page === "logins") return html`<sh-logins .user=${this.user} .marked=${id}></sh-logins>`;
    return html`<sh-overview .sessions=${this.sessions} .user=${this.user}></sh-overview>`;
  }

  _renderLogin() {
    const account = this.ways?.account;
    const hasToken = this.ways?.token ?? true;
    return html`<main class="center"><form class="card login" @submit=${this._onSubmit}>
      <img src="icon.svg" alt="" width="36" height="36">
      <h1>Statehold</h1>
      ${this.ended ? html`<p role="status">${this.ended}</p>` : nothing}
      ${this.problem ? html`<p class="problem" role="alert">${this.problem.message}</p>` : nothing}
      ${account ? html`<a class="button main" href=${account.url} @click=${this._leave}>Log in with ${account.name}</a>` : nothing}
      ${account && hasToken ? html`<details><summary>Log in with a token</summary>${this._renderToken(false)}</details>` : nothing}
      ${account || !hasToken ? nothing : this._renderToken(true)}
      <p class="quiet">On this machine, <code>statehold console</code> logs you in${account || hasToken ? ", too" : ""}.</p>
    </form></main>`;
  }

  _renderToken(isMain) {
    return html`<label>Token<input name="token" type="password" autocomplete="off" required ?autofocus=${isMain}></label>
      <button class=${isMain ? "main" : ""}>Log in</button>`;
  }

  _leave() {
    if (location.hash) sessionStorage.setItem("wanted", location.hash);
  }

  async _onSubmit(event) {
    event.preventDefault();
    const field = event.target.elements.token;
    const token = field.value;
    field.value = "";
    await this._login({ token });
  }

  async _logout() {
    try {
      await logout();
    } finally {
      this._end();
    }
  }

  _skip(event) {
    event.preventDefault();
    this.querySelector("#content").focus();
  }
}

// The user of the machine sees the sessions of all owners already.
const hasRole = user => !user.is_machine_user && user.role !== "user" && !user.session_id;

Console.define("statehold-console");
