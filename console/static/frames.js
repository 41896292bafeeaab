// A stream of pictures: each is a length (4 bytes), the length of its description (4 bytes), the description as JSON, and a JPEG.
// A message without a JPEG says that the last picture is still current, or why there is none.

import { stream } from "./api.js";

const FIRST_RETRY_MILLISECONDS = 300;
const LAST_RETRY_MILLISECONDS = 5000;
// A page that answers is heard of every two seconds. A connection that is lost may say nothing for minutes.
const SILENT_MILLISECONDS = 15000;
const FINAL = new Set([401, 403, 404]);

export class Frames {
  // `onState` gets every state, also those between two streams: `moved` and `lost` say that another one is tried.
  constructor(sessionId, { fps = 10, tab = null, onFrame, onState }) {
    this._path = `/sessions/${encodeURIComponent(sessionId)}/frames?fps=${fps}${tab === null ? "" : `&tab=${tab}`}`;
    this._onFrame = onFrame;
    this._onState = onState;
    this._abort = new AbortController();
    this._currentAt = null;
    this._run();
  }

  close() {
    this._abort.abort();
    this._connection?.abort();
    this._stopWaiting();
  }

  async _run() {
    const { signal } = this._abort;
    let delay = FIRST_RETRY_MILLISECONDS;
    while (!signal.aborted) {
      this._hasPicture = false;
      try {
        await this._read();
        if (signal.aborted) return;
        if (this._last?.state === "moved") this._wait("moved", this._last.message);
        else this._wait("ended", "The page was closed.");
      } catch (error) {
        if (signal.aborted) return;
        if (error.name === "AbortError") continue;
        if (FINAL.has(error.status)) {
          this._stopWaiting();
          this._onState({ state: error.status === 404 ? "gone" : "lost", message: error.message });
          return;
        }
        this._wait("lost", error.message);
      }
      if (this._hasPicture) delay = FIRST_RETRY_MILLISECONDS;
      // The viewers of a process that has ended do not come all at once.
      const pause = delay * (0.75 + Math.random() / 2);
      delay = Math.min(2 * delay, LAST_RETRY_MILLISECONDS);
      await new Promise(resolve => setTimeout(resolve, pause));
    }
  }

  // Report each second, until the next message, that there is no stream, and the age of the picture.
  _wait(state, words) {
    this._stopWaiting();
    const report = () => {
      const age = this._currentAt === null ? null : (Date.now() - this._currentAt) / 1000;
      const parts = [words ?? "", age === null ? "" : `Picture is ${Math.round(age)} s old.`];
      this._onState({ state, age_seconds: age, message: parts.filter(Boolean).join(" ") });
    };
    report();
    this._waiting = setInterval(report, 1000);
  }

  _stopWaiting() {
    clearInterval(this._waiting);
  }

  async _read() {
    const connection = (this._connection = new AbortController());
    let silence;
    const noteArrival = () => {
      clearTimeout(silence);
      silence = setTimeout(() => connection.abort(), SILENT_MILLISECONDS);
    };
    noteArrival();
    try {
      const response = await stream(this._path, { signal: connection.signal });
      await this._readAll(response.body.getReader(), noteArrival);
    } finally {
      clearTimeout(silence);
    }
  }

  async _readAll(reader, noteArrival) {
    let pending = new Uint8Array(0);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      noteArrival();
      pending = join(pending, value);
      for (;;) {
        if (pending.length < 4) break;
        const length = new DataView(pending.buffer, pending.byteOffset).getUint32(0);
        if (pending.length < 4 + length) break;
        this._take(pending.subarray(4, 4 + length));
        pending = pending.slice(4 + length);
      }
    }
  }

  _take(message) {
    const length = new DataView(message.buffer, message.byteOffset).getUint32(0);
    const about = JSON.parse(new TextDecoder().decode(message.subarray(4, 4 + length)));
    const picture = message.subarray(4 + length);
    this._last = about;
    if (about.state === "moved") return;
    this._stopWaiting();
    if (about.age_seconds !== null) this._currentAt = Date.now() - 1000 * about.age_seconds;
    if (picture.length) {
      this._hasPicture = true;
      this._onFrame(about, new Blob([picture], { type: "image/jpeg" }));
    } else {
      this._onState(about);
    }
  }
}

function join(first, second) {
  if (!first.length) return second;
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
