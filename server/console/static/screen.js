// The page of a session with its tabs and its address, and the takeover by a person.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { live } from "./vendor/lit/directives/live.js";
import { act } from "./api.js";
import { icon } from "./icons.js";
import { Input, modifiersOf, placeOf } from "./input.js";
import "./picture.js";

const RENEW_MILLISECONDS = 15000;
const BUTTONS = ["left", "middle", "right"];

class Screen extends LitElement {
  static properties = {
    sessionId: {}, session: {}, user: {}, held: { state: true }, about: { state: true }, problem: { state: true },
    busy: { state: true }, asksEnd: { state: true },
  };

  createRenderRoot() {
    return this;
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._renewal);
  }

  get canvas() {
    return this.querySelector("canvas");
  }

  get control() {
    return this.session?.control ?? { driver: "agent" };
  }

  render() {
    const { control, held, about } = this;
    const byOther = control.driver === "human" && !held;
    return html`<section class="screen ${held ? "held" : ""}" aria-label="Page">
      ${this._renderBanner(control, byOther)}
      ${this.problem ? html`<p class="notice bad" role="alert">${this.problem.message} ${this.problem.recovery}</p>` : nothing}
      ${this._renderTabs(about)}
      <div class="surface" tabindex=${held ? 0 : -1} data-keys aria-label=${held ? "Page under your control" : "Page"}
        @pointerdown=${this._onPointer} @pointermove=${this._onPointer} @pointerup=${this._onPointer} @wheel=${this._onWheel}
        @keydown=${this._onKey} @keyup=${this._onKey} @paste=${this._onPaste} @contextmenu=${event => held && event.preventDefault()}>
        <sh-picture .sessionId=${this.sessionId} .fps=${10} alt="Page of the session" @frame=${this._onFrame} @frame-state=${this._onState}></sh-picture>
        ${held ? html`<textarea class="keys" aria-label="Keyboard of the page" autocapitalize="off" autocomplete="off" spellcheck="false"
          @input=${this._onText} @compositionend=${this._onComposed}></textarea>` : nothing}
      </div>
      ${held && about?.question ? this._renderQuestion(about.question) : nothing}
    </section>`;
  }

  _renderBanner(control, byOther) {
    if (this.held) {
      return html`<div class="banner person"><span>${icon("human")}<b>You have control.</b> The agent waits.</span><span class="spacer"></span>
        ${this.asksEnd ? this._renderEnd() : html`<button class="main" @click=${() => this._give("done")}>Done <kbd>Ctrl</kbd> <kbd>↵</kbd></button>
        <button @click=${() => { this.asksEnd = true; }}>Reply …</button>
        <button @click=${() => this._give("could_not")}>Could not</button>`}</div>`;
    }
    if (this.user?.rights === "view") return nothing;
    if (byOther) {
      return html`<div class="banner"><span>${icon("human")}<b>${control.holder || "A person"}</b> has control.</span></div>`;
    }
    const asks = control.driver === "requested";
    return html`<div class="banner ${asks ? "asks" : ""}"><span>${icon(asks ? "requested" : "agent")}${asks
      ? html`<b>The agent asks:</b> ${control.reason}` : "The agent has control."}</span><span class="spacer"></span>
      <button class=${asks ? "main" : ""} ?disabled=${this.busy} @click=${this._take}>${this.busy ? "Waiting for the agent …" : "Take over"}</button></div>`;
  }

  _renderEnd() {
    return html`<form class="reply" @submit=${event => { event.preventDefault(); this._give("done", event.target.elements.reply.value); }}>
      <input name="reply" aria-label="Reply to the agent" placeholder="Reply to the agent" maxlength="500" autofocus>
      <button class="main">Done</button><button type="button" @click=${() => { this.asksEnd = false; }}>Back</button></form>`;
  }

  _renderTabs(about) {
    const tabs = about?.tabs ?? [];
    const { held } = this;
    const send = event => this._input?.add(event);
    return html`<div class="browser">
      ${tabs.length > 1 || held ? html`<div class="tabs" role="group" aria-label="Tabs">${tabs.map(tab => html`
        <span class="tab ${tab.current ? "current" : ""}"><button class="plain cut" ?disabled=${!held} aria-pressed=${Boolean(tab.current)}
          @click=${() => send({ type: "tab", action: "select", index: tab.index })}>${shortOf(tab.url)}</button>
          ${held ? html`<button class="plain" aria-label="Close tab ${tab.index + 1}" @click=${() => send({ type: "tab", action: "close", index: tab.index })}>✕</button>` : nothing}</span>`)}
        ${held ? html`<button class="plain" aria-label="New tab" @click=${() => send({ type: "tab", action: "open" })}>+</button>` : nothing}</div>` : nothing}
      <form class="address" @submit=${event => { event.preventDefault(); send({ type: "address", address: event.target.elements.url.value }); }}>
        ${held ? ["back", "forward", "reload"].map(step => html`<button type="button" class="plain" aria-label=${step}
          @click=${() => send({ type: "history", action: step })}>${icon(step)}</button>`) : nothing}
        <input name="url" aria-label="Address" ?readonly=${!held} .value=${live(tabs.find(tab => tab.current)?.url ?? "")} spellcheck="false"></form></div>`;
  }

  _renderQuestion(question) {
    if (question.kind === "files") return this._renderChooser();
    const answer = accept => this._input.add({ type: "dialog", accept, text: this.querySelector(".answer input")?.value ?? null });
    return html`<div class="answer" role="alertdialog" aria-label="Dialog of the page"><p>${question.message || "Leave this page?"}</p>
      ${question.kind === "prompt" ? html`<input aria-label="Answer" .value=${question.default}>` : nothing}
      <div class="right">${question.kind === "alert" ? nothing : html`<button @click=${() => answer(false)}>Cancel</button>`}
        <button class="main" @click=${() => answer(true)}>OK</button></div></div>`;
  }

  _renderChooser() {
    const send = uploads => this._input.add({ type: "files", uploads });
    return html`<div class="answer" role="alertdialog" aria-label="The page asks for a file"><label>File for the page
      <input type="file" multiple @change=${async event => send(await Promise.all([...event.target.files].map(uploadOf)))}></label>
      <div class="right"><button @click=${() => send([])}>Cancel</button></div></div>`;
  }

  _onFrame(event) {
    this.about = event.detail;
  }

  _onState(event) {
    this.about = { ...this.about, ...event.detail };
  }

  async _take() {
    this.busy = true;
    this.problem = null;
    try {
      const { epoch } = await act(this.sessionId, "take");
      this.held = epoch;
      this._input = new Input(this.sessionId, epoch, {
        onRefusal: message => { this.problem = { message, recovery: "" }; },
        onError: error => this._lose(error),
      });
      this._renewal = setInterval(() => this._renew(), RENEW_MILLISECONDS);
      await this.updateComplete;
      this._focus();
    } catch (error) {
      this.problem = error;
    } finally {
      this.busy = false;
      this._changed();
    }
  }

  async _renew() {
    try {
      await act(this.sessionId, "renew", { epoch: this.held });
    } catch (error) {
      if (error.endsControl) this._lose(error);
    }
  }

  async _give(end, reply = null) {
    const epoch = this.held;
    await this._input.finish();
    if (this.held !== epoch) return;
    this._end();
    try {
      await act(this.sessionId, "give-back", { epoch, end, reply: reply || null });
      this.problem = null;
    } catch (error) {
      this.problem = error;
    }
    this._changed();
  }

  _lose(error) {
    this._end();
    this.problem = error;
    this._changed();
  }

  _end() {
    clearInterval(this._renewal);
    this.held = null;
    this._input = null;
    this.asksEnd = false;
  }

  _changed() {
    this.dispatchEvent(new Event("changed"));
  }

  _focus() {
    this.querySelector("textarea.keys")?.focus({ preventScroll: true });
  }

  _onPointer(event) {
    if (!this.held || !this.about?.width || event.target.closest("button")) return;
    const action = { pointerdown: "down", pointermove: "move", pointerup: "up" }[event.type];
    if (action === "down") {
      event.preventDefault();
      event.currentTarget.setPointerCapture(event.pointerId);
      this._clicks = this._isNear(event) ? Math.min(3, this._clicks + 1) : 1;
      this._lastDown = { at: event.timeStamp, x: event.clientX, y: event.clientY };
      this._focus();
    }
    const place = placeOf(event, this.canvas, this.about);
    const modifiers = modifiersOf(event);
    if (event.pointerType === "touch") {
      if (action === "move" && !event.buttons) return;
      const touch = { down: "start", move: "move", up: "end" }[action];
      const points = action === "up" ? [] : [{ id: 0, ...place }];
      this._input.add({ type: "touch", action: touch, points, modifiers }, this.about.tab);
      return;
    }
    const pressed = event.buttons & 1 ? "left" : event.buttons & 2 ? "right" : event.buttons & 4 ? "middle" : "none";
    const button = action === "move" ? pressed : BUTTONS[event.button] ?? "left";
    const clicks = action === "move" ? 0 : this._clicks ?? 1;
    this._input.add({ type: "mouse", action, ...place, button, clicks, modifiers }, this.about.tab);
  }

  _isNear(event) {
    const last = this._lastDown;
    return last && event.timeStamp - last.at < 400 && Math.hypot(event.clientX - last.x, event.clientY - last.y) < 6;
  }

  _onWheel(event) {
    if (!this.held || !this.about?.width) return;
    event.preventDefault();
    const place = placeOf(event, this.canvas, this.about);
    this._input.add({
      type: "mouse", action: "wheel", ...place, delta_x: event.deltaX, delta_y: event.deltaY, modifiers: modifiersOf(event),
    }, this.about.tab);
  }

  _onKey(event) {
    if (!this.held || event.isComposing || event.target.matches("input")) return;
    const isDown = event.type === "keydown";
    if (event.key === "Enter" && event.ctrlKey) {
      if (isDown) this._give("done");
      return;
    }
    const hasCommand = event.ctrlKey || event.metaKey;
    const letter = event.key.toLowerCase();
    // The text field takes letters, as an input method may compose them.
    const isText = event.key.length === 1 && !hasCommand;
    if (isText || (hasCommand && letter === "v") || ["Dead", "Process", "Unidentified"].includes(event.key)) return;
    event.preventDefault();
    if (hasCommand && letter === "c") {
      if (isDown) this._input.add({ type: "copy" });
      return;
    }
    this._input.add({
      type: "key", action: isDown ? "down" : "up", key: event.key, code: event.code, key_code: event.keyCode,
      location: event.location, modifiers: modifiersOf(event), repeat: event.repeat,
    });
  }

  _onText(event) {
    if (event.isComposing) return;
    this._insert(event.target);
  }

  _onComposed(event) {
    this._insert(event.target);
  }

  _insert(field) {
    if (field.value) this._input?.add({ type: "text", text: field.value });
    field.value = "";
  }

  _onPaste(event) {
    const text = event.clipboardData?.getData("text/plain");
    if (!this.held || !text || event.target.matches("input")) return;
    event.preventDefault();
    this._input.add({ type: "paste", text });
  }
}

const shortOf = url => (url ? url.replace(/^https?:\/\/(www\.)?/, "").slice(0, 60) : "New tab");

async function uploadOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return { name: file.name, media_type: file.type || "application/octet-stream", content: btoa(text) };
}

customElements.define("sh-screen", Screen);
