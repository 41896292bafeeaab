// The page of a session with its tabs and its address, and the takeover by a person.

import { PageElement, html, live, nothing } from "./render.js";
import { act, get } from "./api.js";
import { waitOf } from "./format.js";
import { icon } from "./icons.js";
import { Input, isUnreached } from "./input.js";
import { Keyboard, fill } from "./keyboard.js";
import { Pointer, placeOf } from "./pointer.js";
import { isCoarse } from "./field.js";
import { uploadsOf } from "./question.js";
import "./picture.js";

const RENEW_MILLISECONDS = 15000;
const LOOK_MILLISECONDS = 3000;
// A second click on a button does not hit the one that takes its place.
const SETTLE_MILLISECONDS = 700;
const REFUSAL_MILLISECONDS = 4000;
// Keys that keyboards of phones lack.
const KEYS = [["Tab", 9], ["Escape", 27], ["ArrowLeft", 37, "←"], ["ArrowUp", 38, "↑"], ["ArrowDown", 40, "↓"], ["ArrowRight", 39, "→"], ["Enter", 13, "↵"]];
// Rows above and below the picture that stay in sight, of a page in the size of the window.
const ROWS_PIXELS = 150;

const keyOf = id => `statehold-control ${id}`;

// Takes control of a session for the next page of it that this window shows; of another window of the same person too.
export async function takeControl(id, user) {
  const { control } = await get(`/sessions/${encodeURIComponent(id)}`);
  const isOwn = control?.driver === "human" && control.holder === user.name;
  const { epoch } = await (isOwn ? act(id, "renew", { epoch: control.epoch }) : act(id, "take"));
  sessionStorage.setItem(keyOf(id), epoch);
}

class Screen extends PageElement {
  static properties = [
    "sessionId", "session", "user", "isOpen", "field", "held", "about", "problem", "refusals", "busy", "asksEnd",
    "isReached", "files",
  ];

  constructor() {
    super();
    this.refusals = "";
    this.files = [];
    this.isReached = true;
    this._refusedAt = 0;
    this._onBlur = () => this._keyboard?.releaseAll();
    this._onWindowKey = this._onWindowKey.bind(this);
    this._onFullScreen = () => this.requestUpdate();
  }

  connectedCallback() {
    super.connectedCallback();
    window.addEventListener("keydown", this._onWindowKey, true);
    window.addEventListener("blur", this._onBlur);
    document.addEventListener("fullscreenchange", this._onFullScreen);
    this._windows = new BroadcastChannel("statehold-control");
    this._windows.onmessage = ({ data }) => data === this.sessionId && this.held && this._end();
  }

  // Control stays with the person for as long as the lease, so that they can come back.
  disconnectedCallback() {
    super.disconnectedCallback();
    window.removeEventListener("keydown", this._onWindowKey, true);
    window.removeEventListener("blur", this._onBlur);
    document.removeEventListener("fullscreenchange", this._onFullScreen);
    this._windows.close();
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
    // A new page is blank: its address comes first.
    if (this.held && this._isBlank && tabs?.length) {
      this._isBlank = false;
      this.querySelector(".address input").focus();
    }
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
    return keyOf(this.sessionId);
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
      ${this._renderTabs(about)}
      <div class="stage" @dragover=${this._onDrag} @drop=${this._onDrop}>
      ${this.isOpen || held ? html`<div class="surface" data-keys
        @pointerdown=${this._onPointer} @pointermove=${this._onPointer} @pointerup=${this._onPointer} @pointercancel=${this._onPointer}
        @wheel=${this._onWheel} @keydown=${this._onKey} @keyup=${this._onKey} @paste=${this._onPaste}
        @contextmenu=${event => held && event.preventDefault()} @dragstart=${event => held && event.preventDefault()}>
        <sh-picture .sessionId=${this.sessionId} .fps=${10} .alt=${"Page of the session"} @frame=${this._onFrame} @frame-state=${this._onState}></sh-picture>
        ${held ? html`<textarea class="keys" aria-label="Keyboard of the page. F6 leaves it." autocapitalize="off" autocomplete="off" autocorrect="off"
          spellcheck="false" @input=${event => this._keyboard.onInput(event)} @blur=${this._onBlur}
          @compositionupdate=${event => this._keyboard.onComposition(event)} @compositionend=${event => this._keyboard.onComposition(event)}></textarea>` : nothing}
      </div>` : html`<div class="picture"></div>`}
      ${this._hasPage ? nothing : this._renderBlank(byOther)}
      ${held && about?.question ? html`<sh-question .question=${about.question} .host=${hostOf(this._addressOf(about.tabs ?? []))}
        .answer=${event => this._input.add(event)}></sh-question>` : nothing}
      ${held && this.field && !about?.question ? html`<sh-field .field=${this.field} .frame=${this._frame} .canvas=${this.querySelector("canvas")}
        .choose=${choice => this._choose(choice)} .leave=${isForPage => this._leaveField(isForPage)}></sh-field>` : nothing}
      </div>
      ${held ? html`<div class="key-row" role="group" aria-label="Keys">${KEYS.map(([key, code, sign]) => html`<button class="plain" aria-label=${sign ? key : nothing}
        @pointerdown=${event => event.preventDefault()} @click=${() => this._keyboard.press(key, code)}>${sign ?? key.replace("ape", "")}</button>`)}</div>` : nothing}
      ${this._renderNotes()}
    </section>`;
  }

  get _hasPage() {
    return (this.isOpen || this.held) && this.about?.state !== "no_page";
  }

  _renderBlank(byOther) {
    const open = () => (this.held ? this._input.add({ type: "tab", action: "open" }) : this._take());
    return html`<div class="blank"><p>No page is open.</p>${this.user?.rights === "view" || byOther ? nothing
      : html`<button ?disabled=${this.busy} @click=${open}>Open one</button>`}</div>`;
  }

  // Below the picture, which does not move under the pointer.
  _renderNotes() {
    const base = `/api/v1/sessions/${encodeURIComponent(this.sessionId)}/files/`;
    return html`${this.problem ? html`<p class="notice bad" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
      <div role="status">${this.refusals ? html`<p class="notice">${this.refusals}</p>` : nothing}
      ${this.files.map(name => html`<p class="notice"><span>Saved <a download href=${base + encodeURIComponent(name)}><bdi>${name}</bdi></a></span></p>`)}</div>`;
  }

  _renderBanner(control, byOther) {
    const stops = this.busy || this.isSettling;
    if (this.held) {
      const asks = control.reason ? html` It asks: <bdi>${control.reason}</bdi>` : nothing;
      const state = this.isReached ? html`The agent waits.${asks}` : "No connection: nothing that you do arrives.";
      return html`<div class="banner person"><span>${icon("human")}<span><b>You have control.</b> ${state}</span></span><span class="spacer"></span>
        ${this.asksEnd ? this._renderEnd() : html`
        <button class="main" ?disabled=${stops} @click=${() => this._give("done")}>Done <kbd>F6</kbd> <kbd>↵</kbd></button>
        <button ?disabled=${stops} @click=${() => { this.asksEnd = "done"; }}>Reply …</button>
        <button ?disabled=${stops} @click=${() => { this.asksEnd = "could_not"; }}>Could not …</button>`}</div>`;
    }
    if (this.user?.rights === "view") return nothing;
    if (byOther && control.holder === this.user?.name) {
      return html`<div class="banner"><span>${icon("human")}<span><b>You have control</b> in another window.</span></span><span class="spacer"></span>
        <button ?disabled=${stops} @click=${() => this._takeHere(control.epoch)}>Control it here</button></div>`;
    }
    if (byOther) {
      return html`<div class="banner"><span>${icon("human")}<span><b>A person has control.</b> <bdi class="who">${control.holder}</bdi></span></span></div>`;
    }
    const asks = control.driver === "requested";
    return html`<div class="banner ${asks ? "asks" : ""}"><span>${icon(asks ? "requested" : "agent")}<span>${asks
      ? html`<b>The agent asks:</b> <bdi>${control.reason}</bdi> <span class="quiet nowrap">${waitOf(control)}</span>` : "The agent has control."}</span></span><span class="spacer"></span>
      <button class=${asks ? "main" : ""} ?disabled=${stops} @click=${this._take}>${this.busy ? "Waiting for the agent …" : "Take over"}</button></div>`;
  }

  // Who else may read what the person types, also before the takeover.
  _renderWarnings({ driver }, about) {
    const { held } = this;
    if (!held && (driver === "human" || this.user?.rights === "view")) return nothing;
    const scripts = about?.agent_scripts;
    const warn = (text, button) => html`<p class="notice warn"><span>${text}</span>${button}</p>`;
    const renew = () => this._input.add({ type: "history", action: "renew" });
    return html`<div role="status">
      ${scripts === "pages" ? warn("The agent changed pages of this session: they may pass on what you type.",
    held ? html`<button @click=${renew}>Load anew</button>` : nothing) : nothing}
      ${scripts === "code" ? warn("The agent ran code in this browser, which may pass on what you type until a pause.") : nothing}</div>`;
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
    const others = about?.other_viewers;
    const { held } = this;
    const send = event => this._input?.add(event);
    const go = event => {
      event.preventDefault();
      send({ type: "address", address: event.target.elements.url.value });
      this._focus();
    };
    return html`<div class="browser">
      <div class="tabs" role="group" aria-label="Tabs">${tabs.map(tab => html`
        <span class="tab ${tab.current ? "current" : ""}"><button class="plain cut" ?disabled=${!held} aria-pressed=${Boolean(tab.current)}
          title=${tab.url} @click=${() => this._select(tab.index)}><bdi>${tab.title || shortOf(tab.url)}</bdi></button>
          ${held ? html`<button class="plain" aria-label="Close tab ${tab.index + 1}" @click=${() => send({ type: "tab", action: "close", index: tab.index })}>✕</button>` : nothing}</span>`)}
        ${held ? html`<button class="plain" aria-label="New tab" @click=${() => send({ type: "tab", action: "open" })}>+</button>` : nothing}
        <span role="status" class="watchers">${held && others ? html`<span class="tag warn">${others} other ${others > 1 ? "people watch" : "person watches"} this page</span>` : nothing}</span></div>
      <form class="address" @submit=${go}>
        ${held ? ["back", "forward", "reload"].map(step => html`<button type="button" class="plain" aria-label=${step}
          @click=${() => send({ type: "history", action: step })}>${icon(step)}</button>`) : nothing}
        <input name="url" aria-label="Address" ?readonly=${!held} dir="ltr" autocapitalize="off" autocomplete="off" spellcheck="false" enterkeyhint="go"
          .value=${live(this._typed ?? readable(this._addressOf(tabs)))} @focus=${event => { event.target.value = this._typed = this._addressOf(tabs); event.target.select(); }}
          @input=${event => { this._typed = event.target.value; }} @blur=${() => { this._typed = null; this.requestUpdate(); }}>
        ${held ? html`<button type="button" class="plain" aria-label="Give the page the size of this window" title="Fit the page to this window" @click=${this._fit}>${icon("fit")}</button>` : nothing}
        <button type="button" class="plain" aria-label="Full screen" title="Full screen" aria-pressed=${Boolean(document.fullscreenElement)} @click=${this._toggleFullScreen}>${icon("full")}</button></form></div>`;
  }

  _addressOf(tabs) {
    return tabs.find(tab => tab.current)?.url ?? "";
  }

  _toggleFullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.querySelector(".screen").requestFullscreen().catch(() => { this.refusals = "This browser shows no full screen here."; });
  }

  // Outside of the full screen the rows around the picture stay in sight.
  _fit() {
    const { clientWidth, clientHeight } = this.querySelector(".stage");
    const height = document.fullscreenElement ? clientHeight : window.innerHeight - ROWS_PIXELS;
    const most = size => Math.max(200, Math.min(4000, Math.round(size)));
    this._input.add({ type: "size", width: most(clientWidth), height: most(height) });
  }

  // The picture that is shown, with its tab: clicks belong there.
  _onFrame(event) {
    this.about = this._frame = event.detail;
    this.querySelector(".stage .picture").style.aspectRatio = `${event.detail.width} / ${event.detail.height}`;
  }

  _onState(event) {
    this.about = { ...this.about, ...event.detail };
  }

  async _take() {
    this.busy = true;
    this.problem = null;
    this._isBlank = !this._hasPage;
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
      await this._begin((await act(this.sessionId, "renew", { epoch })).epoch);
    } catch (error) {
      if (error.endsControl) sessionStorage.removeItem(this._key);
    }
  }

  // The same person has control in another window, which loses it.
  async _takeHere(epoch) {
    this.problem = null;
    try {
      await this._begin((await act(this.sessionId, "renew", { epoch })).epoch);
    } catch (error) {
      this.problem = error;
    }
    this._changed();
  }

  async _begin(epoch) {
    if (!this.isConnected) return;
    this.held = epoch;
    this._windows.postMessage(this.sessionId);
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
    this.held = this._input = this._keyboard = this._pointer = this._typed = this.field = null;
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

  _noteOutcome({ refusals, editing, field }) {
    if (field) this.field = field;
    if (refusals.length || Date.now() - this._refusedAt > REFUSAL_MILLISECONDS) this.refusals = refusals.join(" ");
    if (refusals.length) this._refusedAt = Date.now();
    // A tap beside all fields of the page leaves no keyboard on the screen.
    if (editing === false) this.querySelector("textarea.keys")?.blur();
  }

  _choose(choice) {
    this._input?.add({ type: "field", ...choice });
    this._leaveField(true);
  }

  _leaveField(isForPage) {
    this.field = null;
    // The keyboard of a phone would cover what was chosen.
    if (isForPage && !isCoarse()) this._focus();
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

  // Keys go to the page also when nothing on this page has the focus.
  _onWindowKey(event) {
    if (!this.held || event.defaultPrevented) return;
    if (document.activeElement === document.body) {
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
    const files = [...event.clipboardData?.files ?? []];
    if (!this.held || !(text || files.length)) return;
    event.preventDefault();
    if (text) this._input.add({ type: "paste", text });
    else this._sendFiles({ type: "paste" }, files);
  }

  // Without this, a browser opens the file in place of the console.
  _onDrag(event) {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  }

  _onDrop(event) {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    if (!this.held) this.refusals = "Take over, then drop the file again.";
    if (!this.held || !this._frame) return;
    const { x, y } = placeOf(event, this.querySelector("canvas"), this._frame);
    this._sendFiles({ type: "drop", x, y }, [...event.dataTransfer.files], this._frame.tab);
  }

  async _sendFiles(event, files, tab = null) {
    try {
      const uploads = await uploadsOf(files);
      if (uploads.length) this._input?.add({ ...event, uploads }, tab);
    } catch (error) {
      this.refusals = error.message;
    }
  }
}

const hostOf = url => {
  try {
    return new URL(url).host;
  } catch {
    return "";
  }
};

// An address with the letters that it encodes, unless one of them does not show or reorders the rest.
function readable(url) {
  try {
    const text = decodeURI(url);
    return /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u.test(text) ? url : text;
  } catch {
    return url;
  }
}

const shortOf = url => (url ? url.replace(/^https?:\/\/(www\.)?/, "").slice(0, 60) : "New tab");

Screen.define("sh-screen");
