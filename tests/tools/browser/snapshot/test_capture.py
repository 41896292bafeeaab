"""The snapshot of a browser context, value by value, with a real browser and real sites."""

from __future__ import annotations

import json
from typing import Any

import pytest
from keeping import Keeping
from playwright.async_api import Browser, Page
from support.saved_contexts import (
    SECONDS,
    dormant_tab,
    log_in,
    logged_in,
    open_filled,
    page_of,
    resume,
    save,
)

from statehold.tools.browser.snapshot import capture
from statehold.tools.browser.snapshot.model import ContextSnapshot, StoredOrigin

SCROLLED = "() => [scrollY, box.scrollTop, password.value, shown.value, card.value, code.value, file.files.length]"


async def test_scroll_positions_come_back_and_secrets_and_files_do_not(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await open_filled(before, site.at(1) + "/everything?q=1#part")
        light = await save(before, page, light=True)
        snapshot = await save(before, page)
    for saved in (light, snapshot):
        assert "hunter2" not in json.dumps(saved.to_snapshot().data)

    async with resume(browser, snapshot) as after:
        page = page_of(after)
        assert page.url == site.at(1) + "/everything?q=1#part"
        assert await page.evaluate(SCROLLED) == [1500, 700, "", "", "", "", 0]
        report = after.report
        assert "1 tab" in report.restored
        assert "form fields" in report.restored
        assert "scroll position" in report.restored
        assert "password" in report.lost
        assert "1 chosen file of tab 0" in report.lost


VALUES = """() => new Promise((resolve, reject) => {
  const cyclic = {};
  cyclic.self = cyclic;
  const boxed = new String("boxed");
  const values = [
    new Date(86400000), new Uint8Array([1, 2, 255]), new Map([[{k: 1}, new Set(["x"])]]), [NaN, -0, 5n, undefined], /a+/gi,
    new Blob(["text"], {type: "text/plain"}), {"$": "own", nested: {a: null}}, "\\ud800 half", cyclic, boxed,
  ];
  const opening = indexedDB.open("values", 7);
  opening.onupgradeneeded = () => {
    const plain = opening.result.createObjectStore("plain", {autoIncrement: true});
    const keyed = opening.result.createObjectStore("keyed", {keyPath: ["a", "b"]});
    keyed.createIndex("names", "names", {multiEntry: true});
    for (const value of values) plain.put(value);
    plain.put("late", new Date(5));
    keyed.put({a: 1, b: "x", names: ["n1", "n2"]});
  };
  opening.onsuccess = () => { opening.result.close(); resolve(); };
  opening.onerror = () => reject(opening.error);
})"""

READ_VALUES = """async () => {
  const settled = asked => new Promise((resolve, reject) => {
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  const database = await settled(indexedDB.open("values"));
  const plain = () => database.transaction("plain").objectStore("plain");
  const keyed = database.transaction("keyed").objectStore("keyed");
  const counts = [keyed.index("names").count("n2"), keyed.count(), keyed.get([1, "x"])].map(settled);
  const [named, all, one] = await Promise.all(counts);
  const v = await settled(plain().getAll());
  return [
    database.version, v[0].getTime(), String(v[1]), v[1].constructor.name, [...v[2].keys()][0].k,
    [...[...v[2].values()][0]][0], v[3].map(each => Object.is(each, -0) ? "-0" : String(each)).join(), String(v[4]),
    await v[5].text(), v[5].type, v[6].$, v[7].charCodeAt(0), v[8].self === v[8], v.length,
    await settled(plain().get(new Date(5))), one.names.length, named, all,
  ];
}"""


async def test_databases_come_back_with_all_that_json_cannot_say(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await page.goto(site.at(1) + "/plain")
        await page.evaluate(VALUES)
        await page.evaluate("localStorage.setItem('\\ud800', '\\udc00 half')")
        snapshot = await save(before, page)
    assert snapshot.lost == [f"1 database record of {site.at(1)}"]

    async with resume(browser, snapshot) as after:
        values = await page_of(after).evaluate(READ_VALUES)
        assert values == [
            *(7, 86400000, "1,2,255", "Uint8Array", 1, "x", "NaN,-0,5,undefined", "/a+/gi", "text"),
            *("text/plain", "own", 0xD800, True, 10, "late", 2, 1, 1),
        ]
        half = await page_of(after).evaluate("localStorage.getItem('\\ud800').charCodeAt(0)")
        assert half == 0xDC00


async def test_storage_of_sites_without_a_tab_is_read_without_requests(
    browser: Browser, site: Keeping
) -> None:
    pages: list[Page] = []
    async with resume(browser, pages=pages) as before:
        page = await before.context.new_page()
        for number in (2, 3):
            await log_in(before.context, page, site.at(number), f"user {number}")
        await page.goto(site.at(1) + "/plain")
        site.hits.clear()
        snapshot = await save(before, page)
        assert sorted(snapshot.origins) == [site.at(2), site.at(3)]
        assert site.hits == []
        assert pages == [page] == before.context.pages
        # Nothing was there since, so a second time there is nothing to do, and a checkpoint knows it all.
        assert before.origins.watch.unread_origins == {site.at(1)}
        assert (await save(before, page, light=True)).origins == snapshot.origins


async def test_a_service_worker_does_not_answer_in_our_place(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await page.goto(site.at(1) + "/plain")
        await page.evaluate(
            "navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)"
        )
        await page.evaluate("caches.open('c'); localStorage.setItem('by', 'page')")
        await page.goto(site.at(2) + "/plain")
        snapshot = await save(before, page)
        assert '{"name":"by","value":"page"}' in (snapshot.origins[site.at(1)].items or "")
        assert any("Cache Storage" in what for what in snapshot.lost)
        assert any("service workers" in what for what in snapshot.lost)


@pytest.mark.thorough
async def test_storage_too_large_for_a_checkpoint_is_reported_until_all_of_it_is_read(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await page.goto(site.at(1) + "/plain")
        await page.evaluate("localStorage.setItem('large', 'x'.repeat(2500000))")
        light = await save(before, page, light=True)
        assert light.lost == [f"local storage of {site.at(1)}"]
        full = await save(before, page)
        assert full.lost == []
        assert full.origins[site.at(1)].size > 2500000
        assert (await save(before, page, light=True)).origins == full.origins


@pytest.mark.thorough
async def test_a_page_that_never_answers_is_saved_by_its_address_and_disturbs_nothing(
    browser: Browser, site: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "PROBE_SECONDS", 0.5)
    async with resume(browser) as before:
        good = await before.context.new_page()
        await log_in(before.context, good, site.at(1), "somebody")
        stuck = await before.context.new_page()
        await stuck.goto(site.at(2) + "/endless")
        await stuck.evaluate("setTimeout(() => { while (true); })")
        snapshot = await save(before, stuck, good)
        assert [tab.url for tab in snapshot.tabs] == [
            site.at(2) + "/endless",
            site.at(1) + "/account",
        ]
        assert "did not answer" in snapshot.tabs[0].lost[0]
        assert not stuck.is_closed()
        await stuck.close()

    async with resume(browser, snapshot) as after:
        assert await page_of(after).title() == "Endless"
        assert "did not answer" in after.report.lost
        page = await dormant_tab(after, 1).open(seconds=SECONDS)
        assert (await logged_in(page))["session"] == "somebody"


@pytest.mark.thorough
async def test_a_page_that_stopped_answering_keeps_its_last_saved_state(
    browser: Browser, site: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "PROBE_SECONDS", 0.5)
    async with resume(browser) as before:
        page = await before.context.new_page()
        await log_in(before.context, page, site.at(1), "somebody")
        await save(before, page, light=True)
        await page.evaluate("setTimeout(() => { while (true); })")
        snapshot = await save(before, page, light=True)
        assert "did not answer" in snapshot.tabs[0].lost[0]
        await page.close()

    async with resume(browser, snapshot) as after:
        assert (await logged_in(page_of(after)))["session"] == "somebody"


@pytest.mark.thorough
async def test_a_page_that_is_too_large_is_cut_and_reported(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await page.goto(site.at(1) + "/heavy")
        snapshot = await save(before, page)
        assert len(json.dumps(snapshot.to_snapshot().data)) < 2**22
        assert snapshot.tabs[0].lost == ["form fields (too much)", "session storage (too much)"]
        assert snapshot.tabs[0].page is not None


@pytest.mark.thorough
@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_page_whose_site_fails_keeps_its_fields_until_it_navigates(
    browser: Browser, site: Keeping, goes_on: bool
) -> None:
    async with resume(browser) as before:
        page = await open_filled(before, site.at(1) + "/everything")
        snapshot = await save(before, page)

    site.fails = True
    async with resume(browser, snapshot) as away:
        assert "answers 503 now" in away.report.lost
        site.fails = False
        if goes_on:
            await page_of(away).reload()
        again = await save(away, *away.tabs)

    async with resume(browser, again) as after:
        typed = "as sent" if goes_on else "typed into #text"
        assert await page_of(after).input_value("#text") == typed


@pytest.mark.thorough
async def test_storage_states_are_those_of_playwright(browser: Browser, site: Keeping) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await log_in(before.context, page, site.at(1), "ann")
        snapshot = await save(before, page)
    ours = [stored.to_state(origin) for origin, stored in snapshot.origins.items()]
    state: Any = {"cookies": [], "origins": ours}
    context = await browser.new_context(storage_state=state)
    page = await context.new_page()
    await page.goto(site.at(1) + "/account")
    login = await logged_in(page)
    assert (login["local"], login["database"]) == ("ann", "ann")
    theirs: Any = await context.storage_state(indexed_db=True)
    await context.close()

    origins = {each["origin"]: StoredOrigin.from_state(each) for each in theirs["origins"]}
    async with resume(browser, ContextSnapshot(origins=origins)) as after:
        page = await after.context.new_page()
        await page.goto(site.at(1) + "/account")
        login = await logged_in(page)
        assert (login["local"], login["database"]) == ("ann", "ann")
