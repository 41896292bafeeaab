// Tells on every page of the console what waits for a person: title, icon, a badge, and notifications of the browser.

import { html, nothing } from "./render.js";
import { plainName } from "./format.js";

export class Attention {
  constructor(sessions, update) {
    this._sessions = sessions;
    this._update = update;
    this._seen = new Set();
    sessions.addEventListener("change", () => this._show());
  }

  // An agent that asks comes last: the title and the badge name the last one.
  get _reasons() {
    return [...this._sessions.notices.map(ofNotice), ...[...this._sessions.waiting.values()].map(ofSession)];
  }

  render() {
    const reasons = this._reasons;
    if (!reasons.length) return nothing;
    const last = reasons.at(-1);
    const words = last.asks ? (reasons.length > 1 ? "ask" : "asks") : (reasons.length > 1 ? "wait" : "waits");
    return html`<a class="tag warn" href=${last.address} title=${last.title}>${reasons.length} ${words}</a>
      ${canAsk() ? html`<button class="plain" @click=${() => this._permit()}>Notify me</button>` : nothing}`;
  }

  _show() {
    const reasons = this._reasons;
    const last = reasons.at(-1);
    document.title = last ? `(${reasons.length}) ${last.title} - Statehold` : "Statehold";
    document.querySelector("link[rel=icon]").href = last ? "icon-asks.svg" : "icon.svg";
    for (const reason of reasons) {
      if (!this._seen.has(reason.key)) notify(reason);
      this._seen.add(reason.key);
    }
    this._update();
  }

  async _permit() {
    await Notification.requestPermission();
    this._update();
  }
}

function ofSession(session) {
  const { session_id: id, control } = session;
  // Anybody chooses a name: it is bounded, and no sign in it ends our sentence.
  const word = plainName(session.name ?? "") || id;
  return {
    key: `${id} ${control.since}`, tag: id, asks: true, address: `#/s/${encodeURIComponent(id)}`, title: `${word} asks`,
    heading: "A session asks for you", body: `${word}\n${control.reason ?? ""}`.trim(),
  };
}

const ofNotice = ({ key, text, words, page }) => ({
  key, tag: key, address: `#/${page.split("/").map(encodeURIComponent).join("/")}`, title: text, heading: text, body: words,
});

const canAsk = () => globalThis.Notification?.permission === "default";

// A person who looks at the page sees the badge.
function notify({ heading, body, tag, address }) {
  if (!document.hidden || globalThis.Notification?.permission !== "granted") return;
  const notification = new Notification(heading, { body, tag, icon: "icon-asks.svg" });
  notification.onclick = () => {
    window.focus();
    location.hash = address;
    notification.close();
  };
}
