(() => {
  "use strict";

  const SOON = 600;          // ms: a timer that is due later is not waited for
  const CHANGES = 200;       // ms for which a page may go on changing when nothing is known to be pending
  const SLICE = 250;         // ms after which rest() answers in any case, so that a stuck page is noticed
  const QUIET = 8;           // ms without changes: of a page that did nothing
  const AFTERMATH = 30;      // and after something that was waited for
  const FRAME = 16, LATE = 500, MANY = 1000, COPIED = 10_000_000;
  const INPUTS = ["mouseover", "mousedown", "keydown", "input", "change", "click", "dragenter", "drop"];
  const LIVE = "output, [role=alert], [role=status], [role=log], [aria-live]:not([aria-live=off])";
  const CONTROLS = "a, button, input, label, select, summary, textarea, [role=button], [role=link]";
  const PAINT = /color|background|shadow|border|outline|filter|fill|stroke|decoration/;

  const now = performance.now.bind(performance), later = setTimeout;
  const endless = new Set();  // keys of loops and unanswered messages of this document: they are waited for once
  let action = null, told = false;

  function* windows(view = window, depth = 0) {
    yield view;
    for (let index = 0; depth < 5 && index < Math.min(view.length, 20); index++) {
      try { void view[index].document.body; } catch { continue; }
      yield* windows(view[index], depth + 1);
    }
  }

  const keyOf = (kind, work) => {
    const source = typeof work === "function" ? Function.prototype.toString.call(work) : String(work);
    return `${kind} ${source.length} ${source.slice(0, 200)}`;
  };

  // Count something as pending until it is deleted, at the latest until `due`. Leave out a loop that ran before the action,
  // or that runs on and on; after a load no loop is waited for.
  const add = (state, key, due) => {
    const time = now(), first = state.firsts.get(key) ?? time;
    if (state.background.has(key) || endless.has(key) || state.pending.size > MANY) return null;
    if (due - first > SOON + LATE || (state.loads && first < time)) {
      endless.add(key);
      state.runsOn = !state.loads;
      return null;
    }
    state.firsts.set(key, first);
    const entry = { key, due, outlasts: false };
    state.pending.add(entry);
    return entry;
  };

  const hook = (state, view) => {
    if (state.views.has(view)) return;
    state.views.set(view, view.document.timeline.currentTime ?? 0);
    const ids = new Map();
    const replace = (owner, name, note) => {
      try {
        const native = owner[name];
        const proxy = new Proxy(native, {
          apply(target, self, parameters) {
            const result = Reflect.apply(target, self, parameters);
            if (state === action) try { note(parameters, result, self, target); } catch {}
            return result;
          },
        });
        owner[name] = proxy;
        state.undo.push(() => { if (owner[name] === proxy) owner[name] = native; });
      } catch {}
    };
    const forget = ([id]) => {
      const entry = ids.get(id);
      if (!entry || !state.pending.delete(entry)) return;
      ids.delete(id);
      state.firsts.delete(entry.key);
    };
    replace(view, "setTimeout", ([work, given], id) => {
      const delay = Math.max(0, Number(given) || 0);
      if (delay > SOON) return;
      const entry = add(state, keyOf(`timeout ${delay}`, work), now() + delay + LATE);
      if (!entry) return;
      state.active ||= delay > QUIET;
      ids.set(id, entry);
      // This timer runs right after the page's own, however late that is.
      later(() => state.pending.delete(entry), delay);
    });
    replace(view, "setInterval", ([work, given], id) => {
      const delay = Math.max(0, Number(given) || 0);
      if (delay > SOON) return;
      const entry = add(state, keyOf(`interval ${delay}`, work), now() + (state.loads ? delay : SOON));
      if (!entry) return;
      entry.outlasts = state.active = true;
      ids.set(id, entry);
    });
    replace(view, "clearTimeout", forget);
    replace(view, "clearInterval", forget);
    replace(view, "requestAnimationFrame", ([work], id, self, target) => {
      const entry = state.loads ? null : add(state, keyOf("frame", work), now() + LATE);
      if (entry) Reflect.apply(target, view, [() => state.pending.delete(entry)]);
    });
    const answer = (_, __, self) => {
      const entry = add(state, keyOf("message", self.url ?? self.constructor.name), now() + SOON);
      if (!entry) return;
      entry.outlasts = state.active = true;
      self.addEventListener("message", () => state.pending.delete(entry), { once: true, signal: state.signal });
    };
    for (const name of ["WebSocket", "Worker"])
      if (view[name]) replace(view[name].prototype, name === "Worker" ? "postMessage" : "send", answer);
    const start = () => {
      if (!state.started) {
        // Until the first input the page only did what it does anyway.
        for (const { key } of state.pending) state.background.add(key);
        state.pending.clear();
        state.noisy = !state.same;
        state.active = false;
        state.started = true;
      }
      state.firsts.clear();
    };
    for (const name of INPUTS)
      view.addEventListener(name, start, { capture: true, passive: true, signal: state.signal });
    // Not start(): the page's own listeners may have run before, and begun what is to be waited for.
    if (state.frame)
      view.addEventListener("message", () => {
        state.started = state.active = state.moved = true;
        state.same = false;
      }, { capture: true, signal: state.signal });
    const grant = (kind, name, method) => {
      const owner = view[kind]?.prototype, native = owner?.[name];
      if (!native) return;
      const proxy = new Proxy(native, { apply: (target, self, parameters) => state === action
        ? method(() => Reflect.apply(target, self, parameters), ...parameters) : Reflect.apply(target, self, parameters) });
      owner[name] = proxy;
      state.undo.push(() => { if (owner[name] === proxy) owner[name] = native; });
    };
    // Sessions share the clipboard of their browser, so pages may not write to it: a copy by a person's gesture, which Chrome
    // grants, goes to the clipboard of the session.
    const copy = read => (run, given) => {
      const isGranted = view.navigator.userActivation.isActive
        && view.document.featurePolicy?.allowsFeature("clipboard-write") !== false;
      const done = run().catch(async error => {
        if (!isGranted || error.name !== "NotAllowedError") throw error;
        const texts = await read(given);
        if (Object.values(texts).join("").length > COPIED) throw error;
        state.copied = texts;
      });
      state.copies.push(done);
      return done;
    };
    grant("Clipboard", "writeText", copy(text => ({ "text/plain": String(text) })));
    grant("Clipboard", "write", copy(async items => {
      const texts = {};
      for (const item of items)
        for (const type of item.types)
          if (type.startsWith("text/")) texts[type] = await (await item.getType(type)).text();
      return texts;
    }));
    grant("Permissions", "query", (run, given) => given?.name === "clipboard-write"
      ? view.navigator.permissions.query({ name: "background-sync" }) : run());
    for (const name of ["showOpenFilePicker", "showSaveFilePicker", "showDirectoryPicker"])
      replace(view, name, () => { state.picker = name; });
    // The request of a link with `download` is none of the page: nothing tells of it until its server has answered.
    const downloads = link => link?.hasAttribute?.("download") && [view.origin, "null"].includes(link.origin);
    view.addEventListener("click", event => {
      const link = event.composedPath().find(node => node.localName === "a" || node.localName === "area");
      if (downloads(link)) later(() => { state.downloads ||= !event.defaultPrevented; });
    }, { capture: true, passive: true, signal: state.signal });
    // A window does not see the clicks on links that are not in its document.
    const press = ([event], _, self) => {
      if (!self.isConnected && (!event || event.type === "click")) state.downloads ||= downloads(self);
    };
    replace(view.HTMLElement.prototype, "click", press);
    replace(view.EventTarget.prototype, "dispatchEvent", press);
  };

  // Keep the last text of live regions, because a message that goes again would stand in no snapshot.
  const read = (state, records) => {
    for (const { target, addedNodes } of records.slice(0, MANY)) {
      const element = target.nodeType === 1 ? target : target.parentElement;
      for (const node of [element, ...addedNodes]) {
        const region = node?.closest?.(LIVE) ?? node?.querySelector?.(LIVE);
        const text = region?.textContent.trim();
        if (text && state.messages.size < 20) state.messages.set(region, text.slice(0, 200));
      }
    }
  };

  const begin = (hooked, frame = false) => {
    end();
    const controller = new AbortController();
    const state = action = {
      hooked, frame, signal: controller.signal, views: new Map(), undo: [() => controller.abort()],
      pending: new Set(), firsts: new Map(), background: new Set(), messages: new Map(),
      loads: false, downloads: false, copied: null, copies: [], picker: "", moved: false, started: false, active: false, noisy: false, runsOn: false, same: true, changed: 0, busy: 0,
    };
    state.observer = new MutationObserver(records => {
      state.changed = now();
      state.same = false;
      if (hooked) read(state, records);
    });
    state.undo.push(() => state.observer.disconnect());
    if (!hooked) return;
    for (const view of windows()) {
      hook(state, view);
      observe(state, view.document);
    }
    // If nobody ends the action, for example because the connection is lost, the page does.
    later(() => { if (action === state) end(); }, 60_000);
  };

  const observe = (state, root) =>
    state.observer.observe(root, { subtree: true, childList: true, attributes: true, characterData: true });

  // An observer of a document does not see shadow trees.
  const observeAll = (state, most) => {
    let seen = 0;
    const enter = root => {
      observe(state, root);
      const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT);
      while (seen++ < most && walker.nextNode())
        if (walker.currentNode.shadowRoot) enter(walker.currentNode.shadowRoot);
    };
    for (const view of windows()) {
      enter(view.document);
      if (state.hooked) hook(state, view);
    }
  };

  const animationEnd = (state, time) => {
    let last = 0;
    for (const [view, begun] of state.views)
      for (const animation of view.document?.getAnimations?.() ?? []) {
        if (animation.playState !== "running" || (animation.startTime ?? Infinity) < begun) continue;
        const target = animation.effect?.target;
        if (PAINT.test(animation.transitionProperty ?? "") || target?.matches(CONTROLS)) continue;
        const left = animation.effect.getComputedTiming().endTime - (animation.currentTime ?? 0);
        if (left > 0 && left <= SOON) last = Math.max(last, time + left);
      }
    return last;
  };

  // Return the time at which the last pending thing is due, 0 if there is none.
  const pendingUntil = (state, time) => {
    let last = animationEnd(state, time);
    if (last) state.active = true;
    for (const entry of state.pending)
      if (time <= entry.due) last = Math.max(last, entry.due);
      else {
        state.pending.delete(entry);
        state.busy = time;
        if (entry.outlasts) endless.add(entry.key);
      }
    return last;
  };

  const end = () => {
    const state = action;
    action = null;
    for (const undo of state?.undo ?? []) try { undo(); } catch {}
  };

  // Resolves when the page rests, or after a while, to [whether it rests or `left` ms are over, whether it never changed,
  // its title, whether it is still busy, messages that it no longer shows, whether it is without the hook, whether it began
  // a download, the texts that it copied, the dialog for files that it asked for]. A `frame` without input or message rests
  // at once.
  const rest = ({ hooked, again, active, most, left, frame = false }) => new Promise(resolve => {
    const begun = action?.hooked === hooked;
    if (!begun) begin(hooked, frame);
    const state = action, start = now();
    state.loads ||= !begun;
    state.started ||= !frame;
    state.active ||= active && hooked;
    if (!again) {
      // Not in later slices: a change between two of them counts, too.
      state.same = !state.moved;
      state.moved = false;
      observeAll(state, most);
      state.changed = state.busy = start;
    }
    let due;
    const wait = time => { due = now() + time; later(look, time); };
    const answer = (over, busy) => {
      busy = over && hooked && (busy || state.runsOn) && !told;
      told ||= busy;
      const { same } = state, gone = [];
      for (const [region, text] of over ? state.messages : [])
        if (!region.isConnected || !region.textContent.trim()) gone.push(text);
      // A page that did nothing is let go at once, without another message.
      const ended = over && (!hooked || (same && !state.active));
      if (ended && action === state) end();
      resolve([over, same, document.title, busy, gone, ended, Boolean(state.downloads), state.copied, state.picker]);
    };
    const look = () => {
      const time = now();
      if (!state.started) return time - start < QUIET ? wait(QUIET) : answer(true);
      const until = hooked ? pendingUntil(state, time) : 0;
      if (until) state.busy = time;
      if (time - start >= left) return answer(true, true);
      const quiet = state.active || (state.loads && !state.same) ? AFTERMATH : QUIET;
      const still = time - Math.max(state.changed, state.busy);
      if (until) return time - start >= SLICE ? answer(false) : wait(Math.min(Math.ceil(until - time), FRAME));
      if (still < quiet && time - state.busy < (state.noisy ? AFTERMATH : CHANGES)) return wait(Math.ceil(quiet - still));
      // If a timer fires late, a snapshot or a long script has blocked the page, and the page's own tasks are delayed as
      // well; wait once more, so that they run first.
      if (time - due > 4) return wait(1);
      answer(true, still < quiet && !state.noisy);
    };
    wait(0);
  });

  // Resolves, so many frames later, to the texts that the page copied since begin(), and ends. A tap becomes a click that late.
  const copied = async frames => {
    const state = action;
    for (let frame = 0; frame < frames; frame++) await new Promise(requestAnimationFrame);
    await Promise.allSettled(state?.copies ?? []);
    if (action === state) end();
    return state?.copied ?? null;
  };

  return { begin, rest, end, copied };
})()
