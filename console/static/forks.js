// The parent of a session, its siblings and its children, as a small tree of links.

import { PageElement, html, nothing } from "./render.js";
import { get } from "./api.js";
import { nameOf } from "./format.js";
import { statusTag } from "./overview.js";

class Forks extends PageElement {
  static properties = ["session", "forks", "problem"];

  willUpdate(changed) {
    if (changed.has("session")) this._load(this.session.session_id);
  }

  async _load(id) {
    try {
      this.forks = await get(`/sessions/${encodeURIComponent(id)}/forks`);
      this.problem = null;
    } catch (error) {
      this.problem = error;
    }
  }

  render() {
    if (this.problem) return html`<p class="problem" role="alert">${this.problem.message}</p>`;
    const { forks, session } = this;
    if (!forks) return html`<p class="quiet" aria-busy="true">Loading …</p>`;
    if (!forks.parent_id && !forks.children.length) {
      return html`<p class="quiet">It was not forked, and has no children. Fork it with More, Fork.</p>`;
    }
    const own = html`<li><span class="leaf self" aria-current="true"><b class="cut">${nameOf(session)}</b>${statusTag(session)}<span class="quiet">this one</span></span>
      ${forks.children.length ? html`<ul>${forks.children.map(leaf)}</ul>` : nothing}</li>`;
    const generation = html`<ul>${own}${forks.siblings.map(leaf)}</ul>`;
    return html`<div class="tree">${forks.parent_id ? html`<ul><li>${forks.parent ? link(forks.parent)
      : html`<span class="leaf quiet"><span class="mono cut">${forks.parent_id}</span> deleted</span>`}${generation}</li></ul>` : generation}
      ${forks.more ? html`<p class="quiet">There are more than are shown.</p>` : nothing}</div>`;
  }
}

const link = session => html`<a class="leaf" href="#/s/${session.session_id}"><span class="cut ${session.name ? "" : "mono"}">${nameOf(session)}</span>${statusTag(session)}</a>`;
const leaf = session => html`<li>${link(session)}</li>`;

Forks.define("sh-forks");
