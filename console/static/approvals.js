// Calls that wait for a person: their arguments as they will be sent, and what was approved for longer.

import { LoadingElement, html, nothing, repeat } from "./render.js";
import { get, post } from "./api.js";
import { ago } from "./format.js";

class Approvals extends LoadingElement {
  static reloadMilliseconds = 2000;
  static properties = ["user", "marked", "waiting", "standing", "seen", "problem", "outage", "busy"];

  connectedCallback() {
    this.seen = new Set();
    this._calls = new Map();
    super.connectedCallback();
  }

  async _load() {
    try {
      const { approvals } = await get("/approvals");
      const listed = new Set(approvals.filter(each => each.state === "pending").map(each => each.id));
      // The list has the newest calls; the link of an error may be to an older one.
      const ids = new Set([...(this.marked ? [this.marked] : []), ...listed]);
      const calls = await Promise.all([...ids].map(id => (listed.has(id) && this._calls.get(id)) || this._read(id)));
      this.waiting = calls.filter(call => call?.state === "pending");
      this._calls = new Map(this.waiting.map(call => [call.id, call]));
      this.standing = approvals.filter(each => each.state === "standing");
      this.outage = null;
    } catch (error) {
      this.outage = error;
    }
  }

  // The arguments may be long, and never change.
  async _read(id) {
    try {
      return await get(`/approvals/${encodeURIComponent(id)}`);
    } catch (error) {
      if (error.status !== 404) throw error;
      return null;
    }
  }

  updated() {
    for (const shown of this.querySelectorAll("pre[data-id]")) this._note(shown);
  }

  // A call can be approved only after its arguments were on the screen to their end.
  _note(shown) {
    const { id } = shown.dataset, isAtEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 2;
    if (shown.clientHeight && isAtEnd && !this.seen.has(id)) this.seen = new Set(this.seen).add(id);
  }

  render() {
    const { waiting, standing } = this, problem = this.problem ?? this.outage;
    const alert = problem ? html`<p class="notice bad" role="alert">${problem.message} ${problem.recovery}</p>` : nothing;
    if (!waiting) return problem ? alert : html`<p class="page quiet" aria-busy="true">Loading …</p>`;
    return html`<div class="page"><h1>Approvals</h1>
      <p class="quiet">Each is for one call with exactly these arguments, once. A line with <code>~</code> continues the one before it.</p>
      ${alert}
      ${waiting.length ? repeat(waiting, each => each.id, each => this._renderCall(each)) : html`<p class="empty">No call waits for a person.</p>`}
      ${standing.length ? html`<h2>Approved for longer</h2>${repeat(standing, each => each.id, each => this._renderStanding(each))}` : nothing}</div>`;
  }

  _renderCall(call) {
    const isSeen = this.seen.has(call.id), isAble = isSeen && !this.busy && this.user.rights !== "view";
    return html`<article class="card fields" aria-current=${call.id === this.marked ? "true" : "false"}>
      <h2><bdi>${call.tool}</bdi> <span class="quiet">${ago(call.created_at)}</span></h2>
      <p class="quiet">In <a href="#/s/${encodeURIComponent(call.session_id)}">${call.session_id}</a> of <bdi>${call.owner}</bdi></p>
      <pre data-id=${call.id} tabindex="0" @scroll=${event => this._note(event.target)}>${call.arguments}</pre>
      ${isSeen ? nothing : html`<p class="quiet">Read the arguments to their end to approve.</p>`}
      <div class="tools"><span class="spacer"></span>
        <button class="danger" ?disabled=${this.busy || this.user.rights === "view"} @click=${() => this._decide(call, "refuse")}>Refuse</button>
        <button ?disabled=${!isAble} @click=${() => this._decide(call, "approve_for_session")}>Always in this session</button>
        <button class="main" ?disabled=${!isAble} @click=${() => this._decide(call, "approve")}>Approve once</button></div></article>`;
  }

  _renderStanding(call) {
    return html`<p class="tools"><b><bdi>${call.tool}</bdi></b> in <a href="#/s/${encodeURIComponent(call.session_id)}">${call.session_id}</a>
      <span class="quiet">until ${new Date(call.ends_at).toLocaleString()}</span>
      <button ?disabled=${this.busy || this.user.rights === "view"} @click=${() => this._decide(call, "refuse")}>End</button></p>`;
  }

  async _decide({ id }, decision) {
    this.busy = true;
    this.problem = null;
    try {
      await post(`/approvals/${encodeURIComponent(id)}`, { decision });
    } catch (error) {
      this.problem = error;
    } finally {
      this.busy = false;
      await this._load();
    }
  }
}

Approvals.define("sh-approvals");
