// The services with their health, the nodes, and the own usage against the limits.

import { LoadingElement, html, live, nothing, repeat, svg } from "./render.js";
import { get, logout, post } from "./api.js";
import { ago, bytes } from "./format.js";

// Looks at the memory that the line shows, one for each time that it is loaded.
const LOOKS = 120;

class Services extends LoadingElement {
  static reloadMilliseconds = 5000;
  static properties = ["user", "data", "problem", "changes", "busy"];

  async _load() {
    try {
      const nodes = this.user.is_machine_user ? get("/nodes") : { nodes: [] };
      const [services, processes, usage] = await Promise.all([get("/services"), nodes, get("/usage")]);
      this.data = { services: services.services, nodes: processes.nodes, usage };
      if (usage.here?.memory_bytes) this._memory = [...(this._memory ?? []), usage.here.memory_bytes].slice(-LOOKS);
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
    const hasSessions = nodes.some(node => node.sessions != null);
    return html`<div class="page halves"><div class="first">
      <h1>Services</h1>
      <div class="scroll"><table class="rows"><thead><tr><th scope="col">Service</th><th scope="col">State</th>
        <th scope="col">Tools</th><th scope="col" title="Sessions with an open connection in this process">Open</th></tr></thead><tbody>${services.map(service => html`<tr>
        <td class="main"><b>${service.service}</b>${renderProblem(service)}${this._renderChanged(service)}</td>
        <td><span class="tag ${service.status === "available" ? "good" : "warn"}">${service.status}</span></td>
        <td>${service.tools ?? ""}</td><td>${service.open}</td></tr>`)}</tbody></table></div>
      ${nodes.length ? html`<h2>Processes</h2>
      <div class="scroll"><table class="rows"><thead><tr><th scope="col">Process</th><th scope="col">State</th>
        ${hasSessions ? html`<th scope="col">Sessions</th>` : nothing}<th scope="col">Started</th></tr></thead><tbody>${nodes.map(node => html`<tr>
        <td class="main"><span class="mono">${node.address || node.node}</span></td><td>${node.state}</td>${hasSessions ? html`<td>${node.sessions ?? ""}</td>` : nothing}
        <td class="nowrap">${ago(node.started_at)}</td></tr>`)}</tbody></table></div>` : nothing}</div>
      <div class="first"><h2>Usage</h2>
      <dl class="usage">${this._renderUse("Open sessions", openOf(usage.sessions), usage.sessions_limit, grouped)}
        ${this._renderUse("Stored", usage.stored_bytes, usage.stored_bytes_limit, bytes)}
        ${calls.limit ? this._renderUse("Calls in flight here", usage.calls_in_flight, calls.limit, grouped) : nothing}
        ${usage.here ? this._renderUse("Open connections", usage.here.live, null, grouped) : nothing}
        ${usage.here?.memory_bytes ? html`<div><dt>Memory, with all programs</dt><dd>${bytes(usage.here.memory_bytes)}${lineOf(this._memory)}</dd></div>` : nothing}</dl>
      <h2>This console</h2>
      <p class="tools"><button @click=${this._logout}>Log out everywhere</button><span class="quiet">In all of your browsers.</span></p></div>
      <dialog class="changes" aria-labelledby="changes-title" @close=${() => { this.changes = null; }}>${this.changes ? this._renderChanges(this.changes) : nothing}</dialog>
    </div>`;
  }

  _renderChanged({ service, changes }) {
    if (!changes) return nothing;
    const words = changes === 1 ? "1 changed definition" : `${changes} changed definitions`;
    return html`<div>${this.user.role === "user" && !this.user.is_machine_user ? html`<span class="quiet">${words}</span>` : html`<button class="main" @click=${() => this._look(service)}>Look at ${words} …</button>`}</div>`;
  }

  _renderChanges({ service, list, chosen, problem }) {
    const choose = ids => { this.changes = { ...this.changes, chosen: ids }; };
    return html`<form class="fields" @submit=${this._accept}>
      <h2 id="changes-title">Changes of <bdi>${service}</bdi></h2>
      <p class="quiet">Models read these words, and calls follow them. A change that you leave out stays listed.</p>
      ${list.length > 1 ? html`<label class="check"><input type="checkbox" .checked=${live(chosen.length === list.length)}
        @change=${event => choose(event.target.checked ? list.map(({ id }) => id) : [])}> All ${list.length}</label>` : nothing}
      ${repeat(list, ({ id }) => id, ({ id, kind, name, difference, offered_at }) => html`<fieldset><legend><label class="check"><input type="checkbox" .checked=${live(chosen.includes(id))}
        @change=${event => choose(event.target.checked ? [...chosen, id] : chosen.filter(each => each !== id))}> ${kind} <b><bdi>${name}</bdi></b> <span class="quiet">${offered_at ? ago(offered_at) : ""}</span></label></legend>
        <pre class="diff">${difference.map(({ part, text }) => part === "same" ? text : part === "old" ? html`<del>${text}</del>` : html`<ins>${text}</ins>`)}</pre></fieldset>`)}
      ${list.length || problem ? nothing : html`<p>Nothing waits.</p>`}
      ${problem ? html`<p class="problem" role="alert">${problem.message} ${problem.recovery}</p>` : nothing}
      <div class="right"><button type="button" @click=${() => this.querySelector("dialog").close()}>Close</button>
        ${list.length && this.user.rights !== "view" ? html`<button class="main" ?disabled=${this.busy || !chosen.length}>Accept the chosen</button>` : nothing}</div></form>`;
  }

  // Shows the changes of a service, after a problem with those that were chosen too.
  async _look(service, problem, earlier = []) {
    let list = [];
    try {
      list = (await get(`/services/${encodeURIComponent(service)}/changes`)).changes;
    } catch (error) {
      problem ??= error;
    }
    this.changes = { service, list, problem, chosen: earlier.filter(id => list.some(each => each.id === id)) };
    await this.updateComplete;
    if (!this.querySelector("dialog").open) this.querySelector("dialog").showModal();
  }

  async _accept(event) {
    event.preventDefault();
    const { service, chosen } = this.changes;
    this.busy = true;
    try {
      await post(`/services/${encodeURIComponent(service)}/accept`, { changes: chosen });
      this.querySelector("dialog").close();
      await this._load();
    } catch (problem) {
      await this._look(service, problem, chosen);
    } finally {
      this.busy = false;
    }
  }

  _renderUse(title, used, limit, show) {
    return html`<div><dt>${title}</dt><dd>${show(used)}${limit ? html` <span class="quiet">of ${show(limit)}</span>
      <meter min="0" max=${limit} value=${used} aria-label=${title}></meter>` : nothing}</dd></div>`;
  }
}

// A service that lacks a login leads to it; another one says its problem.
function renderProblem({ problem, login }) {
  if (login) return html`<div><a href="#/logins/${encodeURIComponent(login)}">It needs the login <bdi>${login}</bdi></a></div>`;
  return problem ? html`<div class="quiet">${problem}</div>` : nothing;
}

// A line of numbers since the page was opened.
function lineOf(numbers) {
  if (numbers.length < 2) return nothing;
  const most = Math.max(...numbers);
  const points = numbers.map((number, at) => `${(at * 200) / (numbers.length - 1)},${39 - (number / most) * 36}`).join(" ");
  return html`<svg class="line" viewBox="0 0 200 40" preserveAspectRatio="none" role="img" aria-label="From ${bytes(numbers[0])} to ${bytes(numbers.at(-1))} since this page was opened">
    ${svg`<polyline points=${points} fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke"/>`}</svg>`;
}

const grouped = count => count.toLocaleString("en");
const openOf = counts => Object.entries(counts).reduce((sum, [status, count]) => sum + (status === "closed" ? 0 : count), 0);

Services.define("sh-services");
