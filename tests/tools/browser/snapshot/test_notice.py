"""The notice after a pause reports a loss once, by the number that its tab has now."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest
from changing import Changing
from support.browsing import again, lost, new_view, opened

from statehold.tools.browser import opening
from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.anyio


WRITE = """() => {
  const made = open("about:blank");
  made.document.write("<input id=x>");
  made.document.close();
}"""


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        yield site


async def test_a_login_in_an_address_is_not_saved(service: BrowserService, site: Changing) -> None:
    site.pages["/"] = "<p>hello</p>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url.replace("//", "//ann:hunter2@"))
        saved = await browse.connection.snapshot()
    assert saved is not None
    assert saved.data["tabs"][0]["url"] == site.url + "/"
    assert "hunter2" not in str(saved.data)


async def test_a_loss_of_a_sleeping_tab_is_reported_once(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<input id=field type=password>"
    async with opened(service, new_view()) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="hunter2")
        await browse.text("tabs", action="new")
        async with again(browse) as once, again(once) as twice:
            assert "what was typed into password" in lost(once)
            assert "what was typed into password" not in lost(twice)


@pytest.mark.thorough
async def test_a_loss_of_the_current_tab_is_reported_once_also_when_it_does_not_load(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/"] = "<input id=field type=password>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="hunter2")
        snapshot = await browse.saved()
    monkeypatch.setattr(opening, "RESTORE_SECONDS", 0.3)
    site.held["/"] = threading.Event()
    async with opened(service, browse.next_view(), snapshot) as once, again(once) as twice:
        assert "what was typed into password" in lost(once)
        assert "did not load" in lost(twice)
        assert "what was typed into password" not in lost(twice)


@pytest.mark.thorough
async def test_media_features_stay_emulated(service: BrowserService, site: Changing) -> None:
    site.pages["/"] = "<p>hello</p>"
    dark = "[matchMedia('(prefers-color-scheme: dark)').matches, matchMedia('print').matches]"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("emulate_media", colorScheme="dark", media="print")
        await browse.text("emulate_media", media=None)
        async with again(browse) as once, again(once) as twice:
            assert await twice.value(dark) == [True, False]


@pytest.mark.thorough
async def test_a_form_that_became_a_download_leaves_the_page_what_it_was(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<form method=post><button>Export</button></form><input id=field>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="mine")
        site.headers["/"] = {"Content-Disposition": "attachment; filename=export.txt"}
        assert "export.txt" in await browse.text("click", target="button")
        site.headers.clear()
        async with again(browse) as resumed:
            assert await resumed.value("field.value") == "mine"


@pytest.mark.thorough
async def test_a_loss_of_a_sleeping_tab_is_reported_by_its_present_number(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {"/": "first", "/second": "second"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("tabs", action="new", url=site.url)
        await browse.text("tabs", action="new", url=site.url + "/second")
        await browse.text("tabs", action="select", index=0)
        async with again(browse) as resumed:
            del site.pages["/second"]
            await resumed.text("tabs", action="close", index=1)
            assert "the page of tab 1 " in await resumed.text("tabs", action="select", index=1)


async def test_empty_tabs_have_their_size_and_media_again(
    service: BrowserService,
) -> None:
    shape = "() => [innerWidth, innerHeight, matchMedia('(prefers-color-scheme: dark)').matches]"
    async with opened(service) as browse:
        await browse.text("resize", width=800, height=600)
        await browse.text("emulate_media", colorScheme="dark")
        snapshot = await browse.saved()
        assert snapshot.data["tabs"][0]["lost"] == []
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert await resumed.value(shape) == [800, 600, True]


@pytest.mark.thorough
async def test_content_written_into_an_empty_window_is_reported_as_lost(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("evaluate", function=WRITE)
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert "what scripts had written into it of tab 1" in resumed.connection.restore_report.lost
