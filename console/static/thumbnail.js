// The small picture of a session in a list. A browser has six connections to a server, so pictures take turns at a few.

import { PageElement, html, nothing } from "./render.js";
import { lasted } from "./format.js";
import { Frames } from "./frames.js";

const STREAMS = 3;
const TURN_MILLISECONDS = 1000;
// A turn without any picture ends after this.
const WAIT_MILLISECONDS = 5000;
const OLD_MILLISECONDS = 15000;

const running = new Set();
const waiting = new Set();

function next() {
  for (const one of waiting) {
    if (running.size >= STREAMS) return;
    waiting.delete(one);
    running.add(one);
    one.begin();
  }
}

function leave(one) {
  waiting.delete(one);
  if (running.delete(one)) one.end();
  next();
}

class Thumbnail extends PageElement {
  static properties = ["sessionId", "alt", "words", "drawnAt"];

  constructor() {
    super();
    this.words = "Loading …";
  }

  connectedCallback() {
    super.connectedCallback();
    this._observer = new IntersectionObserver(entries => this._show(entries.at(-1).isIntersecting));
    this._observer.observe(this);
    this._onHide = () => this._show(this._isShown);
    document.addEventListener("visibilitychange", this._onHide);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this._observer.disconnect();
    document.removeEventListener("visibilitychange", this._onHide);
    leave(this);
  }

  _show(isShown) {
    this._isShown = isShown;
    if (!isShown || document.hidden) leave(this);
    else if (!running.has(this)) waiting.add(this);
    next();
  }

  begin() {
    this._order = (this._order ?? 0) + 1;
    this._frames = new Frames(this.sessionId, {
      fps: 1, onFrame: (about, blob) => this._draw(blob, about), onState: status => this._note(status),
    });
    this._timer = setTimeout(() => this._yield(), WAIT_MILLISECONDS);
  }

  end() {
    clearTimeout(this._timer);
    this._frames.close();
    this._frames = null;
  }

  // Whoever waits comes next. Without one the stream goes on.
  _yield() {
    if (!this._frames) return;
    if (!waiting.size) {
      clearTimeout(this._timer);
      this._timer = setTimeout(() => this._yield(), TURN_MILLISECONDS);
      return;
    }
    running.delete(this);
    this.end();
    waiting.add(this);
    next();
  }

  _note(status) {
    // The first picture is on its way.
    if (!this._frames || status.state === "starting") return;
    this.words = ["live", "chooser"].includes(status.state) ? "" : status.message || WORDS[status.state] || "";
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._yield(), TURN_MILLISECONDS);
  }

  async _draw(blob, about) {
    const order = this._order;
    let image;
    try {
      image = await createImageBitmap(blob);
    } catch {
      return;
    }
    const canvas = this.querySelector("canvas");
    if (canvas && order === this._order) {
      Object.assign(canvas, { width: image.width, height: image.height });
      canvas.getContext("2d").drawImage(image, 0, 0);
      this.words = "";
      this.drawnAt = Date.now() - 1000 * (about.age_seconds ?? 0);
    }
    image.close();
    this._note(about);
  }

  render() {
    const age = this.drawnAt ? Date.now() - this.drawnAt : 0;
    const words = this.words || (age > OLD_MILLISECONDS ? `Picture is ${lasted(1000 * Math.round(age / 1000)).replace(".0", "")} old` : "");
    return html`<div class="picture ${words ? "stale" : ""}">
      <canvas width="640" height="360" role="img" aria-label=${this.alt ?? "Page"}></canvas>
      ${words ? html`<span class="veil">${words}</span>` : nothing}</div>`;
  }
}

const WORDS = {
  lost: "No connection", gone: "Gone", ended: "Ended", crashed: "The page crashed", dialog: "A dialog is open",
  unresponsive: "The page does not answer", closed: "Closed", no_page: "No page is open", hidden: "Hidden",
};

Thumbnail.define("sh-thumbnail");
