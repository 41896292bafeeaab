// What happened in a session, the newest first: calls, changes of state, failures always visible, idle time as a line.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { repeat } from "./vendor/lit/directives/repeat.js";
import { get } from "./api.js";
import { clock, day, lasted } from "./format.js";
import { icon } from "./icons.js";

const IDLE_MILLISECONDS = 60000;
const PAGE = 100;
// Entries, and so rows, that the page has at once.
const MOST = 1000;
const LONGEST = 2000;
const PREVIEW_LONGEST = 600;
const PREVIEW_MILLISECONDS = 250;
// A picture that was written later than this after its call belongs to another call.
const PICTURE_MILLISECONDS = 3000;
// Calls of one tool in a row, from this many on, are one line that opens.
const GROUP = 4;
const PICTURE = /[^\s/\\()[\]"'`]+\.(?:png|jpe?g|webp)/gi;

class Timeline extends LitElement {
  static properties = {
    sessionId: {}, entries: { state: true }, problem: { state: true }, failedOnly: { state: true }, preview: { state: true },
    isEnd: { state: true }, isNewest: { state: true }, isLoaded: { state: true },
  };

  constructor() {
    super();
    this.failedOnly = false;
    this._reset();
  }

  createRenderRoot() {
    return this;
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this._previewTimer);
  }

  willUpdate(changed) {
    if (changed.has("sessionId") || (changed.has("failedOnly") && changed.get("failedOnly") !== undefined)) {
      this._reset();
      this.load();
    }
  }

  _reset() {
    this.entries = [];
    this.isNewest = true;
    this.isEnd = this.isLoaded = false;
    this.preview = null;
    this.openGroups = new Set();
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.sessionId)}`;
  }

  async _read(before) {
    const words = new URLSearchParams({ limit: PAGE });
    if (before) words.set("before", before);
    if (this.failedOnly) words.set("failed", "true");
    const page = await get(`${this.path}/timeline?${words}`);
    return { entries: page.entries.reverse(), isEnd: !page.next_before };
  }

  // Load the newest entries. The known ones stay if nothing is missing between.
  async load() {
    if (!this.isNewest) return;
    const order = (this._order = (this._order ?? 0) + 1);
    try {
      const page = await this._read();
      if (order !== this._order) return;
      const newest = this.entries[0]?.seq ?? 0;
      const isJoined = this.entries.length && (page.isEnd || page.entries.some(entry => entry.seq <= newest));
      const last = page.entries.at(-1)?.seq ?? 0;
      const older = isJoined ? this.entries.filter(entry => entry.seq < last) : [];
      const known = new Map(this.entries.map(entry => [entry.seq, entry]));
      // A known entry keeps what was read for it, unless it has ended since.
      const news = page.entries.map(entry => (known.has(entry.seq) && known.get(entry.seq).status === entry.status ? known.get(entry.seq) : entry));
      if (!isJoined) this.isEnd = page.isEnd;
      this.entries = [...news, ...older];
      // What is old goes, so that a page left open does not grow.
      if (this.entries.length > MOST) {
        this.entries.length = MOST;
        this.isEnd = false;
      }
      this.problem = null;
    } catch (error) {
      this.problem = error;
    }
    this.isLoaded = true;
  }

  async _loadOlder() {
    const order = (this._order = (this._order ?? 0) + 1);
    try {
      const page = await this._read(this.entries.at(-1).seq);
      if (order !== this._order) return;
      const entries = [...this.entries, ...page.entries];
      this.isEnd = page.isEnd;
      if (entries.length > MOST) this.isNewest = false;
      this.entries = entries.slice(-MOST);
    } catch (error) {
      this.problem = error;
    }
  }

  _loadNewest() {
    this._reset();
    this.load();
  }

  render() {
    const { entries, isNewest, failedOnly } = this;
    return html`<section class="timeline" aria-label="Timeline">
      <div class="tools"><h2>Timeline</h2><span class="spacer"></span>
        ${isNewest ? nothing : html`<button @click=${this._loadNewest}>Newest</button>`}
        <label class="check"><input type="checkbox" .checked=${failedOnly}
          @change=${event => { this.failedOnly = event.target.checked; }}>Failures only</label></div>
      ${this.problem && !entries.length ? html`<p class="problem" role="alert">${this.problem.message}</p>` : nothing}
      ${entries.length ? html`<ol @pointerover=${this._onOver} @pointerleave=${() => this._previewLater(null)} @focusin=${this._onFocus}
        @focusout=${() => this._previewLater(null)} @keydown=${this._onKey}>${repeat(this._groups(), keyOf, group => html`
        ${this._renderGap(group[0])}${group.length < GROUP ? this._renderEntry(group[0]) : this._renderGroup(group)}`)}</ol>` : this._renderEmpty()}
      ${this.isEnd || !entries.length ? nothing : html`<p class="center"><button @click=${this._loadOlder}>Older</button></p>`}
      ${this.preview ? this._renderPreview(this.preview) : nothing}
    </section>`;
  }

  _renderEmpty() {
    if (this.problem) return nothing;
    if (!this.isLoaded) return html`<p class="empty" aria-busy="true">Loading …</p>`;
    return html`<p class="empty">${this.failedOnly ? "Nothing failed." : "No calls yet. They appear here as they happen."}</p>`;
  }

  // Return lists of entries: the calls of one tool that follow each other without failure or pause, else one entry each.
  _groups() {
    const groups = [];
    this.entries.forEach((entry, number) => {
      const newer = this.entries[number - 1];
      const isSame = newer && isPlain(newer) && isPlain(entry) && newer.tool === entry.tool && !this._gapWords(newer, entry).length;
      if (isSame) groups.at(-1).push(entry);
      else groups.push([entry]);
    });
    return groups.flatMap(group => (group.length < GROUP ? group.map(entry => [entry]) : [group]));
  }

  _gapWords(newer, older) {
    const date = day(older.at);
    const isOtherDay = newer ? day(newer.at) !== date : date !== day(new Date());
    const gap = newer && !this.failedOnly ? Date.parse(newer.at) - Date.parse(older.at) - (older.duration_ms ?? 0) : 0;
    return [gap > IDLE_MILLISECONDS ? `idle for ${lasted(gap)}` : "", isOtherDay ? date : ""].filter(Boolean);
  }

  _renderGap(entry) {
    const words = this._gapWords(this.entries[this.entries.indexOf(entry) - 1], entry);
    return words.length ? html`<li class="gap"><span>${words.join(" · ")}</span></li>` : nothing;
  }

  _renderGroup(group) {
    const key = keyOf(group);
    const isOpen = this.openGroups.has(key);
    return html`<li class="group"><details .open=${isOpen} @toggle=${event => this._onGroupToggle(event, key)}>
      <summary><time datetime=${group[0].at}>${clock(group[0].at)}</time>
        <span class="what cut"><b>${group[0].tool}</b> <span class="tag">× ${group.length}</span> <span class="quiet">since ${clock(group.at(-1).at)}</span></span>
        <span class="quiet nowrap">${lasted(group.reduce((sum, entry) => sum + (entry.duration_ms ?? 0), 0))}</span></summary>
      ${isOpen ? html`<ol>${repeat(group, entry => entry.seq, entry => this._renderEntry(entry))}</ol>` : nothing}</details></li>`;
  }

  _onGroupToggle(event, key) {
    // The toggle of an entry in the group does not bubble, but one that a render causes comes here too.
    this.openGroups[event.target.open ? "add" : "delete"](key);
    this.requestUpdate();
  }

  _renderEntry(entry) {
    const failed = isFailed(entry);
    return html`<li class=${failed ? "failed" : ""} data-seq=${entry.seq}><details @toggle=${event => this._onToggle(entry, event.target.open)}>
      <summary><time datetime=${entry.at}>${clock(entry.at)}</time>
        ${failed ? html`<span class="bad" aria-label="Failed">${icon("error")}</span>` : nothing}
        <span class="what cut">${titleOf(entry)}</span>
        ${failed && entry.kind !== "transition" ? html`<span class="tag bad">${entry.status.replaceAll("_", " ")}</span>` : nothing}
        ${durationOf(entry) === null ? nothing : html`<span class="quiet nowrap">${lasted(durationOf(entry))}</span>`}</summary>
      ${entry.isOpen ? html`${partsOf(entry, LONGEST)}${this._renderPicture(entry)}` : nothing}</details></li>`;
  }

  _onToggle(entry, isOpen) {
    entry.isOpen = isOpen;
    if (isOpen) {
      this._previewLater(null);
      this._complete(entry);
    }
    this.requestUpdate();
  }

  _renderPicture(entry) {
    return entry.picture ? html`<a href=${entry.picture} download><img class="after" src=${entry.picture} alt="The page after ${entry.tool}" @load=${() => this._place()}></a>` : nothing;
  }

  _renderPreview(entry) {
    return html`<div class="preview" role="tooltip" id="preview" @pointerenter=${() => clearTimeout(this._previewTimer)} @pointerleave=${() => this._previewLater(null)}>
      <b>${entry.tool}</b> <span class="quiet">${clock(entry.at)}</span>
      ${partsOf(entry, PREVIEW_LONGEST)}${this._renderPicture(entry)}</div>`;
  }

  _entryAt(target) {
    const item = target.closest?.("li[data-seq]");
    const entry = item && this.entries.find(each => each.seq === Number(item.dataset.seq));
    // What is open shows the same already.
    return entry?.tool && !item.querySelector("details").open ? entry : null;
  }

  _onOver(event) {
    if (event.pointerType !== "touch") this._previewLater(this._entryAt(event.target));
  }

  _onFocus(event) {
    if (event.target.matches(":focus-visible")) this._previewLater(this._entryAt(event.target));
  }

  _onKey(event) {
    if (event.key !== "Escape" || !this.preview) return;
    event.preventDefault();
    clearTimeout(this._previewTimer);
    this.preview = null;
  }

  _previewLater(entry) {
    clearTimeout(this._previewTimer);
    this._previewTimer = setTimeout(() => this._preview(entry), PREVIEW_MILLISECONDS);
  }

  async _preview(entry) {
    this.preview = entry;
    if (!entry) return;
    await this._complete(entry);
    await this.updateComplete;
    this._place();
  }

  _place() {
    const card = this.querySelector(".preview");
    const item = this.preview && this.querySelector(`li[data-seq="${this.preview.seq}"]`);
    if (card && item) place(card, item.getBoundingClientRect());
  }

  // Read what the page of entries left out, and find the picture that the call wrote.
  async _complete(entry) {
    if (entry.isComplete) return;
    entry.isComplete = true;
    try {
      if (entry.cut) Object.assign(entry, await get(`${this.path}/timeline/${entry.seq}`), { cut: null });
      const names = textOf(entry.result)?.match(PICTURE);
      if (names) {
        const end = Date.parse(entry.at) + (entry.duration_ms ?? 0);
        const { files } = await get(`${this.path}/files`);
        const file = files.find(({ name, changed_at }) => names.includes(name)
          && Date.parse(changed_at) >= Date.parse(entry.at) && Date.parse(changed_at) <= end + PICTURE_MILLISECONDS);
        if (file) entry.picture = `/api/v1${this.path}/files/${encodeURIComponent(file.name)}`;
      }
    } catch {
      entry.isComplete = false;
    }
    this.requestUpdate();
  }
}

// Beside the entry if there is room, else below or above it.
function place(card, entry) {
  const { width, height } = card.getBoundingClientRect();
  const fitsLeft = entry.left > width + 28;
  const top = fitsLeft ? entry.top : entry.bottom + 4;
  const isBelow = fitsLeft || top + height < innerHeight;
  card.style.left = `${fitsLeft ? entry.left - width - 20 : Math.max(8, Math.min(entry.left, innerWidth - width - 8))}px`;
  card.style.top = `${Math.max(8, Math.min(isBelow ? top : entry.top - height - 4, innerHeight - height - 8))}px`;
}

const GOOD = new Set(["ok", "started", "input_required", null, undefined]);
const BROKEN = new Set(["connection_lost", "open_failed", "recovery_failed"]);

function isFailed(entry) {
  if (entry.kind === "transition") return BROKEN.has(entry.transition?.event);
  if (entry.kind === "run") return entry.status === "error";
  return entry.kind === "call" && !GOOD.has(entry.status);
}

const isPlain = entry => entry.kind === "call" && entry.status === "ok";
// The oldest entry, since newer ones join.
const keyOf = group => group.at(-1).seq;

const durationOf = entry => entry.duration_ms ?? (entry.ended_at ? Date.parse(entry.ended_at) - Date.parse(entry.at) : null);

function titleOf(entry) {
  const request = entry.transition ?? entry.control ?? {};
  switch (entry.kind) {
    case "call": case "state": return html`<b>${entry.tool}</b> <span class="quiet">${firstArgument(entry.arguments)}</span>`;
    case "transition": return html`<span class="quiet">${String(request.event ?? "").replaceAll("_", " ")}${request.cause ? html`: <bdi>${request.cause}</bdi>` : ""}</span>`;
    case "control": return html`<span class="by-person">${controlWords(entry.status, request)}</span>`;
    case "message": return html`<b>${entry.role}</b> ${String(entry.content ?? "").slice(0, 200)}`;
    case "run": return html`<span class="quiet">run ${entry.run_id}: ${entry.status}</span>`;
    case "compacted": return html`<span class="quiet">older entries, of which only counts are kept</span>`;
    default: return html`<span class="quiet">${entry.kind}</span>`;
  }
}

function controlWords(status, control) {
  // Names and words of people stand after a sentence, never in it.
  const by = name => html` <bdi class="who">${name || "a person"}</bdi>`;
  const link = did => html`${did} a link to ${control.rights}${by(control.by)}`;
  const back = end => html`Handed back: ${end}${by(control.holder)} <bdi>${control.reply}</bdi>`;
  return {
    requested: html`The agent asks for a person: <bdi>${control.reason}</bdi>`, human: html`Took control${by(control.holder)}`,
    done: back("done"), could_not: back("could not do it"),
    expired: "Control ended by itself", revoked: "Control ended: the link was revoked",
    link_created: link("Gave"), link_opened: link("Opened"), link_revoked: link("Revoked"),
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
  return content.map(block => (typeof block === "string" ? block : block?.text ?? block?.uri ?? `[${block?.type}]`)).join("\n") || null;
}

function partsOf(entry, longest) {
  const parts = [
    ["Arguments", entry.arguments && Object.keys(entry.arguments).length ? entry.arguments : null], ["Result", textOf(entry.result)],
    ["Error", entry.error], ["Text", entry.content], ["Cause", entry.transition?.cause],
  ];
  return parts.map(([title, value]) => part(title, value, longest));
}

function part(title, value, longest) {
  if (value === null || value === undefined || value === "") return nothing;
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return html`<h3>${title}</h3><pre>${text.length > longest ? `${text.slice(0, longest)} …` : text}</pre>`;
}

customElements.define("sh-timeline", Timeline);
