"""Storage of sites that are in a frame or in no tab any more: it is saved, or reported lost."""

from __future__ import annotations

from collections.abc import Generator

import anyio
import anyio.lowlevel
import pytest
from browsing import Browse, opened
from changing import Changing

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import earlier, storage

pytestmark = pytest.mark.anyio

KEEP_FILES = """async () => {
  await (await caches.open("c")).put("/x", new Response("1"));
  await (await navigator.storage.getDirectory()).getFileHandle("f", {create: true});
}"""
WRITE = """() => {
  const made = open("about:blank");
  made.document.write("<input id=x>");
  made.document.close();
}"""


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        site.pages["/"] = "<p>hello</p><input id=field>"
        yield site


@pytest.fixture
def framed(site: Changing) -> Generator[Changing]:
    """A site that is another origin and shares its storage with the frames that `site` has of it."""
    with Changing() as other:
        other.pages["/"] = "<input id=field>"
        site.pages["/framed"] = f'<iframe src="{other.url}/"></iframe>'
        yield other


# Frames.


@pytest.mark.parametrize("gone", [False, True])
async def test_what_a_frame_stores_after_it_was_read_is_saved_too(
    service: BrowserService, site: Changing, framed: Changing, gone: bool
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/framed")
        frame = browse.page.frames[1]
        await frame.evaluate("() => { localStorage.cart = sessionStorage.step = 'early' }")
        await browse.saved(light=True)
        await frame.evaluate("() => { localStorage.cart = sessionStorage.step = 'late' }")
        if gone:
            await browse.text("evaluate", function="() => document.body.replaceChildren()")
        found = await browse.saved(light=True)
    async with opened(service, browse.later(), found) as resumed:
        await resumed.text("navigate", url=framed.url)
        assert await resumed.value("() => [localStorage.cart, sessionStorage.step]") == [
            "late",
            "late",
        ]


async def test_what_was_typed_in_a_frame_of_another_origin_is_said(
    service: BrowserService, site: Changing, framed: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/framed")
        assert (await browse.saved()).data["tabs"][0]["lost"] == []
        await browse.page.frames[1].fill("#field", "mine")
        found = await browse.saved()
    async with opened(service, browse.later(), found) as resumed:
        lost = resumed.connection.opened.lost
        assert f"what was typed or chosen in a frame of {framed.url} of tab 0" in lost


# Tabs that were closed or went elsewhere.


@pytest.mark.parametrize("light", [False, True])
async def test_storage_of_a_tab_that_was_closed_before_it_was_saved_comes_back(
    service: BrowserService, site: Changing, light: bool
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => localStorage.setItem('cart', 'full')")
        await browse.text("close")
        found = await browse.saved(light=light)
        assert found.data["lost"] == []
        assert len(browse.connection.session.tabs) == 0
        assert browse.connection.session.context.pages == []
    async with opened(service, browse.later(), found) as resumed:
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("() => localStorage.cart") == "full"


async def test_a_checkpoint_that_did_not_read_all_says_so_and_is_followed_by_another(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=site.url)
    await browse.text("close")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "READ_SECONDS", 0)
        found = await browse.saved(light=True)
    assert found.data["lost"] == [f"the latest storage of {site.url}"]
    assert browse.connection.unsaved
    assert (await browse.saved(light=True)).data["lost"] == []
    assert not browse.connection.unsaved


@pytest.mark.parametrize("light", [False, True])
async def test_session_storage_waits_for_a_tab_to_come_back(
    service: BrowserService, site: Changing, light: bool
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { sessionStorage.cart = 'early' }")
        await browse.saved()
        await browse.value("() => { sessionStorage.cart = 'late' }")
        await browse.text("navigate", url=site.at(2))
        await browse.value("() => { sessionStorage.paid = 'yes' }")
        await browse.text("tabs", action="new", url=site.at(3))
        found = await browse.saved(light=light)
        assert [tab["lost"] for tab in found.data["tabs"]] == [[], []]
        assert len(browse.connection.session.context.pages) == 2
    # Save once before the tab is used again, and once after.
    async with opened(service, browse.later(), found) as slept:
        found = await slept.saved()
        await slept.text("tabs", action="select", index=0)
        found = await slept.saved(light=light)
    async with opened(service, slept.later(), found) as resumed:
        assert await resumed.value("() => ({...sessionStorage})") == {"paid": "yes"}
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("() => ({...sessionStorage})") == {"cart": "late"}


@pytest.mark.parametrize("url", ["about:blank", "data:text/html,<p>made"])
async def test_session_storage_waits_for_a_tab_that_is_at_no_site(
    service: BrowserService, site: Changing, url: str
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { sessionStorage.step = localStorage.login = 'kept' }")
        await browse.page.goto(url)
        found = await browse.saved()
    async with opened(service, browse.later(), found) as resumed:
        assert await resumed.value("location.href") == "about:blank"
        again = await resumed.saved()
        assert again.data["tabs"][0]["sessions"] == found.data["tabs"][0]["sessions"]
        assert again.data["tabs"][0]["history"] == [site.url + "/", "about:blank"]
        assert again.data["lost"] == []
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("[sessionStorage.step, localStorage.login]") == ["kept", "kept"]


async def test_session_storage_that_cannot_be_read_or_is_too_much_is_said(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { sessionStorage.cart = 'x'.repeat(1000) }")
        await browse.saved()
        browse.connection.session.origins.earlier.copying = False
        await browse.text("navigate", url=site.at(2))
        tab = (await browse.saved()).data["tabs"][0]
        assert tab["lost"] == [f"the latest session storage of {site.url}"]
        assert "xxx" in tab["sessions"][site.url]
        browse.connection.session.origins.earlier.copying = True
        monkeypatch.setattr(earlier, "TAB_BYTES", 500)
        tab = (await browse.saved()).data["tabs"][0]
        assert tab["lost"] == [f"session storage of {site.url} (too much)"]
        assert tab["sessions"] == {}


async def test_pages_that_storage_is_put_back_by_are_not_left_behind(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        for number in (1, 2):
            await browse.text("navigate", url=site.at(number))
            await browse.value("() => { localStorage.login = 'kept' }")
        found = await browse.saved()
    async with opened(service, browse.later(), found) as resumed:
        context = resumed.connection.session.context
        for turns in range(1, 12):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(resumed.call, "storage_state")
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        # By the time this call is answered, all earlier commands to the browser have run.
        await (await context.new_page()).close()
        with anyio.fail_after(10):
            while len(context.pages) > 1:  # noqa: ASYNC110 - there is no event to wait for
                await anyio.sleep(0.01)


# Tabs without an address, reported losses, and limits of the saved content.


async def test_tabs_that_are_nowhere_have_their_size_and_media_again(
    service: BrowserService,
) -> None:
    shape = "() => [innerWidth, innerHeight, matchMedia('(prefers-color-scheme: dark)').matches]"
    async with opened(service) as browse:
        await browse.text("resize", width=800, height=600)
        await browse.text("emulate_media", colorScheme="dark")
        found = await browse.saved()
        assert found.data["tabs"][0]["lost"] == []
    async with opened(service, browse.later(), found) as resumed:
        assert await resumed.value(shape) == [800, 600, True]


async def test_what_was_written_into_an_empty_window_is_said(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("evaluate", function=WRITE)
        found = await browse.saved()
    async with opened(service, browse.later(), found) as resumed:
        assert "what scripts had written into it of tab 1" in resumed.connection.opened.lost


async def test_checkpoints_say_what_of_a_site_is_never_saved(
    browse: Browse, site: Changing
) -> None:
    await browse.text("navigate", url=site.url)
    await browse.value(KEEP_FILES)
    lost = (await browse.saved(light=True)).data["lost"]
    assert lost == [f"Cache Storage of {site.url}", f"private files of {site.url}"]


async def test_of_many_sites_what_is_never_saved_is_said_of_some_and_counted_for_the_rest(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "TOLD", 2)
    for number in range(1, 6):
        await browse.text("navigate", url=site.at(number))
        await browse.value(KEEP_FILES if number < 5 else "() => 1")
        await browse.saved(light=True)
    assert (await browse.saved()).data["lost"] == [
        f"{what} of {which}"
        for what in ("Cache Storage", "private files")
        for which in (site.at(1), site.at(2), "2 more sites")
    ]


async def test_of_too_many_sites_those_are_kept_that_were_read_last(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "KNOWN_BYTES", 2500)
    monkeypatch.setattr(storage, "TOLD", 1)
    for number in (1, 2, 3, 4, 1):
        await browse.text("navigate", url=site.at(number))
        await browse.value("() => { localStorage.large = 'x'.repeat(1000) }")
        found = await browse.saved(light=True)
    assert set(found.data["origins"]) == {site.at(4), site.at(1)}
    assert set(browse.connection.session.origins.known) == {site.at(4), site.at(1)}
    assert found.data["lost"] == [
        f"storage of {site.at(2)} (too much)",
        "storage of 1 more sites (too much)",
    ]


async def test_what_is_known_of_sites_that_are_lost_does_not_grow_without_end(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "KNOWN_ORIGINS", 1)
    monkeypatch.setattr(storage, "NOTED", 2)
    for number in range(1, 6):
        await browse.text("navigate", url=site.at(number))
        await browse.value("() => { localStorage.cart = 'full' }")
        await browse.saved(light=True)
    lost = (await browse.saved(light=True)).data["lost"]
    assert len(lost) == 2
    assert all(line.endswith("(too much)") for line in lost)


async def test_what_is_asleep_and_dropped_wakes_no_more(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { localStorage.large = 'x'.repeat(1000) }")
        await browse.text("navigate", url=site.at(2))
        found = await browse.saved()
    monkeypatch.setattr(storage, "KNOWN_BYTES", 1500)
    async with opened(service, browse.later(), found) as resumed:
        await resumed.value("() => { localStorage.large = 'x'.repeat(1000) }")
        found = await resumed.saved()
        assert set(found.data["origins"]) == {site.at(2)}
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("() => localStorage.length") == 0
