// Input of a person: events of the picture become ordered batches for the server, in coordinates of the page.

import { post } from "./api.js";

const BATCH_MILLISECONDS = 30;
const MOST = 100;
const MODIFIERS = [["altKey", 1], ["ctrlKey", 2], ["metaKey", 4], ["shiftKey", 8]];

export class Input {
  // `onRefusal` gets the reason why an event had no effect, and `onError` what ended the control.
  constructor(sessionId, epoch, { onRefusal, onError }) {
    this._path = `/sessions/${encodeURIComponent(sessionId)}/input`;
    this._epoch = epoch;
    this._onRefusal = onRefusal;
    this._onError = onError;
    this._events = [];
    this._sending = null;
  }

  // `tab` is the number of the tab in whose picture it happened; without one it is the current tab.
  add(event, tab = null) {
    const last = this._events.at(-1);
    // Only the newest of several moves counts.
    if (event.action === "move" && last?.event.action === "move" && last.event.type === event.type && last.tab === tab) this._events.pop();
    this._events.push({ event, tab });
    this._timer ??= setTimeout(() => { this._timer = null; this._send(); }, event.action === "move" ? BATCH_MILLISECONDS : 0);
  }

  // Send what is left, and take nothing more. Resolves when the server has done it.
  async finish() {
    this.add = () => {};
    clearTimeout(this._timer);
    await this._sending;
    await this._send();
  }

  _send() {
    if (!this._events.length) return this._sending;
    this._sending ??= this._sendAll().finally(() => { this._sending = null; });
    return this._sending;
  }

  async _sendAll() {
    while (this._events.length) await this._sendBatch();
  }

  async _sendBatch() {
    const { tab } = this._events[0];
    const count = this._events.findIndex(entry => entry.tab !== tab);
    const events = this._events.splice(0, Math.min(count < 0 ? MOST : count, MOST)).map(entry => entry.event);
    try {
      const answer = await post(this._path, { epoch: this._epoch, tab, events });
      if (answer.refusals.length) this._onRefusal(answer.refusals.join(" "));
      if (answer.copied) await navigator.clipboard?.writeText(answer.copied).catch(() => {});
    } catch (error) {
      this._events.length = 0;
      if (error.endsControl) this._onError(error);
      else this._onRefusal(error.message);
    }
  }
}

export const modifiersOf = event => MODIFIERS.reduce((sum, [key, value]) => sum + (event[key] ? value : 0), 0);

// The place of a pointer on the page, from its place on the picture, which keeps its proportions inside the canvas.
export function placeOf(event, canvas, about) {
  const box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / canvas.width, box.height / canvas.height);
  const left = box.left + (box.width - canvas.width * scale) / 2;
  const top = box.top + (box.height - canvas.height * scale) / 2;
  const x = (event.clientX - left) / scale / canvas.width;
  const y = (event.clientY - top) / scale / canvas.height;
  return { x: clamp(x) * about.width, y: clamp(y) * about.height };
}

const clamp = share => Math.max(0, Math.min(1, share));
