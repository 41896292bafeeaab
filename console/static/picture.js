// The picture of a session's page. It is drawn only while it is on the screen.

import { PageElement, html, nothing } from "./render.js";
import { Frames } from "./frames.js";

const OLD_MILLISECONDS = 5000;
const REASONS = {
  lost: "No connection", gone: "Gone", ended: "Ended", starting: "Loading …", hidden: "Hidden", crashed: "The page crashed",
  dialog: "A dialog is open", unresponsive: "The page does not answer", closed: "Closed", no_page: "No page is open",
};
const CURRENT = new Set(["live", "chooser"]);

class Picture extends PageElement {
  static properties = ["sessionId", "fps", "tab", "alt", "about", "status"];

  constructor() {
    super();
    this.fps = 1;
    this.tab = null;
    this.status = { state: "loading" };
  }

  connectedCallback() {
    super.connectedCallback();
    this._observer = new IntersectionObserver(entries => this._show(entries.at(-1).isIntersecting));
    this._observer.observe(this);
    this._onHide = () => this._show(!document.hidden && this._isShown);
    document.addEventListener("visibilitychange", this._onHide);
    this._timer = setInterval(() => this.requestUpdate(), 1000);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this._observer.disconnect();
    document.removeEventListener("visibilitychange", this._onHide);
    clearInterval(this._timer);
    this._end();
  }

  updated(changed) {
    if ((changed.has("sessionId") || changed.has("tab") || changed.has("fps")) && this._frames) {
      this._end();
      this._begin();
    }
  }

  get canvas() {
    return this.querySelector("canvas");
  }

  _show(isShown) {
    if (!document.hidden) this._isShown = isShown;
    if (isShown && !this._frames) this._begin();
    else if (!isShown && this._frames) this._end();
  }

  _begin() {
    this._frames = new Frames(this.sessionId, {
      fps: this.fps,
      tab: this.tab,
      onFrame: (about, blob) => this._draw(about, blob),
      onState: status => this._note(status),
    });
  }

  // A message without a picture says that the last one is current, or why it may not be.
  _note(status) {
    const at = status.age_seconds == null ? this.status.at : Date.now() - 1000 * status.age_seconds;
    this.status = { ...status, at };
    this.dispatchEvent(new CustomEvent("frame-state", { detail: status }));
  }

  _end() {
    this._frames?.close();
    this._frames = null;
  }

  async _draw(about, blob) {
    // A newer picture that arrived meanwhile wins.
    const order = (this._order = (this._order ?? 0) + 1);
    let image;
    try {
      image = await createImageBitmap(blob);
    } catch {
      return;
    }
    if (order < (this._drawn ?? 0)) return;
    this._drawn = order;
    const canvas = this.canvas;
    if (!canvas) return;
    if (canvas.width !== image.width || canvas.height !== image.height) {
      canvas.width = image.width;
      canvas.height = image.height;
    }
    canvas.getContext("2d").drawImage(image, 0, 0);
    image.close();
    this.about = about;
    this._note(about);
    this.dispatchEvent(new CustomEvent("frame", { detail: about }));
  }

  render() {
    const { state, at, message } = this.status;
    const age = at ? Date.now() - at : 0;
    const isLive = CURRENT.has(state);
    const isOld = isLive && age > OLD_MILLISECONDS;
    const reason = isLive ? "" : REASONS[state] || "Loading …";
    const old = age > OLD_MILLISECONDS ? `Picture is ${Math.round(age / 1000)} s old` : "";
    const words = (!isLive && message) || [reason, old].filter(Boolean).join(" · ");
    return html`<div class="picture ${isLive && !isOld ? "" : "stale"}">
      <canvas width="1280" height="720" role="img" aria-label=${this.alt ?? "Page"}></canvas>
      ${words ? html`<span class="veil">${words}</span>` : nothing}</div>`;
  }
}

Picture.define("sh-picture");
