// Tells on every page of the console that agents ask for a person: title, icon, a badge, and notifications of the browser.

import { html, nothing } from "./render.js";
import { plainName } from "./format.js";

export class Attention {
  constructor(sessions, update) {
    this._sessions = sessions;
    this._update = update;
    this._seen = new Set();
    sessions.addEventListener("change", () => this._show());
  }

  render() {
    const { waiting } = this._sessions;
    if (!waiting.size) return nothing;
    const id = [...waiting.keys()].at(-1);
    return html`<a class="tag warn" href="#/s/${encodeURIComponent(id)}">${waiting.size} ${waiting.size > 1 ? "ask" : "asks"}</a>
      ${canAsk() ? html`<button class="plain" @click=${() => this._permit()}>Notify me</button>` : nothing}`;
  }

  _show() {
    const asking = [...this._sessions.waiting.values()];
    const last = asking.at(-1);
    document.title = last ? `(${asking.length}) ${wordOf(last)} asks - Statehold` : "Statehold";
    document.querySelector("link[rel=icon]").href = last ? "icon-asks.svg" : "icon.svg";
    const seen = new Set();
    for (const session of asking) {
      const request = `${session.session_id} ${session.control.since}`;
      seen.add(request);
      if (!this._seen.has(request)) notify(session);
    }
    this._seen = seen;
    this._update();
  }

  async _permit() {
    await Notification.requestPermission();
    this._update();
  }
}

// Anybody chooses a name: it is bounded, and no sign in it ends our sentence.
const wordOf = session => plainName(session.name ?? "") || session.session_id;

const canAsk = () => globalThis.Notification?.permission === "default";

// A person who looks at the page sees the badge.
function notify(session) {
  if (!document.hidden || globalThis.Notification?.permission !== "granted") return;
  const id = session.session_id;
  const body = `${wordOf(session)}\n${session.control.reason ?? ""}`.trim();
  const notification = new Notification("A session asks for you", { body, tag: id, icon: "icon-asks.svg" });
  notification.onclick = () => {
    window.focus();
    location.hash = `#/s/${encodeURIComponent(id)}`;
    notification.close();
  };
}
