  // Saves and restores the state of a tab beside its page: session storage, history state and the window's name.

  const NO_STATE = JSON.stringify({ v: "null" });

  // Returns history.state by a query to the page's own world. Chromium updates the object only in the first world that reads
  // it after a change, so a read from our world would leave the page with an old one, and vice versa.
  function shownState(question) {
    let state;
    document.addEventListener(`${question}!`, ({ detail }) => { state = detail; }, { once: true });
    document.dispatchEvent(new Event(question));
    if (state === undefined) throw new Unsaveable("nobody answered");
    return state;
  }

  function savedState(bytes, question) {
    const blobs = [];
    const state = JSON.stringify(encode(shownState(question), blobs));
    if (state.length > bytes) throw new TooLarge();
    if (blobs.length) throw new Unsaveable("blobs");
    return state;
  }

  // Returns the state of a tab.
  async function savedTab(limits) {
    const [cut, untold] = [[], []];
    let session = [];
    let state = NO_STATE;
    const found = savedFields(limits);
    if (found.cut) cut.push("form fields");
    try { session = savedItems(sessionStorage, limits.sessionBytes); } catch (error) {
      if (error instanceof TooLarge) cut.push("session storage");
    }
    try { state = savedState(limits.sessionBytes, limits.question); } catch (error) {
      (error instanceof TooLarge ? cut : untold).push("history state");
    }
    const name = window.name.length <= limits.sessionBytes ? window.name : "";
    if (name !== window.name) cut.push("the name of the window");
    const { fields, missed, withheld, done, files } = found;
    const scrolled = savedScroll();
    const [loaded] = performance.getEntriesByType("navigation");
    return {
      origin, url: location.href, status: loaded?.responseStatus ?? 0, cut, untold, withheld, done, files,
      page: fields.length || scrolled.length || missed ? JSON.stringify({ fields, scrolled, missed }) : null,
      session: session.length ? JSON.stringify(session) : null,
      entry: name || state !== NO_STATE ? JSON.stringify({ state, name }) : null,
    };
  }

  // Restores session storage, history state and the window's name, before the page itself is loaded.
  function restoreTab(expected, session, entry) {
    insist(expected);
    const failed = [];
    const { state, name } = JSON.parse(entry ?? "{}");
    if (name) window.name = name;
    try { restoreItems(sessionStorage, JSON.parse(session ?? "[]")); } catch { failed.push("session storage"); }
    try { if (state) history.replaceState(decode(JSON.parse(state)), ""); } catch { failed.push("history state"); }
    return failed;
  }
