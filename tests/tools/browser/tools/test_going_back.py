"""Going back, where the browser knows the pages before and where only their addresses are left."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from lab import Lab
from playwright.async_api import CDPSession, Error
from support.browsing import Browse, new_view, opened, section, text_of
from support.selection import matrix

from statehold.sessions.json_codec import JSON
from statehold.sessions.services import Snapshot
from statehold.tools.browser.devtools import world
from statehold.tools.browser.devtools.world import send_command
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import capture
from statehold.tools.browser.snapshot.model import ContextSnapshot

pytestmark = pytest.mark.peer

AGAIN = "loaded again from its address"
NONE_BEFORE = "There is no earlier page in the history of this tab."

Resume = Callable[[Browse], Awaitable[Browse]]


async def saved(browse: Browse) -> ContextSnapshot:
    snapshot = await browse.connection.snapshot()
    assert snapshot is not None
    data = json.loads(json.dumps(snapshot.data))
    return ContextSnapshot.from_snapshot(Snapshot(data, snapshot.blobs))


@pytest.fixture
async def resume(service: BrowserService) -> AsyncGenerator[Resume]:
    """Pauses a session and resumes it."""
    async with AsyncExitStack() as stack:

        async def again(browse: Browse) -> Browse:
            snapshot = await saved(browse)
            await browse.connection.aclose()
            view = new_view(generation=browse.view.generation + 1)
            return await stack.enter_async_context(opened(service, view, snapshot.to_snapshot()))

        yield again


async def visit(browse: Browse, at: str, names: str) -> None:
    for name in names:
        await browse.text("navigate", url=f"{at}/frame?name={name}")


async def back(browse: Browse) -> str:
    """Go back and return the name of the page there."""
    text = await browse.text("navigate_back")
    return name_of(section(text, "Page")) + ("*" if AGAIN in text else "")


@pytest.mark.thorough
async def test_back_from_a_page_that_waits_for_its_server_goes_to_the_one_before(
    browse: Browse, lab_site: Lab
) -> None:
    await visit(browse, lab_site.url, "ab")
    async with browse.page.expect_request("**/frame?gate=late"):
        await browse.value("() => { location.href = '/frame?gate=late'; }")
    assert await back(browse) == "a"
    lab_site.open("late")


def name_of(text: str) -> str:
    return text.partition("name=")[2][:1]


async def names(browse: Browse) -> list[str]:
    """Return the history of the current tab as it would be saved, with the current page in capitals."""
    tab = (await saved(browse)).tabs[0]
    entries = [name_of(url) for url in tab.history]
    return [name.upper() if n == tab.position else name for n, name in enumerate(entries)]


async def stays(browse: Browse, name: str) -> None:
    """See that going back is refused and changes nothing."""
    await browse.value("() => { window.same = true; }")
    text = await browse.error("navigate_back")
    assert section(text, "Error") == NONE_BEFORE
    assert f"name={name}" in section(text, "Page")
    assert await browse.value("() => window.same") is True


async def test_the_first_page_of_a_tab_stays(browse: Browse, lab: str) -> None:
    assert NONE_BEFORE in await browse.error("navigate_back")
    await visit(browse, lab, "a")
    await stays(browse, "a")
    await browse.text("tabs", action="new", url=f"{lab}/frame?name=b")
    await stays(browse, "b")
    await visit(browse, lab, "c")
    assert await back(browse) == "b"
    await stays(browse, "b")


@pytest.mark.thorough
async def test_going_back_opens_an_empty_page_that_was_visited(browse: Browse, lab: str) -> None:
    await visit(browse, lab, "a")
    await browse.text("navigate", url="about:blank")
    await visit(browse, lab, "b")
    assert "Page URL: about:blank" in await browse.text("navigate_back")
    assert await back(browse) == "a"


@pytest.mark.thorough
async def test_a_resumed_tab_goes_back_by_address_to_the_first_page(
    browse: Browse, lab: str, resume: Resume
) -> None:
    await visit(browse, lab, "abc")
    again = await resume(browse)
    assert (
        "back and forward (going back loads the pages again)"
        in again.connection.restore_report.lost
    )
    text = await again.text("navigate_back")
    assert f"- Page URL: {lab}/frame?name=b\n" in text
    assert "Frame b" in section(text, "Snapshot")
    assert AGAIN in section(text, "Result")
    assert f"await page.goto('{lab}/frame?name=b')" in section(text, "Ran Playwright code")
    assert await back(again) == "a*"
    await stays(again, "a")
    assert await names(again) == ["A", "b", "c"]


@pytest.mark.thorough
async def test_pages_visited_after_a_resume_are_gone_back_to_by_the_browser(
    browse: Browse, lab: str, resume: Resume
) -> None:
    await visit(browse, lab, "abc")
    again = await resume(browse)
    await visit(again, lab, "de")
    assert [await back(again) for _ in range(3)] == ["d", "c", "b*"]
    await visit(again, lab, "f")
    assert [await back(again) for _ in range(2)] == ["b", "a*"]
    await stays(again, "a")


@pytest.mark.thorough
async def test_history_survives_one_pause_after_the_other(
    browse: Browse, lab: str, resume: Resume
) -> None:
    await visit(browse, lab, "abc")
    again = await resume(browse)
    assert await names(again) == ["a", "b", "C"]
    await visit(again, lab, "de")
    await back(again)
    assert await names(again) == ["a", "b", "c", "D", "e"]
    third = await resume(again)
    assert await names(third) == ["a", "b", "c", "D", "e"]
    assert [await back(third) for _ in range(2)] == ["c*", "b*"]
    assert await names(third) == ["a", "B", "c", "d", "e"]
    await visit(third, lab, "f")
    assert await names(third) == ["a", "b", "F"]
    assert [await back(third) for _ in range(2)] == ["b", "a*"]


@pytest.mark.thorough
async def test_a_long_history_is_cut_at_each_pause(
    browse: Browse, lab: str, resume: Resume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "HISTORY", 3)
    await visit(browse, lab, "abcdef")
    again = await resume(browse)
    assert await names(again) == ["c", "d", "e", "F"]
    await visit(again, lab, "g")
    assert await names(again) == ["d", "e", "f", "G"]


@pytest.mark.thorough
async def test_a_tab_that_slept_goes_back_as_well(browse: Browse, lab: str, resume: Resume) -> None:
    await visit(browse, lab, "ab")
    await browse.text("tabs", action="new", url=f"{lab}/frame?name=x")
    again = await resume(browse)
    assert await names(again) == ["a", "B"]
    await browse.connection.aclose()
    third = await resume(again)
    await third.text("tabs", action="select", index=0)
    assert await back(third) == "a*"
    await third.text("tabs", action="select", index=1)
    await stays(third, "x")


@pytest.mark.thorough
async def test_a_restored_page_has_no_history_of_its_restoration(
    browse: Browse, lab: str, resume: Resume
) -> None:
    await visit(browse, lab, "a")
    await browse.value("() => { sessionStorage.kept = 1; history.replaceState({at: 1}, ''); }")
    again = await resume(browse)
    assert await again.value("() => [history.length, history.state.at]") == [1, 1]
    await stays(again, "a")


@pytest.mark.thorough
async def test_going_back_leaves_a_page_that_cannot_be_loaded_again(
    browse: Browse, lab: str, resume: Resume
) -> None:
    await visit(browse, lab, "ab")
    await browse.text("navigate", url="data:text/html,made")
    again = await resume(browse)
    assert "Page URL: about:blank" in await again.text("snapshot")
    assert await back(again) == "b*"
    assert await back(again) == "a*"


@pytest.mark.thorough
async def test_going_back_passes_a_page_that_cannot_be_loaded(
    browse: Browse, lab: str, resume: Resume
) -> None:
    await visit(browse, lab, "a")
    await browse.error("navigate", url=f"{lab}/loop")
    await visit(browse, lab, "c")
    again = await resume(browse)
    text = await again.error("navigate_back")
    assert f"{lab}/loop could not be opened: net::ERR_TOO_MANY_REDIRECTS" in section(text, "Error")
    assert await back(again) == "a*"
    assert await names(again) == ["A", "", "c"]


@pytest.mark.thorough
async def test_a_page_that_does_not_load_in_time_leaves_the_current_one(
    browse: Browse, lab_site: Lab, resume: Resume, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab_site.open("once")
    await browse.text("navigate", url=f"{lab_site.url}/frame?name=b&gate=once")
    await visit(browse, lab_site.url, "c")
    context = await saved(browse)
    tab = context.tabs[0]
    tab.history[0] = tab.history[0].replace("once", "never")
    again = await resume_with(resume, browse, context, monkeypatch)
    config = browse.service.config.model_copy(update={"navigation_seconds": 0.3})
    monkeypatch.setattr(again.connection.session, "config", config)
    text = await again.error("navigate_back")
    assert "Timeout 300ms exceeded" in section(text, "Error")
    assert "name=c" in section(text, "Page")
    lab_site.open("never")
    monkeypatch.setattr(again.connection.session, "config", browse.service.config)
    assert await back(again) == "b*"


async def resume_with(
    resume: Resume, browse: Browse, context: ContextSnapshot, monkeypatch: pytest.MonkeyPatch
) -> Browse:
    """Resume a session from a changed snapshot."""

    async def snapshot() -> Snapshot:
        return context.to_snapshot()

    with monkeypatch.context() as patch:
        patch.setattr(browse.connection, "snapshot", snapshot)
        return await resume(browse)


@pytest.mark.parametrize(
    "url", matrix("file:///etc/passwd", "javascript:alert(1)", "chrome://version")
)
async def test_a_saved_address_is_no_way_to_a_refused_scheme(
    browse: Browse, lab: str, resume: Resume, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    await visit(browse, lab, "ab")
    context = await saved(browse)
    tab = context.tabs[0]
    context = replace(context, tabs=[replace(tab, history=[url, tab.url])])
    again = await resume_with(resume, browse, context, monkeypatch)
    text = await again.error("navigate_back")
    assert "may not be opened" in section(text, "Error")
    assert "name=b" in section(text, "Page")


@pytest.mark.thorough
async def test_a_page_that_asks_before_it_is_left_is_gone_back_from_when_it_was_answered(
    browse: Browse, lab: str, resume: Resume
) -> None:
    await visit(browse, lab, "abc")
    again = await resume(browse)
    await again.value("() => { onbeforeunload = event => event.preventDefault(); }")
    # A page without user input may not ask.
    await again.text("click", target="#word")
    text = text_of(await again.call("navigate_back"))
    assert "beforeunload" in section(text, "Modal state")
    assert AGAIN not in text
    assert "name=b" in await again.text("handle_dialog", accept=True)
    assert await back(again) == "a*"


Failing = Callable[[str, str, int], list[str]]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Makes a browser refuse a DevTools command with a given message, a given number of times. The list holds the
    requests.
    """
    monkeypatch.setattr(world, "SWAP_SECONDS", 0)

    def fail(method: str, words: str, times: int) -> list[str]:
        refused: list[str] = []

        async def ask(session: CDPSession, wanted: str, params: JSON | None = None) -> JSON:
            if wanted == method and len(refused) < times:
                refused.append(wanted)
                raise Error(words)
            return await send_command(session, wanted, params)

        monkeypatch.setattr(world, "send_command", ask)
        return refused

    return fail


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", ["'Page.getNavigationHistory' wasn't found", "Not attached to an active page"]
)
async def test_a_browser_that_does_not_tell_its_history_goes_back_all_the_same(
    browse: Browse, lab: str, failing: Failing, words: str
) -> None:
    await visit(browse, lab, "ab")
    assert failing("Page.getNavigationHistory", words, 1000) == []
    assert await back(browse) == "a"


@pytest.mark.thorough
async def test_a_browser_is_asked_again_while_a_tab_changes_its_renderer(
    browse: Browse, lab: str, resume: Resume, failing: Failing
) -> None:
    await visit(browse, lab, "ab")
    again = await resume(browse)
    refused = failing("Page.getNavigationHistory", "Not attached to an active page", 3)
    assert await back(again) == "a*"
    assert len(refused) == 3


@pytest.mark.thorough
async def test_a_browser_that_keeps_its_history_is_resumed_all_the_same(
    browse: Browse, lab: str, resume: Resume, failing: Failing
) -> None:
    await visit(browse, lab, "ab")
    refused = failing("Page.resetNavigationHistory", "History cannot be pruned", 1000)
    again = await resume(browse)
    assert await back(again) == "a*"
    assert len(refused) == 2
