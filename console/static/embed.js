// The picture of one session and the list of its pages, for a frame in a page of others. Nothing in it acts.

import { PageElement, html, nothing } from "./render.js";
import { embed } from "./api.js";
import "./picture.js";

class Embed extends PageElement {
  static properties = ["sessionId", "tabs", "problem"];

  constructor() {
    super();
    this.tabs = [];
    window.addEventListener("statehold-logout", () => { this.problem = "This view has ended."; });
  }

  async connectedCallback() {
    super.connectedCallback();
    const code = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
    history.replaceState(null, "", location.pathname);
    try {
      this.sessionId = await embed(code);
    } catch (error) {
      this.problem = error.message;
    }
  }

  _note({ detail }) {
    if (detail.tabs) this.tabs = detail.tabs;
    if (detail.width) this.querySelector(".picture").style.aspectRatio = `${detail.width} / ${detail.height}`;
  }

  render() {
    if (this.problem) return html`<main class="center"><div role="alert"><h1>${this.problem}</h1></div></main>`;
    if (!this.sessionId) return html`<main class="center" aria-busy="true"><p class="quiet">Connecting …</p></main>`;
    return html`<main class="embed"><h1 class="skip">Session</h1><sh-picture .sessionId=${this.sessionId} .fps=${10} .alt=${"Page of the session"} @frame=${this._note} @frame-state=${this._note}></sh-picture>
      <ul aria-label="Pages">${this.tabs.map(tab => html`<li class="cut" aria-current=${tab.current ? "page" : nothing}><bdi>${tab.title || tab.url}</bdi></li>`)}</ul></main>`;
  }
}

Embed.define("statehold-embed");
