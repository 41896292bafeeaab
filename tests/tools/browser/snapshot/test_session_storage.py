"""sessionStorage of tabs, also for sites that they have left: it is saved, or reported lost."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from changing import Changing
from support.browsing import opened
from support.selection import matrix

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import session_storage

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        site.pages["/"] = "<p>hello</p><input id=field>"
        yield site


@pytest.mark.thorough
async def test_session_storage_waits_for_a_tab_to_come_back(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { sessionStorage.cart = 'full' }")
        await browse.saved()
        await browse.text("navigate", url=site.at(2))
        await browse.value("() => { sessionStorage.paid = 'yes' }")
        await browse.text("tabs", action="new", url=site.at(3))
        snapshot = await browse.saved(light=True)
        # It may have been changed after it was read and before the tab left.
        late = ["the latest session storage of left sites"]
        assert [tab["lost"] for tab in snapshot.data["tabs"]] == [late, []]
        assert len(browse.connection.session.context.pages) == 2
    # Save once before the tab is used again, and once after.
    async with opened(service, browse.next_view(), snapshot) as slept:
        snapshot = await slept.saved()
        await slept.text("tabs", action="select", index=0)
        snapshot = await slept.saved(light=True)
        assert [tab["lost"] for tab in snapshot.data["tabs"]] == [[], []]
    async with opened(service, slept.next_view(), snapshot) as resumed:
        assert await resumed.value("() => ({...sessionStorage})") == {"paid": "yes"}
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("() => ({...sessionStorage})") == {"cart": "full"}


@pytest.mark.thorough
async def test_unread_session_storage_is_reported_and_empty_one_is_not(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.at(1))
        await browse.saved()
        await browse.text("navigate", url=site.at(2))
        await browse.text("navigate", url=site.at(3))
        tab = (await browse.saved()).data["tabs"][0]
        assert tab["lost"] == ["the latest session storage of left sites"]


@pytest.mark.thorough
@pytest.mark.parametrize("url", matrix("about:blank", "data:text/html,<p>made"))
async def test_session_storage_waits_for_a_tab_that_is_at_no_site(
    service: BrowserService, site: Changing, url: str
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { sessionStorage.step = localStorage.login = 'kept' }")
        await browse.saved()
        await browse.page.goto(url)
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert await resumed.value("location.href") == "about:blank"
        again = await resumed.saved()
        assert again.data["tabs"][0]["sessions"] == snapshot.data["tabs"][0]["sessions"]
        assert again.data["tabs"][0]["history"] == [site.url + "/", "about:blank"]
        assert again.data["lost"] == []
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("[sessionStorage.step, localStorage.login]") == ["kept", "kept"]


@pytest.mark.thorough
async def test_too_much_session_storage_is_reported(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_storage, "TAB_BYTES", 1500)
    async with opened(service) as browse:
        for number in (1, 2):
            await browse.text("navigate", url=site.at(number))
            await browse.value("() => { sessionStorage.cart = 'x'.repeat(1000) }")
            snapshot = await browse.saved()
        tab = snapshot.data["tabs"][0]
        assert tab["lost"] == [f"session storage of {site.at(1)} (too much)"]
        assert set(tab["sessions"]) == {site.at(2)}
