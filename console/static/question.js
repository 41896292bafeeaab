// A dialog or a file chooser of the page, which the person answers over the picture.

import { PageElement, html, nothing } from "./render.js";

const MAX_BYTES = 3_000_000;

class Question extends PageElement {
  // `answer` gets the event that answers the question.
  static properties = ["question", "answer", "host", "problem", "busy"];

  willUpdate(changed) {
    if (changed.has("question")) this._isNew = this._isAnswered !== false || !isSame(this.question, changed.get("question"));
    if (this._isNew) this.problem = this.busy = null;
  }

  // Each message of the picture brings the question again.
  updated() {
    if (!this._isNew) return;
    this._isNew = this._isAnswered = false;
    const field = this.querySelector("input");
    if (field && this.question.kind === "prompt") field.value = this.question.default;
    (field ?? this.querySelector("button.main"))?.focus();
    if (this.question.kind === "prompt") field.select();
  }

  _give(event) {
    this._isAnswered = true;
    this.answer(event);
  }

  render() {
    return this.question.kind === "files" ? this._renderFiles() : this._renderDialog();
  }

  _renderDialog() {
    const { kind, message } = this.question;
    const give = (event, accept) => {
      event.preventDefault();
      this._give({ type: "dialog", accept, text: this.querySelector("input")?.value ?? null });
    };
    const words = message || (kind === "beforeunload" ? "Leave this page?" : "");
    return html`<div class="answer" role="alertdialog" aria-label="Dialog of the page" aria-describedby="question"
      @keydown=${event => event.key === "Escape" && give(event, false)}><form @submit=${event => give(event, true)}>
      <h2><bdi>${this.host || "This page"}</bdi> says</h2>
      <p id="question"><bdi>${words}</bdi></p>
      ${kind === "prompt" ? html`<input aria-label="Answer" autocomplete="off">` : nothing}
      <div class="right">${kind === "alert" ? nothing : html`<button type="button" @click=${event => isFirst(event) && give(event, false)}>Cancel</button>`}
        <button class="main" @click=${event => isFirst(event) || event.preventDefault()}>OK</button></div></form></div>`;
  }

  _renderFiles() {
    return html`<div class="answer" role="alertdialog" aria-label="The page asks for a file"
      @keydown=${event => event.key === "Escape" && this._give({ type: "files" })}>
      <h2><bdi>${this.host || "This page"}</bdi> asks for a file</h2>
      <label>File for the page<br><input type="file" ?multiple=${this.question.several} ?disabled=${Boolean(this.busy)} @change=${this._upload}></label>
      ${this.problem ? html`<p class="problem" role="alert">${this.problem}</p>` : nothing}
      <div class="right"><button type="button" @click=${() => this._give({ type: "files" })}>Cancel</button></div></div>`;
  }

  async _upload(event) {
    const files = [...event.target.files];
    this.problem = null;
    this.busy = true;
    try {
      this._give({ type: "files", uploads: await uploadsOf(files) });
    } catch (error) {
      this.problem = error.message;
    }
    this.busy = false;
  }
}

const isSame = (one, other) => one.kind === other?.kind && one.message === other.message && one.default === other.default;

// The second click of a double click does not answer the next dialog.
const isFirst = event => event.detail < 2;

// Files as an event carries them. Raises an error with words for the person.
export async function uploadsOf(files) {
  if (files.reduce((sum, file) => sum + file.size, 0) > MAX_BYTES) throw new Error("Files from here may have 3 MB together.");
  try {
    return await Promise.all(files.map(uploadOf));
  } catch {
    throw new Error("The file cannot be read.");
  }
}

async function uploadOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return { name: file.name, media_type: file.type.slice(0, 100) || "application/octet-stream", content: btoa(text) };
}

Question.define("sh-question");
