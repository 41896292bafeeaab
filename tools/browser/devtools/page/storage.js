  // Saves and restores localStorage and IndexedDB of an origin, in the form of Playwright's storage state.

  const BATCH = 50;
  const BATCH_BYTES = 2 ** 20;
  const NUMBER_MILLISECONDS = 50;
  class TooLarge extends Error {}

  function within(promise, milliseconds) {
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(reject, milliseconds, new Error("it took too long")); });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  function savedItems(storage, bytes) {
    const items = [];
    for (let at = 0; at < storage.length; at++) {
      const name = storage.key(at);
      const value = storage.getItem(name);
      if ((bytes -= name.length + value.length) < 0) throw new TooLarge();
      items.push({ name, value });
    }
    return items;
  }

  function restoreItems(storage, items) {
    // Existing items are newer.
    for (const { name, value } of items) if (storage.getItem(name) === null) storage.setItem(name, value);
  }

  const settled = request => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

  // Returns {value, key} for a record, each encoded where JSON cannot say it.
  function savedRecord(value, key, blobs) {
    const record = {};
    for (const [name, each] of key === undefined ? [["value", value]] : [["value", value], ["key", key]]) {
      if (isPlain(each)) record[name] = each;
      else record[`${name}Encoded`] = encode(each, blobs);
    }
    return record;
  }

  const partOf = (record, name) => name in record ? record[name] : decode(record[`${name}Encoded`]);

  async function savedStore(store, budget, blobs, until) {
    const records = [];
    let skipped = 0;
    let range;
    for (let most = 1;;) {
      if (performance.now() > until) throw new TooLarge();
      const asked = [store.getAllKeys(range, most), store.getAll(range, most)];
      const [keys, values] = await Promise.all(asked.map(settled));
      const before = budget.bytes;
      keys.forEach((key, at) => {
        const own = [];
        let size;
        try {
          const record = savedRecord(values[at], store.keyPath === null ? key : undefined, own);
          size = JSON.stringify(record).length;
          records.push(record);
        } catch {
          // A value that cannot be encoded, or is nested too deep.
          skipped++;
          return;
        }
        if ((budget.bytes -= size) < 0) throw new TooLarge();
        blobs.push(...own);
      });
      if (keys.length < most) break;
      range = IDBKeyRange.lowerBound(keys.at(-1), true);
      // Adapt the batch to the size of records: many large ones at once may exceed the memory of the page.
      const fitting = Math.floor(BATCH_BYTES * most / Math.max(before - budget.bytes, 1));
      most = Math.max(1, Math.min(fitting, most * 8, BATCH));
    }
    const pathOf = path => Array.isArray(path) ? { keyPathArray: path } : path === null ? {} : { keyPath: path };
    const indexes = Array.from(store.indexNames, name => {
      const { keyPath, unique, multiEntry } = store.index(name);
      return { name, ...pathOf(keyPath), unique, multiEntry };
    });
    const { name, keyPath, autoIncrement } = store;
    return { name, ...pathOf(keyPath), autoIncrement, indexes, records, skipped };
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
    const blobs = [];
    try {
      const stores = [];
      const names = Array.from(database.objectStoreNames);
      const transaction = names.length ? database.transaction(names, "readonly") : null;
      for (const each of names) stores.push(await savedStore(transaction.objectStore(each), budget, blobs, until));
      for (const store of stores.filter(({ autoIncrement }) => autoIncrement))
        store.next = await within(nextNumber(database, store.name), NUMBER_MILLISECONDS).catch(() => undefined);
      for (const [encoded, blob] of blobs) {
        if ((budget.bytes -= blob.size * 4 / 3) < 0) throw new TooLarge();
        encoded.blob = base64(await blob.arrayBuffer());
      }
      return { name, version: database.version, stores };
    } finally {
      database.close();
    }
  }

  const recordsIn = skipped => `${skipped} database record${skipped === 1 ? "" : "s"}`;

  // Returns the databases of the origin as JSON, by name.
  async function savedDatabases(budget, milliseconds, cut, other) {
    const saved = {};
    const until = performance.now() + milliseconds;
    let skipped = 0;
    for (const { name } of await within(indexedDB.databases(), milliseconds)) {
      try {
        // A database that is too large must not use up the budget of the others.
        const own = { ...budget };
        const database = await within(savedDatabase(name, own, until), Math.max(until - performance.now(), 1));
        budget = own;
        for (const store of database.stores) {
          skipped += store.skipped;
          delete store.skipped;
        }
        saved[name] = JSON.stringify(database);
      } catch {
        cut.push(name);
      }
    }
    // A database is not named in words: its name is a text of the page, and the words get into our notes.
    if (skipped) other.push(recordsIn(skipped));
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

  // Returns the storage of the origin, each part as JSON; `items` is null if it is too large, `databases` if they do not answer.
  // `cut` are the names of databases that are too large or do not answer.
  async function savedStorage({ bytes, milliseconds }) {
    if (origin === "null") return null;
    const [cut, other] = [[], []];
    let items = null;
    try { items = JSON.stringify(savedItems(localStorage, bytes)); } catch (error) {
      if (!(error instanceof TooLarge)) return null; // the page may not store anything
    }
    const databases = await savedDatabases({ bytes }, milliseconds, cut, other).catch(() => null);
    other.push(...await otherStorage());
    return { origin, items, databases, cut, other };
  }

  // Restores the key generator of a store, so that keys of deleted records are not used again.
  function restoreNumber(store, next) {
    const value = {};
    const steps = (store.keyPath ?? "").split(".").filter(Boolean);
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
        for (const { name, autoIncrement, indexes, records, next, ...path } of stores) {
          const keyPath = path.keyPathArray ?? path.keyPath ?? null;
          const store = opening.result.createObjectStore(name, { keyPath, autoIncrement });
          for (const { name, keyPath, keyPathArray, ...options } of indexes)
            store.createIndex(name, keyPathArray ?? keyPath, options);
          for (const record of records) {
            try {
              const key = keyPath === null ? [partOf(record, "key")] : [];
              store.put(partOf(record, "value"), ...key).onerror = event => { event.preventDefault(); skipped++; };
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
  async function restoreStorage(expected, items, databases, milliseconds) {
    insist(expected);
    const failed = [];
    try { restoreItems(localStorage, JSON.parse(items)); } catch { failed.push("local storage"); }
    await Promise.all(Object.values(databases).map(async text => {
      const skipped = await within(restoreDatabase(JSON.parse(text)), milliseconds).catch(() => -1);
      if (skipped) failed.push(skipped > 0 ? recordsIn(skipped) : "a database");
    }));
    return failed;
  }
