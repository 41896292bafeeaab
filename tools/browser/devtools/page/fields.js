  // Saves and restores form fields and scroll positions.

  const { membersOf, stateOf, isField, remember } = edits;
  const UNSAVED_TYPES = new Set(["hidden", "submit", "button", "image", "reset", "file"]);
  const SENT_WITHIN = 1000;
  const RETRY_MILLISECONDS = 50;

  const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const isText = field => field.localName !== "select" && !isTick(field);

  // Returns the state of an untouched field; types such as range have one even if the page gives none.
  function defaultOf(field) {
    if (isText(field) && field.value === field.defaultValue) return field.value;
    const form = document.createElement("form");
    const clones = membersOf(field).map(each => each.cloneNode(true));
    form.append(...clones);
    // A field may be called "reset".
    HTMLFormElement.prototype.reset.call(form);
    return stateOf(clones[0]);
  }

  const labelOf = field => Array.from(field.labels ?? [], label => label.textContent.slice(0, 300)).join(" ");

  // Returns the words that describe a field, without numbers, which pages count up as a person types.
  const wordsOf = field => [labelOf(field), field.getAttribute("aria-label"), field.placeholder].join(" ")
    .replace(/[\d\s]+/g, " ").trim();

  const kindOf = field => [field.localName, field.type, field.name, field.type === "checkbox" ? field.value : ""];

  function selectorOf(field) {
    if (field.type !== "radio" && field.id) return `#${CSS.escape(field.id)}`;
    return field.name ? `[name="${CSS.escape(field.name)}"]` : null;
  }

  // Returns the only field of the document with a selector and kind, or null.
  function find(selector, kind) {
    const all = Array.from(document.querySelectorAll(selector)).filter(each => isSame(kindOf(each), kind));
    return all.length && membersOf(all[0]).length === all.length ? all[0] : null;
  }

  // Returns the fields of a page in the order of the document, one for each group of radio buttons.
  const fieldsOf = root => Array.from(root.querySelectorAll("input, select, textarea"))
    .filter(field => isField(field) && !UNSAVED_TYPES.has(field.type) && membersOf(field)[0] === field);

  const isChanged = field => !isSame(stateOf(field), edits.before.get(field) ?? defaultOf(field));

  // The site has a choice that was sent to it at once, or has acted on it.
  function wasSent(field, sent) {
    const at = Math.max(...membersOf(field).map(each => edits.at.get(each) ?? 0));
    return sent.some(each => each > at - 100 && each < at + SENT_WITHIN);
  }

  function savedFields({ fields: most, fieldBytes, pageBytes, milliseconds, sent }) {
    const until = performance.now() + milliseconds;
    const found = { fields: [], missed: 0, withheld: 0, done: 0, files: 0, cut: false };
    for (const field of fieldsOf(document)) {
      if (performance.now() > until) { found.cut = true; break; }
      if (!isChanged(field)) continue;
      if (looksSecret(field, labelOf) || edits.passwords.has(field)) { found.withheld++; continue; }
      const [selector, kind, state, isSent] = [selectorOf(field), kindOf(field), stateOf(field), wasSent(field, sent)];
      if (isSent && !isText(field)) { found.done++; continue; }
      if (!selector || find(selector, kind) !== field) { found.missed++; continue; }
      const size = JSON.stringify(state).length;
      if (size > Math.min(fieldBytes, pageBytes) || found.fields.length === most) { found.cut = true; continue; }
      pageBytes -= size;
      const initial = defaultOf(field);
      const before = edits.before.get(field) ?? initial;
      found.fields.push({ selector, kind, words: wordsOf(field), state, before, initial, isSent });
    }
    for (const { files } of document.querySelectorAll("input[type=file]")) found.files += files?.length ?? 0;
    for (const frame of document.querySelectorAll("iframe, frame"))
      found.missed += frame.contentDocument ? fieldsOf(frame.contentDocument).filter(isChanged).length : 0;
    // Editors, and fields in shadow trees.
    for (const element of edits.elements)
      if (element.isConnected && (!isField(element) || element.getRootNode() !== document)) found.missed++;
    return found;
  }

  function setState(field, state, isSent) {
    if (isTick(field)) {
      const target = field.type === "radio" ? membersOf(field)[state?.[1]] : field;
      if (target && target.checked !== (state !== false)) target.click();
      return;
    }
    if (field.localName === "select")
      for (const option of field.options) option.selected = state.includes(option.value);
    else field.value = state;
    // A text that the site was sent must not be sent again, and pages send it at the change event.
    for (const type of isSent ? ["input"] : ["input", "change"])
      field.dispatchEvent(new Event(type, { bubbles: true, composed: true }));
  }

  const isFillable = field =>
    field.checkVisibility({ visibilityProperty: true }) && !field.matches(":disabled, [readonly], [role=combobox]");

  // Restores a field. Returns whether it has its state. A field with other content than before the edit is left alone; one
  // with the content that the site had sent gets its state in the last attempt only, as its page may be about to fill it.
  function putBack({ selector, kind, words, state, before, initial, isSent }, isLast) {
    const field = find(selector, kind);
    if (!field || wordsOf(field) !== words) return false;
    const now = stateOf(field);
    if (isSame(now, state)) return true;
    if (!isSame(now, before) && !(isLast && isSame(now, initial)) || !isFillable(field)) return false;
    remember(field);
    setState(field, state, isSent);
    return !isSame(stateOf(field), now);
  }

  // Scroll positions.

  function savedScroll() {
    const found = [["", scrollX, scrollY]];
    for (const element of document.querySelectorAll("[id]"))
      if (element.scrollTop || element.scrollLeft) found.push([element.id, element.scrollLeft, element.scrollTop]);
    return found.filter(([, left, top]) => left || top).slice(0, 100);
  }

  function scrollBack([id, left, top]) {
    const element = id ? document.getElementById(id) : document.scrollingElement;
    element?.scrollTo({ left, top, behavior: "instant" });
    return Boolean(element) && Math.abs(element.scrollTop - top) < 2 && Math.abs(element.scrollLeft - left) < 2;
  }

  // Retries what is left until the time is over: pages build themselves after they have loaded.
  async function until(pending, attempt, milliseconds) {
    const end = performance.now() + milliseconds;
    for (;;) {
      const isLast = performance.now() > end;
      const left = [];
      for (const each of pending) {
        if (!attempt(each, isLast)) left.push(each);
        // Let the page run its tasks, as between key presses.
        await scheduler.postTask(() => {});
      }
      pending = left;
      if (!pending.length || isLast) return pending.length;
      await new Promise(resolve => setTimeout(resolve, RETRY_MILLISECONDS));
    }
  }

  // Returns the page of an address. A fragment that looks like a path denotes a page of its own, any other a place on it.
  function pageOf(url) {
    const [page, fragment = ""] = url.split(/#(.*)/s);
    return /^!?\//.test(fragment) ? `${page}#${fragment.split("?", 1)[0]}` : page;
  }

  // Restores fields and scroll positions of the page at an address. Returns how many, and how many are left.
  async function restorePage(address, text, { fieldMilliseconds, scrollMilliseconds }) {
    // Stop if the page navigates: the texts must not go into another page, which may belong to another site.
    const isHere = () => pageOf(location.href) === pageOf(address);
    if (!isHere()) throw new Error("this is another page");
    const { fields, missed, scrolled } = JSON.parse(text);
    const unfilled = await until(fields, (field, isLast) => isHere() && putBack(field, isLast), fieldMilliseconds);
    const unscrolled = await until(scrolled, scrollBack, scrollMilliseconds);
    return {
      fields: fields.length - unfilled, unfilled: unfilled + missed,
      scrolled: scrolled.length - unscrolled, unscrolled,
    };
  }
