// The services with their health, the nodes, and the own usage against the limits.

import { LitElement, html, nothing } from "./vendor/lit/lit-element.js";
import { get, logout } from "./api.js";
import { ago, bytes } from "./format.js";

class Services extends LitElement {
  static properties = { user: {}, data: { state: true }, problem: { state: true } };

  createRenderRoot() {
    return this;
  }

  connectedCallback() {
    super.connectedCallback();
    this._load();
    this._timer = setInterval(() => document.hidden || this._load(), 5000);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._timer);
  }

  async _load() {
    try {
      const nodes = this.user.is_machine_user ? get("/nodes") : { nodes: [] };
      const [services, processes, usage] = await Promise.all([get("/services"), nodes, get("/usage")]);
      this.data = { services: services.services, nodes: processes.nodes, usage };
      this.problem = null;
    } catch (error) {
      this.problem = error;
    }
  }

  async _logout() {
    try {
      await logout(true);
    } finally {
      window.dispatchEvent(new Event("statehold-logout"));
    }
  }

  render() {
    if (this.problem && !this.data) return html`<p class="notice bad" role="alert">${this.problem.message}</p>`;
    if (!this.data) return html`<p class="page quiet" aria-busy="true">Loading …</p>`;
    const { services, nodes, usage } = this.data, calls = usage.limits.calls_in_flight;
    return html`<div class="page">
      <h1>Services</h1>
      <div class="scroll"><table class="rows"><thead><tr><th scope="col">Service</th><th scope="col">State</th>
        <th scope="col">Tools</th><th scope="col">Problem</th></tr></thead><tbody>${services.map(service => html`<tr>
        <td><b>${service.service}</b></td><td><span class="tag ${service.status === "available" ? "good" : "warn"}">${service.status}</span></td>
        <td>${service.tools ?? ""}</td><td class="quiet">${service.problem ?? ""}</td></tr>`)}</tbody></table></div>
      <h2>Usage</h2>
      <dl class="usage">${this._renderUse("Open sessions", openOf(usage.sessions), usage.sessions_limit, grouped)}
        ${this._renderUse("Stored", usage.stored_bytes, usage.stored_bytes_limit, bytes)}
        ${calls.limit ? this._renderUse("Calls in flight here", usage.calls_in_flight, calls.limit, grouped) : nothing}
        ${usage.here ? this._renderUse("Open in this process", usage.here.live, null, grouped) : nothing}</dl>
      ${nodes.length ? html`<h2>Processes</h2>
      <div class="scroll"><table class="rows"><thead><tr><th scope="col">Process</th><th scope="col">State</th>
        <th scope="col">Sessions</th><th scope="col">Started</th></tr></thead><tbody>${nodes.map(node => html`<tr>
        <td class="mono">${node.address || node.node}</td><td>${node.state}</td><td>${node.sessions ?? ""}</td>
        <td>${ago(node.started_at)}</td></tr>`)}</tbody></table></div>` : nothing}
      <h2>Your logins</h2>
      <p class="tools"><button @click=${this._logout}>Log out everywhere</button><span class="quiet">Ends your logins in all browsers.</span></p>
    </div>`;
  }

  _renderUse(title, used, limit, show) {
    return html`<div><dt>${title}</dt><dd>${show(used)}${limit ? html` <span class="quiet">of ${show(limit)}</span>
      <meter min="0" max=${limit} value=${used} aria-label=${title}></meter>` : nothing}</dd></div>`;
  }
}

const grouped = count => count.toLocaleString("en");
const openOf = counts => Object.entries(counts).reduce((sum, [status, count]) => sum + (status === "closed" ? 0 : count), 0);

customElements.define("sh-services", Services);
