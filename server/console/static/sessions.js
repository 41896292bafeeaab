// The sessions as the page knows them: the list of the server, kept current by its events.

import { events, get } from "./api.js";

export class Sessions extends EventTarget {
  constructor() {
    super();
    this.byId = new Map();
    this.state = "loading";
    this.query = { query: "", status: "" };
    this.cursor = null;
    this._close = null;
  }

  get all() {
    return [...this.byId.values()];
  }

  async start() {
    this._close ??= events(session => this._put(session), state => this._connected(state));
    await this.load();
  }

  stop() {
    this._close?.();
    this._close = null;
  }

  async load(more = false) {
    const words = new URLSearchParams({ limit: "60", ...pick(this.query) });
    if (more && this.cursor) words.set("cursor", this.cursor);
    try {
      const page = await get(`/sessions?${words}`);
      if (!more) this.byId.clear();
      for (const session of page.sessions) this.byId.set(session.session_id, session);
      this.cursor = page.next_cursor ?? null;
      this.state = "live";
    } catch (error) {
      this.state = "failed";
      this.error = error;
    }
    this._changed();
  }

  _put(session) {
    if (session.status === "deleted") {
      this.byId.delete(session.session_id);
      this._changed();
      return;
    }
    const known = this.byId.get(session.session_id);
    if (!known && (this.query.query || this.query.status)) return;
    this.byId.set(session.session_id, { ...known, ...session });
    this._changed();
  }

  _connected(state) {
    const wasLost = this.state === "lost";
    if (state === "lost") this.state = "lost";
    else if (wasLost) this.load();
    this._changed();
  }

  _changed() {
    // At most once a frame.
    if (this._pending) return;
    this._pending = requestAnimationFrame(() => {
      this._pending = null;
      this.dispatchEvent(new Event("change"));
    });
  }
}

const pick = query => Object.fromEntries(Object.entries(query).filter(([, value]) => value));
