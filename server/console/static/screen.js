// The page of a session with its tabs and its address, and the takeover by a person.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { live } from "./vendor/lit/directives/live.js";
import { act, get } from "./api.js";
import { ago } from "./format.js";
import { icon } from "./icons.js";
import { Input, isUnreached } from "./input.js";
import { Keyboard, fill } from "./keyboard.js";
import { Pointer } from "./pointer.js";
import "./picture.js";
import "./question.js";

const RENEW_MILLISECONDS = 15000;
const LOOK_MILLISECONDS = 3000;
// A second click on a button does not hit the one that takes its place.
const SETTLE_MILLISECONDS = 700;
const REFUSAL_MILLISECONDS = 4000;

class Screen extends LitElement {
  static properties = {
    sessionId: {}, session: {}, user: {}, held: { state: true }, about: { state: true }, problem: { state: true },
    refusals: { state: true }, busy: { state: true }, asksEnd: { state: true }, isReached: { state: true }, files: { state: true },
  };

  constructor() {
    super();
    this.refusals = "";
    this.files = [];
    this.isReached = true;
    this._refusedAt = 0;
    this._onBlur = () => this._keyboard?.releaseAll();
    this._onWindowKey = this._onWindowKey.bind(this);
  }

  createRenderRoot() {
    return this;
  }

  connectedCallback() {
    super.connectedCallback();
    window.addEventListener("keydown", this._onWindowKey, true);
    window.addEventListener("blur", this._onBlur);
  }

  // Control stays with the person for as long as the lease, so that they can come back.
  disconnectedCallback() {
    super.disconnectedCallback();
    window.removeEventListener("keydown", this._onWindowKey, true);
    window.removeEventListener("blur", this._onBlur);
    clearTimeout(this._settling);
    this._stop();
  }

  firstUpdated() {
    const epoch = Number(sessionStorage.getItem(this._key));
    if (epoch) this._resume(epoch);
  }

  updated(changed) {
    if (!changed.has("about")) return;
    const { question, tabs } = this.about ?? {};
    if (this._hadQuestion && !question) this._focus();
    this._hadQuestion = Boolean(question);
    // A page that opens a tab shows it, as in a browser. An agent's current tab stays.
    const count = tabs?.length ?? 0;
    if (this.held && this._tabs && count > this._tabs && !tabs[count - 1].current) this._select(count - 1);
    this._tabs = count;
  }

  _select(index) {
    this._input.add({ type: "tab", action: "select", index });
  }

  get _key() {
    return `statehold-control ${this.sessionId}`;
  }

  get control() {
    return this.session?.control ?? { driver: "agent" };
  }

  render() {
    const { control, held, about } = this;
    const byOther = control.driver === "human" && !held;
    return html`<section class="screen ${held ? "held" : ""}" aria-label="Page">
      ${this._renderBanner(control, byOther)}
      ${this._renderWarnings(control, about)}
      ${this.problem ? html`<p class="notice bad" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
      ${held && about?.question ? html`<sh-question .question=${about.question} .answer=${event => this._input.add(event)}></sh-question>` : nothing}
      ${this._renderTabs(about)}
      <div class="surface" data-keys
        @pointerdown=${this._onPointer} @pointermove=${this._onPointer} @pointerup=${this._onPointer} @pointercancel=${this._onPointer}
        @wheel=${this._onWheel} @keydown=${this._onKey} @keyup=${this._onKey} @paste=${this._onPaste}
        @contextmenu=${event => held && event.preventDefault()} @dragstart=${event => held && event.preventDefault()}>
        <sh-picture .sessionId=${this.sessionId} .fps=${10} alt="Page of the session" @frame=${this._onFrame} @frame-state=${this._onState}></sh-picture>
        ${held ? html`<textarea class="keys" aria-label="Keyboard of the page. F6 leaves it." autocapitalize="off" autocomplete="off" autocorrect="off"
          spellcheck="false" @input=${event => this._keyboard.onInput(event)} @blur=${this._onBlur}
          @compositionupdate=${event => this._keyboard.onComposition(event)} @compositionend=${event => this._keyboard.onComposition(event)}></textarea>` : nothing}
      </div>
      ${this._renderNotes()}
    </section>`;
  }

  // Below the picture, which does not move under the pointer.
  _renderNotes() {
    const base = `/api/v1/sessions/${encodeURIComponent(this.sessionId)}/files/`;
    return html`<div role="status">${this.refusals ? html`<p class="notice">${this.refusals}</p>` : nothing}
      ${this.files.map(name => html`<p class="notice"><span>Saved <a download href=${base + encodeURIComponent(name)}><bdi>${name}</bdi></a></span></p>`)}</div>`;
  }

  _renderBanner(control, byOther) {
    const stops = this.busy || this.isSettling;
    if (this.held) {
      const asks = control.reason ? html` It asks: <bdi>${control.reason}</bdi>` : nothing;
      const state = this.isReached ? html`The agent waits.${asks}` : "No connection: nothing that you do arrives.";
      return html`<div class="banner person"><span>${icon("human")}<span><b>You have control.</b> ${state}</span></span><span class="spacer"></span>
        ${this.asksEnd ? this._renderEnd() : html`
        <button class="main" ?disabled=${stops} @click=${() => this._give("done")}>Done <kbd>Ctrl</kbd> <kbd>↵</kbd></button>
        <button ?disabled=${stops} @click=${() => { this.asksEnd = "done"; }}>Reply …</button>
        <button ?disabled=${stops} @click=${() => { this.asksEnd = "could_not"; }}>Could not …</button>`}</div>`;
    }
    if (this.user?.rights === "view") return nothing;
    if (byOther) {
      return html`<div class="banner"><span>${icon("human")}<span><b>A person has control.</b> <bdi class="who">${control.holder}</bdi></span></span></div>`;
    }
    const asks = control.driver === "requested";
    return html`<div class="banner ${asks ? "asks" : ""}"><span>${icon(asks ? "requested" : "agent")}<span>${asks
      ? html`<b>The agent asks:</b> <bdi>${control.reason}</bdi> ${ago(control.since)}` : "The agent has control."}</span></span><span class="spacer"></span>
      <button class=${asks ? "main" : ""} ?disabled=${stops} @click=${this._take}>${this.busy ? "Waiting for the agent …" : "Take over"}</button></div>`;
  }

  // Who else may read what the person types, also before the takeover.
  _renderWarnings({ driver }, about) {
    const { held } = this;
    if (!held && (driver === "human" || this.user?.rights === "view")) return nothing;
    const { agent_scripts: scripts, other_viewers: others } = about ?? {};
    const warn = (text, button) => html`<p class="notice warn"><span>${text}</span>${button}</p>`;
    const renew = () => this._input.add({ type: "history", action: "renew" });
    return html`<div role="status">
      ${scripts === "pages" ? warn("The agent changed pages of this session: they may pass on what you type.",
    held ? html`<button @click=${renew}>Load anew</button>` : nothing) : nothing}
      ${scripts === "code" ? warn("The agent ran code in this browser, which may pass on what you type until a pause.") : nothing}
      ${held && others ? warn(`${others} other ${others > 1 ? "people watch" : "person watches"} this page.`) : nothing}</div>`;
  }

  _renderEnd() {
    const end = this.asksEnd;
    const words = end === "done" ? "Reply to the agent" : "Why not, for the agent";
    return html`<form class="reply" @submit=${event => { event.preventDefault(); this._give(end, event.target.elements.reply.value); }}>
      <input name="reply" aria-label=${words} placeholder=${words} maxlength="500" autofocus>
      <button class="main" ?disabled=${this.busy}>${end === "done" ? "Done" : "Could not"}</button><button type="button" @click=${() => { this.asksEnd = null; }}>Back</button></form>`;
  }

  _renderTabs(about) {
    const tabs = about?.tabs ?? [];
    const { held } = this;
    const send = event => this._input?.add(event);
    const go = event => {
      event.preventDefault();
      send({ type: "address", address: event.target.elements.url.value });
      this._focus();
    };
    return html`<div class="browser">
      ${tabs.length > 1 || held ? html`<div class="tabs" role="group" aria-label="Tabs">${tabs.map(tab => html`
        <span class="tab ${tab.current ? "current" : ""}"><button class="plain cut" ?disabled=${!held} aria-pressed=${Boolean(tab.current)}
          @click=${() => this._select(tab.index)}><bdi>${shortOf(tab.url)}</bdi></button>
          ${held ? html`<button class="plain" aria-label="Close tab ${tab.index + 1}" @click=${() => send({ type: "tab", action: "close", index: tab.index })}>✕</button>` : nothing}</span>`)}
        ${held ? html`<button class="plain" aria-label="New tab" @click=${() => send({ type: "tab", action: "open" })}>+</button>` : nothing}</div>` : nothing}
      <form class="address" @submit=${go}>
        ${held ? ["back", "forward", "reload"].map(step => html`<button type="button" class="plain" aria-label=${step}
          @click=${() => send({ type: "history", action: step })}>${icon(step)}</button>`) : nothing}
        <input name="url" aria-label="Address" ?readonly=${!held} dir="ltr" autocapitalize="off" autocomplete="off" spellcheck="false" enterkeyhint="go"
          .value=${live(this._addressOf(tabs))} @input=${event => { this._typed = event.target.value; }} @blur=${() => { this._typed = null; }}></form></div>`;
  }

  // A frame that arrives does not overwrite the address that the person is typing.
  _addressOf(tabs) {
    return this._typed ?? tabs.find(tab => tab.current)?.url ?? "";
  }

  // The picture that is shown, with its tab: clicks belong there.
  _onFrame(event) {
    this.about = this._frame = event.detail;
  }

  _onState(event) {
    this.about = { ...this.about, ...event.detail };
  }

  async _take() {
    this.busy = true;
    this.problem = null;
    try {
      const { epoch } = await act(this.sessionId, "take");
      await this._begin(epoch);
    } catch (error) {
      this.problem = error;
    } finally {
      this.busy = false;
      this._changed();
    }
  }

  // The page was loaded again, or left, while the person had control.
  async _resume(epoch) {
    try {
      await act(this.sessionId, "renew", { epoch });
      await this._begin(epoch);
    } catch (error) {
      if (error.endsControl) sessionStorage.removeItem(this._key);
    }
  }

  async _begin(epoch) {
    if (!this.isConnected) return;
    this.held = epoch;
    sessionStorage.setItem(this._key, epoch);
    this._input = new Input(this.sessionId, epoch, {
      onOutcome: answer => this._noteOutcome(answer),
      onReach: isReached => { this.isReached = isReached; },
      onError: error => this._fail(error),
    });
    const send = (event, tab) => this._input?.add(event, tab);
    this._keyboard = new Keyboard(send);
    this._pointer = new Pointer(send);
    this._renewal = setInterval(() => this._renew(), RENEW_MILLISECONDS);
    this._settle();
    this._followFiles();
    await this.updateComplete;
    this._focus();
  }

  async _renew() {
    try {
      await act(this.sessionId, "renew", { epoch: this.held });
    } catch (error) {
      if (!isUnreached(error)) this._fail(error);
    }
  }

  async _give(end, reply = null) {
    const epoch = this.held;
    if (this.busy) return;
    this.busy = true;
    try {
      this._keyboard.releaseAll();
      await this._input.finish();
      if (this.held !== epoch) return;
      await act(this.sessionId, "give-back", { epoch, end, reply: reply || null });
      this._end();
    } catch (error) {
      this._fail(error);
      this._input?.resume();
    } finally {
      this.busy = false;
      this._changed();
    }
  }

  // Show an error. The person keeps control unless the server says that it is over.
  _fail(error) {
    if (error.endsControl) this._end();
    this.problem = error;
    if (!this.held) this._changed();
  }

  _end() {
    sessionStorage.removeItem(this._key);
    this._stop();
    this.problem = null;
    this.refusals = "";
    this.asksEnd = null;
    this.isReached = true;
    this._settle();
  }

  _stop() {
    clearInterval(this._renewal);
    clearInterval(this._look);
    this._input?.close();
    this.held = this._input = this._keyboard = this._pointer = this._typed = null;
  }

  _settle() {
    clearTimeout(this._settling);
    this.isSettling = true;
    this._settling = setTimeout(() => { this.isSettling = false; this.requestUpdate(); }, SETTLE_MILLISECONDS);
  }

  // Downloads become files of the session.
  async _followFiles() {
    this.files = [];
    const list = async () => (await get(`/sessions/${encodeURIComponent(this.sessionId)}/files`)).files.map(file => file.name);
    const before = new Set(await list().catch(() => []));
    if (!this.held) return;
    clearInterval(this._look);
    this._look = setInterval(async () => {
      const names = await list().catch(() => null);
      if (names) this.files = names.filter(name => !before.has(name)).slice(-3);
    }, LOOK_MILLISECONDS);
  }

  _changed() {
    this.dispatchEvent(new Event("changed"));
  }

  _focus() {
    const field = this.querySelector("textarea.keys");
    if (!field) return;
    fill(field);
    field.focus({ preventScroll: true });
  }

  _noteOutcome({ refusals, editing }) {
    if (refusals.length || Date.now() - this._refusedAt > REFUSAL_MILLISECONDS) this.refusals = refusals.join(" ");
    if (refusals.length) this._refusedAt = Date.now();
    // A tap beside all fields of the page leaves no keyboard on the screen.
    if (editing === false) this.querySelector("textarea.keys")?.blur();
  }

  _onPointer(event) {
    if (!this.held || !this._frame) return;
    if (event.type === "pointerdown") {
      event.preventDefault();
      event.currentTarget.setPointerCapture(event.pointerId);
    }
    const canvas = this.querySelector("canvas");
    if (!this._pointer.handle(event, canvas, this._frame)) return;
    // The window of an input method opens at the text field.
    const field = this.querySelector("textarea.keys");
    const box = canvas.getBoundingClientRect();
    field.style.left = `${Math.min(event.clientX - box.left, box.width - 2)}px`;
    field.style.top = `${Math.min(event.clientY - box.top, box.height - 2)}px`;
    this._focus();
  }

  _onWheel(event) {
    if (!this.held || !this._frame || event.ctrlKey) return;
    event.preventDefault();
    this._pointer.wheel(event, this.querySelector("canvas"), this._frame);
  }

  // One key gives back, wherever the focus is, and keys go to the page also when nothing on this page has the focus.
  _onWindowKey(event) {
    if (!this.held || event.defaultPrevented) return;
    if (event.key === "Enter" && event.ctrlKey && !event.target.closest?.(".reply")) {
      event.preventDefault();
      event.stopPropagation();
      if (!event.repeat) this._give("done");
    } else if (document.activeElement === document.body) {
      event.stopPropagation();
      this._focus();
      this._onKey(event);
    }
  }

  _onKey(event) {
    if (!this.held) return;
    const isDown = event.type === "keydown";
    if (event.key === "F6") {
      event.preventDefault();
      if (isDown) this.querySelector(".banner button")?.focus();
    } else {
      this._keyboard.onKey(event);
    }
  }

  _onPaste(event) {
    const text = event.clipboardData?.getData("text/plain");
    if (!this.held || !text) return;
    event.preventDefault();
    this._input.add({ type: "paste", text });
  }
}

const shortOf = url => (url ? url.replace(/^https?:\/\/(www\.)?/, "").slice(0, 60) : "New tab");

customElements.define("sh-screen", Screen);
