// Links by which another person sees or controls one session for some minutes.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { get, post, remove } from "./api.js";
import { lasted } from "./format.js";

const LONGEST_MINUTES = 15;

class Share extends LitElement {
  static properties = {
    sessionId: {}, links: { state: true }, address: { state: true }, problem: { state: true }, isCopied: { state: true }, isOpen: { state: true },
  };

  createRenderRoot() {
    return this;
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._timer);
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.sessionId)}/links`;
  }

  async open() {
    this.address = this.problem = this.links = null;
    this.isOpen = true;
    await this.updateComplete;
    this.querySelector("dialog").showModal();
    this._timer = setInterval(() => this._load(), 2000);
    await this._load();
  }

  _onClose() {
    clearInterval(this._timer);
    // The address is shown once.
    this.isOpen = false;
    this.address = null;
  }

  async _load() {
    await this._try(async () => { this.links = (await get(this.path)).links; });
  }

  async _try(work) {
    try {
      await work();
    } catch (error) {
      this.problem = error;
    }
  }

  render() {
    return html`<dialog class="ask wide" aria-labelledby="share-title" @close=${this._onClose}>${this.isOpen ? this._renderDialog() : nothing}</dialog>`;
  }

  _renderDialog() {
    return html`<div class="fields">
      <h2 id="share-title">Share this session</h2>
      <p class="quiet">Makes a link for one person. It works once and ends by itself, at most ${LONGEST_MINUTES} minutes from now.</p>
      ${this.address ? this._renderAddress() : this._renderForm()}
      ${this.problem ? html`<p class="problem" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
      ${this.links?.length ? html`<h3>Links of this session</h3><ul class="links">${this.links.map(link => html`<li>
        <span><b>${link.rights === "control" ? "Control" : "View"}</b> <span class="quiet">${link.used ? "in use" : "not used yet"},
          ${lasted(Math.max(0, Date.parse(link.expires_at) - Date.now()))} left, by ${link.created_by}</span></span>
        <button class="danger" aria-label="Revoke the link to ${link.rights}" @click=${() => this._revoke(link)}>Revoke</button></li>`)}</ul>` : nothing}
      <form method="dialog" class="right"><button>Close</button></form></div>`;
  }

  _renderForm() {
    return html`<form class="fields" @submit=${this._make}>
      <fieldset><legend>The person may</legend>
        <label class="check"><input type="radio" name="rights" value="view" checked>look only</label>
        <label class="check"><input type="radio" name="rights" value="control">take control</label></fieldset>
      <label>Minutes<input type="number" name="minutes" min="1" max=${LONGEST_MINUTES} value=${LONGEST_MINUTES} required></label>
      <button class="main">Make a link</button></form>`;
  }

  _renderAddress() {
    return html`<label>The link, shown this once<input class="mono" readonly .value=${this.address} @focus=${event => event.target.select()}></label>
      <div class="right"><span role="status" class="good">${this.isCopied ? "Copied" : ""}</span>
        <button @click=${() => { this.address = null; }}>Another link</button><button class="main" @click=${this._copy}>Copy</button></div>`;
  }

  async _make(event) {
    event.preventDefault();
    const form = event.target.elements;
    const body = { rights: form.rights.value, seconds: 60 * Number(form.minutes.value) };
    this.problem = null;
    this.isCopied = false;
    await this._try(async () => {
      const link = await post(this.path, body);
      this.address = location.origin + link.path;
      await this._load();
    });
  }

  async _copy() {
    const field = this.querySelector("input[readonly]");
    field.select();
    try {
      await navigator.clipboard.writeText(this.address);
    } catch {
      // Without permission the old way may work.
      document.execCommand("copy");
    }
    this.isCopied = true;
  }

  async _revoke(link) {
    this.problem = null;
    await this._try(() => remove(`${this.path}/${encodeURIComponent(link.id)}`));
    await this._load();
  }
}

customElements.define("sh-share", Share);
