"""The data of a tab beside its page, such as the state of its history entry, is restored, and saving it does not change
the page.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import pytest
from changing import Changing
from support.browsing import opened

from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        site.pages["/"] = "<p>hello</p>"
        yield site


@pytest.mark.thorough
async def test_the_history_state_comes_back_that_the_page_saw_last(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("history.replaceState({at: new Date(1)}, '')")
        await browse.connection.checkpoint()
        await browse.value("history.pushState({at: new Date(2)}, '', '?step=2'); history.state")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert await resumed.value("[location.search, +history.state.at]") == ["?step=2", 2]


@pytest.mark.thorough
async def test_a_page_sees_the_state_of_its_entry_after_it_was_saved(
    service: BrowserService, site: Changing
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for step in range(3):
            state = await browse.value("history.state")
            assert state == ({"step": step - 1} if step else None)
            await browse.value(f"history.pushState({{step: {step}}}, '', '?step={step}')")
            await browse.connection.checkpoint()


@pytest.mark.thorough
async def test_the_name_of_a_window_is_there_before_the_scripts_of_its_page(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<script>document.title = `named ${name}`</script>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("name = 'kept'")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert await resumed.value("[name, document.title]") == ["kept", "named kept"]
        await resumed.value("name = 'x'.repeat(2 ** 21)")
        tab = (await resumed.saved()).data["tabs"][0]
        assert (tab["entry"], tab["lost"]) == (None, ["the name of the window (too much)"])


@pytest.mark.thorough
async def test_the_state_of_an_entry_comes_back_to_a_page_that_wants_no_openers(
    service: BrowserService, site: Changing
) -> None:
    site.headers["/"] = {"Cross-Origin-Opener-Policy": "same-origin"}
    async with opened(service) as browse:
        await browse.text("navigate", url=f"http://localhost:{site.port}")
        await browse.value("history.replaceState('kept', ''); name = 'kept'")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        assert await resumed.value("[history.state, name]") == ["kept", "kept"]


@pytest.mark.parametrize(
    "state", ["new Blob(['x'])", "(window.CustomEvent = null, 'kept')"], ids=["file", "untold"]
)
async def test_a_state_that_cannot_be_saved_is_reported(
    service: BrowserService, site: Changing, state: str
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value(f"history.replaceState({state}, '')")
        assert (await browse.saved()).data["tabs"][0]["lost"] == ["history state"]


async def test_session_storage_that_a_page_removes_at_its_start_is_not_restored_again(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/order"] = "ok"
    site.pages["/"] = """<script>
      const order = sessionStorage.getItem("order");
      sessionStorage.removeItem("order");
      if (order) fetch("/order", { method: "POST" }).then(() => document.body.append("sent"));
    </script><body>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("sessionStorage.order = 'one'")
        snapshot = await browse.saved()
    site.hits.clear()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        await resumed.text("wait_for", text="sent")
        assert await resumed.value("sessionStorage.length") == 0
        assert site.hits == ["GET /", "POST /order"]


@pytest.mark.thorough
async def test_a_page_that_ends_its_login_when_it_comes_back_does_not_find_it_again(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/me"] = "ok"
    site.pages["/login"] = "<input id=name aria-label=Name>"
    site.pages["/"] = """<script>
      fetch("/me").then(({ ok }) => { if (!ok) { sessionStorage.clear(); location.replace("/login"); } });
    </script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("sessionStorage.login = 'old'")
        snapshot = await browse.saved()
    del site.pages["/me"]
    for generation in range(2, 6):
        view = replace(browse.view, generation=generation)
        async with opened(service, view, snapshot) as resumed:
            await resumed.page.wait_for_url("**/login")
            await resumed.text("type", target=await resumed.ref("Name"), text="me")
            tab = (await resumed.saved()).data["tabs"][0]
        assert tab["url"] == f"{site.url}/login"
        assert tab["entry"] is None
        assert "me" in tab["page"]


@pytest.mark.thorough
async def test_a_window_that_a_form_opened_is_reported_as_its_answer(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<form method=post action=/pay target=_blank><button>Pay</button></form>"
    site.pages["/pay"] = "<p>paid</p>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("click", target="button")
        await browse.text("tabs", action="select", index=1)
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        lost = resumed.connection.restore_report.lost
        assert "the page of tab 1 (it was the answer to a form, which was not sent again)" in lost
