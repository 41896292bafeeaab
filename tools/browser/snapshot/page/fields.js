  // Saves and restores the form fields and scroll positions of a page.

  const UNSAVED_TYPES = new Set(["hidden", "submit", "button", "image", "reset"]);
  const FIELDS = new Set(["input", "textarea", "select"]);
  const CHOICES = new Set(["select-one", "select-multiple", "radio"]);
  const TEXTS = new Set(["value", "sent", "html"]);
  // Scripts, Playwright's among them, set the values of these types and then send an input event that is not trusted.
  const PICKED = new Set(["date", "time", "datetime-local", "month", "week", "color", "range"]);
  // The events that show that a person or a tool acts on the page.
  const ACTS = ["pointerdown", "click", "keydown", "input", "change", "reset", "submit"];
  const SENT_WITHIN = 1000;
  const [HOLD_MILLISECONDS, HOLD_STEP] = [5000, 50];

  // Records events of fields from the first snapshot on. Our world keeps the records as long as the document lives.

  const notes = globalThis.noted ??= {
    listening: new WeakSet(), edited: new WeakSet(), secret: new WeakSet(), before: new WeakMap(), chosenAt: new WeakMap(),
    about: new WeakMap(), sent: new WeakSet(), filled: new WeakMap(),
    held: new Map(), acting: false, touched: false,
  };

  function note(event) {
    const field = event.composedPath()[0];
    if (field.nodeType !== Node.ELEMENT_NODE) return;
    if (!notes.about.has(field)) lookAnew();
    noteAbout(field, event.type === "beforeinput");
    if (event.type === "change") { notes.chosenAt.set(field, Date.now()); return; }
    if (!event.isTrusted && !(event.type === "input" && PICKED.has(field.type))) return;
    if (event.type === "input") { notes.edited.add(field); notes.sent.delete(field); }
    else {
      noteBefore(field);
      // Some editors handle the input themselves, so that no input event follows.
      if (field.isContentEditable) notes.edited.add(field);
      setTimeout(() => { if (notes.about.has(field)) notes.about.get(field).left = letters(field); });
    }
    if (field.type === "password") notes.secret.add(field);
  }

  // Notes the content of a field before its first edit, and the content that the site sent. They differ if a script or the
  // browser itself filled the field.
  function noteBefore(field) {
    if (!notes.before.has(field)) notes.before.set(field, [digest(contents(field)), original(field)]);
  }

  // Notes hidden fields that scripts change, for example to the choice of a custom list. Changes before the first action on
  // the page are ignored, since scripts make them at each load.
  function noteFilled(changes) {
    if (!notes.touched) return;
    for (const { target, oldValue } of changes)
      if (target.type === "hidden" && !notes.filled.has(target)) notes.filled.set(target, oldValue ?? "");
  }

  const letters = field => (field.isContentEditable ? field.textContent : field.value ?? "").slice(0, 2000).toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");

  // Notes the words around a field before it is edited, since pages count, check or add up the input beside the field. If a
  // script has put other content into the field since (more than a new format), the words are noted again.
  function noteAbout(field, isBefore) {
    if (!isField(field)) return;
    const left = letters(field);
    const known = notes.about.get(field);
    if (known && (!isBefore || left === known.left)) { known.left = left; return; }
    notes.about.set(field, { words: about(field), hint: hintOf(field), left });
  }

  function listenIn(root) {
    if (notes.listening.has(root)) return;
    notes.listening.add(root);
    for (const type of ACTS) root.addEventListener(type, () => { notes.touched = true; }, { capture: true });
    for (const type of ["beforeinput", "input", "change"]) root.addEventListener(type, note, { capture: true });
    new MutationObserver(noteFilled).observe(root, { subtree: true, attributeFilter: ["value"], attributeOldValue: true });
  }

  // Returns the documents of the page and of its same-origin frames.
  function documents() {
    const all = [document];
    for (const its of all)
      all.push(...Array.from(its.querySelectorAll("iframe, frame"), frame => frame.contentDocument).filter(Boolean));
    return all;
  }

  function listen() {
    for (const its of documents()) {
      // The page loses the focus when a frame gets it: look for new frames then.
      if (!notes.listening.has(its)) its.defaultView.addEventListener("blur", listen);
      listenIn(its);
    }
  }

  const contents = field => field.isContentEditable ? field.innerHTML : field.value ?? "";

  function digest(text) {
    let [one, other] = [0xdeadbeef, 0x41c6ce57];
    for (let at = 0; at < text.length; at++) {
      one = Math.imul(one ^ text.charCodeAt(at), 2654435761);
      other = Math.imul(other ^ text.charCodeAt(at), 1597334677);
    }
    return `${text.length}.${(one >>> 0).toString(36)}.${(other >>> 0).toString(36)}`;
  }

  // Returns digests of the chosen options, and of those that the site sent as chosen, which later choices do not change.
  function choices(field) {
    const all = field.localName === "select" ? Array.from(field.options)
      : Array.from(field.getRootNode().querySelectorAll("input[type=radio]"))
        .filter(({ form, name }) => form === field.form && name === field.name);
    const of = each => digest(JSON.stringify(all.filter(each).map(({ value }) => value)));
    return { now: of(each => each.selected || each.checked), sent: of(each => each.defaultSelected || each.defaultChecked) };
  }

  const original = field => typeof field.defaultValue === "string" ? digest(initial(field)) : null;

  // Returns whether the site's content of a field differs from that before the edit. In the `last` attempt the content that
  // the site had sent counts as equal; before, its scripts may still be about to fill in the rest. Old snapshots have no
  // `wasOriginal`.
  function isNewer(field, before, wasOriginal, last) {
    const now = digest(contents(field));
    if (now === before) return false;
    return !last || !wasOriginal || now !== wasOriginal || original(field) !== wasOriginal;
  }

  // Form fields.

  // Returns the value of an untouched field: types such as range and color have one even if the page gives none.
  function initial(field) {
    if (field.localName !== "input" || field.value === field.defaultValue) return field.defaultValue;
    const like = field.ownerDocument.createElement("input");
    // Set the type last: a range would keep the middle of its range before the other attributes.
    for (const name of ["min", "max", "step", "multiple", "alpha", "colorspace", "value", "type"])
      if (field.hasAttribute(name)) like.setAttribute(name, field.getAttribute(name));
    return like.value;
  }

  const isSecret = field => notes.secret.has(field) || looksSecret(field, labelled);

  const isListenedTo = element => notes.listening.has(element.ownerDocument);

  function isFocused(element) {
    const active = element.getRootNode().activeElement;
    return active !== null && element.contains(active);
  }

  // Some frameworks keep the default equal to the value, so a comparison of the two is not enough.
  const isTouched = field =>
    field.matches(":user-valid, :user-invalid") || notes.edited.has(field) || !isListenedTo(field) && isFocused(field);

  // Content without edits must not overwrite newer content of the site.
  function isEdited(element) {
    if (notes.edited.has(element)) return true;
    if (isListenedTo(element) || !element.textContent) return false;
    return isFocused(element) || element.ownerDocument.queryCommandEnabled("undo");
  }

  function chosen(select) {
    const options = Array.from(select.options);
    const first = options.findIndex(({ disabled }) => !disabled);
    const changed = options.some(({ defaultSelected }) => defaultSelected) || select.multiple
      ? options.some(({ selected, defaultSelected }) => selected !== defaultSelected)
      : select.selectedIndex !== first;
    if (!changed && !isTouched(select)) return null;
    // Save the indexes as well, because options may share a value.
    return ["chosen", Array.from(select.selectedOptions, each => [encodeString(each.value), each.index])];
  }

  // Returns [kind, value], or null if there is nothing to save.
  function content(element) {
    if (element.localName === "select") return chosen(element);
    if (element.localName !== "input" && element.localName !== "textarea")
      return isEdited(element) ? ["html", encodeString(element.innerHTML)] : null;
    if (isTick(element)) {
      const changed = element.checked !== element.defaultChecked || isTouched(element);
      const kind = element.indeterminate ? "mixed" : "checked";
      return changed && (element.checked || element.type === "checkbox") ? [kind, element.checked] : null;
    }
    return element.value !== initial(element) || isTouched(element) ? ["value", encodeString(element.value)] : null;
  }

  // Elements of other XML languages, such as those of a feed, may have the same names.
  const isField = element =>
    FIELDS.has(nameOf(element)) ? element.form !== undefined
      : element.isContentEditable === true && !parentOf(element)?.isContentEditable && element !== document.body;

  class Survey {
    constructor({ fields, fieldBytes, pageBytes, milliseconds, sent }) {
      Object.assign(this, { mostFields: fields, fieldBytes, pageBytes, sent, until: performance.now() + milliseconds });
      Object.assign(this, { fields: [], hidden: [], scrolled: [], withheld: 0, done: 0, files: 0, cut: false });
    }

    run() {
      const roots = [document];
      let seen = 0;
      while (roots.length) {
        for (const element of roots.pop().querySelectorAll("*")) {
          const field = isField(element);
          if ((++seen % 128 === 0 || field) && performance.now() > this.until) { this.cut = true; return; }
          const inner = inside(element);
          if (inner) roots.push(inner);
          if ((element.scrollTop || element.scrollLeft) && this.scrolled.length < 100)
            this.scrolled.push([place(element), element.scrollLeft, element.scrollTop]);
          if (field) this.take(element);
        }
      }
    }

    take(element) {
      if (element.type === "file") { this.files += element.files.length; return; }
      if (UNSAVED_TYPES.has(element.type)) { this.takeHidden(element); return; }
      const taken = content(element);
      if (!taken) return;
      if (isSecret(element)) { this.withheld++; return; }
      if (taken[0] === "value" && (notes.sent.has(element) || this.wasSent(element))) taken[0] = "sent";
      if (!TEXTS.has(taken[0]) && this.wasSent(element)) { this.done++; return; }
      const size = JSON.stringify(taken).length;
      const most = this.fields.length < this.mostFields ? Math.min(this.fieldBytes, this.pageBytes) : 0;
      if (size > most) { this.cut = true; return; }
      this.pageBytes -= size;
      const [now, hint] = [about(element), hintOf(element)];
      const was = notes.about.get(element) ?? { words: now, hint };
      const what = [was.hint === hint ? hint : "", ...new Set([now, was.words])];
      const known = [what, ...notes.before.get(element) ?? []];
      // Without an edit, note the choice that the site sent, unless a framework keeps it equal to the current one.
      if (CHOICES.has(element.type) && known.length === 1) {
        const { now: chosen, sent } = choices(element);
        if (chosen !== sent) known.push(null, sent);
      }
      this.fields.push([place(element), element.localName, element.type ?? "", element.name ?? "", ...taken, ...known]);
    }

    // Hidden fields are not restored, since their meaning is unknown; the loss is reported.
    takeHidden(element) {
      const before = notes.filled.get(element);
      if (before === undefined || before === element.value || this.hidden.length >= 100) return;
      this.hidden.push([place(element), element.localName, element.type, element.name, digest(element.value)]);
    }

    // Returns whether the choice was sent to the site at once. The site then shows it by itself, or has acted on it.
    wasSent(element) {
      const at = notes.chosenAt.get(element);
      return at !== undefined && this.sent.some(each => each > at - 100 && each < at + SENT_WITHIN);
    }
  }

  function tell(element, types = ["input", "change"]) {
    for (const type of types) element.dispatchEvent(new Event(type, { bubbles: true, composed: true }));
  }

  // Old snapshots have values without indexes.
  function optionOf(options, saved) {
    const [value, index] = [saved].flat();
    return options[index]?.value === value ? options[index] : options.find(option => option.value === value);
  }

  function isChosen(select, saved) {
    const options = Array.from(select.options);
    const wanted = new Set(saved.map(each => optionOf(options, each)));
    return options.every(option => option.selected === wanted.has(option));
  }

  function setField(element, kind, value, isAgain) {
    if (kind === "checked" || kind === "mixed") {
      let told = false;
      element.addEventListener("change", () => { told = true; }, { once: true });
      if (element.checked !== value) element.click();
      if (element.checked !== value && !told) { element.checked = value; tell(element); }
      if (kind === "mixed") element.indeterminate = true;
      return element.checked === value || "refused";
    }
    if (kind === "chosen") {
      const options = Array.from(element.options);
      const wanted = new Set(value.map(each => optionOf(options, each)));
      if (wanted.has(undefined)) return false;
      if (isChosen(element, value)) return true;
      if (element.multiple) for (const option of options) option.selected = wanted.has(option);
      else element.selectedIndex = options.findIndex(option => wanted.has(option));
    } else if (kind === "html") {
      if (element.innerHTML === value) return true;
      try { element.innerHTML = value; } catch { return false; }
    } else {
      if (element.value === value) return true;
      element.value = value;
    }
    // Without a change event for texts that were restored or sent before: the page may send a complete text again.
    tell(element, TEXTS.has(kind) && (isAgain || kind === "sent") ? ["input"] : undefined);
    return element.value === value || kind === "chosen" || kind === "html" || "refused";
  }

  const kindOf = element => [element.localName, element.type ?? "", element.name ?? ""];
  const keyOf = (...all) => JSON.stringify(all);

  // Returns the fields by their descriptions; null for a description that several fields share.
  function fieldsByKey() {
    lookAnew();
    const known = new Map();
    for (const element of Array.from(document.querySelectorAll("*")).filter(isField).slice(0, 2000)) {
      const key = keyOf(kindOf(element), about(element), hintOf(element));
      known.set(key, known.has(key) ? null : element);
    }
    return known;
  }

  // Returns the element at a path if its description is the same as before, else the one in `elsewhere` with it.
  function again([segments, name, type, called, , , what], elsewhere) {
    const kind = [name, type, called];
    const there = found(segments);
    // The words may be those before the edit or after; old snapshots have only one text, and no hint.
    const [hint, ...known] = Array.isArray(what) ? what : ["", what];
    const isHinted = () => !hint || ["", hint].includes(hintOf(there));
    // The number of its row may have changed.
    const isSame = () => what === undefined || [true, false].some(numbered => known.includes(about(there, numbered)));
    if (there && String(kindOf(there)) === String(kind) && isHinted() && isSame()) return there;
    if (segments.length !== 1) return null;
    return known.filter(each => each || hint).map(each => elsewhere?.get(keyOf(kind, each, hint))).find(Boolean);
  }

  // Editors that show only a part of their text and would lose the rest, or that accept only key presses.
  const CLOSED = ".cm-editor, .CodeMirror, .ace_editor, .monaco-editor, .xterm, [data-slate-editor]";

  // The reasons to stop trying. A page that refused a value has already handled its events, which must not be sent again.
  const REASONS = {
    refused: "the page did not keep it",
    closed: "its editor takes only what is typed",
    // The text alone would show a choice that the page does not have, and open its list over the page.
    listed: "it has to be chosen from its list again",
  };

  // Restores a field. Returns true, false if it failed, "newer" if the site's content has changed since the edit, or a key
  // of REASONS.
  function putBack(field, elsewhere, last = false) {
    const [, , , , kind, saved, , before, wasOriginal] = field;
    const element = again(field, elsewhere);
    if (!element) return false;
    const value = decode(saved);
    if (element.closest(CLOSED)) return contents(element) === value || "closed";
    if (element.matches("input[role=combobox]")) return contents(element) === value || "listed";
    if (before && contents(element) !== value && isNewer(element, before, wasOriginal, last)) return "newer";
    const isSame = () => kind === "chosen" ? isChosen(element, value) : element.checked === value;
    if (CHOICES.has(element.type) && !before && wasOriginal && choices(element).sent !== wasOriginal && !isSame())
      return "newer";
    if (TEXTS.has(kind)) noteBefore(element);
    noteAbout(element, true);
    const shown = shownIn(element);
    const result = setField(element, kind, value, held.has(field));
    if (!result) return false;
    const isChanged = shownIn(element) !== shown;
    // Note the edit, so that the next snapshot saves the field again.
    if (isChanged || result === true) notes.edited.add(element);
    if (result !== true) return result;
    if (isChanged) held.set(field, { element, shown });
    if (kind === "sent") {
      notes.sent.add(element);
      if (isChanged) untold.add(field);
    }
    return true;
  }

  function scrollBack([segments, left, top]) {
    const element = found(segments);
    if (!element) return false;
    element.scrollTo({ left, top, behavior: "instant" });
    return Math.abs(element.scrollTop - top) < 2 && Math.abs(element.scrollLeft - left) < 2;
  }

  // Lets the page run its tasks after an event, as between key presses: some pages otherwise lose a change to the next one.
  const [channel, turns] = [new MessageChannel(), []];
  channel.port1.onmessage = () => turns.shift()();
  const turn = () => new Promise(done => { turns.push(done); channel.port2.postMessage(null); });

  async function undone(pending, attempt) {
    const left = [];
    for (const each of pending) if (await attempt(each) !== true) left.push(each);
    return left;
  }

  // Retries until all is done or the time is over: pages build themselves after they have loaded.
  async function until(pending, attempt, milliseconds) {
    const end = performance.now() + milliseconds;
    for (;;) {
      lookAnew();
      pending = await undone(pending, attempt);
      const left = end - performance.now();
      if (!pending.length || left <= 0) return pending;
      await new Promise(resolve => {
        const watching = new MutationObserver(done);
        const timer = setTimeout(done, Math.min(left, 50));
        function done() { watching.disconnect(); clearTimeout(timer); resolve(); }
        watching.observe(document, { childList: true, subtree: true });
      });
    }
  }

  // Some pages set their fields again when data of their site has arrived. A field that is set back to its former content is
  // restored once more, unless a person or a tool acts on the page first.

  const { held } = notes;
  // Fields whose restored text was not sent to the site again.
  const untold = new Set();

  function shownIn(field) {
    if (isTick(field)) return field.checked;
    return field.localName === "select" ? String(Array.from(field.selectedOptions, ({ index }) => index)) : contents(field);
  }

  const isUndone = (field, there, shown) => shownIn(there) === shown || digest(contents(there)) === field[7];

  // Called before and after a script of the caller. Its changes are intended, but raise no event: do not undo them.
  function acting(begins) {
    notes.acting = begins;
    if (begins) return;
    for (const [field, { element, shown }] of Array.from(held)) if (isUndone(field, element, shown)) held.delete(field);
  }

  // Runs `work` without counting its events as an action on the page.
  function untouched(work) {
    const { touched } = notes;
    try { return work(); } finally { notes.touched = touched; }
  }

  async function hold(isHere) {
    const end = performance.now() + HOLD_MILLISECONDS;
    let [ours, done] = [false, false];
    const stop = () => { done ||= !ours; };
    const views = documents().map(({ defaultView }) => defaultView);
    for (const view of views) for (const type of ACTS) view.addEventListener(type, stop, { capture: true });
    while (held.size && performance.now() < end) {
      await new Promise(resolve => setTimeout(resolve, HOLD_STEP));
      if (done || !isHere()) break;
      if (notes.acting) continue;
      lookAnew();
      for (const [field, { element, shown }] of Array.from(held)) {
        const there = element.isConnected ? element : again(field);
        if (!there || !isUndone(field, there, shown)) continue;
        ours = true;
        untouched(() => putBack(field));
        ours = false;
        held.delete(field);
        await turn();
      }
    }
    for (const view of views) for (const type of ACTS) view.removeEventListener(type, stop, { capture: true });
  }

  // Returns the page of an address. A fragment that looks like a path denotes a page of its own, any other a place on it.
  function pageOf(url) {
    const [page, fragment = ""] = url.split(/#(.*)/s);
    return /^!?\//.test(fragment) ? `${page}#${fragment.split("?", 1)[0]}` : page;
  }

  // Restores fields and scroll positions of the page at an address. Returns the number of restored fields, and the numbers
  // of failed ones with the reasons in words.
  async function restorePage(address, text, { fieldMilliseconds, scrollMilliseconds }) {
    // Stop if the page navigates: the texts must not go into another page, which may belong to another site.
    const isHere = () => pageOf(location.href) === pageOf(address);
    if (!isHere()) throw new Error("this is another page");
    const refused = new Map();
    async function put(field, elsewhere, last) {
      let result = isHere() && untouched(() => putBack(field, elsewhere, last));
      if (result) await turn();
      const { element, shown } = held.get(field) ?? {};
      if (element && shownIn(element) === shown) result = "refused";
      if (!REASONS[result]) return result;
      refused.set(field, REASONS[result]);
      return true;
    }
    const { fields, scrolled, hidden = [] } = JSON.parse(text);
    listen();
    // The page's reaction to one field may move the next one.
    const watching = new MutationObserver(lookAnewAt);
    watching.observe(document, { subtree: true, childList: true, attributeFilter: ["name"] });
    const pending = await undone(fields, put);
    const moved = pending.length ? fieldsByKey() : null;
    const late = await until(await undone(pending, field => put(field, moved)), put, fieldMilliseconds);
    const by = late.length ? fieldsByKey() : null;
    const last = [];
    for (const field of late) last.push(await put(field, by, true));
    const [newer, missing] = ["newer", false].map(result => last.filter(each => each === result).length);
    watching.disconnect();
    // Runs in the background.
    void hold(isHere);
    const behind = hidden.filter(field => { const there = again(field); return !there || digest(there.value) !== field[4]; });
    const unscrolled = (await until(scrolled, scrollBack, scrollMilliseconds)).length;
    const unfilled = [
      ["the site has something newer there", newer], ["not there", missing],
      ...Object.values(REASONS).map(why => [why, Array.from(refused.values()).filter(each => each === why).length]),
      ["its text is there, but was not sent to the site again", untold.size],
      ["hidden, and filled by a script: what is sent may be other than what is shown", behind.length],
    ].filter(([, count]) => count);
    const filled = fields.length - newer - missing - refused.size;
    return { fields: filled, unfilled, scrolled: scrolled.length - unscrolled, unscrolled };
  }
