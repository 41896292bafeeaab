  // Where elements are, and what fields are about: how they are found again.

  // Places of elements: one segment for each root (document, shadow root, frame), each an id or "" and steps below it.

  // A form gives its fields as properties, by names such as "children" and "id", so that it cannot be asked itself.
  function asking(prototype, name) {
    const { get } = Object.getOwnPropertyDescriptor(prototype, name);
    return node => get.call(node);
  }
  const nodesIn = asking(Node.prototype, "childNodes");
  const parentOf = asking(Node.prototype, "parentElement");
  const kindOfNode = asking(Node.prototype, "nodeType");
  const nameOf = asking(Element.prototype, "localName");
  const idOf = asking(Element.prototype, "id");

  // What takes time to find out is kept until the document may have changed.
  let [families, alike, called] = [new Map(), new Map(), new Map()];
  function lookAnew() { [families, alike, called] = [new Map(), new Map(), new Map()]; }

  // Looks anew at what changed and no more: of many fields each may change something.
  function lookAnewAt(changes) {
    for (const { type, target, addedNodes, removedNodes } of changes) {
      families.delete(target);
      if (type === "attributes" || [...addedNodes, ...removedNodes].some(hasNamed)) alike.clear();
      if ([...addedNodes, ...removedNodes].some(hasFields)) called.clear();
    }
  }

  // The children of a node by their names, and the number that each has among those of its name.
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

  // What a field is about, for places alone do not tell rows of a list from each other when one came or went.

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

  // Some pages call a box after whether it is ticked.
  const valueOf = field =>
    !isTick(field) || field.type === "checkbox" && /^(true|false)$/.test(field.value) ? "" : field.value;

  const likeness = field => JSON.stringify([field.localName, field.name, field.type, valueOf(field)]);

  const NAMED = "input[name], select[name], textarea[name]";
  const { matches, querySelector } = Element.prototype;
  const hasNamed = node =>
    kindOfNode(node) === Node.ELEMENT_NODE && (matches.call(node, NAMED) || querySelector.call(node, NAMED) !== null);

  // How many fields of a document or shadow root are like each other.
  function counted(root) {
    if (alike.has(root)) return alike.get(root);
    const counts = new Map();
    for (const field of root.querySelectorAll(NAMED))
      counts.set(likeness(field), (counts.get(likeness(field)) ?? 0) + 1);
    alike.set(root, counts);
    return counts;
  }

  // Ids that scripts count up, as React and Angular do, are those of other fields when one came or went.
  const isCounted = field => /[:«]r[0-9a-z]*[:»]|_r_[0-9a-z]+_|^mat-input-\d+$/i.test(field.id);

  const FIELD = "input, select, textarea";
  const hasFields = node =>
    kindOfNode(node) === Node.ELEMENT_NODE && (matches.call(node, FIELD) || querySelector.call(node, FIELD) !== null);
  const callOf = field =>
    [labelled(field), field.getAttribute("aria-label") ?? "", hintOf(field), valueOf(field)].join("\n");

  // Whether no other field of its document or shadow root is called as it is.
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

  // Whether an id or name may say no more than which row of a list it is in: it is another's when one came or went.
  function isNumbered(field) {
    const row = rowOf(field);
    if (!row) return false;
    const number = family(parentOf(row) ?? row.getRootNode()).numbers.get(row);
    const named = `${field.id} ${field.name ?? ""}`.match(/\d+/g) ?? [];
    // Counted from 0 or 1, and there may be a heading.
    return named.some(each => each <= number && each >= number - 2);
  }

  // Pages show it, or not, as long as somebody is in the field.
  const hintOf = field => field.placeholder ?? "";

  function about(field, numbered = isNumbered(field)) {
    const own = [labelled(field), valueOf(field)];
    // Frames begin anew, wherever they had gone.
    if (field.ownerDocument !== document) own.push(field.ownerDocument.location.pathname);
    const words = isOnlyOne(field) && !numbered ? "" : around(field);
    return [...own, field.getAttribute("aria-label") ?? "", words].join("\n").trim();
  }

