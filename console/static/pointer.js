// Mouse, pen and finger over the picture, in coordinates of the page.

import { modifiersOf } from "./keyboard.js";

const BUTTONS = ["left", "middle", "right", "back", "forward"];
const TAP_PIXELS = 10;
const LINE_PIXELS = 40;

export class Pointer {
  // `send` gets each event with the number of the tab in whose picture it happened, and `onPress` the places of presses.
  constructor(send) {
    this._send = send;
    this._clicks = 1;
    this._finger = null;
  }

  // `frame` describes the picture that the canvas shows. Returns whether a press began, or a tap ended.
  handle(event, canvas, frame) {
    const action = { pointerdown: "down", pointermove: "move", pointerup: "up", pointercancel: "cancel" }[event.type];
    const place = placeOf(event, canvas, frame);
    if (event.pointerType === "touch") return this._touch(action, event, place, frame);
    if (action === "cancel" || (action === "down" && !place.isInside)) return false;
    if (action === "down") this._count(event);
    const button = action === "move" ? pressedOf(event) : BUTTONS[event.button] ?? "left";
    const clicks = action === "move" ? 0 : this._clicks;
    const seen = action === "down" ? scrollOf(frame) : {};
    this._send({ type: "mouse", action, x: place.x, y: place.y, button, clicks, ...seen, modifiers: modifiersOf(event) }, frame.tab);
    return action === "down";
  }

  // One finger is the page's; a second one enlarges the picture, which cancels the first.
  _touch(action, event, place, frame) {
    if (action === "down" && (this._finger || !place.isInside)) return false;
    if (action !== "down" && this._finger?.id !== event.pointerId) return false;
    const kind = { down: "start", move: "move", up: "end", cancel: "cancel" }[action];
    const points = ["start", "move"].includes(kind) ? [{ id: 0, x: place.x, y: place.y }] : [];
    if (action === "down") this._finger = { id: event.pointerId, x: event.clientX, y: event.clientY, isTap: true };
    const finger = this._finger;
    if (Math.hypot(event.clientX - finger.x, event.clientY - finger.y) > TAP_PIXELS) finger.isTap = false;
    // Fingers tremble, which is no move of a tap.
    if (kind !== "move" || !finger.isTap) {
      const seen = kind === "start" ? scrollOf(frame) : {};
      this._send({ type: "touch", action: kind, points, ...seen, modifiers: modifiersOf(event) }, frame.tab);
    }
    if (points.length) return false;
    this._finger = null;
    return kind === "end" && finger.isTap;
  }

  wheel(event, canvas, frame) {
    const { x, y, isInside } = placeOf(event, canvas, frame);
    const unit = [1, LINE_PIXELS, frame.height][event.deltaMode];
    const [delta_x, delta_y] = [event.deltaX * unit, event.deltaY * unit];
    if (isInside) this._send({ type: "mouse", action: "wheel", x, y, delta_x, delta_y, modifiers: modifiersOf(event) }, frame.tab);
  }

  _count(event) {
    const last = this._last;
    const isNear = last && event.timeStamp - last.at < 400 && last.button === event.button
      && Math.hypot(event.clientX - last.x, event.clientY - last.y) < 6;
    this._clicks = isNear ? Math.min(3, this._clicks + 1) : 1;
    this._last = { at: event.timeStamp, button: event.button, x: event.clientX, y: event.clientY };
  }
}

const pressedOf = ({ buttons }) => (buttons & 1 ? "left" : buttons & 2 ? "right" : buttons & 4 ? "middle" : "none");

// A press is refused if the page has scrolled since the picture in which the person saw its place.
const scrollOf = ({ scroll_x, scroll_y }) => ({ scroll_x, scroll_y });

// The place of a pointer on the page, from its place on the picture, which keeps its proportions inside the canvas.
export function placeOf(event, canvas, frame) {
  const box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / canvas.width, box.height / canvas.height);
  const left = box.left + (box.width - canvas.width * scale) / 2;
  const top = box.top + (box.height - canvas.height * scale) / 2;
  const x = (event.clientX - left) / scale / canvas.width;
  const y = (event.clientY - top) / scale / canvas.height;
  const isInside = x >= 0 && x <= 1 && y >= 0 && y <= 1;
  return { x: clamp(x) * frame.width, y: clamp(y) * frame.height, isInside };
}

const clamp = share => Math.max(0, Math.min(1, share));
