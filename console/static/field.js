// The choices of a field of the page which a browser draws outside the picture: a list, a calendar, a clock, a colour.

import { PageElement, html, nothing } from "./render.js";

const MAX_LINES = 8;
export const isCoarse = () => matchMedia("(pointer: coarse)").matches;

class FieldChoices extends PageElement {
  // `choose` gets the members of the event that sets the field, `leave` whether the page gets the focus. `frame` describes
  // the picture on `canvas`.
  static properties = ["field", "frame", "canvas", "choose", "leave"];

  updated(changed) {
    if (!changed.has("field")) return;
    this._isDone = false;
    const control = this.querySelector("select, input");
    if (this.field.kind === "select") control.selectedIndex = this.field.options.findIndex(({ index }) => index === this.field.index);
    else control.value = this.field.value;
    this._place();
    control.focus({ preventScroll: true });
    // The press that opened it may be too long ago.
    if (this.field.kind !== "select" || isCoarse()) try { control.showPicker(); } catch { /* The field itself stays. */ }
  }

  // Over the field, inside the picture.
  _place() {
    const { field, frame, canvas, style } = this;
    const box = canvas.getBoundingClientRect(), stage = this.parentElement.getBoundingClientRect();
    const scale = Math.min(box.width / frame.width, box.height / frame.height);
    const left = box.left - stage.left + (box.width - frame.width * scale) / 2 + field.x * scale;
    const top = box.top - stage.top + (box.height - frame.height * scale) / 2 + field.y * scale;
    style.minWidth = `${Math.min(field.width * scale, stage.width)}px`;
    style.left = `${Math.max(0, Math.min(left, stage.width - this.offsetWidth))}px`;
    style.top = `${Math.max(0, Math.min(top, stage.height - this.offsetHeight))}px`;
  }

  render() {
    const { kind, label } = this.field;
    const name = label || (kind === "select" ? "Choices of the page" : "Value for the page");
    return html`<div role="dialog" aria-label="Field of the page" @keydown=${this._onKey} @focusout=${this._onFocusOut}>
      <form class="choices" @submit=${this._give}>${kind === "select" ? this._renderList(name) : this._renderValue(name)}</form></div>`;
  }

  _renderList(name) {
    const { options } = this.field;
    const size = isCoarse() ? 1 : Math.max(2, Math.min(MAX_LINES, options.length));
    const groups = [];
    for (const option of options) {
      if (groups.at(-1)?.name !== option.group) groups.push({ name: option.group, options: [] });
      groups.at(-1).options.push(option);
    }
    const line = ({ text, disabled, index }) => html`<option ?disabled=${disabled} value=${index}>${text || "\u00a0"}</option>`;
    return html`<select aria-label=${name} size=${size} @click=${event => event.target.matches("option") && this._give(event)}
      @change=${event => size === 1 && this._give(event)}>${groups.map(group => (group.name
        ? html`<optgroup label=${group.name}>${group.options.map(line)}</optgroup>` : group.options.map(line)))}</select>`;
  }

  _renderValue(name) {
    const { kind, min, max, step } = this.field;
    return html`<input type=${kind} aria-label=${name} min=${min || nothing} max=${max || nothing} step=${step || nothing}>
      <button class="main">Set</button><button type="button" class="plain" aria-label="Close" @click=${() => this._close(true)}>✕</button>`;
  }

  _give(event) {
    event.preventDefault();
    const control = this.querySelector("select, input");
    if (this._isDone || control.selectedIndex === -1) return;
    this._isDone = true;
    this.choose(this.field.kind === "select" ? { index: Number(control.value) } : { value: control.value });
  }

  _onKey(event) {
    event.stopPropagation();
    if (event.key === "Escape") this._close(true);
    else if (event.key === "Enter" && event.target.matches("select")) this._give(event);
  }

  _onFocusOut(event) {
    if (!this.contains(event.relatedTarget) && document.hasFocus()) this._close(false);
  }

  _close(isForPage) {
    if (this._isDone) return;
    this._isDone = true;
    this.leave(isForPage);
  }
}

FieldChoices.define("sh-field");
