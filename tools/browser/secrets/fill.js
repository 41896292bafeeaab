(element, [text, isAppended]) => {
  // As Playwright finds the field that it fills.
  const own = element.matches("input, textarea, select") || element.isContentEditable;
  const field = own ? element : element.closest("label")?.control ?? element;
  const root = field.getRootNode(), type = field.localName === "input" ? field.type : "";
  const isControl = field.matches("input, textarea");
  const typed = ["", "email", "number", "password", "search", "tel", "text", "url"];
  const chosen = ["color", "date", "datetime-local", "month", "range", "time", "week"];
  if (!field.isConnected) return "is gone";
  if (!isControl && !field.isContentEditable) return "is none for text";
  if (![...typed, ...chosen].includes(type)) return `takes no text: it is of type ${type}`;
  if (type === "number" && isNaN(Number(text))) return "takes numbers only";
  if (chosen.includes(type) && text) {
    // The browser writes a value that it refuses to the console, except for fields of a document without a window.
    const trial = document.implementation.createHTMLDocument("").createElement("input");
    trial.type = type;
    trial.value = text;
    if (type === "color" ? !CSS.supports("color", text) : !trial.value) return "did not take it";
  }
  field.focus();
  const selection = root.getSelection?.() ?? getSelection();
  if (!isControl) selection.selectAllChildren(field);
  else if (typed.includes(type)) field.select();
  if (isAppended && isControl) selection.modify("move", "forward", "documentboundary");
  else if (isAppended) selection.collapseToEnd();
  // It edits this document, wherever the focus is. If a handler took the focus, the selection is elsewhere in the document.
  const isReady = isControl ? typed.includes(type) && root.activeElement === field : field.contains(selection.anchorNode);
  const isInserted = isReady && document.execCommand("insertText", false, text);
  if (!isInserted && !isControl) return "did not take it";
  if (!isInserted) {
    const prototype = type ? HTMLInputElement.prototype : HTMLTextAreaElement.prototype;
    const { set } = Object.getOwnPropertyDescriptor(prototype, "value");
    set.call(field, isAppended && typed.includes(type) ? field.value + text : text);
    const options = { bubbles: true, composed: true };
    field.dispatchEvent(new InputEvent("input", { ...options, inputType: "insertText", data: text }));
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }
  return isControl && !field.value ? "did not take it" : "";
}
