// Texts for people: times, sizes, states.

const UNITS = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];

export function ago(time, now = Date.now()) {
  if (!time) return "";
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000);
  if (seconds < 2) return "now";
  for (const [unit, size] of UNITS) {
    if (seconds >= size) {
      const count = Math.floor(seconds / size);
      return `${count} ${unit}${unit === "day" && count > 1 ? "s" : ""} ago`;
    }
  }
  return "now";
}

export function lasted(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function bytes(count) {
  if (count == null) return "";
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  while (count >= 1000 && unit < 3) {
    count /= 1000;
    unit += 1;
  }
  return `${count >= 10 || unit === 0 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

// A format takes long to be made.
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" });
const OFFSET = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" });
const ZONE = OFFSET.resolvedOptions().timeZone;

export const clock = time => CLOCK.format(new Date(time));

export const day = time => DAY.format(new Date(time));

// The time zone of the browser at a time, as "UTC+1, Europe/Vienna".
export function zone(time) {
  const offset = OFFSET.formatToParts(new Date(time)).find(part => part.type === "timeZoneName").value.replace("GMT", "UTC");
  return ZONE === "UTC" ? ZONE : [offset, ZONE].filter(Boolean).join(", ");
}

export const nameOf = session => session.name || session.session_id;

// A name of a stranger for places without markup: one line of letters that show, without quotes and marks that reorder text.
export function plainName(text, most = 60) {
  const name = text.normalize("NFC").replace(/[\p{C}\p{Pi}\p{Pf}\p{Default_Ignorable_Code_Point}"'`\u00b4\u201a\u201e\u300c-\u300f\u301d-\u301f\uff62\uff63\u2800\uff02\uff07]/gu, " ")
    .replace(/(\p{M}{2})\p{M}+/gu, "$1").replace(/\s+/gu, " ").trim();
  const characters = [...name];
  return characters.length > most ? `${characters.slice(0, most - 1).join("").trim()}…` : name;
}

// One line that says what a session is for.
export function purposeOf(session) {
  const metadata = session.metadata || {};
  return metadata.purpose || metadata.title || metadata.task || session.summary || "";
}

const LIVE = new Set(["idle", "active", "error"]);

// Whether a session has a browser that a person may use; `browsers` are the names of such services.
// A session that a person drives is paused only while it moves to another process, and its control must not go with the picture.
export const hasBrowser = (session, browsers) => (LIVE.has(session.status) || isDriven(session))
  && (session.services ?? []).some(service => browsers.includes(service.service ?? service));

// Whether its browser is open: without that, there is no picture to ask for. A process that does not answer says nothing of it.
export const hasPicture = (session, browsers) => hasBrowser(session, browsers)
  && (isDriven(session) || !session.open_services || session.open_services.some(service => browsers.includes(service)));

const isDriven = session => session.status === "paused" && session.control?.driver === "human";

// `user` is the one of the page, who is called you.
export function driverOf(session, user) {
  const control = session.control;
  if (control?.driver === "human") return { kind: "human", text: user && control.holder === user.name ? "You" : control.holder || "A person" };
  if (control?.driver === "requested") return { kind: "requested", text: control.agent_left ? "Asked for a person, and left" : "Asks for a person" };
  return { kind: "agent", text: "Agent" };
}

export function fuzzy(needle, text) {
  // The length of the shortest part of the text that has the letters in their order; -1 if there is none.
  needle = needle.toLowerCase();
  text = text.toLowerCase();
  let best = -1;
  for (let start = text.indexOf(needle[0] ?? ""); start >= 0 && start < text.length;
    start = text.indexOf(needle[0], start + 1)) {
    let at = start, found = 0;
    while (at < text.length && found < needle.length) {
      if (text[at] === needle[found]) found += 1;
      at += 1;
    }
    if (found < needle.length) break;
    if (best < 0 || at - start < best) best = at - start;
    if (!needle) break;
  }
  return best;
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

// "in 3 h", "now" for a time that has passed.
export function until(time, now = Date.now()) {
  const text = ago(new Date(2 * now - Date.parse(time)).toISOString(), now);
  return text === "now" ? text : `in ${text.replace(" ago", "")}`;
}

// An agent that is gone leaves its request until a time.
export function waitOf(control) {
  return `asked ${ago(control.since)}${control.agent_left ? ", has left" : ""}, ends ${until(control.expires_at)}`;
}

// The state of the process that holds a session: "gone", "silent", or "" while it answers.
export function ownerOf(session) {
  const text = session.open_in ?? "";
  return text.endsWith("that is gone") ? "gone" : text.endsWith("(does not answer)") ? "silent" : "";
}

export function download(name, text, type = "application/json") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name.replace(/[/\\:]/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
