// What happened in a session, in the words of a person: one line for each entry of its journal, as parts to show and as text.

import { html, nothing } from "./render.js";
import { icon } from "./icons.js";

const GOOD = new Set(["ok", "started", "input_required", null, undefined]);
const BROKEN = new Set(["connection_lost", "open_failed", "recovery_failed"]);
const LONGEST = 200;

// The kinds of entries that a person may ask for alone.
export const KINDS = { call: "Calls", control: "People", message: "Messages", transition: "Changes of status", state: "Changes of the state", run: "Runs" };

export function isFailed(entry) {
  if (entry.kind === "transition") return BROKEN.has(entry.transition?.event);
  if (entry.kind === "run") return entry.status === "error";
  return entry.kind === "call" && !GOOD.has(entry.status);
}

// A sentence has a verb of ours, and words of a page, an agent or a person after it: `{ verb, who, object, more }`.
export function sentenceOf(entry) {
  switch (entry.kind) {
    case "call": return callOf(entry);
    case "state": return { verb: "Change the state", object: keysOf(entry.arguments?.values ?? entry.arguments) };
    case "transition": return transitionOf(entry.transition ?? {});
    case "control": return controlOf(entry.status, entry.control ?? {});
    case "message": return { verb: `${capital(textOf(entry.role ?? "Message"))}:`, object: textOf(entry.content) };
    case "run": return { verb: { running: "Run begins", ok: "Run", error: "Run failed", cancelled: "Run was cancelled" }[entry.status] ?? `Run, ${plain(entry.status)}`, object: entry.run_id };
    case "compacted": return { verb: "Older entries, of which only counts are kept" };
    default: return { verb: plain(entry.kind) };
  }
}

export function lineOf(entry) {
  const { verb, who, object, more } = sentenceOf(entry);
  return [verb, who && `(${who})`, object, more].filter(Boolean).join(" ").replace(/[\s\p{Cc}]+/gu, " ");
}

// One line of an entry. The words of others are text beside ours, each bounded and with its own direction.
export function titleOf(entry) {
  const { verb, who, object, more } = sentenceOf(entry);
  const isEvent = ["transition", "run", "compacted"].includes(entry.kind) && !isFailed(entry);
  const words = html`${object ? html` <bdi>${object}</bdi>` : nothing}${more ? html` <span class="quiet"><bdi>${more}</bdi></span>` : nothing}`;
  if (entry.kind === "control") return html`<span class="by-person">${icon(entry.status === "requested" ? "requested" : "human")}${verb}</span>${who ? html` <bdi class="who">${who}</bdi>` : nothing}${words}`;
  return isEvent ? html`<span class="quiet">${verb}${words}</span>` : html`<b>${verb}</b>${words}`;
}

const plain = word => String(word ?? "").replaceAll("_", " ");
const capital = word => word.charAt(0).toUpperCase() + word.slice(1);
const textOf = value => (value == null ? "" : String(typeof value === "object" ? JSON.stringify(value) : value).replace(/\s+/g, " ").slice(0, LONGEST));
const keysOf = value => (value && typeof value === "object" ? Object.keys(value).slice(0, 8).join(", ") : "");
const quoted = value => (value == null || value === "" ? "" : `“${textOf(value)}”`);

// The name of an element: of the locator that the journal kept, else of the one that the agent wrote, else its own words for it.
function elementOf(target, args, key = "target") {
  const locator = target?.locator ?? String(args[key] ?? "");
  const found = locator.match(/\bname[=:]\s*(["'`])((?:\\.|(?!\1).)*)\1/) ?? locator.match(/\bget_?[bB]y_?\w+\(\s*(["'`])((?:\\.|(?!\1).)*)\1/);
  if (found) return textOf(found[2].replace(/\\(.)/g, "$1"));
  const described = args.element ?? args[key.replace("Target", "Element")];
  return textOf(target ? locator : described ?? locator);
}

const VERBS = {
  browser_navigate: (args, name) => ["Open", textOf(args.url)], browser_navigate_back: () => ["Go back"], browser_close: () => ["Close the page"],
  browser_click: (args, name) => [args.doubleClick ? "Double-click" : args.button === "right" ? "Right-click" : "Click", name()],
  browser_type: (args, name) => ["Type into", name(), args.text === "[redacted]" ? "" : quoted(args.text)], browser_hover: (args, name) => ["Point at", name()],
  browser_select_option: (args, name) => ["Choose in", name(), quoted([args.values].flat().join(", "))], browser_press_key: args => ["Press", textOf(args.key)],
  browser_fill_form: args => ["Fill in", textOf([args.fields].flat().map(field => field?.name ?? field?.element).filter(Boolean).join(", "))],
  browser_drag: (args, name, targets) => ["Drag", elementOf(targets?.[0], args, "startTarget"), `to ${elementOf(targets?.[1], args, "endTarget")}`],
  browser_wait_for: args => (args.text ? ["Wait for", quoted(args.text)] : args.textGone ? ["Wait for the end of", quoted(args.textGone)] : ["Wait", args.time == null ? "" : `${args.time} s`]),
  browser_take_screenshot: (args, name) => ["Take a screenshot", args.target ? `of ${name()}` : "", textOf(args.filename)], browser_snapshot: () => ["Read the page"],
  browser_find: args => ["Look for", quoted(args.text ?? args.regex)], browser_evaluate: (args, name) => ["Run a script in the page", textOf(args.function)],
  browser_run_code_unsafe: args => ["Run code in the browser", textOf(args.code)], browser_resize: args => ["Give the page the size", `${args.width} × ${args.height}`],
  browser_tabs: args => [{ new: "Open a tab", close: args.index == null ? "Close the tab" : "Close tab", select: "Go to tab", list: "Look at the tabs" }[args.action] ?? "Tabs", textOf(args.url ?? args.index)],
  browser_file_upload: args => ["Upload", textOf([args.paths ?? []].flat().map(path => String(path).split("/").at(-1)).join(", "))],
  browser_handle_dialog: args => [args.accept ? "Accept a dialog" : "Dismiss a dialog", quoted(args.promptText)],
  browser_console_messages: () => ["Read the console of the page"], browser_network_requests: () => ["Look at the requests of the page"], browser_pdf_save: args => ["Save as PDF", textOf(args.filename)],
};

function callOf(entry) {
  const args = entry.arguments && typeof entry.arguments === "object" ? entry.arguments : {};
  const { target, targets } = entry.facts ?? {};
  const say = VERBS[entry.tool];
  if (!say || entry.arguments?.truncated || entry.arguments?.withheld) {
    const first = args.url ?? args.target ?? args.command ?? args.text ?? args.truncated ?? Object.values(args)[0];
    return { verb: entry.tool, object: "", more: args.withheld ? "" : textOf(first) };
  }
  const [verb, object, more] = say(args, () => elementOf(target, args), targets);
  return { verb, object, more };
}

const CAUSES = {
  requested: "on request", call: "by a call", idle_timeout: "after a time without use", paused_timeout: "after a long time without use", lifetime: "at the end of its life",
  live_budget: "to make room for others", rebalancing: "to move to another process", shutdown: "since its server stopped", revoked: "since the access of its owner ended", restart: "to restart services",
  server_restart: "after a restart of its server", screenshot: "for a screenshot", cli: "by a command", operator: "by an operator", deleted: "to be deleted",
  error: "after an error", "its connection outlived its process": "as it was, after the end of its server",
};
const EVENTS = {
  created: "Created", opened: "Opened", open_failed: "Could not be opened:", idle_timed_out: "Paused", pause_requested: "Paused", resumed: "Resumed", paused_timed_out: "Closing",
  idle_expired: "Closing", close_requested: "Closing", close_forced: "Closing", connection_lost: "A connection was lost:", recovered: "Recovered:", recovery_failed: "Paused, since it could not be recovered:",
  lifetime_over: "Closing", released: "Closed", adopted: "Paused",
};

const transitionOf = ({ event, cause }) => ({
  verb: EVENTS[event] ?? capital(plain(event)), object: Object.hasOwn(CAUSES, cause ?? "") ? CAUSES[cause] : cause ?? "",
});

function controlOf(status, control) {
  // Names and words of people stand after a sentence, never in it.
  const back = end => ({ verb: `Handed back: ${end}`, who: control.holder || "a person", object: quoted(control.reply) });
  const link = verb => ({ verb: `${verb} a link to ${control.rights ?? "view"}`, who: control.by || "a person" });
  return {
    requested: { verb: "The agent asks for a person:", object: control.reason }, human: { verb: "Took control", who: control.holder || "a person" },
    done: back("done"), could_not: back("could not do it"),
    expired: { verb: "Control ended by itself" }, revoked: { verb: "Control ended: the link was revoked" },
    link_created: link("Gave"), link_opened: link("Opened"), link_revoked: link("Revoked"),
  }[status] ?? { verb: capital(plain(status)) };
}
