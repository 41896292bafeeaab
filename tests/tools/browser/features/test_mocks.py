"""Offline, and mocked requests."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from playwright.async_api import BrowserContext
from support.browsing import Browse, new_view, opened, section
from support.selection import matrix
from support.taking_over import Person
from support.waiting import until

from statehold.sessions.errors import InvalidArgument
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session import mocks

pytestmark = pytest.mark.peer


async def fetched(browse: Browse, path: str) -> Any:
    function = (
        "async () => { const found = await fetch(%s, {headers: {'X-C': '3'}});"
        " return [found.status, await found.text(), found.headers.get('x-a')]; }"
    )
    return await browse.value(function % json.dumps(path))


async def test_an_offline_page_gets_nothing_from_the_cache(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/keeping")
    script = "() => fetch('/kept.js').then(answer => answer.text(), () => 'failed')"
    assert await browse.value(script) == "// kept"
    await browse.text("network_state_set", state="offline")
    assert await browse.value(script) == "failed"
    await browse.text("network_state_set", state="online")
    assert await browse.value(script) == "// kept"


@pytest.mark.parametrize("also", matrix("nobody", "viewer", "person", "left"))
async def test_a_page_stays_offline_and_printed_in_each_renderer(
    browse: Browse, lab: str, also: str
) -> None:
    other = lab.replace("127.0.0.1", "localhost")
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text(
        "route", pattern="**/*", body="<title>mocked</title>", contentType="text/html"
    )
    await browse.text("emulate_media", media="print")
    await browse.text("network_state_set", state="offline")
    state = "() => [navigator.onLine, matchMedia('print').matches, document.title]"
    async with AsyncExitStack() as stack:
        if also in ("viewer", "left"):
            viewer = await stack.enter_async_context(browse.connection.screencast.watch())
            await anext(viewer)
        if also == "left":
            await stack.aclose()
        if also == "person":
            await browse.connection.begin_human_control()
            await Person(browse.connection).click(5, 5)
        for address in (f"{other}/form", f"{lab}/form", f"{other}/counter"):
            await browse.page.goto(address)
            online, printed, title = await browse.value(state)
            assert printed
            # A person's browser is online and has no routes of the agent.
            assert (online, title == "mocked") == (
                (True, False) if also == "person" else (False, True)
            )
    if also == "person":
        await browse.connection.end_human_control()
        assert (await browse.value(state))[0] is False
    await browse.text("network_state_set", state="online")
    await browse.text("emulate_media", media=None)
    await browse.text("navigate", url=f"{lab}/hover")
    assert await browse.value(state) == [True, False, "mocked"]


@pytest.mark.thorough
async def test_going_back_offline_names_the_page_that_did_not_open(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.text("network_state_set", state="offline")
    text = await browse.error("navigate_back")
    assert f"{lab}/form could not be opened: net::ERR_INTERNET_DISCONNECTED" in text
    assert f"Not opened: {lab}/form (net::ERR_INTERNET_DISCONNECTED)" in section(text, "Page")


async def test_a_session_goes_offline_and_back(browse: Browse, lab: str) -> None:
    assert "Network is now offline" in await browse.text("network_state_set", state="offline")
    assert browse.connection.busy == "the offline state is on"
    assert "ERR_INTERNET_DISCONNECTED" in await browse.error("navigate", url=f"{lab}/form")
    assert "Network is now online" in await browse.text("network_state_set", state="online")
    assert browse.connection.busy is None
    await browse.text("navigate", url=f"{lab}/form")


async def test_a_route_answers_instead_of_the_site(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.text(
        "route", pattern="**/api/items*", status=201, body='["mocked"]', headers=["X-A: 1"]
    )
    assert await fetched(browse, "/api/items") == [201, '["mocked"]', "1"]
    assert browse.connection.busy == "a mocked route is on"


async def given_up(
    browse: Browse, monkeypatch: pytest.MonkeyPatch, method: str, tool: str, **options: Any
) -> None:
    """Call a tool, and cancel the call when the browser has done its part but has not answered."""
    whole = getattr(BrowserContext, method)

    async def late(self: BrowserContext, *arguments: Any) -> None:
        await whole(self, *arguments)
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    with monkeypatch.context() as patch, anyio.CancelScope() as scope:
        patch.setattr(BrowserContext, method, late)
        await browse.call(tool, **options)
    assert scope.cancelled_caught


async def test_a_cancelled_route_is_not_there(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await given_up(browse, monkeypatch, "route", "route", pattern="**/api/items*", status=201)
    assert "No active routes" in await browse.text("route_list")
    assert (await fetched(browse, "/api/items"))[0] != 201


@pytest.mark.thorough
async def test_a_session_goes_online_after_a_cancelled_call_to_go_offline(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given_up(browse, monkeypatch, "set_offline", "network_state_set", state="offline")
    assert browse.connection.busy == "the offline state is on"
    await browse.text("network_state_set", state="online")
    assert browse.connection.busy is None
    assert "Counter" in await browse.text("navigate", url=f"{lab}/counter")


@pytest.mark.thorough
async def test_a_body_with_half_a_character_keeps_no_page_waiting(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.text("route", pattern="**/halves", body="\ud83d!")
    with anyio.fail_after(10):
        assert (await fetched(browse, "/halves"))[1] == "\ufffd!"


async def test_a_page_can_be_mocked_whole(browse: Browse) -> None:
    await browse.text(
        "route", pattern="http://nowhere.test/", body="<h1>Hello</h1>", contentType="text/html"
    )
    text = await browse.text("navigate", url="http://nowhere.test/")
    assert 'heading "Hello"' in section(text, "Snapshot")


async def test_a_route_changes_the_headers_of_requests(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.text(
        "route", pattern="**/api/headers", headers=["X-B: 2"], removeHeaders="X-C, X-D"
    )
    _, text, _ = await fetched(browse, "/api/headers")
    headers = {name.lower(): value for name, value in json.loads(text).items()}
    assert headers["x-b"] == "2"
    assert "x-c" not in headers


async def test_routes_are_listed_and_removed(browse: Browse, lab: str) -> None:
    assert "No active routes" in await browse.text("route_list")
    await browse.text("route", pattern="**/a", status=404)
    await browse.text("route", pattern="**/b", headers=["X-B: 2"], removeHeaders="accept")
    await browse.text("route", pattern="**/c", body="x" * 200)
    listed = section(await browse.text("route_list"), "Result").splitlines()
    assert listed[:2] == [
        "1. **/a (status=404)",
        '2. **/b (addHeaders={"X-B": "2"}, removeHeaders=accept)',
    ]
    assert listed[2].endswith("...)")
    assert "Removed 1 route(s) for pattern: **/a" in await browse.text("unroute", pattern="**/a")
    assert "Removed 0 route(s) for pattern: **/a" in await browse.text("unroute", pattern="**/a")
    assert "Removed all 2 route(s)" in await browse.text("unroute")
    assert browse.connection.busy is None


async def test_the_last_route_that_matches_decides(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.text("route", pattern="**/api/items", body="first")
    await browse.text("route", pattern="**/api/items", body="second")
    assert (await fetched(browse, "/api/items"))[1] == "second"
    assert "Removed 2 route(s)" in await browse.text("unroute", pattern="**/api/items")
    assert (await fetched(browse, "/api/items"))[1].startswith('["Item 1"')


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "Say what the route does"),
        ({"headers": ["broken"]}, 'Invalid header "broken": expected "Name: Value"'),
        ({"headers": ["X: a\r\nY: b"]}, "Invalid header"),
        ({"body": "x", "contentType": "text/html\r\nY: b"}, "Invalid header"),
        ({"headers": ["Proxy-Authorization: x"]}, "is added by the browser itself"),
        ({"removeHeaders": "Host, cookie"}, "is added by the browser itself"),
        ({"body": "x", "removeHeaders": "accept"}, "which nobody gets"),
        ({"pattern": "**/{a", "body": "x"}, "is no URL pattern"),
    ],
)
async def test_a_route_that_cannot_work_is_refused(
    browse: Browse, arguments: dict[str, Any], reason: str
) -> None:
    assert reason in await browse.error("route", **{"pattern": "**/x", **arguments})
    assert "No active routes" in await browse.text("route_list")


async def test_a_status_is_one_that_a_site_could_answer_with(browse: Browse) -> None:
    for status in (99, 600, 200.5):
        with pytest.raises(InvalidArgument):
            await browse.call("route", pattern="**/x", status=status)


async def test_routes_and_being_offline_hold_a_session_for_a_while_only(browse: Browse) -> None:
    session = browse.connection.session
    over = anyio.Event()

    async def waiting(_: float) -> None:
        await over.wait()

    for held in (session.mocks.pause_hold, session.offline.pause_hold):
        held._sleep = waiting  # pyright: ignore[reportPrivateUsage]
    await browse.text("route", pattern="**/a", status=404)
    await browse.text("route", pattern="**/b", status=404)
    await browse.text("network_state_set", state="offline")
    assert browse.connection.busy == "a mocked route, the offline state is on"
    over.set()
    await until(lambda: not session.busy_reason())
    assert "2. **/b" in await browse.text("route_list")
    assert session.activities() == ["2 mocked routes", "the offline state"]


async def test_a_resumed_session_reports_its_routes_as_lost(service: BrowserService) -> None:
    view = new_view()
    async with opened(service, view) as browse:
        await browse.text("route", pattern="**/a", status=404)
        saved = await browse.connection.snapshot()
    async with opened(service, replace(view, generation=2), saved) as browse:
        assert browse.connection.restore_report.lost.startswith("a mocked route")
        assert browse.connection.busy is None


async def test_the_number_of_routes_is_limited(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mocks, "MAX_ROUTES", 3)
    for _ in range(3):
        await browse.text("route", pattern="**/x", body="")
    text = await browse.error("route", pattern="**/x", body="")
    assert "at most 3 routes; remove one first" in text
