// Calls that wait for a person: their arguments as they will be sent, and what was approved for longer.

import { PageElement, html, nothing, repeat } from "./render.js";
import { get, post } from "./api.js";
import { ago } from "./format.js";

const RELOAD_MILLISECONDS = 2000;

class Approvals extends PageElement {
  static properties = ["user", "marked", "approvals", "seen", "problem", "busy"];

  connectedCallback() {
    super.connectedCallback();
    this.seen = new Set();
    this._load();
    this._timer = setInterval(() => document.hidden || this._load(), RELOAD_MILLISECONDS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._timer);
  }

  async _load() {
    try {
      this.approvals = (await get("/approvals")).approvals;
    } catch (error) {
      this.problem = error;
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
    if (!this.approvals) return html`<p class="page quiet" aria-busy="true">Loading …</p>`;
    const waiting = this.approvals.filter(each => each.state === "pending");
    const standing = this.approvals.filter(each => each.state === "standing");
    return html`<div class="page"><h1>Approvals</h1>
      <p class="quiet">Each is for one call with exactly these arguments, once. A line with <code>~</code> continues the one before it.</p>
      ${this.problem ? html`<p class="notice bad" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
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
