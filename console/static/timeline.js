// What happened in a session, the newest first: calls, changes of state, failures always visible, idle time as a line.

import { PageElement, html, nothing, repeat } from "./render.js";
import { get } from "./api.js";
import { clock, day, download, lasted, nameOf, zone } from "./format.js";
import { icon } from "./icons.js";
import { hasPicture, pictureOf, readFiles, resultText } from "./steps.js";
import { KINDS, isFailed, lineOf, sentenceOf, titleOf } from "./words.js";

const IDLE_MILLISECONDS = 60000;
const PAGE = 100;
// Entries, and so rows, that the page has at once.
const MOST = 1000;
const LONGEST = 2000;
const PREVIEW_LONGEST = 600;
const PREVIEW_MILLISECONDS = 250;
// Calls of one tool in a row, from this many on, are one line that opens.
const GROUP = 4;
// Entries that fit a search before older ones wait for a click.
const ENOUGH = 30;
const SEARCH_MILLISECONDS = 250;
// Entries of a download, and of one of its requests.
const DOWNLOADED = 50000;
const DOWNLOAD_PAGE = 500;
const SHOWN = { "": "Everything", failed: "Failures", ...KINDS };

class Timeline extends PageElement {
  static properties = ["session", "sessionId", "entries", "problem", "show", "words", "saved", "preview", "isEnd", "isNewest", "isLoaded"];

  constructor() {
    super();
    this.show = this.words = "";
    this._reset();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this._previewTimer);
    clearTimeout(this._searchTimer);
    this._isGone = true;
  }

  willUpdate(changed) {
    if (changed.has("sessionId") || (changed.has("show") && changed.get("show") !== undefined)) {
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

  async _read(before, limit = PAGE) {
    const words = new URLSearchParams({ limit });
    if (before) words.set("before", before);
    if (this.show === "failed") words.set("failed", "true");
    else if (this.show) words.set("kind", this.show);
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
    await this._searchOn();
  }

  _find(words) {
    clearTimeout(this._searchTimer);
    this._searchTimer = setTimeout(() => {
      this.words = words.trim().toLowerCase();
      this._searchOn();
    }, SEARCH_MILLISECONDS);
  }

  // Read older entries until enough fit the search.
  async _searchOn() {
    const { words } = this;
    while (words && words === this.words && this.isLoaded && !this.isEnd && !this.problem && !this._isGone && this.entries.length < MOST && this.fitting.length < ENOUGH) {
      const before = this.entries.at(-1)?.seq;
      await this._loadOlder();
      if (this.entries.at(-1)?.seq === before) return;
    }
  }

  get fitting() {
    return this.words ? this.entries.filter(entry => searched(entry).includes(this.words)) : this.entries;
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
    const { isNewest, path } = this;
    const entries = (this._shown = this.fitting);
    return html`<section class="timeline" aria-label="Timeline">
      <div class="tools"><h2>Timeline</h2><span class="spacer"></span>
        ${isNewest ? nothing : html`<button @click=${this._loadNewest}>Newest</button>`}
        <input type="search" placeholder="Search" aria-label="Search the timeline" @input=${event => this._find(event.target.value)}>
        <select aria-label="Entries" @change=${event => { this.show = event.target.value; }}>${Object.entries(SHOWN).map(([key, title]) => html`
          <option value=${key} .selected=${this.show === key}>${title}</option>`)}</select></div>
      ${this.problem && !entries.length ? html`<p class="problem" role="alert">${this.problem.message}</p>` : nothing}
      <sh-steps .entries=${entries} .path=${path}></sh-steps>
      ${entries.length ? html`<ol @pointerover=${this._onOver} @pointerleave=${() => this._previewLater(null)} @focusin=${this._onFocus}
        @focusout=${() => this._previewLater(null)} @keydown=${this._onKey}>${repeat(this._groups(), keyOf, group => html`
        ${this._renderGap(group[0])}${group.length < GROUP ? this._renderEntry(group[0]) : this._renderGroup(group)}`)}</ol>` : this._renderEmpty()}
      <div class="tools end">${this.isEnd || !this.entries.length ? nothing : html`<button @click=${this._loadOlder}>Older</button>`}<span class="spacer"></span>
        ${this.entries.length ? html`<span class="quiet" role="status">${this.saved == null ? "Download" : `${this.saved} read …`}</span>
        ${["JSON", "Text"].map(form => html`<button aria-label="Download as ${form}" ?disabled=${this.saved != null} @click=${() => this._download(form)}>${form}</button>`)}` : nothing}</div>
      ${this.preview ? this._renderPreview(this.preview) : nothing}
    </section>`;
  }

  _renderEmpty() {
    if (this.problem) return nothing;
    if (!this.isLoaded) return html`<p class="empty" aria-busy="true">Loading …</p>`;
    if (this.words) return html`<p class="empty">No entry has these words${this.isEnd ? "" : ", as far as they were read"}.</p>`;
    return html`<p class="empty">${EMPTY[this.show] ?? "There is nothing of this kind."}</p>`;
  }

  // Write the entries that the choice shows into a file, the oldest first and each in full.
  async _download(form) {
    this.saved = 0;
    try {
      const found = [];
      for (let page = { isEnd: false }; !page.isEnd && found.length < DOWNLOADED && !this._isGone; this.saved = found.length) {
        page = await this._read(found.at(-1)?.seq, DOWNLOAD_PAGE);
        for (const entry of page.entries) found.push(entry.cut ? { ...entry, ...await get(`${this.path}/timeline/${entry.seq}`), cut: undefined } : entry);
      }
      const entries = found.filter(entry => !this.words || searched(entry).includes(this.words)).reverse();
      const name = `${this.session ? nameOf(this.session) : this.sessionId}-timeline`;
      if (form === "JSON") download(`${name}.json`, JSON.stringify({ session_id: this.sessionId, entries }, null, 2));
      else download(`${name}.txt`, entries.map(rowOf).join(""), "text/plain");
    } catch (error) {
      this.problem = error;
    }
    this.saved = null;
  }

  // Return lists of entries: the calls of one tool that follow each other without failure or pause, else one entry each.
  _groups() {
    const groups = [];
    this._shown.forEach((entry, number) => {
      const newer = this._shown[number - 1];
      const isSame = newer && isPlain(newer) && isPlain(entry) && newer.tool === entry.tool && !this._gapWords(newer, entry).length;
      if (isSame) groups.at(-1).push(entry);
      else groups.push([entry]);
    });
    return groups.flatMap(group => (group.length < GROUP ? group.map(entry => [entry]) : [group]));
  }

  _gapWords(newer, older) {
    const date = day(older.at);
    const isOtherDay = !newer || day(newer.at) !== date;
    const gap = newer && !this.show && !this.words ? Date.parse(newer.at) - Date.parse(older.at) - (older.duration_ms ?? 0) : 0;
    return [gap > IDLE_MILLISECONDS ? `idle for ${lasted(gap)}` : "", isOtherDay ? date : "", newer ? "" : zone(older.at)].filter(Boolean);
  }

  _renderGap(entry) {
    const words = this._gapWords(this._shown[this._shown.indexOf(entry) - 1], entry);
    return words.length ? html`<li class="gap"><span>${words.join(" · ")}</span></li>` : nothing;
  }

  _renderGroup(group) {
    const key = keyOf(group);
    const isOpen = this.openGroups.has(key);
    return html`<li class="group"><details .open=${isOpen} @toggle=${event => this._onGroupToggle(event, key)}>
      <summary>${timeOf(group[0])}
        <span class="what cut" title=${group[0].tool}><b>${sentenceOf(group[0]).verb}</b> <span class="tag">× ${group.length}</span> <span class="quiet">since ${clock(group.at(-1).at)}</span></span>
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
      <summary>${timeOf(entry)}
        ${failed ? html`<span class="bad" aria-label="Failed">${icon("error")}</span>` : nothing}
        <span class="what cut" title=${lineOf(entry)}>${titleOf(entry)}</span>
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
      <b><bdi>${lineOf(entry)}</bdi></b> <span class="quiet">${day(entry.at)}, ${clock(entry.at)}</span>
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
      if (hasPicture(entry)) entry.picture = pictureOf(entry, await readFiles(this.path), this.path);
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

const isPlain = entry => entry.kind === "call" && entry.status === "ok";
// The oldest entry, since newer ones join.
const keyOf = group => group.at(-1).seq;

const durationOf = entry => entry.duration_ms ?? (entry.ended_at ? Date.parse(entry.ended_at) - Date.parse(entry.at) : null);

const EMPTY = { "": "No calls yet. They appear here as they happen.", failed: "Nothing failed." };

const timeOf = entry => html`<time datetime=${entry.at} title="${day(entry.at)}, ${clock(entry.at)} ${zone(entry.at)}">${clock(entry.at)}</time>`;

// All words of an entry, for a search. They are put together once, and again when the entry has ended.
function searched(entry) {
  if (!entry.searched || entry.searched.status !== entry.status) {
    const parts = [entry.tool, entry.service, entry.status, JSON.stringify(entry.arguments), resultText(entry.result), entry.error, entry.content, entry.transition?.cause];
    entry.searched = { status: entry.status, text: [lineOf(entry), ...parts].filter(Boolean).join("\n").toLowerCase() };
  }
  return entry.searched.text;
}

// An entry as a line of a text file.
function rowOf(entry) {
  const failed = isFailed(entry) && entry.kind !== "transition" ? ` [${entry.status}]` : "";
  const time = durationOf(entry) === null ? "" : ` (${lasted(durationOf(entry))})`;
  return `${entry.at}  ${lineOf(entry)}${failed}${time}\n`;
}

function partsOf(entry, longest) {
  const parts = [
    ["Tool", entry.kind === "call" ? entry.tool : null], ["Arguments", entry.arguments && Object.keys(entry.arguments).length ? entry.arguments : null], ["Result", resultText(entry.result)],
    ["Error", entry.error], ["Text", entry.content], ["Cause", entry.transition?.cause],
  ];
  return parts.map(([title, value]) => part(title, value, longest));
}

function part(title, value, longest) {
  if (value === null || value === undefined || value === "") return nothing;
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return html`<h3>${title}</h3><pre>${text.length > longest ? `${text.slice(0, longest)} …` : text}</pre>`;
}

Timeline.define("sh-timeline");
