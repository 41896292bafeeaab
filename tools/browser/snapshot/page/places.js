  // Paths of elements and descriptions of fields, by which they are found again.

  // A path has one segment for each root (document, shadow root, frame): an id or "", and the steps below it.

  // A form exposes its fields as properties, which may shadow "children" or "id", so use the getters of the prototypes.
  function asking(prototype, name) {
    const { get } = Object.getOwnPropertyDescriptor(prototype, name);
    return node => get.call(node);
  }
  const nodesIn = asking(Node.prototype, "childNodes");
  const parentOf = asking(Node.prototype, "parentElement");
  const kindOfNode = asking(Node.prototype, "nodeType");
  const nameOf = asking(Element.prototype, "localName");
  const idOf = asking(Element.prototype, "id");

  // Slow results are cached until the document may have changed.
  let [families, alike, called] = [new Map(), new Map(), new Map()];
  function lookAnew() { [families, alike, called] = [new Map(), new Map(), new Map()]; }

  // Drops only the cached results that the changes affect: each of many fields may change the document.
  function lookAnewAt(changes) {
    for (const { type, target, addedNodes, removedNodes } of changes) {
      families.delete(target);
      if (type === "attributes" || [...addedNodes, ...removedNodes].some(hasNamed)) alike.clear();
      if ([...addedNodes, ...removedNodes].some(hasFields)) called.clear();
    }
  }

  // Returns the children of a node by tag name, and the number of each child among those with its name.
  function family(node) {
    if (families.has(node)) return families.get(node);
    const [named, numbers] = [new Map(), new Map()];
    for (const child of nodesIn(node)) {
      if (kindOfNode(child) !== Node.ELEMENT_NODE) continue;
      const like = named.get(nameOf(child)) ?? [];
      named.set(nameOf(child), like);
      numbers.set(child, like.push(child));
    }
    families.set(node, { named, numbers });
    return families.get(node);
  }

  function segment(element) {
    const root = element.getRootNode();
    const steps = [];
    for (let at = element; at; at = parentOf(at)) {
      const id = idOf(at);
      if (id && root.getElementById(id) === at) return [id, ...steps];
      steps.unshift([nameOf(at), family(parentOf(at) ?? root).numbers.get(at)]);
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
        element = element && family(element).named.get(name)?.[number - 1];
      }
      if (!element) return null;
    }
    return element;
  }

  // Descriptions of fields. Paths alone do not identify the rows of a list after one was added or removed.

  const ownText = new Set(["script", "style", "select", "textarea"]);

  function wordsIn(element, most = 300, steps = 300) {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, node =>
      ownText.has(node.localName) || node.isContentEditable ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
    let words = "";
    for (let node = walker.nextNode(); node && words.length < most && steps--; node = walker.nextNode())
      if (node.nodeType === Node.TEXT_NODE) words += ` ${node.data}`;
    return words.trim().replace(/\s+/g, " ").slice(0, most);
  }

  const rowOf = field => field.closest("li, tr, dd, [role=row], [role=listitem], [role=option]");

  function around(field) {
    const row = rowOf(field);
    if (row) return wordsIn(row);
    const own = isCounted(field) ? labelled(field) : "";
    let words = "";
    for (let at = parentOf(field), level = 0; at && at !== field.ownerDocument.body && !words && level < 5; level++) {
      words = own ? wordsIn(at).replaceAll(own, "").trim() : wordsIn(at);
      at = parentOf(at);
    }
    return words;
  }

  const labelled = field => Array.from(field.labels ?? [], label => wordsIn(label)).join(" ");

  // Some pages set the value of a checkbox to "true" or "false" with its state.
  const valueOf = field =>
    !isTick(field) || field.type === "checkbox" && /^(true|false)$/.test(field.value) ? "" : field.value;

  const likeness = field => JSON.stringify([field.localName, field.name, field.type, valueOf(field)]);

  const NAMED = "input[name], select[name], textarea[name]";
  const { matches, querySelector } = Element.prototype;
  const hasNamed = node =>
    kindOfNode(node) === Node.ELEMENT_NODE && (matches.call(node, NAMED) || querySelector.call(node, NAMED) !== null);

  // Counts the fields of a document or shadow root by likeness().
  function counted(root) {
    if (alike.has(root)) return alike.get(root);
    const counts = new Map();
    for (const field of root.querySelectorAll(NAMED))
      counts.set(likeness(field), (counts.get(likeness(field)) ?? 0) + 1);
    alike.set(root, counts);
    return counts;
  }

  // React and Angular number ids, so an id belongs to another field after a field was added or removed.
  const isCounted = field => /[:«]r[0-9a-z]*[:»]|_r_[0-9a-z]+_|^mat-input-\d+$/i.test(field.id);

  const FIELD = "input, select, textarea";
  const hasFields = node =>
    kindOfNode(node) === Node.ELEMENT_NODE && (matches.call(node, FIELD) || querySelector.call(node, FIELD) !== null);
  const callOf = field =>
    [labelled(field), field.getAttribute("aria-label") ?? "", hintOf(field), valueOf(field)].join("\n");

  // Returns whether no other field of its document or shadow root has the same labels and hints.
  function isCalledAlone(field) {
    const root = field.getRootNode();
    if (!called.has(root)) {
      const counts = new Map();
      for (const each of root.querySelectorAll(FIELD)) counts.set(callOf(each), (counts.get(callOf(each)) ?? 0) + 1);
      called.set(root, counts);
    }
    return called.get(root).get(callOf(field)) === 1;
  }

  const isOnlyOne = field =>
    Boolean(field.id && (!isCounted(field) || isCalledAlone(field)) ||
      field.name && !(counted(field.getRootNode()).get(likeness(field)) > 1));

  // Returns whether an id or name may be just the number of its row: after a change of the list it is another field's.
  function isNumbered(field) {
    const row = rowOf(field);
    if (!row) return false;
    const number = family(parentOf(row) ?? row.getRootNode()).numbers.get(row);
    const named = `${field.id} ${field.name ?? ""}`.match(/\d+/g) ?? [];
    // The number may count from 0 or 1, and the list may have a heading.
    return named.some(each => each <= number && each >= number - 2);
  }

  // Some pages change the placeholder while the field has the focus.
  const hintOf = field => field.placeholder ?? "";

  function about(field, numbered = isNumbered(field)) {
    const own = [labelled(field), valueOf(field)];
    // A restored frame loads its first address, so a field is only found if the frame shows the same page.
    if (field.ownerDocument !== document) own.push(field.ownerDocument.location.pathname);
    const words = isOnlyOne(field) && !numbered ? "" : around(field);
    return [...own, field.getAttribute("aria-label") ?? "", words].join("\n").trim();
  }

