// The state of a session, and the difference between two of its versions.

import { PageElement, html, nothing } from "./render.js";
import { get } from "./api.js";
import { clock } from "./format.js";

const SEEN = 20;
const SEEN_BYTES = 50000;
const LINES = 2000;
const SIGNS = { added: "+", removed: "−", changed: "~", unknown: "?" };
const MISSING = Symbol("missing");

class State extends PageElement {
  static properties = ["sessionId", "version", "versions", "from", "to", "before", "after", "problem", "isWhole"];

  constructor() {
    super();
    this._seen = new Map();
  }

  willUpdate(changed) {
    if (changed.has("sessionId")) {
      this._seen.clear();
      this.from = this.to = this.versions = this.after = this.before = null;
    }
    if (changed.has("sessionId") || changed.has("version")) this._load();
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.sessionId)}/state`;
  }

  async _load() {
    try {
      const [state, versions] = await Promise.all([get(this.path), get(`${this.path}/versions`)]);
      this._keep(state);
      this.versions = versions;
      await this._compare();
    } catch (error) {
      this.problem = error;
    }
  }

  // Versions that this page saw can be compared, also when no journal has them.
  _keep(state) {
    if (this._seen.has(state.version) || JSON.stringify(state.value).length > SEEN_BYTES) return;
    this._seen.set(state.version, { ...state, at: new Date().toISOString() });
    if (this._seen.size > SEEN) this._seen.delete(this._seen.keys().next().value);
  }

  get known() {
    const known = new Map();
    const { version, earliest, has_first, changes } = this.versions;
    const times = new Map(changes.map(change => [change.version, change]));
    for (let number = version; number >= earliest; number -= 1) known.set(number, times.get(number) ?? {});
    if (has_first) known.set(0, { first: true });
    for (const [number, state] of this._seen) if (!known.get(number)?.at) known.set(number, { ...known.get(number), at: state.at });
    return [...known].sort((a, b) => b[0] - a[0]);
  }

  async _compare() {
    const order = (this._order = (this._order ?? 0) + 1);
    const to = this.to ?? this.versions.version;
    const from = this.from ?? this.known.find(([version]) => version < to)?.[0] ?? null;
    try {
      const [after, before] = await Promise.all([this._read(to), from === null ? null : this._read(from)]);
      if (order !== this._order) return;
      Object.assign(this, { after, before, problem: null });
    } catch (error) {
      this.problem = error;
    }
  }

  async _read(version) {
    const seen = this._seen.get(version);
    return seen ?? get(`${this.path}?version=${version}`);
  }

  render() {
    if (this.problem && !this.after) return html`<p class="problem" role="alert">${this.problem.message} ${this.problem.recovery}</p>`;
    if (!this.after) return html`<p class="quiet" aria-busy="true">Loading …</p>`;
    const { after, before, isWhole } = this;
    const lines = [];
    if (before) write(lines, difference(before.value, after.value, before.unknown, after.unknown), "", 0, isWhole);
    const hasChanges = lines.length > 0;
    if (!before || !hasChanges) write(lines, difference(after.value, after.value, after.unknown, after.unknown), "", 0, true);
    return html`<div class="tools">${this._renderChoice(before, after)}<span class="spacer"></span>
      ${before && hasChanges ? html`<label class="check"><input type="checkbox" .checked=${Boolean(isWhole)}
        @change=${event => { this.isWhole = event.target.checked; }}>All members</label>` : nothing}</div>
      ${this.problem ? html`<p class="problem" role="alert">${this.problem.message}</p>` : nothing}
      ${before && !hasChanges ? html`<p class="quiet">Nothing differs between version ${before.version} and version ${after.version}.</p>` : nothing}
      ${lines.length ? html`<div class="diff" role="group" aria-label="State, member by member">${lines.slice(0, LINES).map(line)}
        ${lines.length > LINES ? html`<p class="quiet">${lines.length - LINES} more lines are not shown.</p>` : nothing}</div>`
        : html`<p class="quiet">The state is empty.</p>`}
      <p class="quiet">${this._renderEnd()}</p>`;
  }

  _renderChoice(before, after) {
    const known = this.known;
    if (known.length < 2) return html`<span>Version ${after.version}</span>`;
    const option = ([version, about], chosen) => html`<option value=${version} ?selected=${version === chosen}>${version}${about.at
      ? `, ${clock(about.at)}` : about.first ? ", as forked" : ""}</option>`;
    return html`<label class="pair">Version <select aria-label="Newer version" @change=${event => this._choose({ to: Number(event.target.value), from: null })}>
        ${known.slice(0, -1).map(each => option(each, after.version))}</select></label>
      <label class="pair">against <select aria-label="Older version" @change=${event => this._choose({ from: Number(event.target.value) })}>
        ${known.filter(([version]) => version < after.version).map(each => option(each, before?.version))}</select></label>`;
  }

  _choose(choice) {
    Object.assign(this, choice);
    // The newest one stays the newest.
    if (this.to === this.versions.version) this.to = null;
    this._compare();
  }

  _renderEnd() {
    const { earliest } = this.versions;
    const first = this.known.at(-1)[0];
    if (earliest === 0 || first === 0) return "The journal leads back to version 0.";
    if (first === 1) return "";
    return `Nothing is known before version ${first}: only changes made in a run are in the journal.`;
  }
}

const line = ({ mark, depth, name, text, old, about }) => html`<div class="member ${mark}" data-depth=${Math.min(depth, 12)}>
  <span class="sign" aria-label=${mark === "same" ? "" : mark}>${SIGNS[mark] ?? ""}</span><span class="value">${name === "" ? nothing : html`<b>${name}</b>: `}${old === undefined
    ? nothing : html`<del>${old}</del> → `}${mark === "removed" ? html`<del>${text}</del>` : mark === "added" ? html`<ins>${text}</ins>` : text}${about
    ? html` <i>(${about})</i>` : nothing}</span></div>`;

const isTree = value => value !== null && typeof value === "object";
const escapeName = name => String(name).replaceAll("~", "~0").replaceAll("/", "~1");

// A node has a mark, and either members or a text. `lost` and `lacking` are the places that are not known before and after.
function difference(before, after, lost, lacking, path = "") {
  const [isLost, isLacking] = [lost.includes(path), lacking.includes(path)];
  if (isLost || isLacking) {
    const known = isLost ? after : before;
    if ((isLost && isLacking) || known === MISSING) return { mark: "unknown", text: "", about: "not known" };
    return { mark: "unknown", text: textOf(known), about: isLost ? "before: not known" : "after: not known" };
  }
  if (before === MISSING || after === MISSING) {
    const mark = before === MISSING ? "added" : "removed";
    return { mark, text: textOf(before === MISSING ? after : before) };
  }
  if (isTree(before) && isTree(after) && Array.isArray(before) === Array.isArray(after)) {
    const names = [...new Set([...Object.keys(after), ...Object.keys(before), ...missing(lost, path), ...missing(lacking, path)])];
    const members = names.map(name => [name, difference(own(before, name), own(after, name), lost, lacking, `${path}/${escapeName(name)}`)]);
    return { mark: members.every(([, node]) => node.mark === "same") ? "same" : "inside", members, isList: Array.isArray(after) };
  }
  const [old, text] = [textOf(before), textOf(after)];
  return old === text ? { mark: "same", text } : { mark: "changed", text, old };
}

// The names of members below a path that neither version has, as nobody knows them.
const missing = (unknown, path) => unknown.filter(each => each.startsWith(`${path}/`))
  .map(each => each.slice(path.length + 1).split("/")[0].replaceAll("~1", "/").replaceAll("~0", "~"));
const own = (value, name) => (Object.hasOwn(value, name) ? value[name] : MISSING);
const textOf = value => JSON.stringify(value);

function write(lines, node, name, depth, isWhole) {
  if (node.mark === "same" && !isWhole) return;
  if (!node.members) {
    lines.push({ ...node, depth, name });
    return;
  }
  const inner = depth + (name === "" ? 0 : 1);
  if (name !== "") {
    const empty = node.isList ? "[]" : "{}";
    lines.push({ mark: "same", depth, name, text: node.members.length ? "" : empty });
  }
  for (const [key, member] of node.members) write(lines, member, key, inner, isWhole);
}

State.define("sh-state");
