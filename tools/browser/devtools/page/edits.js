// Runs at the start of each document and remembers the state of each field before it is edited.
(() => {
  "use strict";
  if (globalThis.edits) return;

  // A radio button stands for its group.
  function membersOf(field) {
    if (field.type !== "radio" || !field.name) return [field];
    const named = field.getRootNode().querySelectorAll(`input[type=radio][name="${CSS.escape(field.name)}"]`);
    return Array.from(named).filter(({ form }) => form === field.form);
  }

  function stateOf(field) {
    if (field.type === "radio") return membersOf(field).map(({ value, checked }, at) => checked ? [value, at] : null).find(Boolean) ?? null;
    if (field.type === "checkbox") return field.checked;
    if (field.localName === "select") return Array.from(field.selectedOptions, ({ value }) => value);
    return field.value;
  }

  const isField = node => ["input", "select", "textarea"].includes(node.localName) && node.form !== undefined;

  const edits = globalThis.edits = {
    before: new WeakMap(), at: new WeakMap(), elements: new Set(), passwords: new WeakSet(),
    membersOf, stateOf, isField, remember,
  };

  // Remembers the state of a field that is about to be edited; the first one counts.
  function remember(field) {
    const [first] = membersOf(field);
    if (first && !edits.before.has(first)) edits.before.set(first, stateOf(first));
  }

  function note(event) {
    const [element] = event.composedPath();
    if (element.nodeType !== Node.ELEMENT_NODE) return;
    if (event.type !== "input" && event.type !== "change") {
      if (isField(element)) remember(element);
      return;
    }
    edits.elements.add(element);
    edits.at.set(element, Date.now());
    if (element.type === "password") edits.passwords.add(element);
  }

  for (const type of ["focusin", "beforeinput", "input", "change"])
    addEventListener(type, note, { capture: true });
})();
