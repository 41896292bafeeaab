"""Documents whose origin differs from that of their address: their stored data is saved all the same, or reported lost."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest
from changing import Changing
from support.browsing import opened

from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.anyio

STORE = "() => { localStorage.login = 'kept'; sessionStorage.step = 'two' }"
STORED = "[localStorage.login, sessionStorage.step]"
TELL = "void Object.defineProperty(History.prototype, 'state', { get() { fetch('/asked'); } })"
"""Makes the page send a request to its site when it is inspected."""


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        site.pages["/"] = "<p>hello</p>"
        site.pages["/apart"] = "<input id=field><script>history.replaceState(1, '')</script>"
        site.headers["/apart"] = {"Content-Security-Policy": "sandbox allow-scripts"}
        yield site


@pytest.mark.thorough
async def test_a_page_that_its_site_keeps_apart_hides_nothing_that_the_site_stored(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("evaluate", function=STORE)
        await browse.text("navigate", url=site.url + "/apart")
        await browse.text("type", target="#field", text="typed")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        lost = resumed.connection.restore_report.lost
        assert "the latest session storage of left sites of tab 0" in lost
        assert "history state of tab 0" in lost
        assert await resumed.value("field.value") == "typed"
        await resumed.text("navigate", url=site.url)
        assert await resumed.value(STORED) == ["kept", None]


@pytest.mark.thorough
async def test_an_error_in_place_of_a_page_hides_nothing_that_the_site_stored(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("evaluate", function=STORE)
        await browse.page.route("**/away", lambda route: route.abort())
        await browse.error("navigate", url=site.url + "/away")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        lost = resumed.connection.restore_report.lost
        assert "the latest session storage of left sites of tab 0" in lost
        await resumed.text("navigate", url=site.url)
        assert await resumed.value(STORED) == ["kept", None]


@pytest.mark.thorough
async def test_a_tab_that_goes_on_while_it_is_saved_is_saved_where_it_arrives(
    service: BrowserService, site: Changing
) -> None:
    there = site.at(2) + "/late"
    arriving = site.held["/late"] = threading.Event()
    site.pages["/late"] = "<p>arrived</p><script>sessionStorage.step = 'three'</script>"

    def asked() -> str:
        arriving.set()
        return ""

    site.pages["/asked"] = asked
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("tabs", action="new", url=site.at(3))
        await browse.saved()
        await browse.value(TELL)
        await browse.text("tabs", action="select", index=0)
        await browse.text("evaluate", function=STORE)
        async with browse.page.expect_request(there):
            await browse.value(f"void setTimeout(() => {{ location = '{there}' }})")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        lost = resumed.connection.restore_report.lost
        assert "the latest session storage of left sites of tab 0" in lost
        assert await resumed.value("[location.href, sessionStorage.step]") == [there, "three"]
        await resumed.text("navigate", url=site.url)
        assert await resumed.value(STORED) == ["kept", None]
