// The pictures that the calls of a session took, to look at one after the other, the newest first in view.

import { PageElement, html, nothing } from "./render.js";
import { get } from "./api.js";
import { clock, day } from "./format.js";
import { lineOf } from "./words.js";

// A picture that was written later than this after its call belongs to another call.
const LATE_MILLISECONDS = 3000;
const PICTURE = /[^\s/\\()[\]"'`]+\.(?:png|jpe?g|webp)/gi;

export function resultText(result) {
  if (!result) return null;
  const content = Array.isArray(result.content) ? result.content : [];
  return content.map(block => (typeof block === "string" ? block : block?.text ?? block?.uri ?? `[${block?.type}]`)).join("\n") || null;
}

export const hasPicture = entry => entry.kind === "call" && Boolean(resultText(entry.result)?.match(PICTURE));

export const readFiles = async path => (await get(`${path}/files`)).files;

// The address of the picture that a call wrote among the files of its session, undefined if it is no longer there.
export function pictureOf(entry, files, path) {
  const names = resultText(entry.result)?.match(PICTURE) ?? [];
  const begin = Date.parse(entry.at), end = begin + (entry.duration_ms ?? 0) + LATE_MILLISECONDS;
  const file = files.find(({ name, changed_at }) => names.includes(name) && Date.parse(changed_at) >= begin && Date.parse(changed_at) <= end);
  return file && `/api/v1${path}/files/${encodeURIComponent(file.name)}`;
}

class Steps extends PageElement {
  static properties = ["entries", "path", "isOpen", "files", "seq", "problem"];

  willUpdate(changed) {
    if (changed.has("path")) Object.assign(this, { isOpen: false, files: null, seq: null });
    const newest = this.entries.find(hasPicture)?.seq;
    if (this.isOpen && newest !== this._newest) this._load();
    this._newest = newest;
  }

  async _load() {
    const { path } = this;
    try {
      const files = await readFiles(path);
      if (path === this.path) this.files = files;
      this.problem = null;
    } catch (error) {
      this.problem = error;
    }
  }

  get _pictures() {
    // A file that was written again soon is the picture of the later call.
    const addresses = new Set();
    return this.entries.filter(hasPicture).map(entry => ({ entry, address: pictureOf(entry, this.files ?? [], this.path) }))
      .filter(({ address }) => address && !addresses.has(address) && addresses.add(address)).reverse();
  }

  render() {
    if (!this.entries.some(hasPicture)) return nothing;
    return html`<details class="steps" .open=${this.isOpen} @toggle=${event => { this.isOpen = event.target.open; if (this.isOpen) this._load(); }}>
      <summary>Pictures of the steps</summary>${this.isOpen ? this._renderPictures() : nothing}</details>`;
  }

  _renderPictures() {
    if (this.problem) return html`<p class="problem" role="alert">${this.problem.message}</p>`;
    if (!this.files) return html`<p class="quiet" aria-busy="true">Loading …</p>`;
    const pictures = this._pictures;
    if (!pictures.length) return html`<p class="quiet">The files of these calls are no longer there.</p>`;
    // Without a choice the newest is shown, also when there is a newer one.
    const found = pictures.findIndex(({ entry }) => entry.seq === this.seq);
    const at = found < 0 ? pictures.length - 1 : found;
    const { entry, address } = pictures[at];
    const words = `${at + 1} of ${pictures.length}`;
    return html`<a href=${address} download><img class="after" src=${address} alt="The page at ${clock(entry.at)}"></a>
      <div class="scrub"><button aria-label="Picture before" ?disabled=${!at} @click=${() => this._show(pictures, at - 1)}>←</button>
        <input type="range" min="0" max=${pictures.length - 1} .value=${String(at)} aria-label="Picture" aria-valuetext="${words}, ${lineOf(entry)}"
          @input=${event => this._show(pictures, Number(event.target.value))}>
        <button aria-label="Next picture" ?disabled=${at === pictures.length - 1} @click=${() => this._show(pictures, at + 1)}>→</button></div>
      <p class="quiet">${words} · <time datetime=${entry.at} title=${day(entry.at)}>${clock(entry.at)}</time> · <bdi>${lineOf(entry)}</bdi></p>`;
  }

  _show(pictures, at) {
    this.seq = at === pictures.length - 1 ? null : pictures[at].entry.seq;
  }
}

Steps.define("sh-steps");
