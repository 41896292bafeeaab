// All sessions: tiles of those with a live picture, rows of the rest.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { repeat } from "./vendor/lit/directives/repeat.js";
import { ago, driverOf, hasPicture, nameOf, purposeOf } from "./format.js";
import { icon } from "./icons.js";
import "./thumbnail.js";

const STATUSES = ["", "active", "idle", "paused", "error", "closed"];
const ORDERS = { used: "Used last", name: "Name", created: "Newest" };

class Overview extends LitElement {
  static properties = { sessions: {}, browsers: {} };

  constructor() {
    super();
    this._onChange = () => this.requestUpdate();
  }

  createRenderRoot() {
    return this;
  }

  connectedCallback() {
    super.connectedCallback();
    this.sessions.addEventListener("change", this._onChange);
    // Times like "3 min ago" grow old.
    this._timer = setInterval(() => this.requestUpdate(), 5000);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.sessions.removeEventListener("change", this._onChange);
    clearInterval(this._timer);
  }

  get sorted() {
    const waiting = session => (session.control?.driver === "requested" ? 0 : 1);
    return this.sessions.all.sort((a, b) => waiting(a) - waiting(b));
  }

  render() {
    const { state, error, query } = this.sessions;
    const all = this.sorted;
    const tiles = all.filter(session => hasPicture(session, this.browsers));
    const rows = all.filter(session => !hasPicture(session, this.browsers));
    return html`<div class="page ${state === "lost" ? "stale" : ""}">
      <div class="tools" role="search">
        <h1>Sessions <span class="count">${this.sessions.total?.toLocaleString("en") ?? ""}</span></h1>
        <span class="spacer"></span>
        <input type="search" placeholder="Search" aria-label="Search" .value=${query.query}
          @input=${event => this._find({ query: event.target.value })}>
        <select aria-label="Status" @change=${event => this._find({ status: event.target.value })}>${STATUSES.map(status => html`
          <option value=${status} ?selected=${query.status === status}>${status || "All open"}</option>`)}</select>
        <select aria-label="Order" @change=${event => this._find({ sort: event.target.value })}>${Object.entries(ORDERS).map(([key, title]) => html`
          <option value=${key} ?selected=${query.sort === key}>${title}</option>`)}</select>
      </div>
      ${state === "failed" ? html`<p class="notice bad" role="alert"><span>${error.message} ${error.recovery} It is tried again; if it stays away, run <code>statehold console</code>.</span>
        <button @click=${() => this.sessions.load()}>Try now</button></p>` : nothing}
      ${state === "loading" ? html`<div class="tiles" aria-busy="true">${[1, 2, 3].map(() => html`<div class="tile ghost"></div>`)}</div>` : nothing}
      ${state === "live" && !all.length ? this._renderEmpty() : nothing}
      ${tiles.length ? html`<div class="tiles">${repeat(tiles, session => session.session_id, tile)}</div>` : nothing}
      ${rows.length ? this._renderRows(rows) : nothing}
      ${this._renderPages()}
      ${this._renderShared(this.sessions.shared.filter(session => session.status !== "closed"))}
    </div>`;
  }

  _renderPages() {
    const { first, byId, hasNext, hasPrevious } = this.sessions;
    if (!hasNext && !hasPrevious) return nothing;
    return html`<nav class="pages" aria-label="Pages of the list">
      <button ?disabled=${!hasPrevious} @click=${() => this._turn(-1)}>← Previous</button>
      <span class="quiet nowrap">${first}–${first + Math.max(0, byId.size - 1)}</span>
      <button ?disabled=${!hasNext} @click=${() => this._turn(1)}>Next →</button></nav>`;
  }

  async _turn(step) {
    await this.sessions.turn(step);
    scrollTo(0, 0);
  }

  _renderEmpty() {
    const { query, status } = this.sessions.query;
    if (query || status) {
      return html`<p class="empty">No session fits.
        <button @click=${() => this._find({ query: "", status: "" })}>Show all</button></p>`;
    }
    return html`<div class="empty"><h2>No sessions yet</h2>
      <p>An agent makes one with <code>session_create</code>, a shell with <code>statehold call work TOOL</code>.</p></div>`;
  }

  _renderRows(rows) {
    return html`<div class="scroll"><table class="rows"><thead><tr>
      <th scope="col">Session</th><th scope="col">Status</th><th scope="col">Driver</th><th scope="col" class="roomy">Services</th>
      <th scope="col">Used</th></tr></thead>
      <tbody>${repeat(rows, session => session.session_id, session => html`<tr>
        <td><a class=${session.name ? "" : "mono"} href="#/s/${session.session_id}">${nameOf(session)}</a><div class="quiet cut">${purposeOf(session)}</div></td>
        <td>${statusTag(session)}</td><td>${driverTag(session)}</td>
        <td class="cut roomy">${servicesOf(session)}</td>
        <td class="nowrap">${ago(session.used_at)}</td></tr>`)}</tbody></table></div>`;
  }

  _renderShared(shared) {
    if (!shared.length) return nothing;
    return html`<h2>Shared with you</h2><div class="scroll"><table class="rows"><thead><tr>
      <th scope="col">Session</th><th scope="col">Status</th><th scope="col">Owner</th><th scope="col" class="roomy">You may</th>
      <th scope="col">Used</th></tr></thead>
      <tbody>${repeat(shared, session => session.session_id, session => html`<tr>
        <td><a class=${session.name ? "" : "mono"} href="#/s/${session.session_id}">${nameOf(session)}</a><div class="quiet cut">${purposeOf(session)}</div></td>
        <td>${statusTag(session)}</td><td class="cut">${session.owner.subject}</td>
        <td class="roomy">${session.rights === "use" ? "use it" : "look only"}</td>
        <td class="nowrap">${ago(session.used_at)}</td></tr>`)}</tbody></table></div>`;
  }

  _find(query) {
    Object.assign(this.sessions.query, query);
    clearTimeout(this._search);
    this._search = setTimeout(() => this.sessions.find({}), "query" in query ? 250 : 0);
    this.requestUpdate();
  }
}

const servicesOf = session => (session.services ?? []).map(service => service.service ?? service).join(", ");

export const statusTag = session => html`<span class="state ${session.status}">${icon(session.status)}${session.status}</span>`;

export function driverTag(session, user) {
  const driver = driverOf(session, user);
  return html`<span class="driver ${driver.kind}">${icon(driver.kind)}${driver.text}</span>`;
}

const tile = session => html`<a class="tile ${driverOf(session).kind}" href="#/s/${session.session_id}">
  <sh-thumbnail .sessionId=${session.session_id} .alt="Page of ${nameOf(session)}"></sh-thumbnail>
  <div class="caption">
    <b class="cut">${nameOf(session)}</b>${statusTag(session)}
    <span class="quiet cut wide">${session.control?.driver === "requested" ? session.control.reason : purposeOf(session) || " "}</span>
    ${driverTag(session)}<span class="quiet">${ago(session.used_at)}</span>
  </div></a>`;

customElements.define("sh-overview", Overview);
