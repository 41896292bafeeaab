// All sessions: tiles of those with an open page, rows of the rest.

import { PageElement, html, nothing, repeat } from "./render.js";
import "./choice.js";
import { ago, driverOf, hasPicture, nameOf, purposeOf } from "./format.js";
import { icon } from "./icons.js";
import { ORDERS, STATUSES } from "./sessions.js";
import "./thumbnail.js";

class Overview extends PageElement {
  static properties = ["sessions", "user"];

  constructor() {
    super();
    this._onChange = () => this.requestUpdate();
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
    clearTimeout(this._search);
  }

  get sorted() {
    return this.sessions.all.sort((a, b) => isAsking(b) - isAsking(a));
  }

  render() {
    const { state, error, query } = this.sessions;
    const all = this.sorted;
    const tiles = all.filter(session => hasPicture(session, this.user.browsers));
    const rows = all.filter(session => !tiles.includes(session));
    const first = rows.filter(isAsking);
    return html`<div class="page ${state === "lost" ? "stale" : ""}">
      <div class="tools" role="search">
        <h1>Sessions <span class="count">${this.sessions.total?.toLocaleString("en") ?? ""}</span></h1>
        <span class="spacer"></span>
        <input type="search" placeholder="Search" aria-label="Search" maxlength="256" .value=${query.query}
          @input=${event => this._find({ query: event.target.value })}>
        <select aria-label="Status" @change=${event => this._find({ status: event.target.value })}>${["", ...STATUSES].map(status => html`
          <option value=${status} .selected=${query.status === status}>${status || "All open"}</option>`)}</select>
        <select aria-label="Order" @change=${event => this._find({ sort: event.target.value })}>${Object.entries(ORDERS).map(([key, title]) => html`
          <option value=${key} .selected=${query.sort === key}>${title}</option>`)}</select>
      </div>
      ${state === "failed" ? html`<p class="notice bad" role="alert"><span>${error.message} ${error.recovery} It is tried again; if it stays away, run <code>statehold console</code>.</span>
        <button @click=${() => this.sessions.load()}>Try now</button></p>` : nothing}
      ${state === "loading" ? html`<div class="tiles" aria-busy="true">${[1, 2, 3].map(() => html`<div class="tile ghost"></div>`)}</div>` : nothing}
      ${state === "live" && !all.length ? this._renderEmpty() : nothing}
      ${first.length ? this._renderRows(first, "Sessions that ask for a person") : nothing}
      ${tiles.length ? html`<div class="tiles">${repeat(tiles, session => session.session_id, session => this._renderTile(session))}</div>` : nothing}
      ${rows.length > first.length ? this._renderRows(rows.filter(session => !isAsking(session)), "Sessions without an open page") : nothing}
      ${this._renderPages()}
      ${this._renderShared(this.sessions.shared.filter(session => session.status !== "closed"))}
      ${this._mayChoose ? html`<sh-choice .sessions=${this.sessions} .shown=${all.filter(isOpen)}></sh-choice>` : nothing}
    </div>`;
  }

  get _mayChoose() {
    return this.user.rights === "control";
  }

  _renderBox(session) {
    if (!this._mayChoose || !isOpen(session)) return nothing;
    return html`<label class="check choose"><input type="checkbox" aria-label="Choose ${nameOf(session)}"
      .checked=${this.sessions.chosen.has(session.session_id)} @change=${event => this.sessions.choose(session, event.target.checked)}></label>`;
  }

  _renderTile(session) {
    return html`<div class="holder"><a class="tile ${driverOf(session).kind}" href="#/s/${session.session_id}">
      <sh-thumbnail .sessionId=${session.session_id} .alt="Page of ${nameOf(session)}"></sh-thumbnail>
      <div class="caption">
        <b class="cut" title=${nameOf(session)}>${nameOf(session)}</b>${statusTag(session)}
        <span class="quiet cut wide" title=${wordsOf(session)}>${wordsOf(session) || " "}</span>
        ${driverTag(session)}<span class="quiet">${ago(session.used_at)}</span>
      </div></a>${this._renderBox(session)}</div>`;
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

  _renderRows(rows, label) {
    return html`<div class="scroll"><table class="rows" aria-label=${label}><thead><tr>
      ${this._mayChoose ? html`<td class="narrow"></td>` : nothing}${this._renderHeading("name", "Session")}<th scope="col">Status</th>
      <th scope="col" class="roomy">Services</th>${this._renderHeading("created", "Created", "roomy")}${this._renderHeading("used", "Used")}</tr></thead>
      <tbody>${repeat(rows, session => session.session_id, session => html`<tr>
        ${this._mayChoose ? html`<td class="narrow">${this._renderBox(session)}</td>` : nothing}
        <td class="main">${linkTo(session)}<div class="quiet cut" title=${wordsOf(session)}>${driverOf(session).kind === "agent" ? nothing : driverTag(session)} ${wordsOf(session)}</div></td>
        <td>${statusTag(session)}</td>
        <td class="cut roomy">${servicesOf(session)}</td>
        <td class="nowrap roomy">${ago(session.created_at)}</td><td class="nowrap">${ago(session.used_at)}</td></tr>`)}</tbody></table></div>`;
  }

  // A heading sorts by its column, and at the next click the other way round.
  _renderHeading(key, title, width = "") {
    const { sort } = this.sessions.query;
    const isThis = sort.replace("-", "") === key;
    const isAscending = (key === "name") !== sort.startsWith("-");
    return html`<th scope="col" class=${width} aria-sort=${isThis ? (isAscending ? "ascending" : "descending") : "none"}>
      <button class="plain sort" @click=${() => this._find({ sort: sort === key ? `-${key}` : key })}>${title}<span aria-hidden="true">${isThis ? (isAscending ? " ↑" : " ↓") : ""}</span></button></th>`;
  }

  _renderShared(shared) {
    if (!shared.length) return nothing;
    return html`<h2>Shared with you</h2><div class="scroll"><table class="rows"><thead><tr>
      <th scope="col">Session</th><th scope="col">Status</th><th scope="col">Owner</th><th scope="col" class="roomy">You may</th>
      <th scope="col">Used</th></tr></thead>
      <tbody>${repeat(shared, session => session.session_id, session => html`<tr>
        <td class="main">${linkTo(session)}<div class="quiet cut">${purposeOf(session)}</div></td>
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

const isAsking = session => session.control?.driver === "requested";
const isOpen = session => !["closed", "closing"].includes(session.status);
const servicesOf = session => (session.services ?? []).map(service => service.service ?? service).join(", ");
const wordsOf = session => (isAsking(session) ? `${ago(session.control.since)}: ${session.control.reason}` : "") || purposeOf(session);
const linkTo = session => html`<a class="cut ${session.name ? "" : "mono"}" title=${nameOf(session)} href="#/s/${session.session_id}">${nameOf(session)}</a>`;

export const statusTag = session => html`<span class="state ${session.status}">${icon(session.status)}${session.status}</span>`;

export function driverTag(session, user) {
  const driver = driverOf(session, user);
  return html`<span class="driver ${driver.kind}">${icon(driver.kind)}${driver.text}</span>`;
}

Overview.define("sh-overview");
