// What happened in a session, the newest first: calls in groups, idle time as a line, failures always visible.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { repeat } from "./vendor/lit/directives/repeat.js";
import { get } from "./api.js";
import { clock, lasted } from "./format.js";

const IDLE_MILLISECONDS = 60000;
const LONGEST = 2000;

class Timeline extends LitElement {
  static properties = { sessionId: {}, entries: { state: true }, problem: { state: true }, failedOnly: { state: true } };

  constructor() {
    super();
    this.entries = [];
    this.failedOnly = false;
  }

  createRenderRoot() {
    return this;
  }

  willUpdate(changed) {
    if (changed.has("sessionId")) {
      this.entries = [];
      this._isEnd = false;
      this.load();
    }
  }

  // Load the newest entries; those that are known stay.
  async load() {
    try {
      const page = await get(`/sessions/${encodeURIComponent(this.sessionId)}/timeline?limit=100`);
      const known = new Map(this.entries.map(entry => [entry.seq, entry]));
      for (const entry of page.entries) known.set(entry.seq, entry);
      if (!this.entries.length) this._isEnd = !page.next_before;
      this.entries = [...known.values()].sort((a, b) => b.seq - a.seq);
      this.problem = null;
    } catch (error) {
      this.problem = error;
    }
  }

  async _loadOlder() {
    const before = this.entries.at(-1)?.seq;
    const page = await get(`/sessions/${encodeURIComponent(this.sessionId)}/timeline?limit=100&before=${before}`);
    this.entries = [...this.entries, ...page.entries.sort((a, b) => b.seq - a.seq)];
    this._isEnd = !page.next_before;
  }

  render() {
    if (this.problem) return html`<p class="notice bad" role="alert">${this.problem.message}</p>`;
    const shown = this.entries.filter(entry => !this.failedOnly || isFailed(entry));
    return html`<section class="timeline" aria-label="Timeline">
      <div class="tools"><h2>Timeline</h2><span class="spacer"></span>
        <label class="check"><input type="checkbox" .checked=${this.failedOnly}
          @change=${event => { this.failedOnly = event.target.checked; }}>Failures only</label></div>
      ${shown.length ? html`<ol>${repeat(shown, entry => entry.seq, (entry, number) => html`
        ${this._renderGap(shown[number - 1], entry)}${this._renderEntry(entry)}`)}</ol>`
        : html`<p class="empty">${this.failedOnly ? "Nothing failed." : "No calls yet."}</p>`}
      ${this._isEnd || !this.entries.length ? nothing : html`<p class="center"><button @click=${this._loadOlder}>Older</button></p>`}
    </section>`;
  }

  _renderGap(newer, older) {
    if (!newer || this.failedOnly) return nothing;
    const gap = Date.parse(newer.at) - Date.parse(older.at) - (older.duration_ms ?? 0);
    return gap > IDLE_MILLISECONDS ? html`<li class="gap"><span>idle for ${lasted(gap)}</span></li>` : nothing;
  }

  _renderEntry(entry) {
    return html`<li class=${isFailed(entry) ? "failed" : ""}><details>
      <summary><time datetime=${entry.at}>${clock(entry.at)}</time>
        <span class="what cut">${titleOf(entry)}</span>
        ${isFailed(entry) ? html`<span class="tag bad">${entry.status}</span>` : nothing}
        ${entry.duration_ms == null ? nothing : html`<span class="quiet nowrap">${lasted(entry.duration_ms)}</span>`}</summary>
      ${part("Arguments", entry.arguments)}${part("Result", textOf(entry.result))}${part("Error", entry.error)}
    </details></li>`;
  }
}

const GOOD = new Set(["ok", "started", "input_required", null, undefined]);
const isFailed = entry => entry.kind === "call" && !GOOD.has(entry.status);

function titleOf(entry) {
  const request = entry.transition ?? entry.control ?? {};
  switch (entry.kind) {
    case "call": return html`<b>${entry.tool}</b> <span class="quiet">${firstArgument(entry.arguments)}</span>`;
    case "transition": return html`<span class="quiet">${String(request.event ?? "").replaceAll("_", " ")}${request.cause ? `: ${request.cause}` : ""}</span>`;
    case "control": return html`<span class="by-person">${controlWords(entry.status, request)}</span>`;
    case "message": return html`<b>${entry.role}</b> ${String(entry.content ?? "").slice(0, 200)}`;
    default: return html`<span class="quiet">${entry.kind}</span>`;
  }
}

function controlWords(status, control) {
  const who = control.holder || "a person";
  const said = control.reply ? `: “${control.reply}”` : "";
  return {
    requested: `The agent asks for a person: ${control.reason ?? ""}`, human: `${who} took control`,
    done: `${who} handed back: done${said}`, could_not: `${who} handed back: could not do it${said}`,
    expired: "Control ended by itself",
  }[status] ?? status;
}

function firstArgument(args) {
  if (!args || typeof args !== "object") return "";
  const value = args.url ?? args.target ?? args.command ?? args.text ?? Object.values(args)[0];
  return value === undefined ? "" : String(typeof value === "object" ? JSON.stringify(value) : value).slice(0, 120);
}

function textOf(result) {
  if (!result) return null;
  const content = Array.isArray(result.content) ? result.content : [];
  return content.map(block => (typeof block === "string" ? block : block?.text ?? `[${block?.type}]`)).join("\n") || null;
}

function part(title, value) {
  if (value === null || value === undefined || value === "") return nothing;
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return html`<h3>${title}</h3><pre>${text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text}</pre>`;
}

customElements.define("sh-timeline", Timeline);
