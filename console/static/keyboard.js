// Keys, input methods and on-screen keyboards: what a person types becomes events for the page.

const MODIFIERS = [["altKey", 1], ["ctrlKey", 2], ["metaKey", 4], ["shiftKey", 8]];
const IS_MAC = /^(Mac|iP)/.test(navigator.platform);
// The text field never gets empty, as the keyboards of phones report Backspace only as a change of its text.
const FILLER = "_".repeat(16);

// The page runs on a system where Control does what Command does on a Mac.
export function modifiersOf(event) {
  const sum = MODIFIERS.reduce((bits, [key, value]) => bits + (event[key] ? value : 0), 0);
  return IS_MAC && event.metaKey ? (sum & ~4) | 2 : sum;
}

export class Keyboard {
  // `send` gets the events, in their order.
  constructor(send) {
    this._send = send;
    this._down = new Map();
    this._isAfterDead = false;
  }

  // A key of a keyboard is a key in the page. The text field gets what an input method composes: nothing is sent then.
  onKey(event) {
    if (event.type === "keyup") this._release(event);
    else if (!this._isForField(event)) {
      event.preventDefault();
      this._press(event);
    }
  }

  _isForField(event) {
    if (event.isComposing || event.keyCode === 229 || ["Process", "Unidentified"].includes(event.key)) return true;
    if (event.key === "Dead") return (this._isAfterDead = true);
    const isLetter = event.key.length === 1;
    if (isCommand(event)) return event.key.toLowerCase() === "v";
    const isAfterDead = this._isAfterDead && isLetter;
    this._isAfterDead &&= !isLetter && ["Shift", "AltGraph", "Alt"].includes(event.key);
    // A key without a place is none of a keyboard.
    return isLetter && (isAfterDead || !event.code || event.code === "Unidentified");
  }

  _press(event) {
    if (isCommand(event) && ["c", "x"].includes(event.key.toLowerCase()) && !event.repeat) this._send({ type: "copy" });
    const key = keyOf(event);
    this._down.set(event.code || event.key, key);
    const isText = event.key.length === 1 && !isCommand(event) && (IS_MAC || event.ctrlKey || !event.altKey);
    this._send({ ...key, action: "down", modifiers: modifiersOf(event), repeat: event.repeat, ...(isText ? { text: event.key } : {}) });
  }

  _release(event) {
    // A Mac reports no release of a key while Command is held.
    if (event.key === "Meta") this.releaseAll();
    const name = event.code || event.key;
    const key = this._down.get(name);
    if (!key) return;
    event.preventDefault();
    this._down.delete(name);
    this._send({ ...key, action: "up", modifiers: modifiersOf(event) });
  }

  // The field lost the focus: releases are not seen any more.
  releaseAll() {
    for (const key of this._down.values()) this._send({ ...key, action: "up", modifiers: 0 });
    this._down.clear();
    this._isAfterDead = false;
  }

  onInput(event) {
    if (event.isComposing) return;
    this._isAfterDead = false;
    const { value } = event.target;
    const kind = event.inputType ?? "";
    let same = 0;
    while (same < FILLER.length && value[same] === FILLER[same]) same += 1;
    const removed = FILLER.length - same;
    fill(event.target);
    if (/^delete.*(Word|Line)/.test(kind)) this._stroke("Backspace", 8, 2);
    else for (let count = 0; count < removed; count += 1) this._stroke("Backspace", 8);
    if (["insertLineBreak", "insertParagraph"].includes(kind)) this._stroke("Enter", 13);
    else this._type(value.slice(same));
  }

  onComposition(event) {
    if (event.type === "compositionupdate") {
      this._send({ type: "composition", text: event.data, start: event.data.length, end: event.data.length });
      return;
    }
    this._isAfterDead = false;
    fill(event.target);
    if (event.data) this._type(event.data);
    else this._send({ type: "composition", text: "" });
  }

  // A key of the row below the picture.
  press(key, keyCode) {
    this._stroke(key, keyCode);
  }

  _type(text) {
    if (text) this._send({ type: "text", text });
  }

  _stroke(key, key_code, modifiers = 0) {
    for (const action of ["down", "up"]) this._send({ type: "key", action, key, code: key, key_code, modifiers });
  }
}

// Prepare the text field for what is typed next.
export function fill(field) {
  field.value = FILLER;
  field.setSelectionRange(FILLER.length, FILLER.length);
}

// Control with Alt is how Windows writes AltGraph, which types.
const isCommand = event => event.metaKey || (event.ctrlKey && !event.altKey);

function keyOf(event) {
  const isControl = IS_MAC && event.key === "Meta";
  return {
    type: "key", key: isControl ? "Control" : event.key, code: isControl ? "ControlLeft" : event.code,
    key_code: isControl ? 17 : event.keyCode, location: event.location,
  };
}
