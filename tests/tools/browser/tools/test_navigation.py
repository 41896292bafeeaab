"""Going places, and waiting there."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from typing import Any, Final

import anyio
import pytest
from lab import Lab
from playwright.async_api import Browser
from support.browsing import Browse, section, text_of
from support.loop_clock import LoopClock
from support.selection import matrix

from statehold.sessions.errors import InvalidArgument
from statehold.sessions.services import CallerOptions
from statehold.tools.browser import call as calls
from statehold.tools.browser.devtools.world import World
from statehold.tools.browser.session import session as sessions
from statehold.tools.browser.tools import navigation
from statehold.tools.upstream.recipe import InternalContext

pytestmark = pytest.mark.peer


class Listener(InternalContext):
    """A caller that wants progress notifications."""

    options = CallerOptions(wants_progress=True)

    def __init__(self) -> None:
        self.heard: list[tuple[float, float | None, str | None]] = []
        self.progressed = anyio.Event()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.append((progress, total, message))
        self.progressed.set()
        self.progressed = anyio.Event()


async def test_navigating_answers_with_the_page_and_its_snapshot(browse: Browse, lab: str) -> None:
    text = await browse.text("navigate", url=f"{lab}/counter")
    assert section(text, "Page") == f"- Page URL: {lab}/counter\n- Page Title: Counter - Lab"
    assert 'button "Increment" [ref=e4]' in section(text, "Snapshot")
    assert (
        section(text, "Ran Playwright code").splitlines()[1] == f"await page.goto('{lab}/counter')"
    )


@pytest.mark.thorough
async def test_a_cacheable_file_is_fetched_once(browse: Browse, lab_site: Lab) -> None:
    lab_site.hits.clear()
    for _ in range(3):
        await browse.text("navigate", url=f"{lab_site.url}/keeping")
    assert lab_site.hits.count("GET 127.0.0.1/keeping") == 3
    assert lab_site.hits.count("GET 127.0.0.1/kept.js") == 1


async def test_a_url_without_a_scheme_is_understood(browse: Browse, lab: str) -> None:
    text = await browse.text("navigate", url=f"{lab.removeprefix('http://')}/frame")
    assert "Frame plain" in text


@pytest.mark.thorough
async def test_a_page_opens_after_one_that_could_not(browse: Browse, lab: str) -> None:
    assert "ERR_TOO_MANY_REDIRECTS" in await browse.error("navigate", url=f"{lab}/loop")
    # The error page of the first arrives while the second begins.
    for path, words in (("status/404", "This is 404"), ("status/500", "This is 500")):
        assert words in await browse.text("navigate", url=f"{lab}/{path}")
    assert "redirected" in await browse.text("navigate", url=f"{lab}/redirect?times=2")


async def test_a_result_shows_the_status_and_the_failure_of_a_page(
    browse: Browse, lab: str
) -> None:
    opened = await browse.text("navigate", url=f"{lab}/status/404")
    for text in (opened, await browse.text("snapshot")):
        assert "- HTTP status: 404 Not Found" in section(text, "Page").splitlines()
    assert "HTTP status" not in await browse.text("navigate", url="about:blank")
    assert "HTTP status" not in await browse.text("navigate", url=f"{lab}/frame")
    await browse.value("() => { document.body.innerHTML = '<a href=/loop>Round</a>'; }")
    clicked = await browse.text("click", target="text=Round")
    for text in (clicked, await browse.text("snapshot")):
        lines = section(text, "Page").splitlines()
        assert f"- Not opened: {lab}/loop (net::ERR_TOO_MANY_REDIRECTS)" in lines
    assert "Not opened" not in await browse.text("navigate_back")


async def test_only_pages_of_the_web_are_opened(browse: Browse) -> None:
    await browse.text("navigate", url="about:blank")
    for url in (
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "view-source:file:///etc/passwd",
        "chrome://version",
        "javascript:alert(1)",
        "about:settings",
        " \tfile:///etc/passwd",
    ):
        for text in (
            await browse.error("navigate", url=url),
            await browse.error("tabs", action="new", url=url),
        ):
            assert "may not be opened" in text, url
            assert "Page URL: about:blank" in text, url
            assert "root:" not in text, url


@pytest.mark.thorough
async def test_a_site_that_takes_its_time_costs_no_page(
    browse: Browse, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/counter")
    loop_clock, answered = LoopClock(monkeypatch), anyio.Event()
    texts: list[str] = []
    real = World.evaluate

    async def ask(self: World, expression: str) -> Any:
        value = await real(self, expression)
        answered.set()
        return value

    monkeypatch.setattr(World, "evaluate", ask)

    async def go() -> None:
        texts.append(await browse.text("navigate", url=f"{lab_site.url}/file/late?gate=download"))

    async with anyio.create_task_group() as tasks:
        async with browse.page.expect_request("**/file/late*"):
            tasks.start_soon(go)
        with anyio.fail_after(10):
            await answered.wait()
        await loop_clock.by(navigation.HANGS_SECONDS + 1)
        lab_site.open("download")
    assert "Downloaded file late.txt" in texts[0]
    assert f"{lab_site.url}/counter" in section(texts[0], "Page")


@pytest.fixture
def unreachable() -> Generator[str]:
    """A host, with its port, that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("way", matrix("http://", "https://", "/redirect?to=http://"))
async def test_an_unreachable_site_is_an_error_with_its_cause(
    browse: Browse, lab: str, unreachable: str, way: str
) -> None:
    url = f"{lab}{way}{unreachable}/" if way.startswith("/") else f"{way}{unreachable}/"
    why = f"{url} could not be opened: Could not reach {unreachable}: {unreachable} refuses connections."
    for text in (
        await browse.error("navigate", url=url),
        await browse.error("tabs", action="new", url=url),
    ):
        assert section(text, "Error") == why
        assert "### Events" not in text
        assert "### Ran Playwright code" not in text


ASK: Final = """async (urls) => {
  const ask = async url => [
    await fetch(url, { mode: "no-cors" }).then(() => "answer", error => error.name),
    await new Promise(resolve => {
      const image = new Image();
      image.onload = image.onerror = event => resolve(event.type);
      image.src = url;
    }),
    await new Promise(resolve => {
      const socket = new WebSocket(url.replace("http", "ws"));
      socket.onopen = socket.onclose = event => resolve([event.type, event.code]);
    }),
    await new Promise(resolve => {
      const request = new XMLHttpRequest();
      request.onloadend = () => resolve(request.status);
      request.open("GET", url);
      request.send();
    }),
  ];
  const answers = [];
  for (const url of urls) answers.push(await ask(url));
  return answers;
}"""


@pytest.mark.thorough
async def test_requests_to_sites_that_are_not_reached_fail_as_without_a_proxy(
    browse: Browse, browser: Browser, lab: str, unreachable: str
) -> None:
    urls = [f"http://{unreachable}/", "http://nowhere.invalid/", f"https://{unreachable}/"]
    direct = await browser.new_page()
    try:
        await direct.goto(f"{lab}/frame")
        expected = await direct.evaluate(ASK, urls)
    finally:
        await direct.close()
    await browse.text("navigate", url=f"{lab}/frame")
    text = await browse.text("evaluate", function=f"() => ({ASK})({json.dumps(urls)})")
    assert json.loads(section(text, "Result")) == expected
    reasons = (
        f"Could not reach {unreachable}: {unreachable} refuses connections.",
        "Could not reach nowhere.invalid: the name nowhere.invalid has no address.",
    )
    requests = await browse.text("network_requests")
    for reason in reasons:
        assert f"- {reason}" in section(text, "Events").splitlines()[:2]
        assert f"=> [FAILED] {reason}" in requests
    assert "SOCKS" not in requests


@pytest.mark.thorough
async def test_a_link_to_a_site_that_is_not_reached_says_why(
    browse: Browse, lab: str, unreachable: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    script = f"() => {{ location.href = 'http://{unreachable}/'; }}"
    text = await browse.text("evaluate", function=script)
    why = f"Could not reach {unreachable}: {unreachable} refuses connections"
    assert f"- Not opened: http://{unreachable}/ ({why})" in section(text, "Page")


@pytest.mark.thorough
async def test_an_error_of_a_site_is_its_page_whatever_else_cannot_be_reached(
    browse: Browse, lab: str, unreachable: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    script = f"() => fetch('http://{unreachable}/').then(() => 1, () => 0)"
    text = await browse.text("evaluate", function=script)
    assert f"Could not reach {unreachable}" in section(text, "Events")
    assert "This is 502" in await browse.text("navigate", url=f"{lab}/status/502")


INVALID = {
    "http://[::1": "is no URL",
    " ": "is empty",
    "foo bar": "'foo bar' is no URL",
    "https://what is this?": "is no URL",
    "http://": "is no URL",
    "http://127.0.0.1:99999/": "is no URL",
    "http://127.0.0.1:0/": "is no URL",
}


async def test_an_invalid_url_is_refused(browse: Browse) -> None:
    await browse.text("navigate", url="about:blank")
    for url, words in INVALID.items():
        for text in (
            await browse.error("navigate", url=url),
            await browse.error("tabs", action="new", url=url),
        ):
            assert words in section(text, "Error"), url


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> str:
    """A path whose pages count as having a forbidden scheme."""

    def allowed(url: str) -> bool:
        return "name=refused" not in url

    for module in (calls, sessions):
        monkeypatch.setattr(module, "scheme_allowed", allowed)
    return "/frame?name=refused"


async def test_a_page_of_a_refused_scheme_is_left_before_anything_is_read_there(
    browse: Browse, lab: str, refused: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.value(f"() => {{ location.href = '{refused}'; }}")
    tab = browse.tab
    await tab.page.wait_for_url(lab + refused)
    text = await browse.error("evaluate", function="() => document.body.innerText", filename="x")
    assert section(text, "Error") == "Pages of http: may not be opened; the tab was emptied."
    assert "Frame refused" not in text
    assert tab.page.url == "about:blank"
    assert await browse.connection.session.files.names() == []
    assert "Increment" in await browse.text("navigate", url=f"{lab}/counter")


@pytest.mark.thorough
async def test_a_new_tab_is_the_second_of_an_unused_browser(browse: Browse, lab: str) -> None:
    """As in @playwright/mcp, whose browser starts with an empty tab."""
    text = await browse.text("tabs", action="new", url=f"{lab}/counter")
    listed = f"- 0: [](about:blank)\n- 1: (current) [Counter - Lab]({lab}/counter)"
    assert section(text, "Result") == section(text, "Open tabs") == listed


@pytest.mark.thorough
async def test_an_answer_shows_nothing_of_a_page_with_a_refused_scheme(
    browse: Browse, lab: str, refused: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("tabs", action="new", url=f"{lab}/frame")
    result = await browse.call("evaluate", function=f"() => {{ location.href = '{refused}'; }}")
    assert result.is_error
    text = text_of(result)
    assert "### Result" not in text
    assert "Frame refused" not in text
    assert "(current) [](about:blank)" in section(text, "Open tabs")


async def test_waiting_for_a_text_to_go(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/slow")
    await browse.text("click", target="text=Draw later")
    text = await browse.text("wait_for", text="drawn", textGone="never there")
    assert section(text, "Result") == "Waited for never there\nWaited for drawn"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"text": "not here"}, "'not here' was not there yet"),
        ({"textGone": "Frame", "text": "not here"}, "'Frame' was still there"),
    ],
)
async def test_a_wait_that_a_dialog_interrupts_is_no_success(
    browse: Browse, lab: str, wanted: dict[str, str], words: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    texts: list[str] = []

    async def wait() -> None:
        texts.append(await browse.text("wait_for", **wanted))

    with anyio.fail_after(4):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await browse.value("() => { setTimeout(() => alert('late')); }")
    assert "### Ran Playwright code" not in texts[0]
    assert "### Result" not in texts[0]
    assert f"- {words} when the page asked something." in section(texts[0], "Events")
    await browse.text("handle_dialog", accept=True)


HIDDEN_AND_FRAMED = """() => {
    document.body.innerHTML = '<p hidden>Saved</p><p id=shown></p><iframe srcdoc="<p>Framed</p>"></iframe>';
    return new Promise(done => { document.querySelector("iframe").onload = done; });
}"""


@pytest.mark.thorough
async def test_a_text_is_waited_for_where_it_can_be_seen_and_in_frames_too(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        browse.connection.session,
        "config",
        browse.service.config.model_copy(update={"action_seconds": 0.3}),
    )
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(f"async () => {{ await ({HIDDEN_AND_FRAMED})(); }}")
    await browse.text("wait_for", textGone="Saved")
    assert "not on the page" in await browse.error("wait_for", text="Saved")
    await browse.value("() => { document.querySelector('#shown').textContent = 'Saved'; }")
    await browse.text("wait_for", text="Saved")
    assert "still on the page" in await browse.error("wait_for", textGone="Saved")
    await browse.text("wait_for", text="Framed")
    assert "still on the page" in await browse.error("wait_for", textGone="Framed")
    await browse.value("() => { document.querySelector('iframe').remove(); }")
    await browse.text("wait_for", textGone="Framed")


async def test_a_text_that_never_comes_is_an_error_with_a_snapshot(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        browse.connection.session,
        "config",
        browse.service.config.model_copy(update={"action_seconds": 0.2}),
    )
    await browse.text("navigate", url=f"{lab}/slow")
    text = await browse.error("wait_for", text="never comes")
    assert "'never comes' is not on the page after 0.2 seconds" in section(text, "Error")
    assert "Fetch twice" in section(text, "Snapshot")


@pytest.mark.parametrize("arguments", [{}, {"text": None}])
async def test_waiting_for_nothing_is_refused(browse: Browse, arguments: dict[str, Any]) -> None:
    assert "what to wait for" in await browse.error("wait_for", **arguments)


async def test_waiting_tells_each_second_how_far_it_is(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url="about:blank")
    listener, loop_clock = Listener(), LoopClock(monkeypatch)
    browse.ctx = listener
    results: list[str] = []

    async def wait() -> None:
        results.append(await browse.text("wait_for", time=3.5))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                progressed = listener.progressed
                await loop_clock.by(1.0)
                await progressed.wait()
            await loop_clock.by(1.0)
    assert [heard[:2] for heard in listener.heard[:3]] == [(1.0, 3.5), (2.0, 3.5), (3.0, 3.5)]
    assert section(results[0], "Result") == "Waited for 3.5 seconds"


@pytest.mark.thorough
async def test_any_long_call_tells_how_far_it_is(browse: Browse, lab_site: Lab) -> None:
    browse.ctx = listener = Listener()
    browse.connection.progress_seconds = 0.01
    progressed = listener.progressed
    async with anyio.create_task_group() as tasks:

        async def navigate() -> None:
            await browse.text("navigate", url=f"{lab_site.url}/frame?gate=late")

        tasks.start_soon(navigate)
        await progressed.wait()
        lab_site.open("late")
    assert listener.heard[0][1] is None
    assert "Navigate to a URL" in str(listener.heard[0][2])


async def test_an_unknown_argument_is_refused_with_those_that_are_known(browse: Browse) -> None:
    with pytest.raises(InvalidArgument, match=r"no argument 'link'; it takes: url"):
        await browse.call("navigate", url="about:blank", link="x")
    with pytest.raises(InvalidArgument, match="no argument 'ref'; it takes: target"):
        await browse.call("click", ref="e1")
    with pytest.raises(InvalidArgument, match="url"):
        await browse.call("navigate")
