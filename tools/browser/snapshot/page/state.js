  // Saves and restores the storage of a page and its origin.

  const BATCH = 50;
  const BATCH_BYTES = 2 ** 20;
  const NUMBER_MILLISECONDS = 50;
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
    // The browser would replace lone surrogates in JSON on its way to us; packed data in storage has such characters.
    if (text.isWellFormed()) return text;
    const units = Uint16Array.from({ length: text.length }, (_, at) => text.charCodeAt(at));
    return { $: "utf16", v: base64(units.buffer) };
  }

  // A budget for JSON in bytes, and in time: a value that contains the same object many times may be endless but not large.
  class Room {
    constructor(bytes, until = Infinity) { Object.assign(this, { bytes, until, files: [], taken: 0 }); }

    take(bytes) {
      if ((this.bytes -= bytes) < 0) throw new TooLarge();
      if (++this.taken % 1000 === 0 && performance.now() > this.until) throw new TooLarge();
    }
  }

  // Encodes a value. Charges `room` no more than the size of the JSON.
  function encode(value, room, depth = 0) {
    if (depth > 100) throw new Unsaveable("it is nested too deep");
    room.take(1 + (typeof value === "string" ? value.length : value?.byteLength ?? 0));
    const inner = each => encode(each, room, depth + 1);
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
        room.files.push([made, value]);
        return made;
      }
      case "Object": {
        const entries = Object.entries(value);
        for (const [key] of entries) room.take(key.length + 3);
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
    // Existing items are newer.
    for (const [key, value] of items.map(decode))
      if (storage.getItem(key) === null) storage.setItem(key, value);
  }

  const settled = request => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

  async function savedStore(store, budget, files, until) {
    const records = [];
    let skipped = 0;
    let range;
    for (let most = 1;;) {
      if (performance.now() > until) throw new TooLarge();
      const asked = [store.getAllKeys(range, most), store.getAll(range, most)];
      const [keys, values] = await Promise.all(asked.map(settled));
      const before = budget.bytes;
      keys.forEach((key, at) => {
        try {
          const room = new Room(budget.bytes, until);
          const record = [encode(values[at], room)];
          if (store.keyPath === null) record.push(encode(key, room));
          if ((budget.bytes -= JSON.stringify(record).length) < 0) throw new TooLarge();
          records.push(record);
          files.push(...room.files);
        } catch (error) {
          if (!(error instanceof Unsaveable)) throw error;
          skipped++;
        }
      });
      if (keys.length < most) break;
      range = IDBKeyRange.lowerBound(keys.at(-1), true);
      // Adapt the batch to the size of records: many large ones at once may exceed the memory of the page.
      const fitting = Math.floor(BATCH_BYTES * most / Math.max(before - budget.bytes, 1));
      most = Math.max(1, Math.min(fitting, most * 8, BATCH));
    }
    const indexes = Array.from(store.indexNames, name => {
      const { keyPath, unique, multiEntry } = store.index(name);
      return { name, keyPath, unique, multiEntry };
    });
    const { name, keyPath, autoIncrement } = store;
    return { name, keyPath, autoIncrement, indexes, records, skipped };
  }

  // Returns the next key of a store with a key generator. Only an added record reveals it; the transaction is then aborted.
  function nextNumber(database, name) {
    return new Promise(resolve => {
      const transaction = database.transaction(name, "readwrite");
      let number;
      transaction.onabort = () => resolve(number);
      transaction.objectStore(name).add({}).onsuccess = ({ target }) => {
        number = target.result;
        transaction.abort();
      };
    });
  }

  async function savedDatabase(name, budget, until) {
    const opening = indexedDB.open(name);
    opening.onupgradeneeded = () => opening.transaction.abort(); // deleted since it was listed
    const database = await settled(opening);
    database.onversionchange = () => database.close();
    const files = [];
    try {
      const stores = [];
      const names = Array.from(database.objectStoreNames);
      const transaction = names.length ? database.transaction(names, "readonly") : null;
      for (const each of names) stores.push(await savedStore(transaction.objectStore(each), budget, files, until));
      for (const store of stores.filter(({ autoIncrement }) => autoIncrement))
        store.next = await within(nextNumber(database, store.name), NUMBER_MILLISECONDS).catch(() => undefined);
      for (const [made, file] of files) {
        if ((budget.bytes -= file.size * 4 / 3) < 0) throw new TooLarge();
        made.v = base64(await file.arrayBuffer());
      }
      return { name, version: database.version, stores };
    } finally {
      database.close();
    }
  }

  async function savedDatabases(budget, milliseconds, cut, other) {
    const saved = [];
    const until = performance.now() + milliseconds;
    for (const { name } of await within(indexedDB.databases(), milliseconds)) {
      try {
        // A database that is too large must not use up the budget of the others.
        const own = { ...budget };
        const database = await within(savedDatabase(name, own, until), Math.max(until - performance.now(), 1));
        budget = own;
        const skipped = database.stores.reduce((sum, { skipped }) => sum + skipped, 0);
        if (skipped) other.push(`${skipped} records of the database ${name.slice(0, 80)}`);
        saved.push(JSON.stringify(database));
      } catch {
        // A long part of the name, so that databases with similar names remain distinct.
        cut.push(`the database ${name.slice(0, 1000)}`);
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

  // Returns the storage of the origin; `text` is null if it is empty.
  async function savedStorage({ bytes, milliseconds }) {
    if (origin === "null") return null;
    const [cut, other] = [[], []];
    const budget = { bytes };
    let items = [];
    let databases = [];
    try { items = savedItems(localStorage, bytes); } catch (error) {
      if (!(error instanceof TooLarge)) return null; // the page may not store anything
      cut.push("local storage");
    }
    try { databases = await savedDatabases(budget, milliseconds, cut, other); } catch { cut.push("databases"); }
    // One database per line, so that storage.py can split the text.
    const text = `{"items":${JSON.stringify(items)},"databases":[${databases.join(",\n")}]}`;
    other.push(...await otherStorage());
    return { origin, text: items.length || databases.length ? text : null, cut, other };
  }

  // Restores the key generator of a store, so that keys of deleted records are not used again.
  function restoreNumber(store, next) {
    const value = {};
    const steps = store.keyPath?.split(".") ?? [];
    steps.reduce((into, step, at) => into[step] = at === steps.length - 1 ? next - 1 : {}, value);
    const adding = steps.length ? store.add(value) : store.add(value, next - 1);
    adding.onsuccess = () => store.delete(next - 1);
    adding.onerror = event => event.preventDefault(); // a record has that number
  }

  function restoreDatabase({ name, version, stores }) {
    return new Promise((resolve, reject) => {
      const opening = indexedDB.open(name, version);
      let skipped = 0;
      opening.onupgradeneeded = ({ oldVersion }) => {
        if (oldVersion) return;
        for (const { name, keyPath, autoIncrement, indexes, records, next } of stores) {
          const store = opening.result.createObjectStore(name, { keyPath, autoIncrement });
          for (const { name, keyPath, ...options } of indexes) store.createIndex(name, keyPath, options);
          for (const record of records) {
            try {
              store.put(...record.map(decode)).onerror = event => { event.preventDefault(); skipped++; };
            } catch { skipped++; }
          }
          if (next > 1) restoreNumber(store, next);
        }
      };
      opening.onsuccess = () => { opening.result.close(); resolve(skipped); };
      opening.onerror = opening.onblocked = () => reject(opening.error);
    });
  }

  // Checks the origin: the browser may have changed the address, such as from http to https.
  function insist(expected) {
    if (origin !== expected) throw new Error(`this is ${origin}, not ${expected}`);
  }

  // Restores the storage of an origin. Returns the parts that failed, in words.
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

  // Tabs.

  // Returns history.state by a query to the page's own world. Chromium updates the object only in the first world that reads
  // it after a change, so a read from our world would leave the page with an old one, and vice versa.
  function shownState(question) {
    let state;
    document.addEventListener(`${question}!`, ({ detail }) => { state = detail; }, { once: true });
    document.dispatchEvent(new Event(question));
    if (state === undefined) throw new Unsaveable("nobody answered");
    return state;
  }

  function savedState(bytes, question) {
    const room = new Room(bytes);
    const state = JSON.stringify(encode(shownState(question), room));
    if (state.length > bytes) throw new TooLarge();
    if (room.files.length) throw new Unsaveable("files");
    return state;
  }

  // Returns the state of a tab, with the storage of its origin if `limits.storage` is set.
  async function savedTab(limits) {
    const survey = new Survey(limits);
    const [cut, untold] = [[], []];
    let session = [];
    let state = "null";
    survey.run();
    listen();
    if (survey.cut) cut.push("form fields");
    try { session = savedItems(sessionStorage, limits.sessionBytes); } catch (error) {
      if (error instanceof TooLarge) cut.push("session storage");
    }
    try { state = savedState(limits.sessionBytes, limits.question); } catch (error) {
      (error instanceof TooLarge ? cut : untold).push("history state");
    }
    const name = window.name.length <= limits.sessionBytes ? window.name : "";
    if (name !== window.name) cut.push("the name of the window");
    const { fields, hidden, scrolled, withheld, done, files } = survey;
    const [loaded] = performance.getEntriesByType("navigation");
    return {
      origin, url: location.href, status: loaded?.responseStatus ?? 0, cut, untold,
      fields: fields.length, withheld, done, files,
      page: fields.length || scrolled.length || hidden.length ? JSON.stringify({ fields, scrolled, hidden }) : null,
      entry: session.length || name || state !== "null"
        ? JSON.stringify({ session, state, name: encodeString(name) }) : null,
      storage: limits.storage ? await savedStorage(limits.storage) : null,
    };
  }

  // Restores session storage, history state and the window's name, before the page itself is loaded.
  function restoreEntry(expected, text) {
    insist(expected);
    const { session, state, name } = JSON.parse(text);
    const cut = [];
    if (name) window.name = decode(name);
    try { restoreItems(sessionStorage, session); } catch { cut.push("session storage"); }
    try { history.replaceState(decode(JSON.parse(state)), ""); } catch { cut.push("history state"); }
    return cut;
  }

  return { listen, acting, savedTab, savedStorage, restoreStorage, restoreEntry, restorePage };
