  // Values of IndexedDB and history.state as JSON, in the form of Playwright's storage state.

  class Unsaveable extends Error {}

  const ARRAYS = {
    i8: Int8Array, ui8: Uint8Array, ui8c: Uint8ClampedArray, i16: Int16Array, ui16: Uint16Array, i32: Int32Array,
    ui32: Uint32Array, f32: Float32Array, f64: Float64Array, bi64: BigInt64Array, bui64: BigUint64Array,
  };
  const SPECIAL = new Map([
    ["undefined", undefined], ["null", null], ["NaN", NaN], ["Infinity", Infinity], ["-Infinity", -Infinity], ["-0", -0],
  ]);

  function base64(buffer) {
    const bytes = new Uint8Array(buffer);
    let text = "";
    for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    return btoa(text);
  }

  function bytesOf(text) {
    return Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer;
  }

  const kindName = value => Object.prototype.toString.call(value).slice(8, -1);

  // Returns whether JSON itself can say a value.
  function isPlain(value, around = []) {
    if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0);
    if (typeof value !== "object" || value === null) return typeof value === "string" || typeof value === "boolean" || value === null;
    if (around.includes(value) || around.length > 20) return false;
    if (!Array.isArray(value) && kindName(value) !== "Object") return false;
    return Object.values(value).every(each => isPlain(each, [...around, value]));
  }

  // Encodes a value. Adds [encoded, blob] to `blobs` for each blob, whose content can only be read later.
  function encode(value, blobs, ids = new Map()) {
    for (const [name, special] of SPECIAL) if (Object.is(value, special)) return { v: name };
    if (["boolean", "number", "string"].includes(typeof value)) return value;
    if (typeof value === "bigint") return { bi: String(value) };
    if (typeof value !== "object") throw new Unsaveable(typeof value);
    if (ids.has(value)) return { ref: ids.get(value) };
    const inner = each => encode(each, blobs, ids);
    const entries = all => Array.from(all, ([k, v]) => ({ k: inner(k), v: inner(v) }));
    const kind = kindName(value);
    switch (kind) {
      case "Date": return { d: value.toJSON() ?? "never" };
      case "RegExp": return { r: { p: value.source, f: value.flags } };
      case "Error": return { e: { n: value.name, m: value.message, s: value.stack ?? "" } };
      case "ArrayBuffer": return { ab: { b: base64(value) } };
      case "Blob": case "File": {
        // Playwright's form has no blobs.
        const encoded = { blob: "", type: value.type };
        if (kind === "File") Object.assign(encoded, { name: value.name, modified: value.lastModified });
        blobs.push([encoded, value]);
        return encoded;
      }
    }
    for (const [k, type] of Object.entries(ARRAYS)) {
      if (!(value instanceof type)) continue;
      return { ta: { b: base64(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength)), k } };
    }
    const id = ids.size + 1;
    ids.set(value, id);
    switch (kind) {
      case "Array": return { a: Array.from(value, inner), id };
      case "Map": return { m: entries(value), id };
      case "Set": return { s: Array.from(value, inner), id };
      case "Object": return { o: Object.entries(value).map(([k, v]) => ({ k, v: inner(v) })), id };
      default: throw new Unsaveable(kind);
    }
  }

  function decode(saved, refs = new Map()) {
    if (saved === null || typeof saved !== "object") return saved;
    const inner = each => decode(each, refs);
    const keep = value => { refs.set(saved.id, value); return value; };
    if ("ref" in saved) return refs.get(saved.ref);
    if ("v" in saved) return SPECIAL.get(saved.v);
    if ("d" in saved) return new Date(saved.d);
    if ("u" in saved) return new URL(saved.u);
    if ("bi" in saved) return BigInt(saved.bi);
    if ("e" in saved) return Object.assign(new Error(saved.e.m), { name: saved.e.n, stack: saved.e.s });
    if ("r" in saved) return new RegExp(saved.r.p, saved.r.f);
    if ("ab" in saved) return bytesOf(saved.ab.b);
    if ("ta" in saved) return new ARRAYS[saved.ta.k](bytesOf(saved.ta.b));
    if ("blob" in saved) {
      const { blob, type, name, modified } = saved;
      return name === undefined ? new Blob([bytesOf(blob)], { type })
        : new File([bytesOf(blob)], name, { type, lastModified: modified });
    }
    if ("a" in saved) {
      const list = keep([]);
      for (const each of saved.a) list.push(inner(each));
      return list;
    }
    if ("m" in saved) {
      const map = keep(new Map());
      for (const { k, v } of saved.m) map.set(inner(k), inner(v));
      return map;
    }
    if ("s" in saved) {
      const set = keep(new Set());
      for (const each of saved.s) set.add(inner(each));
      return set;
    }
    const object = keep({});
    for (const { k, v } of saved.o)
      Object.defineProperty(object, k, { value: inner(v), writable: true, enumerable: true, configurable: true });
    return object;
  }
