// Elements that draw themselves from templates, and again when one of their properties changes.
//
// html`<p class="a ${b}" ?hidden=${c} .value=${d} @click=${e}>${f}</p>` describes nodes: a text or list of descriptions, an
// attribute (absent for `nothing`), a switch, a property and a listener, whose `this` is the element that draws. A template is
// parsed once for each place in the source, and what was drawn from it before is changed, not replaced. Texts are never markup.

export const nothing = Symbol("nothing");
const LIVE = Symbol("live");
export const html = (strings, ...values) => ({ strings, values });
export const svg = (strings, ...values) => ({ strings, values, isSvg: true });
// A property that the user changes too is compared with what the page has, not with what was drawn.
export const live = value => ({ [LIVE]: value });
// A list whose items keep their nodes by a key when their order changes.
export const repeat = (items, keyOf, draw) => ({ items: [...items].map(item => [keyOf(item), draw(item)]) });

const NODES = NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_COMMENT;
// Controls, overrides of the direction and invisible tags: a person would see another text than the page has.
const HIDDEN = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/gu;
const shown = text => String(text).replace(HIDDEN, hidden => `\\u{${hidden.codePointAt(0).toString(16)}}`);

const NAME = /([^\s"'<>=/]+)=(?:"[^"]*|'[^']*|[^\s"']*)$/;
const templates = new WeakMap();

// Returns { content, holes }: the nodes, and for each place of values its node, by position, with its name and texts.
function parse({ strings, isSvg }) {
  let source = "";
  const names = [];
  strings.forEach((string, index) => {
    source += string;
    if (index === strings.length - 1) return;
    if (source.lastIndexOf("<") < source.lastIndexOf(">") || !source.includes("<")) source += `<!--{{${index}}}-->`;
    else {
      const [whole, name] = NAME.exec(source.slice(source.lastIndexOf("<")));
      // The parser would write names in small letters. A later value of the same attribute finds the name replaced.
      if (!name.startsWith("data-hole-")) {
        source = `${source.slice(0, source.length - whole.length)}data-hole-${names.length}${whole.slice(name.length)}`;
        names.push(name);
      }
      source += `{{${index}}}`;
    }
  });
  const template = document.createElement("template");
  template.innerHTML = isSvg ? `<svg>${source}</svg>` : source;
  if (isSvg) template.content.firstChild.replaceWith(...template.content.firstChild.childNodes);
  const holes = [], walker = document.createTreeWalker(template.content, NODES);
  for (let at = 0, node = walker.nextNode(); node; at += 1, node = walker.nextNode()) {
    if (node.nodeType === Node.COMMENT_NODE) {
      if (/^\{\{\d+\}\}$/.test(node.data)) holes.push({ at });
      continue;
    }
    for (const { name: place, value } of [...node.attributes]) {
      if (!place.startsWith("data-hole-")) continue;
      node.removeAttribute(place);
      holes.push({ at, name: names[place.slice(10)], texts: value.split(/\{\{\d+\}\}/) });
    }
  }
  return { content: template.content, holes };
}

class Attribute {
  constructor(node, { name, texts }, host) {
    Object.assign(this, { node, texts, host, size: texts.length - 1 });
    this.kind = ".?@".includes(name[0]) ? name[0] : "";
    this.name = this.kind ? name.slice(1) : name;
    if (this.kind === "@") node.addEventListener(this.name, event => this.value !== nothing && this.value?.call(host, event));
  }

  set(values) {
    const { node, name, kind, texts } = this;
    let [value] = values;
    const isLive = Object(value) === value && LIVE in value;
    if (isLive) value = value[LIVE];
    if (texts.length > 2 || texts[0] || texts[1]) {
      value = values.includes(nothing) ? nothing : texts.reduce((all, text, index) => all + (values[index - 1] ?? "") + text);
    }
    if (isLive ? value === node[name] : "value" in this && Object.is(value, this.value)) return;
    this.value = value;
    if (kind === ".") node[name] = value;
    else if (kind === "?") node.toggleAttribute(name, Boolean(value) && value !== nothing);
    else if (!kind && value === nothing) node.removeAttribute(name);
    else if (!kind) node.setAttribute(name, shown(value ?? ""));
  }
}

// The nodes between two marks.
class Child {
  constructor(end, host) {
    Object.assign(this, { end, host, size: 1, start: end.parentNode.insertBefore(document.createComment(""), end) });
  }

  static before(mark, host) {
    return new Child(mark.parentNode.insertBefore(document.createComment(""), mark), host);
  }

  set([value]) {
    if (value === nothing || value === false) value = null;
    if (value?.strings) this._draw(value);
    else if (Array.isArray(value)) this._list(value.map((item, index) => [index, item]));
    else if (value?.items) this._list(value.items);
    else if (value === null || value === undefined || value === "") this.clear();
    else if (this.text) {
      if (this.text.data !== shown(value)) this.text.data = shown(value);
    } else {
      this.clear();
      this.text = this.end.parentNode.insertBefore(document.createTextNode(shown(value)), this.end);
    }
  }

  clear() {
    while (this.start.nextSibling !== this.end) this.start.nextSibling.remove();
    this.text = this.strings = this.children = null;
  }

  remove() {
    this.clear();
    this.start.remove();
    this.end.remove();
  }

  // Puts all its nodes before a node.
  move(mark) {
    for (let node = this.start, next; node; node = next) {
      next = node === this.end ? null : node.nextSibling;
      // moveBefore() keeps the focus.
      const parent = mark.parentNode;
      (parent.moveBefore ?? parent.insertBefore).call(parent, node, mark);
    }
  }

  _draw(description) {
    const { strings, values } = description;
    if (this.strings !== strings) {
      this.clear();
      this.strings = strings;
      if (!templates.has(strings)) templates.set(strings, parse(description));
      const { content, holes } = templates.get(strings);
      const fragment = document.importNode(content, true), walker = document.createTreeWalker(fragment, NODES), nodes = [];
      while (walker.nextNode()) nodes.push(walker.currentNode);
      this.parts = holes.map(hole => (hole.name ? new Attribute(nodes[hole.at], hole, this.host) : new Child(nodes[hole.at], this.host)));
      this._fill(values);
      this.end.parentNode.insertBefore(fragment, this.end);
    } else this._fill(values);
  }

  _fill(values) {
    let index = 0;
    for (const part of this.parts) part.set(values.slice(index, (index += part.size)));
  }

  _list(items) {
    if (!this.children) this.clear();
    const earlier = this.children ?? new Map(), keys = new Set(items.map(([key]) => key));
    for (const [key, child] of earlier) if (!keys.has(key)) child.remove();
    this.children = new Map();
    let mark = this.start.nextSibling;
    for (const [key, value] of items) {
      let child = earlier.get(key);
      // One that moved down goes to the end for now, so that those behind it stay where they are, and keep the focus.
      const first = child && child.start !== mark && [...earlier.values()].find(each => each.start === mark);
      if (first && first.end.nextSibling === child.start) {
        mark = child.start;
        first.move(this.end);
      }
      if (!child) child = Child.before(mark, this.host);
      else if (child.start === mark) mark = child.end.nextSibling;
      else child.move(mark);
      this.children.set(key, child);
      child.set([value]);
    }
  }
}

export class PageElement extends HTMLElement {
  #changed;
  #isConnected;
  #root;
  #update;

  // The names of the properties that are drawn.
  static properties = [];

  static define(tag) {
    for (const name of this.properties) {
      const key = Symbol(name);
      Object.defineProperty(this.prototype, name, {
        get() { return this[key]; },
        set(value) {
          const old = this[key];
          this[key] = value;
          if (!Object.is(old, value)) this.requestUpdate(name, old);
        },
      });
    }
    customElements.define(tag, this);
  }

  connectedCallback() {
    this.#isConnected = true;
    this.requestUpdate();
  }

  disconnectedCallback() {}

  // Draws soon, once for all changes until then. Before the element is in a page, nothing is drawn.
  requestUpdate(name, old) {
    this.#changed ??= new Map();
    if (name && !this.#changed.has(name)) this.#changed.set(name, old);
    if (this.#isConnected) this.#update ??= Promise.resolve().then(() => this.#draw());
  }

  // Settles when the element is drawn with all changes up to now.
  get updateComplete() {
    return Promise.resolve(this.#update);
  }

  #draw() {
    const changed = this.#changed, isFirst = !this.#root;
    try {
      this.willUpdate?.(changed);
      this.#root ??= Child.before(this.appendChild(document.createComment("")), this);
      this.#root.set([this.render()]);
    } finally {
      this.#changed = this.#update = undefined;
    }
    if (isFirst) this.firstUpdated?.(changed);
    this.updated?.(changed);
  }
}

// A page that loads what it shows by `_load`, and again while it is visible.
export class LoadingElement extends PageElement {
  static reloadMilliseconds = 4000;

  connectedCallback() {
    super.connectedCallback();
    this._load();
    this._timer = setInterval(() => document.hidden || this._load(), this.constructor.reloadMilliseconds);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._timer);
  }
}
