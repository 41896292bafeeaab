// The sessions of all owners, for operators: without their content, and with a button that closes one.

import { PageElement, html, nothing, repeat } from "./render.js";
import { get, post } from "./api.js";
import { ago, bytes } from "./format.js";
import { statusTag } from "./overview.js";
import { ORDERS, STATUSES } from "./sessions.js";

const LIMIT = 60;
const RELOAD_MILLISECONDS = 4000;
const DRIVERS = { agent: "Agent", human: "Person", requested: "Asks for a person" };

class Operator extends PageElement {
  static properties = ["sessions", "closing", "problem", "busy"];

  constructor() {
    super();
    this._onAddress = () => location.hash.startsWith("#/operator") && this._follow();
  }

  // Show what the address says, from the first page.
  _follow() {
    this._cursors = [null];
    const words = new URLSearchParams(location.hash.split("?")[1]);
    this._status = STATUSES.includes(words.get("status")) ? words.get("status") : "";
    this._sort = isOrder(words.get("sort")) ? words.get("sort") : "used";
    this._load();
  }

  connectedCallback() {
    super.connectedCallback();
    window.addEventListener("hashchange", this._onAddress);
    this._follow();
    this._timer = setInterval(() => document.hidden || this._load(), RELOAD_MILLISECONDS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    window.removeEventListener("hashchange", this._onAddress);
    clearInterval(this._timer);
  }

  async _load() {
    const order = (this._order = (this._order ?? 0) + 1);
    const words = new URLSearchParams({ limit: LIMIT, sort: this._sort });
    if (this._status) words.set("status", this._status);
    if (this._cursors.at(-1)) words.set("cursor", this._cursors.at(-1));
    try {
      const page = await get(`/operator/sessions?${words}`);
      if (order !== this._order) return;
      this._next = page.next_cursor;
      this.sessions = page.sessions;
      if (!this.closing) this.problem = null;
    } catch (error) {
      if (order === this._order) this.problem = error;
    }
  }

  render() {
    const problem = this.problem && !this.closing
      ? html`<p class="notice bad" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing;
    return html`<div class="page">
      <div class="tools"><h1>Sessions of all owners</h1><span class="spacer"></span>
        <select aria-label="Status" @change=${event => this._find({ _status: event.target.value })}>${["", ...STATUSES].map(status => html`
          <option value=${status} .selected=${this._status === status}>${status || "All open"}</option>`)}</select>
        <select aria-label="Order" @change=${event => this._find({ _sort: event.target.value })}>${Object.entries(ORDERS).filter(([key]) => isOrder(key)).map(([key, title]) => html`
          <option value=${key} .selected=${this._sort === key}>${title}</option>`)}</select></div>
      <p class="quiet">An operator sees no names, pages, states or histories. The audit log, where it is on, has what an operator does here.</p>
      ${problem}
      ${this.sessions ? this._renderTable() : html`<p class="quiet" aria-busy="true">Loading …</p>`}
      ${this._next || this._cursors.length > 1 ? html`<nav class="pages" aria-label="Pages of the list">
        <button ?disabled=${this._cursors.length === 1} @click=${() => this._turn(-1)}>← Previous</button>
        <button ?disabled=${!this._next} @click=${() => this._turn(1)}>Next →</button></nav>` : nothing}
      <dialog class="ask" aria-labelledby="close-title" @close=${() => { this.closing = null; }}>${this.closing ? this._renderDialog() : nothing}</dialog>
    </div>`;
  }

  _renderTable() {
    if (!this.sessions.length) return html`<p class="empty">${this._status ? "No session has this status." : "No session is open."}</p>`;
    return html`<div class="scroll"><table class="rows"><thead><tr>
      <th scope="col">Owner</th><th scope="col">Status</th><th scope="col" class="roomy">Driver</th>
      <th scope="col" class="roomy">Services</th><th scope="col" class="roomy">Stored</th><th scope="col" class="place">Process</th>
      <th scope="col" class="roomy">Used</th><th scope="col"><span class="skip">Close</span></th></tr></thead>
      <tbody>${repeat(this.sessions, session => session.session_id, session => html`<tr>
        <td class="owner"><b>${session.owner.subject || "The machine's user"}</b><div class="quiet cut">${session.owner.issuer}</div>
          <div class="quiet mono cut">${session.session_id}</div></td>
        <td>${statusTag(session)}</td><td class="roomy">${DRIVERS[session.driver] ?? session.driver}</td>
        <td class="cut roomy">${session.services.join(", ")}</td><td class="nowrap roomy">${bytes(session.stored_bytes)}</td>
        <td class="cut place">${session.open_in ?? ""}</td><td class="nowrap roomy">${ago(session.used_at)}</td>
        <td class="nowrap"><button class="danger" aria-label="Close ${session.session_id} of ${session.owner.subject}"
          @click=${() => this._ask(session)}>Close …</button></td></tr>`)}</tbody></table></div>`;
  }

  _renderDialog() {
    const { owner, session_id } = this.closing;
    return html`<form class="fields" @submit=${this._close}>
      <h2 id="close-title">Close a session of another owner</h2>
      <p><bdi class="who">${owner.subject || "the machine's user"}</bdi></p>
      <p class="quiet">Ends <span class="mono">${session_id}</span> for good, with its logins, tabs and calls. Its owner reads that an operator closed it.</p>
      ${this.problem ? html`<p class="problem" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
      <div class="right"><button type="button" @click=${() => this.querySelector("dialog").close()}>Cancel</button>
        <button class="danger" ?disabled=${this.busy}>Close it</button></div></form>`;
  }

  async _ask(session) {
    this.closing = session;
    this.problem = null;
    await this.updateComplete;
    this.querySelector("dialog").showModal();
  }

  async _close(event) {
    event.preventDefault();
    this.busy = true;
    this.problem = null;
    try {
      await post(`/operator/sessions/${encodeURIComponent(this.closing.session_id)}/close`);
      this.querySelector("dialog").close();
      await this._load();
    } catch (error) {
      this.problem = error;
    } finally {
      this.busy = false;
    }
  }

  // Begin again at the first page. The address keeps the choice.
  _find(choice) {
    Object.assign(this, choice);
    const words = new URLSearchParams();
    if (this._status) words.set("status", this._status);
    if (this._sort !== "used") words.set("sort", this._sort);
    history.replaceState(null, "", words.size ? `#/operator?${words}` : "#/operator");
    this._cursors = [null];
    this._load();
  }

  _turn(step) {
    if (step > 0) this._cursors.push(this._next);
    else this._cursors.pop();
    this._load();
    scrollTo(0, 0);
  }
}

// A name is content of a session, so there is no order by names.
const isOrder = key => Object.hasOwn(ORDERS, key ?? "") && !key.endsWith("name");

Operator.define("sh-operator");
