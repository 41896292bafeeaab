// A stream of pictures: each is a length (4 bytes), the length of its description (4 bytes), the description as JSON, and a JPEG.
// A message without a JPEG says that the last picture is still current, or why there is none.

import { stream } from "./api.js";

const RETRY_MILLISECONDS = 1500;

export class Frames {
  constructor(sessionId, { fps = 10, tab = null, onFrame, onState }) {
    this._path = `/sessions/${encodeURIComponent(sessionId)}/frames?fps=${fps}${tab === null ? "" : `&tab=${tab}`}`;
    this._onFrame = onFrame;
    this._onState = onState;
    this._abort = new AbortController();
    this._run();
  }

  close() {
    this._abort.abort();
  }

  async _run() {
    while (!this._abort.signal.aborted) {
      try {
        await this._read();
        this._onState({ state: "ended" });
      } catch (error) {
        if (this._abort.signal.aborted) return;
        this._onState({ state: error.status === 404 ? "gone" : "lost", message: error.message });
        if (error.status === 404 || error.status === 401 || error.status === 403) return;
      }
      await new Promise(resolve => setTimeout(resolve, RETRY_MILLISECONDS));
    }
  }

  async _read() {
    const response = await stream(this._path, { signal: this._abort.signal });
    const reader = response.body.getReader();
    let pending = new Uint8Array(0);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
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
    if (picture.length) this._onFrame(about, new Blob([picture], { type: "image/jpeg" }));
    else this._onState(about);
  }
}

function join(first, second) {
  if (!first.length) return second;
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
