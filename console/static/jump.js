// The jump to a session by some letters of its name.

import { PageElement, html } from "./render.js";
import { get } from "./api.js";
import { fuzzy, nameOf, purposeOf } from "./format.js";
import { icon } from "./icons.js";

const SHOWN = 12;

class Jump extends PageElement {
  static properties = ["sessions", "text", "at", "more"];

  constructor() {
    super();
    this.text = "";
    this.at = 0;
    this.more = [];
  }

  open() {
    this.text = "";
    this.at = 0;
    this.more = [];
    this.querySelector("dialog").showModal();
    this.querySelector("input").value = "";
    this.querySelector("input").focus();
  }

  get found() {
    const scored = this.sessions.all.map(session => [scoreOf(this.text.trim().toLowerCase(), session), session]);
    const near = scored.filter(([score]) => score >= 0).sort((a, b) => a[0] - b[0]).map(pair => pair[1]);
    const ids = new Set(near.map(session => session.session_id));
    return [...near, ...this.more.filter(session => !ids.has(session.session_id))].slice(0, SHOWN);
  }

  // The page knows some sessions only; the server finds the text in the names and purposes of all.
  _find(text) {
    this.text = text;
    this.at = 0;
    clearTimeout(this._timer);
    if (!text) this.more = [];
    else this._timer = setTimeout(() => this._ask(text), 250);
  }

  async _ask(text) {
    try {
      const { sessions } = await get(`/sessions?${new URLSearchParams({ query: text, limit: SHOWN })}`);
      if (this.text === text) this.more = sessions;
    } catch {
      this.more = [];
    }
  }

  render() {
    const found = this.text === null ? [] : this.found;
    return html`<dialog class="jump" aria-label="Jump to a session" @click=${this._onClick}>
      <input type="search" placeholder="Name, purpose or id" aria-label="Name, purpose or id" role="combobox"
        aria-expanded="true" aria-controls="jump-list" aria-activedescendant="jump-${this.at}"
        @input=${event => this._find(event.target.value)} @keydown=${event => this._onKey(event, found)}>
      <ul id="jump-list" role="listbox" aria-label="Sessions">${found.map((session, number) => html`
        <li id="jump-${number}" role="option" aria-selected=${number === this.at}
          @click=${() => this._go(session)}>
          <span class="state ${session.status}">${icon(session.status)}</span>
          <b class="cut">${nameOf(session)}</b><span class="quiet cut">${purposeOf(session)}</span></li>`)}
        ${found.length ? "" : html`<li role="option" aria-selected="false" class="quiet">No session has these letters.</li>`}
      </ul></dialog>`;
  }

  _onClick(event) {
    if (event.target.localName === "dialog") event.target.close();
  }

  _onKey(event, found) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      this.at = Math.max(0, Math.min(found.length - 1, this.at + step));
    } else if (event.key === "Enter" && found[this.at]) {
      this._go(found[this.at]);
    } else if (event.key === "Escape") {
      // A search field would take the first one to empty itself.
      event.preventDefault();
      this.querySelector("dialog").close();
    }
  }

  _go(session) {
    this.querySelector("dialog").close();
    location.hash = `#/s/${session.session_id}`;
  }
}

// Letters in their order find a name. A purpose has the text itself, and an id begins with it: letters of an id are chance.
function scoreOf(text, session) {
  const name = session.name ?? "";
  const near = fuzzy(text, name);
  if (!text || (near >= 0 && near <= 3 * text.length)) return near < 0 ? 0 : near;
  if (purposeOf(session).toLowerCase().includes(text)) return 3 * text.length + 1;
  return session.session_id.startsWith(text) || (text.length > 2 && session.session_id.startsWith(`sh_${text}`)) ? 3 * text.length + 2 : -1;
}

Jump.define("sh-jump");
