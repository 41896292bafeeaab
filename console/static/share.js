// Shares of a session: a link for one person and some minutes, or a right of a person or a group with an account.

import { PageElement, html, nothing } from "./render.js";
import { get, post, remove } from "./api.js";
import { lasted } from "./format.js";

const LONGEST_MINUTES = 15;
const MAY = { view: "may look", use: "may use it", embed: "sees the picture" };
const KINDS = { link: "anyone with a link, once", subject: "a person", group: "a group" };
const LOOPBACK = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/;
const SPANS = { 3600: "1 hour", 28800: "8 hours", 604800: "7 days", 2592000: "30 days" };

class Share extends PageElement {
  static properties = ["sessionId", "user", "shares", "kind", "address", "problem", "isCopied", "isOpen"];

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._timer);
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.sessionId)}`;
  }

  // The beginning of the address of a link.
  get base() {
    return this.user.public_url ?? location.origin;
  }

  async open() {
    this.address = this.problem = this.shares = null;
    this.kind = "link";
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
    await this._try(async () => {
      this.shares = (await get(`${this.path}/shares`)).shares;
    });
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
      ${this.user.can_share ? this._renderKinds() : nothing}
      <p class="quiet">${this.kind === "link" ? `Makes a link for one person. It works once and ends by itself, at most ${LONGEST_MINUTES} minutes from now.`
        : "They find it at the console and with their agents, under “Shared with you”."}</p>
      ${this.kind === "link" && LOOPBACK.test(new URL(this.base).hostname) ? html`<p class="notice warn"><span>${new URL(this.base).host} is this machine only: the link opens here, and on no other
        machine. For others, set <code>server.public_url</code> to an address that they reach.</span></p>` : nothing}
      ${this.address ? this._renderAddress() : this._renderForm()}
      ${this.problem ? html`<p class="problem" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
      ${this.shares?.length ? html`<h3>Shared with</h3><ul class="links">${this.shares.map(share => html`<li>
        <span>${share.link ? "A link of " : share.group ? "Group " : ""}<bdi class="who">${nameOf(share)}</bdi>
          <span class="quiet">${MAY[share.rights]}${share.link ? share.used ? ", in use" : ", not used yet" : ""},
          ${lasted(Math.max(0, Date.parse(share.expires_at) - Date.now()))} left</span> <bdi class="quiet">${share.issuer ?? ""}</bdi></span>
        <button class="danger" aria-label="Revoke the ${share.link ? "link of" : "share with"} ${nameOf(share)}" @click=${() => this._remove(share)}>Revoke</button></li>`)}</ul>` : nothing}
      <form method="dialog" class="right"><button>Close</button></form></div>`;
  }

  _renderKinds() {
    return html`<fieldset><legend>With</legend>${Object.entries(KINDS).map(([kind, title]) => html`
      <label class="check"><input type="radio" name="kind" value=${kind} .checked=${this.kind === kind} @change=${() => this._choose(kind)}>${title}</label>`)}</fieldset>`;
  }

  _choose(kind) {
    this.kind = kind;
    this.address = this.problem = null;
  }

  _renderRights(title, more) {
    return html`<fieldset><legend>${this.kind === "group" ? "Its members" : "The person"} may</legend>
      <label class="check"><input type="radio" name="rights" value="view" checked>look only</label>
      <label class="check"><input type="radio" name="rights" value="use">${title}</label>${more || nothing}</fieldset>`;
  }

  _renderForm() {
    if (this.kind !== "link") return this._renderShareForm();
    return html`<form class="fields" @submit=${this._share}>
      ${this._renderRights("take control", this.user.can_embed && html`
        <label class="check"><input type="radio" name="rights" value="embed">only see the picture, in a frame of another page</label>`)}
      <label>Minutes<input type="number" name="minutes" min="1" max=${LONGEST_MINUTES} value=${LONGEST_MINUTES} required></label>
      <button class="main">Make a link</button></form>`;
  }

  _renderShareForm() {
    const isGroup = this.kind === "group";
    return html`<form class="fields" @submit=${this._share}>
      <label>${isGroup ? "Name of the group" : "Account of the person, as its issuer names it"}<input name="name" maxlength="255" required autocomplete="off"></label>
      <label>Issuer, if it is another than that of the owner<input name="issuer" maxlength="2048" placeholder="the same" autocomplete="off"></label>
      ${this._renderRights("use it, and take control")}
      <label>For<select name="seconds">${Object.entries(SPANS).map(([seconds, title]) => html`
        <option value=${seconds} ?selected=${seconds === "28800"}>${title}</option>`)}</select></label>
      <button class="main">Share</button></form>`;
  }

  _renderAddress() {
    return html`<label>The link, shown this once<input class="mono" readonly .value=${this.address} @focus=${event => event.target.select()}></label>
      <div class="right"><span role="status" class="good">${this.isCopied ? "Copied" : ""}</span>
        <button @click=${() => { this.address = null; }}>Another link</button><button class="main" @click=${this._copy}>Copy</button></div>`;
  }

  async _share(event) {
    event.preventDefault();
    const form = event.target.elements;
    const isLink = this.kind === "link";
    const body = { [this.kind]: isLink || form.name.value.trim(), rights: form.rights.value,
      expires_in_seconds: isLink ? 60 * Number(form.minutes.value) : Number(form.seconds.value) };
    if (form.issuer?.value.trim()) body.issuer = form.issuer.value.trim();
    this.problem = null;
    this.isCopied = false;
    await this._try(async () => {
      const share = await post(`${this.path}/shares`, body);
      if (isLink) this.address = this.base + share.path;
      else event.target.reset();
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

  async _remove(share) {
    this.problem = null;
    await this._try(() => remove(`${this.path}/shares/${encodeURIComponent(share.id)}`));
    await this._load();
  }
}

const nameOf = share => share.subject ?? share.group ?? share.created_by;

Share.define("sh-share");
