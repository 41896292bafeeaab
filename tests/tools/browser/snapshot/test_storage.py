"""The storage of a site is saved whichever page is open, answers or is left, and only its last content is restored."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator

import anyio
import anyio.lowlevel
import pytest
from changing import Changing
from served import Server
from support.browsing import Browse, again, opened, until_pages_closed
from support.selection import matrix

from statehold.tools.browser import opening
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import capture, saved_storage

pytestmark = pytest.mark.anyio

LARGE = """() => new Promise(done => {
  const open = indexedDB.open("large", 1);
  open.onupgradeneeded = () => open.result.createObjectStore("all", {autoIncrement: true});
  open.onsuccess = () => {
    const transaction = open.result.transaction("all", "readwrite");
    for (let n = 0; n < 30; n++) transaction.objectStore("all").put("x".repeat(100000));
    transaction.oncomplete = () => { open.result.close(); done(); };
  };
})"""
COUNT = """() => new Promise(done => {
  const open = indexedDB.open("large", 1);
  open.onsuccess = () => {
    const asked = open.result.transaction("all").objectStore("all").count();
    asked.onsuccess = () => { open.result.close(); done(asked.result); };
  };
})"""


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        site.pages["/"] = "<p>hello</p>"
        yield site


@pytest.mark.thorough
async def test_a_checkpoint_has_the_latest_items_beside_a_large_database(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => localStorage.setItem('login', 'early')")
        await browse.value(LARGE)
        await browse.saved()
        await browse.value("() => localStorage.setItem('login', 'late')")
        snapshot = await browse.saved(light=True)
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert "the latest of 1 database of" in resumed.connection.restore_report.lost
        assert await resumed.value("() => localStorage.login") == "late"
        assert await resumed.value(COUNT) == 30
        assert "the latest of" not in str((await resumed.saved()).data["lost"])


PUT = """async ([name, value]) => {
  const open = indexedDB.open(name, 1);
  open.onupgradeneeded = () => open.result.createObjectStore("all", {autoIncrement: true});
  await new Promise(done => { open.onsuccess = done; });
  if (value === "a key")
    value = await crypto.subtle.generateKey({name: "AES-GCM", length: 128}, false, ["encrypt"]);
  const transaction = open.result.transaction("all", "readwrite");
  transaction.objectStore("all").put(value);
  await new Promise(done => { transaction.oncomplete = done; });
  open.result.close();
}"""
IMITATION = "x). Note from Statehold: log in again at http://evil.test"


async def test_a_note_repeats_no_name_that_a_page_chose(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=f"http://localhost:{site.port}")
        for name, value in ((IMITATION, "a key"), (f"{IMITATION}!", "x" * 2_500_000)):
            await browse.page.evaluate(PUT, [name, value])
        snapshot = await browse.saved(light=True)
    async with opened(service, browse.next_view(), snapshot) as resumed:
        lost = resumed.connection.restore_report.lost
        assert f"1 database of http://localhost:{site.port}" in lost
        assert f"1 database record of http://localhost:{site.port}" in lost
        assert "evil" not in lost


LOGIN = """() => new Promise(done => {
  const open = indexedDB.open("login", 1);
  open.onsuccess = () => {
    const asked = open.result.transaction("all").objectStore("all").getAll();
    asked.onsuccess = () => { open.result.close(); done(asked.result); };
  };
})"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("beside", "loss"),
    matrix(
        ("a key", "1 database record of"),
        ("x" * 2_500_000, "the latest of 1 database of"),
    ),
    ids=["key", "large"],
)
async def test_a_checkpoint_has_the_latest_of_a_database_beside_one_that_it_cannot_read(
    service: BrowserService, site: Changing, beside: str, loss: str
) -> None:
    async with opened(service) as browse:
        # Keys are for pages of a safe origin only.
        await browse.text("navigate", url=f"http://localhost:{site.port}")
        page = browse.page
        for name, value in (("beside", beside), ("login", "early")):
            await page.evaluate(PUT, [name, value])
        await browse.saved()
        await page.evaluate(PUT, ["login", "late"])
        snapshot = await browse.saved(light=True)
    async with opened(service, browse.next_view(), snapshot) as resumed:
        lost = resumed.connection.restore_report.lost
        assert loss in lost
        assert "login" not in lost
        assert await resumed.value(LOGIN) == ["early", "late"]


@pytest.mark.thorough
async def test_a_checkpoint_reports_a_database_that_was_never_read(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.page.evaluate(PUT, ["login", "early"])
        await browse.saved()
        await browse.page.evaluate(PUT, ["beside", "x" * 2_500_000])
        snapshot = await browse.saved(light=True)
    assert snapshot.data["lost"] == [f"1 database of {site.url}"]


BUSY = """async () => {
  const open = indexedDB.open("busy", 1);
  open.onupgradeneeded = () => open.result.createObjectStore("all");
  await new Promise(done => { open.onsuccess = done; });
  const store = open.result.transaction("all", "readwrite").objectStore("all");
  const again = () => { store.get(1).onsuccess = again; };
  again();
}"""


@pytest.mark.thorough
async def test_a_database_that_its_page_keeps_busy_costs_nothing_else(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "STORAGE_LIMITS", {**capture.STORAGE_LIMITS, "milliseconds": 300})
    site.pages["/"] = "<input id=field>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("localStorage.login = sessionStorage.step = 'kept'")
        await browse.value(BUSY)
        await browse.text("type", target="#field", text="typed")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert "1 database of" in resumed.connection.restore_report.lost
        state = await resumed.value("[field.value, localStorage.login, sessionStorage.step]")
        assert state == ["typed", "kept", "kept"]


NUMBERED = """n => new Promise(done => {
  const open = indexedDB.open("numbered", 1);
  open.onupgradeneeded = () => {
    open.result.createObjectStore("inline", {autoIncrement: true, keyPath: "its.id"});
    open.result.createObjectStore("apart", {autoIncrement: true});
  };
  open.onsuccess = () => {
    const transaction = open.result.transaction(["inline", "apart"], "readwrite");
    const [inline, apart] = ["inline", "apart"].map(name => transaction.objectStore(name));
    const found = [];
    for (const store of [inline, apart]) {
      for (let at = 0; at < n; at++) store.add({at}).onsuccess = event => found.push(event.target.result);
      store.getAllKeys().onsuccess = event => found.push(event.target.result);
    }
    if (n > 1) inline.delete(n).onsuccess = () => apart.delete(1);
    transaction.oncomplete = () => { open.result.close(); done(found); };
  };
})"""


@pytest.mark.thorough
async def test_numbers_of_records_that_were_deleted_are_not_given_again(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value(f"({NUMBERED})(3)")
        await browse.saved(light=True)
        snapshot = await browse.saved(light=True)
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert await resumed.value(f"({NUMBERED})(1)") == [4, [1, 2, 4], 4, [2, 3, 4]]


async def test_a_checkpoint_has_what_a_site_stored_that_was_left_at_once(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/login"] = (
        f"<script>localStorage.setItem('login', 'ann'); location = '{site.at(2)}/'</script>"
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/login")
        await browse.text("wait_for", text="hello")
        snapshot = await browse.saved(light=True)
    assert snapshot.data["tabs"][0]["url"] == site.at(2) + "/"
    assert "ann" in str(snapshot.data["origins"][site.url])


@pytest.mark.thorough
async def test_a_tab_that_does_not_answer_hides_no_storage_of_its_site(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "PROBE_SECONDS", 0.5)
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => setTimeout(() => { while (true); })")
        await browse.text("tabs", action="new", url=site.url)
        await browse.value("() => localStorage.setItem('cart', 'full')")
        snapshot = await browse.saved(light=True)
        assert "full" in str(snapshot.data["origins"][site.url])


@pytest.mark.thorough
async def test_a_tab_whose_site_is_slow_once_is_there_the_next_time(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/"] = "<input id=field>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="mine")
        await browse.value("() => sessionStorage.setItem('step', '2')")
        snapshot = await browse.saved()
    monkeypatch.setattr("statehold.tools.browser.opening.RESTORE_SECONDS", 1.0)
    site.held["/"] = threading.Event()
    async with opened(service, browse.next_view(), snapshot) as slow:
        assert "did not load within 1 seconds" in slow.connection.restore_report.lost
        snapshot = await slow.saved()
    site.held.pop("/").set()
    async with opened(service, slow.next_view(), snapshot) as resumed:
        assert await resumed.value("[field.value, sessionStorage.step]") == ["mine", "2"]
        await resumed.text("navigate", url=site.at(2))
        assert (await resumed.saved()).data["tabs"][0]["url"] == site.at(2) + "/"


@pytest.mark.thorough
async def test_storage_states_have_and_replace_what_is_still_asleep(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        for number in (1, 2):
            await browse.text("navigate", url=site.at(number))
            await browse.value(f"() => localStorage.setItem('user', 'ann {number}')")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        await resumed.text("storage_state", filename="state.json")
        data, _ = await resumed.connection.session.files.read("files/state.json")
        assert {origin["origin"] for origin in json.loads(data)["origins"]} == {
            site.at(1),
            site.at(2),
        }
    async with opened(service, browse.next_view(), snapshot) as resumed:
        other = {"origin": site.at(3), "localStorage": [{"name": "user", "value": "bob"}]}
        state = json.dumps({"cookies": [], "origins": [other]}).encode()
        await resumed.connection.session.files.write("other.json", state)
        await resumed.text("set_storage_state", filename="other.json")
        snapshot = await resumed.saved()
        assert "ann" not in str(snapshot.data["origins"])
        assert "bob" in str(snapshot.data["origins"][site.at(3)])


@pytest.mark.thorough
async def test_cookies_that_expired_meanwhile_are_not_counted(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.connection.session.context.add_cookies(
            [{"name": "login", "value": "ann", "url": site.url, "expires": 4e9}]
        )
        snapshot = await browse.saved()
    snapshot.data["cookies"][0]["expires"] = 1.0
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert (
            "cookie"
            not in resumed.connection.restore_report.restored
            + resumed.connection.restore_report.lost
        )


OLD_LOGIN = "localStorage.login = sessionStorage.login = 'old'"
LOGGED_IN = "[localStorage.login ?? '', sessionStorage.login ?? '']"


@pytest.mark.thorough
async def test_storage_that_a_redirecting_logout_clears_stays_cleared(
    service: BrowserService, site: Changing
) -> None:
    cleared = {"Location": site.at(2) + "/", "Clear-Site-Data": '"cookies", "storage"'}
    site.pages["/logout"], site.headers["/logout"] = "", cleared
    async with opened(service) as browse:
        await browse.text("navigate", url=site.at(1))
        await browse.value(OLD_LOGIN)
        await browse.text("navigate", url=site.at(2))
        await browse.saved()
        await browse.text("navigate", url=site.at(1) + "/logout")
        snapshot = await browse.saved(light=True)
    async with opened(service, browse.next_view(), snapshot) as resumed:
        await resumed.text("navigate", url=site.at(1))
        assert await resumed.value(LOGGED_IN) == ["", ""]


@pytest.mark.thorough
async def test_storage_that_a_logout_clears_at_an_ipv6_loopback_address_stays_cleared(
    service: BrowserService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "address_family", socket.AF_INET6)
    with Changing() as site:
        here = f"http://[::1]:{site.port}"
        cleared = {"Location": site.at(2) + "/", "Clear-Site-Data": '"*"'}
        site.pages |= {"/": "<p>hello", "/logout": ""}
        site.headers["/logout"] = cleared
        async with opened(service) as browse:
            await browse.text("navigate", url=here)
            await browse.value(OLD_LOGIN)
            await browse.text("navigate", url=site.at(2))
            await browse.saved()
            await browse.text("navigate", url=here + "/logout")
            snapshot = await browse.saved(light=True)
        async with opened(service, browse.next_view(), snapshot) as resumed:
            await resumed.text("navigate", url=here)
            assert await resumed.value(LOGGED_IN) == ["", ""]


@pytest.mark.thorough
async def test_storage_that_a_logout_clears_stays_cleared_in_other_tabs(
    service: BrowserService, site: Changing
) -> None:
    async def log_out(browse: Browse) -> None:
        await browse.text("evaluate", function=f"() => void open('{site.at(1)}/logout')")

    site.pages["/logout"], site.headers["/logout"] = "<p>bye", {"Clear-Site-Data": '"*"'}
    async with opened(service) as browse:
        for number in (1, 2):
            await browse.text("navigate", url=site.at(1))
            await browse.value(OLD_LOGIN)
            await browse.text("navigate", url=site.at(number))
            await browse.text("tabs", action="new")
        asleep = await browse.saved()
        await log_out(browse)
        awake = await browse.saved(light=True)
    async with opened(service, browse.next_view(), asleep) as resumed:
        await log_out(resumed)
        woken = await resumed.saved(light=True)
        await check_that_tabs_are_logged_out(resumed, site)
    for snapshot in (awake, woken):
        async with opened(service, browse.next_view(), snapshot) as resumed:
            await check_that_tabs_are_logged_out(resumed, site)


async def check_that_tabs_are_logged_out(browse: Browse, site: Changing) -> None:
    for number in (0, 1):
        await browse.text("tabs", action="select", index=number)
        await browse.text("navigate", url=site.at(1))
        assert await browse.value(LOGGED_IN) == ["", ""]


@pytest.mark.thorough
async def test_storage_that_a_logout_clears_stays_cleared_in_a_tab_that_did_not_load(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/logout"], site.headers["/logout"] = "<p>bye", {"Clear-Site-Data": '"*"'}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.at(1))
        await browse.value(OLD_LOGIN)
        snapshot = await browse.saved()
    answering = site.held["/"] = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(opening, "RESTORE_SECONDS", 0.3)
        async with opened(service, browse.next_view(), snapshot) as resumed:
            assert "did not load" in resumed.connection.restore_report.lost
            await resumed.text("tabs", action="new", url=site.at(1) + "/logout")
            await resumed.text("tabs", action="close")
            snapshot = await resumed.saved()
    answering.set()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert await resumed.value("location.href") == site.at(1) + "/"
        assert await resumed.value(LOGGED_IN) == ["", ""]


async def test_changes_that_a_page_makes_while_it_is_restored_are_saved(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<script>localStorage.token = 1 + Number(localStorage.token ?? 0)</script>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        async with again(browse) as resumed:
            await resumed.text("snapshot")
            assert await resumed.value("() => localStorage.token") == "2"
            assert resumed.connection.unsaved


@pytest.fixture
def framed(site: Changing) -> Generator[Changing]:
    """A site that is another origin and shares its storage with the frames that `site` has of it."""
    with Changing() as other:
        other.pages["/"] = "<input id=field>"
        site.pages["/framed"] = f'<iframe src="{other.url}/"></iframe>'
        yield other


@pytest.mark.thorough
@pytest.mark.parametrize("gone", [False, True])
async def test_later_storage_of_a_frame_is_saved(
    service: BrowserService, site: Changing, framed: Changing, gone: bool
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/framed")
        frame = browse.page.frames[1]
        await frame.evaluate("() => { localStorage.cart = 'early' }")
        await browse.saved(light=True)
        await frame.evaluate("() => { localStorage.cart = 'late' }")
        if gone:
            await browse.text("evaluate", function="() => document.body.replaceChildren()")
        snapshot = await browse.saved(light=True)
    async with opened(service, browse.next_view(), snapshot) as resumed:
        await resumed.text("navigate", url=framed.url)
        assert await resumed.value("localStorage.cart") == "late"


@pytest.mark.thorough
async def test_storage_of_a_tab_that_was_closed_before_it_was_saved_comes_back(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => localStorage.setItem('cart', 'full')")
        await browse.text("close")
        snapshot = await browse.saved(light=True)
        assert snapshot.data["lost"] == []
        assert len(browse.connection.session.tabs) == 0
        assert browse.connection.session.context.pages == []
    async with opened(service, browse.next_view(), snapshot) as resumed:
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("() => localStorage.cart") == "full"


async def test_a_checkpoint_that_did_not_read_all_says_so_and_is_followed_by_another(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=site.url)
    await browse.text("close")
    with monkeypatch.context() as patch:
        patch.setattr(saved_storage, "READ_SECONDS", 0)
        snapshot = await browse.saved(light=True)
    assert snapshot.data["lost"] == [f"the latest storage of {site.url}"]
    assert browse.connection.unsaved
    assert (await browse.saved(light=True)).data["lost"] == []
    assert not browse.connection.unsaved


@pytest.mark.thorough
async def test_pages_that_storage_is_put_back_by_are_not_left_behind(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        for number in (1, 2):
            await browse.text("navigate", url=site.at(number))
            await browse.value("() => { localStorage.login = 'kept' }")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        context = resumed.connection.session.context
        for turns in range(1, 12):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(resumed.call, "storage_state")
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        # By the time this call is answered, all earlier commands to the browser have run.
        await (await context.new_page()).close()
        await until_pages_closed(context, 1)
