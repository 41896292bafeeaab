// One page of the server's list of sessions, kept current by its events, the sessions whose agents ask for a person, and the
// other notices for the person.

import { events, get } from "./api.js";

const LIMIT = 60;
const WAITING = 20;
const RELOAD_MILLISECONDS = 4000;
const RETRY_MILLISECONDS = 3000;
const EVERYTHING = { query: "", status: "", sort: "used" };
export const STATUSES = ["active", "idle", "paused", "error", "closed"];
export const ORDERS = {
  used: "Used last", "-used": "Unused longest", name: "Name A to Z", "-name": "Name Z to A", created: "Newest", "-created": "Oldest",
};

export class Sessions extends EventTarget {
  constructor() {
    super();
    this.byId = new Map();
    this.waiting = new Map();
    this.notices = [];
    this.shared = [];
    this.state = "loading";
    this.query = { ...EVERYTHING };
    // The sessions that a person chose, over all pages of the list.
    this.chosen = new Map();
    this.total = null;
    this._cursors = [null];
    this._next = null;
  }

  get all() {
    // Those that ask are on the first page, whatever its order; a search shows what it found.
    const isShown = session => !this.byId.has(session.session_id) && !this.hasPrevious && !this.query.query;
    return [...[...this.waiting.values()].filter(isShown), ...this.byId.values()];
  }

  get first() {
    return (this._cursors.length - 1) * LIMIT + 1;
  }

  get hasNext() {
    return Boolean(this._next);
  }

  get hasPrevious() {
    return this._cursors.length > 1;
  }

  async start() {
    this._open();
    await this.load();
  }

  stop() {
    this._close?.();
    this._close = null;
    clearTimeout(this._timer);
    this._timer = null;
    this.byId.clear();
    this.waiting.clear();
    this.notices = [];
    this.chosen.clear();
    this.shared = [];
    this._changed();
  }

  // The address of the list as it is shown.
  get address() {
    const words = new URLSearchParams(Object.entries(this.query).filter(([key, value]) => value !== EVERYTHING[key]));
    return words.size ? `#/?${words}` : "#/";
  }

  // Show what an address says; what it may not say is as without it.
  follow(words) {
    const { query, status, sort } = { ...EVERYTHING, ...Object.fromEntries(words) };
    const old = this.address;
    this.query = { query: query.slice(0, 256), status: STATUSES.includes(status) ? status : "", sort: Object.hasOwn(ORDERS, sort) ? sort : "used" };
    if (this._close && this.address !== old) this.find({});
  }

  // Begin again at the first page, with other words, another status or another order.
  find(query) {
    Object.assign(this.query, query);
    history.replaceState(null, "", this.address);
    this._cursors = [null];
    return this.load();
  }

  choose(session, isChosen) {
    if (isChosen) this.chosen.set(session.session_id, session);
    else this.chosen.delete(session.session_id);
    this._changed();
  }

  turn(step) {
    if (step > 0 && this._next) this._cursors.push(this._next);
    else if (step < 0 && this.hasPrevious) this._cursors.pop();
    return this.load();
  }

  async load() {
    clearTimeout(this._timer);
    this._timer = null;
    const order = (this._order = (this._order ?? 0) + 1);
    const words = new URLSearchParams({ limit: LIMIT, ...pick(this.query) });
    const cursor = this._cursors.at(-1);
    if (cursor) words.set("cursor", cursor);
    try {
      const asking = new URLSearchParams({ driver: "requested", limit: WAITING });
      const none = { sessions: [] };
      const [page, waiting, shared] = await Promise.all([
        get(`/sessions?${words}`), get(`/sessions?${asking}`), cursor ? none : get("/shared"),
      ]);
      if (order !== this._order) return;
      this.shared = shared.sessions;
      this.waiting = new Map(waiting.sessions.map(session => [session.session_id, session]));
      this.byId = new Map(page.sessions.map(session => [session.session_id, session]));
      this._next = page.next_cursor ?? null;
      this.state = "live";
      await this._count();
    } catch (error) {
      if (order !== this._order) return;
      this.state = "failed";
      this.error = error;
      if (this._close && error.status !== 401) this._later(RETRY_MILLISECONDS);
    }
    this._changed();
  }

  async _count() {
    this.total = this.byId.size;
    if (!this._next && !this.hasPrevious) return;
    const { sessions } = await get("/usage");
    const { query, status } = this.query;
    const open = Object.entries(sessions).filter(([name]) => name !== "closed").reduce((sum, [, count]) => sum + count, 0);
    this.total = query || status ? null : open;
  }

  _open() {
    if (this._close) return;
    // A stream sends them when there are some.
    this.notices = [];
    this._close = events(session => this._put(session), notices => this._notice(notices), state => this._connected(state));
  }

  _notice(notices) {
    this.notices = notices;
    this._changed();
  }

  _put(session) {
    const id = session.session_id;
    this.dispatchEvent(new CustomEvent("session", { detail: session }));
    if (["deleted", "closed"].includes(session.status)) this.chosen.delete(id);
    else if (this.chosen.has(id)) this.chosen.set(id, session);
    const shared = this.shared.find(each => each.session_id === id);
    if (shared || session.shared) {
      // Later pages of the list have none.
      if (!shared) {
        if (!this.hasPrevious) this._later(RELOAD_MILLISECONDS);
      } else if (session.status === "deleted") this.shared.splice(this.shared.indexOf(shared), 1);
      // Its owner is written otherwise there.
      else Object.assign(shared, session, { owner: shared.owner });
      this._changed();
      return;
    }
    if (session.status === "deleted") {
      this.byId.delete(id);
      this.waiting.delete(id);
      this._changed();
      return;
    }
    if (session.control?.driver === "requested") {
      this.waiting.delete(id);
      this.waiting.set(id, session);
      if (this.waiting.size > WAITING) this.waiting.delete(this.waiting.keys().next().value);
    } else {
      this.waiting.delete(id);
    }
    const known = this.byId.get(id);
    if (known) this.byId.set(id, { ...known, ...session });
    // The server knows the place of a new one, and whether it fits.
    const fits = !this.query.status || this.query.status === session.status;
    if (known ? !fits : !this.hasPrevious) this._later(RELOAD_MILLISECONDS);
    this._changed();
  }

  _later(milliseconds) {
    this._timer ??= setTimeout(() => this.load(), milliseconds);
  }

  _connected(state) {
    if (state === "lost") {
      this.state = "lost";
      // After a restart of the server the login is gone: only a request tells.
      this._close?.();
      this._close = null;
      setTimeout(() => this._reconnect(), RETRY_MILLISECONDS);
    }
    this._changed();
  }

  async _reconnect() {
    await this.load();
    if (this.state === "live") this._open();
    else if (this.error?.status !== 401) this.state = "lost";
    if (this.state === "lost") setTimeout(() => this._reconnect(), RETRY_MILLISECONDS);
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
