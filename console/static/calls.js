// The calls of a session that go on without their callers: what they report, what they ask, and a button that ends one.

import { PageElement, html, nothing, repeat } from "./render.js";
import { act } from "./api.js";
import { ago } from "./format.js";

class Calls extends PageElement {
  static properties = ["session", "user", "busy"];

  async _cancel(call) {
    this.busy = call.task_id;
    let note;
    try {
      const { status } = await act(this.session.session_id, "cancel-call", { task_id: call.task_id });
      note = { text: `${call.tool} ${{ cancelled: "was cancelled", started: "goes on: its server does not end it" }[status] ?? "had ended"}.` };
    } catch (error) {
      note = { text: `${error.message} ${error.recovery}`, bad: true };
    }
    this.busy = null;
    this.dispatchEvent(new CustomEvent("acted", { detail: note }));
  }

  render() {
    const row = call => html`<tr><td class="mono">${call.tool}</td><td class="nowrap quiet">${ago(call.began_at)}</td>
      <td>${call.question ? html`<b class="warn">Asks:</b> <bdi>${call.question}</bdi>` : html`<bdi>${call.message}</bdi>`}</td>
      <td>${this.user.rights === "view" ? nothing : html`<div class="right"><button class="danger" ?disabled=${this.busy === call.task_id}
        aria-label="Cancel ${call.tool}" @click=${() => this._cancel(call)}>Cancel</button></div>`}</td></tr>`;
    return html`<div class="scroll"><table class="rows"><thead><tr><th scope="col">Call that goes on</th><th scope="col">Since</th>
      <th scope="col">Says</th><th></th></tr></thead><tbody>${repeat(this.session.calls, call => call.task_id, row)}</tbody></table></div>`;
  }
}

Calls.define("sh-calls");
