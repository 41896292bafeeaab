// Input of a person: events become ordered batches for the server.

import { post } from "./api.js";

const BATCH_MILLISECONDS = 30;
const ANSWER_MILLISECONDS = 15000;
const RETRY_MILLISECONDS = 1000;
const MOST = 100;

export class Input {
  // `onOutcome` gets the reasons why events had no effect, `onReach` whether the server is reached, and `onError` any other
  // answer: the batch had no effect then.
  constructor(sessionId, epoch, { onOutcome, onReach, onError }) {
    this._path = `/sessions/${encodeURIComponent(sessionId)}/input`;
    this._epoch = epoch;
    Object.assign(this, { _onOutcome: onOutcome, _onReach: onReach, _onError: onError });
    // Batches are counted, so that the server does one only once that is sent again. A page that was loaded again goes on.
    this._number = Date.now();
    this._events = [];
    this._sending = this._timer = null;
    this.isReached = true;
    this._isClosed = this._isPaused = false;
  }

  // `tab` is the number of the tab in whose picture it happened; without one it is the current tab.
  // While the server is not reached, only releases are kept for later: nobody sees where anything else would land.
  add(event, tab = null) {
    if (this._isClosed || this._isPaused || (!this.isReached && !isRelease(event))) return;
    const last = this._events.at(-1);
    if (last?.tab === tab && isReplaced(last.event, event)) this._events.pop();
    if (last?.tab === tab && isSameWheel(last.event, event)) {
      last.event = { ...event, delta_x: last.event.delta_x + event.delta_x, delta_y: last.event.delta_y + event.delta_y };
    } else {
      this._events.push({ event, tab });
    }
    if (event.action !== "move") this._send();
    else this._timer ??= setTimeout(() => this._send(), BATCH_MILLISECONDS);
  }

  // Send what is left, and take nothing more until resume(). Resolves when the server has done it.
  async finish() {
    this._isPaused = true;
    await this._send();
  }

  resume() {
    this._isPaused = false;
  }

  // Drop what is left.
  close() {
    this._isClosed = true;
    this._events.length = 0;
    clearTimeout(this._timer);
  }

  _send() {
    clearTimeout(this._timer);
    this._timer = null;
    if (this._events.length) this._sending ??= this._sendAll().finally(() => { this._sending = null; });
    return this._sending;
  }

  async _sendAll() {
    while (this._events.length) await this._sendBatch();
  }

  async _sendBatch() {
    const { tab } = this._events[0];
    const count = this._events.findIndex(entry => entry.tab !== tab);
    const events = this._events.splice(0, Math.min(count < 0 ? MOST : count, MOST)).map(entry => entry.event);
    const batch = { epoch: this._epoch, tab, number: ++this._number, events };
    while (!this._isClosed) {
      try {
        const answer = await post(this._path, batch, { signal: AbortSignal.timeout(ANSWER_MILLISECONDS) });
        this._reach(true);
        this._onOutcome(answer);
        if (answer.copied) await navigator.clipboard?.writeText(answer.copied).catch(() => {});
        return;
      } catch (error) {
        if (!isUnreached(error)) {
          this._reach(true);
          this._onError(error);
          return;
        }
        this._reach(false);
        await new Promise(resolve => setTimeout(resolve, RETRY_MILLISECONDS));
      }
    }
  }

  _reach(isReached) {
    if (this.isReached === isReached) return;
    this.isReached = isReached;
    this._onReach(isReached);
  }
}

// A proxy answers for a server that is not there.
export const isUnreached = error => error.status === 0 || [502, 503, 504].includes(error.status) && !error.code;

const isRelease = event => ["up", "end", "cancel"].includes(event.action);

// Only the newest of several moves counts, and of several states of a composition.
const isReplaced = (last, event) => last.type === event.type
  && (event.type === "composition" || (event.action === "move" && last.action === "move"));

const isSameWheel = (last, event) => event.action === "wheel" && last.action === "wheel"
  && last.x === event.x && last.y === event.y && last.modifiers === event.modifiers;
