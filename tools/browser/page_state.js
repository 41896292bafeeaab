// What of a page can be saved, and how it is put back. One expression, evaluated in a world of its own in the page: it
// shares DOM and storage with the page's scripts, but none of their objects, so that they can neither see nor bend it.
(() => {
  "use strict";

  const UNSAVED_TYPES = new Set(["hidden", "submit", "button", "image", "reset"]);
  const SECRET_NAME =
    /passw|passphrase|passcode|\bpwd\b|\bpin\b|secret|\bcvv|\bcvc|\botp\b|one.?time|security.?code|card.?number/i;
  const SECRET_PURPOSE = /(^|\s)(cc-\S+|one-time-code|current-password|new-password)(\s|$)/i;
  const BATCH = 50;
  class Unsaveable extends Error {}
  class TooLarge extends Error {}

  // Values as JSON. Plain JSON stands for itself; all else is {"$": kind, v: ...}, as is an object with a key "$".

  function base64(buffer) {
    const bytes = new Uint8Array(buffer);
    let text = "";
    for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    return btoa(text);
  }

  function bytesOf(text) {
    return Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer;
  }

  function encodeString(text) {
    // JSON on its way through the browser would replace half of a surrogate pair; packed data in storage has such halves.
    if (text.isWellFormed()) return text;
    const units = Uint16Array.from({ length: text.length }, (_, at) => text.charCodeAt(at));
    return { $: "utf16", v: base64(units.buffer) };
  }

  function encode(value, files = [], depth = 0) {
    if (depth > 100) throw new Unsaveable("it is nested too deep");
    const inner = each => encode(each, files, depth + 1);
    switch (typeof value) {
      case "boolean": return value;
      case "string": return encodeString(value);
      case "number":
        if (Number.isFinite(value) && !Object.is(value, -0)) return value;
        return { $: "number", v: Object.is(value, -0) ? "-0" : String(value) };
      case "bigint": return { $: "bigint", v: String(value) };
      case "undefined": return { $: "undefined" };
      case "object": break;
      default: throw new Unsaveable(typeof value);
    }
    if (value === null) return null;
    if (Array.isArray(value)) return Array.from(value, inner);
    if (ArrayBuffer.isView(value)) {
      const part = value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength);
      return { $: "view", type: value.constructor.name, v: base64(part) };
    }
    const kind = Object.prototype.toString.call(value).slice(8, -1);
    switch (kind) {
      case "Date": return { $: "date", v: value.getTime() };
      case "RegExp": return { $: "regexp", v: value.source, flags: value.flags };
      case "Map": return { $: "map", v: Array.from(value, ([k, v]) => [inner(k), inner(v)]) };
      case "Set": return { $: "set", v: Array.from(value, inner) };
      case "ArrayBuffer": return { $: "buffer", v: base64(value) };
      case "Error": return { $: "error", name: value.name, v: encodeString(value.message) };
      case "Boolean": case "Number": case "String": return { $: "boxed", v: inner(value.valueOf()) };
      case "Blob": case "File": {
        const made = { $: "blob", v: "", type: value.type };
        if (kind === "File") Object.assign(made, { name: encodeString(value.name), modified: value.lastModified });
        files.push([made, value]);
        return made;
      }
      case "Object": {
        const entries = Object.entries(value);
        if (entries.every(([key]) => key !== "$" && key.isWellFormed()))
          return Object.fromEntries(entries.map(([key, each]) => [key, inner(each)]));
        return { $: "object", v: entries.map(([key, each]) => [encodeString(key), inner(each)]) };
      }
      default: throw new Unsaveable(kind);
    }
  }

  function decode(saved) {
    if (saved === null || typeof saved !== "object") return saved;
    if (Array.isArray(saved)) return saved.map(decode);
    if (!("$" in saved)) return Object.fromEntries(Object.entries(saved).map(([key, each]) => [key, decode(each)]));
    switch (saved.$) {
      case "utf16": {
        const units = new Uint16Array(bytesOf(saved.v));
        let text = "";
        for (let at = 0; at < units.length; at += 0x8000) text += String.fromCharCode(...units.subarray(at, at + 0x8000));
        return text;
      }
      case "number": return Number(saved.v);
      case "bigint": return BigInt(saved.v);
      case "undefined": return undefined;
      case "view": return new globalThis[saved.type](bytesOf(saved.v));
      case "date": return new Date(saved.v ?? NaN);
      case "regexp": return new RegExp(saved.v, saved.flags);
      case "map": return new Map(saved.v.map(([k, v]) => [decode(k), decode(v)]));
      case "set": return new Set(saved.v.map(decode));
      case "buffer": return bytesOf(saved.v);
      case "error": return Object.assign(new Error(decode(saved.v)), { name: saved.name });
      case "boxed": return Object(decode(saved.v));
      case "blob":
        return "name" in saved
          ? new File([bytesOf(saved.v)], decode(saved.name), { type: saved.type, lastModified: saved.modified })
          : new Blob([bytesOf(saved.v)], { type: saved.type });
      case "object": return Object.fromEntries(saved.v.map(([key, each]) => [decode(key), decode(each)]));
      default: throw new Error(`unknown kind ${saved.$}`);
    }
  }

  // Storage: of a tab (sessionStorage) and of an origin (localStorage and IndexedDB).

  function within(promise, milliseconds) {
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(reject, milliseconds, new Error("it took too long")); });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  function savedItems(storage, bytes) {
    const items = [];
    for (let at = 0; at < storage.length; at++) {
      const key = storage.key(at);
      const value = storage.getItem(key);
      if ((bytes -= key.length + value.length) < 0) throw new TooLarge();
      items.push([encodeString(key), encodeString(value)]);
    }
    return items;
  }

  function restoreItems(storage, items) {
    // What is there already is newer.
    for (const [key, value] of items.map(decode))
      if (storage.getItem(key) === null) storage.setItem(key, value);
  }

  const settled = request => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

  async function savedStore(store, budget, files) {
    const records = [];
    let skipped = 0;
    let range;
    for (;;) {
      const asked = [store.getAllKeys(range, BATCH), store.getAll(range, BATCH)];
      const [keys, values] = await Promise.all(asked.map(settled));
      keys.forEach((key, at) => {
        try {
          const record = [encode(values[at], files)];
          if (store.keyPath === null) record.push(encode(key));
          if ((budget.bytes -= JSON.stringify(record).length) < 0) throw new TooLarge();
          records.push(record);
        } catch (error) {
          if (!(error instanceof Unsaveable)) throw error;
          skipped++;
        }
      });
      if (keys.length < BATCH) break;
      range = IDBKeyRange.lowerBound(keys.at(-1), true);
    }
    const indexes = Array.from(store.indexNames, name => {
      const { keyPath, unique, multiEntry } = store.index(name);
      return { name, keyPath, unique, multiEntry };
    });
    const { name, keyPath, autoIncrement } = store;
    return { name, keyPath, autoIncrement, indexes, records, skipped };
  }

  async function savedDatabase(name, budget) {
    const opening = indexedDB.open(name);
    opening.onupgradeneeded = () => opening.transaction.abort(); // deleted since it was listed
    const database = await settled(opening);
    database.onversionchange = () => database.close();
    const files = [];
    try {
      const stores = [];
      const names = Array.from(database.objectStoreNames);
      const transaction = names.length ? database.transaction(names, "readonly") : null;
      for (const each of names) stores.push(await savedStore(transaction.objectStore(each), budget, files));
      for (const [made, file] of files) {
        if ((budget.bytes -= file.size * 4 / 3) < 0) throw new TooLarge();
        made.v = base64(await file.arrayBuffer());
      }
      return { name, version: database.version, stores };
    } finally {
      database.close();
    }
  }

  async function savedDatabases(budget, milliseconds, cut) {
    const saved = [];
    const until = performance.now() + milliseconds;
    for (const { name } of await within(indexedDB.databases(), milliseconds)) {
      try {
        const database = await within(savedDatabase(name, budget), Math.max(until - performance.now(), 1));
        const skipped = database.stores.reduce((sum, { skipped }) => sum + skipped, 0);
        if (skipped) cut.push(`${skipped} records of the database ${name.slice(0, 80)}`);
        saved.push(database);
      } catch {
        cut.push(`the database ${name.slice(0, 80)}`);
      }
    }
    return saved;
  }

  async function otherStorage() {
    const found = [];
    const look = async (what, there) => { if (await there().catch(() => false)) found.push(what); };
    await within(Promise.all([
      look("Cache Storage", async () => (await caches.keys()).length),
      look("service workers", async () => (await navigator.serviceWorker.getRegistrations()).length),
      look("private files", async () => {
        for await (const _ of (await navigator.storage.getDirectory()).keys()) return true;
        return false;
      }),
    ]), 500).catch(() => {});
    return found.sort();
  }

  // What an origin stores: `text` is null when that is nothing.
  async function savedStorage({ bytes, milliseconds, whole }) {
    if (origin === "null") return null;
    const cut = [];
    const budget = { bytes };
    let items = [];
    let databases = [];
    try { items = savedItems(localStorage, bytes); } catch (error) {
      if (!(error instanceof TooLarge)) return null; // the page may not store anything
      cut.push("local storage");
    }
    try { databases = await savedDatabases(budget, milliseconds, cut); } catch { cut.push("databases"); }
    const text = items.length || databases.length ? JSON.stringify({ items, databases }) : null;
    return { origin, text, cut, other: whole ? await otherStorage() : [] };
  }

  function restoreDatabase({ name, version, stores }) {
    return new Promise((resolve, reject) => {
      const opening = indexedDB.open(name, version);
      let skipped = 0;
      opening.onupgradeneeded = ({ oldVersion }) => {
        if (oldVersion) return;
        for (const { name, keyPath, autoIncrement, indexes, records } of stores) {
          const store = opening.result.createObjectStore(name, { keyPath, autoIncrement });
          for (const { name, keyPath, ...options } of indexes) store.createIndex(name, keyPath, options);
          for (const record of records) {
            try {
              store.put(...record.map(decode)).onerror = event => { event.preventDefault(); skipped++; };
            } catch { skipped++; }
          }
        }
      };
      opening.onsuccess = () => { opening.result.close(); resolve(skipped); };
      opening.onerror = opening.onblocked = () => reject(opening.error);
    });
  }

  // The browser may have turned the address into another one, such as http into https.
  function insist(expected) {
    if (origin !== expected) throw new Error(`this is ${origin}, not ${expected}`);
  }

  // Returns what could not be put back.
  async function restoreStorage(expected, text, milliseconds) {
    insist(expected);
    const { items, databases } = JSON.parse(text);
    const cut = [];
    try { restoreItems(localStorage, items); } catch { cut.push("local storage"); }
    await Promise.all(databases.map(async database => {
      const skipped = await within(restoreDatabase(database), milliseconds).catch(() => -1);
      if (skipped) cut.push(`${skipped > 0 ? `${skipped} records of ` : ""}the database ${database.name.slice(0, 80)}`);
    }));
    return cut;
  }

  // Places of elements: one segment for each root (document, shadow root, frame), each an id or "" and steps below it.

  function segment(element) {
    const root = element.getRootNode();
    const steps = [];
    for (let at = element; at; at = at.parentElement) {
      if (at.id && root.getElementById(at.id) === at) return [at.id, ...steps];
      let number = 1;
      for (let before = at.previousElementSibling; before; before = before.previousElementSibling)
        if (before.localName === at.localName) number++;
      steps.unshift([at.localName, number]);
    }
    return ["", ...steps];
  }

  function place(element) {
    const segments = [];
    for (let at = element; at;) {
      segments.unshift(segment(at));
      const root = at.getRootNode();
      at = root.host ?? root.defaultView?.frameElement;
    }
    return segments;
  }

  const inside = element => element.shadowRoot ?? element.contentDocument;

  function found(segments) {
    let element = null;
    for (const [id, ...steps] of segments) {
      const root = element === null ? document : inside(element);
      element = id ? root?.getElementById(id) : root;
      for (const [name, number] of steps) {
        const like = Array.from(element?.children ?? []).filter(child => child.localName === name);
        element = like[number - 1];
      }
      if (!element) return null;
    }
    return element;
  }

  // Form fields.

  function isSecret(field) {
    if (field.type === "password" || SECRET_PURPOSE.test(field.getAttribute("autocomplete") ?? "")) return true;
    const names = [field.name, field.id, field.getAttribute("aria-label"), field.placeholder];
    return field.localName !== "select" && !isTick(field) && SECRET_NAME.test(names.join(" "));
  }

  const isTick = field => field.type === "checkbox" || field.type === "radio";
  // Frameworks keep the default equal to the value, so that comparing the two is not enough.
  const isTouched = field => field.matches(":user-valid, :user-invalid");

  // Nothing tells what was edited in an element; what nobody edited must not overwrite what the site sends next time.
  function isEdited(element) {
    const its = element.ownerDocument;
    return element.contains(its.activeElement) || its.queryCommandEnabled("undo");
  }

  function chosen(select) {
    const options = Array.from(select.options);
    const first = options.findIndex(({ disabled }) => !disabled);
    const changed = options.some(({ defaultSelected }) => defaultSelected) || select.multiple
      ? options.some(({ selected, defaultSelected }) => selected !== defaultSelected)
      : select.selectedIndex !== first;
    if (!changed && !isTouched(select)) return null;
    return ["chosen", options.filter(({ selected }) => selected).map(({ value }) => encodeString(value))];
  }

  // Returns [kind, value] when there is something to save.
  function content(element) {
    if (element.localName === "select") return chosen(element);
    if (element.localName !== "input" && element.localName !== "textarea")
      return element.textContent && isEdited(element) ? ["html", encodeString(element.innerHTML)] : null;
    if (isTick(element)) {
      const changed = element.checked !== element.defaultChecked || isTouched(element);
      return changed && (element.checked || element.type === "checkbox") ? ["checked", element.checked] : null;
    }
    return element.value !== element.defaultValue || isTouched(element) ? ["value", encodeString(element.value)] : null;
  }

  const isField = element =>
    element.localName === "input" || element.localName === "textarea" || element.localName === "select" ||
    (element.isContentEditable && !element.parentElement?.isContentEditable && element !== document.body);

  class Survey {
    constructor({ fields, fieldBytes, pageBytes, milliseconds }) {
      Object.assign(this, { mostFields: fields, fieldBytes, pageBytes, until: performance.now() + milliseconds });
      Object.assign(this, { fields: [], scrolled: [], withheld: 0, files: 0, cut: false });
    }

    run() {
      const roots = [document];
      let seen = 0;
      while (roots.length) {
        for (const element of roots.pop().querySelectorAll("*")) {
          if (++seen % 128 === 0 && performance.now() > this.until) { this.cut = true; return; }
          const inner = inside(element);
          if (inner) roots.push(inner);
          if ((element.scrollTop || element.scrollLeft) && this.scrolled.length < 100)
            this.scrolled.push([place(element), element.scrollLeft, element.scrollTop]);
          if (isField(element)) this.take(element);
        }
      }
    }

    take(element) {
      if (element.type === "file") { this.files += element.files.length; return; }
      if (UNSAVED_TYPES.has(element.type)) return;
      const taken = content(element);
      if (!taken) return;
      if (isSecret(element)) { this.withheld++; return; }
      const size = JSON.stringify(taken).length;
      const most = this.fields.length < this.mostFields ? Math.min(this.fieldBytes, this.pageBytes) : 0;
      if (size > most) { this.cut = true; return; }
      this.pageBytes -= size;
      this.fields.push([place(element), element.localName, element.type ?? "", element.name ?? "", ...taken]);
    }
  }

  function savedEntry(bytes) {
    try {
      const state = JSON.stringify(encode(history.state));
      return state.length <= bytes ? state : null;
    } catch { return null; }
  }

  // What is in a tab. The storage of its origin comes along when it is asked for.
  async function savedTab(limits) {
    const survey = new Survey(limits);
    const cut = [];
    let session = [];
    survey.run();
    if (survey.cut) cut.push("form fields");
    try { session = savedItems(sessionStorage, limits.sessionBytes); } catch (error) {
      if (error instanceof TooLarge) cut.push("session storage");
    }
    const state = savedEntry(limits.sessionBytes);
    if (state === null) cut.push("history state");
    const { fields, scrolled, withheld, files } = survey;
    return {
      origin, url: location.href, fields: fields.length, withheld, files, cut,
      page: fields.length || scrolled.length ? JSON.stringify({ fields, scrolled }) : null,
      entry: session.length || (state ?? "null") !== "null" ? JSON.stringify({ session, state: state ?? "null" }) : null,
      storage: limits.storage ? await savedStorage(limits.storage) : null,
    };
  }

  // Puts session storage and history state back, before the page itself is loaded.
  function restoreEntry(expected, text) {
    insist(expected);
    const { session, state } = JSON.parse(text);
    const cut = [];
    try { restoreItems(sessionStorage, session); } catch { cut.push("session storage"); }
    try { history.replaceState(decode(JSON.parse(state)), ""); } catch { cut.push("history state"); }
    return cut;
  }

  function tell(element) {
    for (const type of ["input", "change"]) element.dispatchEvent(new Event(type, { bubbles: true, composed: true }));
  }

  function setField(element, kind, value) {
    if (kind === "checked") {
      if (element.checked !== value) element.click();
      if (element.checked !== value) { element.checked = value; tell(element); }
      return element.checked === value;
    }
    if (kind === "chosen") {
      const wanted = new Set(value);
      const options = Array.from(element.options);
      if (value.some(each => !options.some(option => option.value === each))) return false;
      if (options.every(option => option.selected === wanted.has(option.value))) return true;
      if (element.multiple) for (const option of options) option.selected = wanted.has(option.value);
      else element.value = value[0];
    } else if (kind === "html") {
      if (element.innerHTML === value) return true;
      try { element.innerHTML = value; } catch { return false; }
    } else {
      if (element.value === value) return true;
      element.value = value;
    }
    tell(element);
    return kind !== "value" || element.value === value;
  }

  function putBack([segments, name, type, called, kind, value]) {
    const element = found(segments);
    if (!element || element.localName !== name) return false;
    if ((element.type ?? "") !== type || (element.name ?? "") !== called) return false;
    return setField(element, kind, decode(value));
  }

  function scrollBack([segments, left, top]) {
    const element = found(segments);
    if (!element) return false;
    element.scrollTo({ left, top, behavior: "instant" });
    return Math.abs(element.scrollTop - top) < 2 && Math.abs(element.scrollLeft - left) < 2;
  }

  // Tries until everything is done or the time is over: pages build themselves after they have loaded.
  async function until(pending, attempt, milliseconds) {
    const end = performance.now() + milliseconds;
    for (;;) {
      pending = pending.filter(each => !attempt(each));
      const left = end - performance.now();
      if (!pending.length || left <= 0) return pending.length;
      await new Promise(resolve => {
        const watching = new MutationObserver(done);
        const timer = setTimeout(done, Math.min(left, 50));
        function done() { watching.disconnect(); clearTimeout(timer); resolve(); }
        watching.observe(document, { childList: true, subtree: true });
      });
    }
  }

  // Puts fields and scroll positions back. Returns how many fields, and how many are still missing.
  async function restorePage(text, { fieldMilliseconds, scrollMilliseconds }) {
    const { fields, scrolled } = JSON.parse(text);
    const missing = await until(fields, putBack, fieldMilliseconds);
    const unscrolled = await until(scrolled, scrollBack, scrollMilliseconds);
    return { fields: fields.length - missing, missing, scrolled: scrolled.length - unscrolled, unscrolled };
  }

  return { savedTab, savedStorage, restoreStorage, restoreEntry, restorePage };
})()
