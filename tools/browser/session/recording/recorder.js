// Reports actions in a page to `tell`, step by step. Paths lead through open shadow roots.
// The page can call and change all of this, so the receiver must not trust the reports.
(tellName) => {
  const known = "__stateholdRecorder";
  if (window[known]) return;
  const elements = [];
  const tell = (kind, element, more) => {
    // Keep the element: after this step has changed the page, its path may lead to another one.
    const number = elements.push(new WeakRef(element)) - 1;
    const step = {kind, number, path: pathOf(element), guess: guessOf(element), ...more};
    try { window[tellName](JSON.stringify(step)).catch(() => {}); } catch {}
  };

  const within = (element, root) => {
    const parts = [];
    for (let e = element; e && e !== root; e = e.parentElement) {
      const tag = CSS.escape(e.localName);
      let number = 1;
      for (let s = e.previousElementSibling; s; s = s.previousElementSibling)
        if (s.localName === e.localName) number++;
      parts.unshift(`${tag}:nth-of-type(${number})`);
    }
    return parts.join(" > ");
  };
  const pathOf = element => {
    const parts = [];
    for (let e = element; e;) {
      const root = e.getRootNode();
      parts.unshift(within(e, root));
      e = root instanceof ShadowRoot ? root.host : null;
    }
    return parts;
  };
  const short = text => (text || "").replace(/\s+/g, " ").trim().slice(0, 80);
  const textOf = (label, field) =>
    [...label.childNodes].filter(n => !n.contains(field)).map(n => n.textContent).join(" ");
  const guessOf = e => {
    const role = e.getAttribute("role") || {A: "link", BUTTON: "button", SUMMARY: "button"}[e.tagName] || "";
    const name = short(e.getAttribute("aria-label") || (role ? e.innerText : ""));
    const label = short(e.labels && e.labels[0] && textOf(e.labels[0], e));
    return {role, name, label};
  };

  const first = event => event.composedPath()[0];
  const control = element =>
    element.closest("a,button,summary,input,select,textarea,label,[role=button],[role=link],[role=tab],[role=menuitem]")
    || element;
  const kindOf = e => e.tagName === "INPUT" ? e.type : e.localName;
  const BUTTONS = ["button", "submit", "reset", "image"];
  const BOXES = ["checkbox", "radio"];
  const isText = e => e.isContentEditable || kindOf(e) === "textarea"
    || e.tagName === "INPUT" && !BUTTONS.includes(e.type) && !BOXES.includes(e.type) && e.type !== "file";
  const hasOwnStep = e => ["select", "option", "file", "range", "color", ...BOXES].includes(kindOf(e))
    || e.localName === "label" && e.control && (isText(e.control) || hasOwnStep(e.control));

  const handlers = {
    pointerdown: event => {
      const e = first(event);
      if (event.isTrusted && e instanceof Element) tell("aim", control(e));
    },
    click: event => {
      const e = first(event);
      // A click without a detail comes from a key press, which is a step of its own.
      if (!event.isTrusted || !event.detail || !(e instanceof Element)) return;
      const target = control(e);
      if (!hasOwnStep(target)) tell("click", target, {count: event.detail});
    },
    contextmenu: event => {
      const e = first(event);
      if (event.isTrusted && e instanceof Element) tell("menu", control(e));
    },
    input: event => {
      const e = first(event);
      if (!(e instanceof Element) || !isText(e)) return;
      const secret = kindOf(e) === "password";
      const value = secret ? "" : e.isContentEditable ? e.innerText : e.value;
      tell("fill", e, {value, secret});
    },
    change: event => {
      const e = first(event);
      if (!(e instanceof Element)) return;
      if (kindOf(e) === "select") tell("select", e, {values: [...e.selectedOptions].map(o => o.label)});
      else if (kindOf(e) === "file") tell("files", e, {values: [...e.files].map(f => f.name)});
      else if (event.isTrusted && BOXES.includes(kindOf(e))) tell(e.checked ? "check" : "uncheck", e);
    },
    keydown: event => {
      const e = first(event);
      if (!event.isTrusted || event.isComposing || !(e instanceof Element)) return;
      const held = ["Control", "Alt", "Meta"].filter(key => event.getModifierState(key));
      const typed = event.key.length === 1 && !held.length;
      const modifier = ["Control", "Alt", "AltGraph", "Meta", "Shift", "CapsLock", "Dead", "Process"].includes(event.key);
      if (typed || modifier || event.getModifierState("AltGraph")) return;
      const edits = isText(e) && !held.length && !["Escape", "Tab", "Enter"].includes(event.key);
      if (edits || event.key === "Enter" && (kindOf(e) === "textarea" || e.isContentEditable)) return;
      if (event.shiftKey) held.push("Shift");
      tell("press", e, {value: [...held, event.key].join("+")});
    },
  };
  for (const [name, handler] of Object.entries(handlers)) window.addEventListener(name, handler, true);
  window[known] = (number, element) => {
    if (element) return elements[number] && elements[number].deref() === element;
    for (const [name, handler] of Object.entries(handlers)) window.removeEventListener(name, handler, true);
  };
}
