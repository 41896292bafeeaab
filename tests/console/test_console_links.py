"""Links for other people, and events: what they show, and their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from sqlalchemy import Connection
from starlette.applications import Starlette
from support.asgi import AsgiRequest
from support.console_client import API, COOKIE, ConsoleClient, console_client
from support.gateway_process import Running, Way, code_of, opened_session
from support.loop_clock import LoopClock
from support.selection import matrix
from support.waiting import until

from statehold.console.app import Console
from statehold.console.logins import (
    CHECK_SECONDS,
    LINK_SECONDS,
    MAX_GUEST_STREAMS,
    MAX_LOGINS,
    MAX_STREAMS,
    ConsoleUser,
)
from statehold.console.streams import COMMENT_SECONDS, OTHER_NODES_SECONDS
from statehold.server.gateway.gateway import Gateway
from statehold.sessions.records import LOCAL

BEN = "ben-token-0123456789abc"


@pytest.fixture
async def session(agent: Client) -> str:
    return await opened_session(agent)


async def test_events_tell_of_calls_pauses_and_ends(
    agent: Client, alice: ConsoleClient, ben: ConsoleClient, session: str
) -> None:
    async with alice.events() as events, ben.events() as foreign:
        await agent.call_tool("echo", {"session_id": session, "text": "hello"})
        assert (await events.session(session_id=session, status="idle"))["owner"] == "alice"
        await alice.act(session, "rename", name="at work")
        await events.session(session_id=session, name="at work")
        await alice.act(session, "pause")
        await events.session(session_id=session, status="paused")
        await alice.act(session, "close")
        await events.session(session_id=session, status="closed")
        with anyio.move_on_after(1.2) as scope:
            await foreign.line()
        assert scope.cancelled_caught


async def test_a_logout_ends_the_stream(alice: ConsoleClient) -> None:
    async with alice.events() as events:
        await alice.post("/logout")
        with anyio.fail_after(1):
            await events.end()


@pytest.mark.parametrize("rights", ["view", "control"])
async def test_a_link_shows_one_session_to_one_browser(
    server: Running, agent: Client, alice: ConsoleClient, session: str, rights: str
) -> None:
    other = await opened_session(agent)
    share = {"link": True, "rights": "use" if rights == "control" else rights}
    link = await alice.post(f"/sessions/{session}/shares", **share, expires_in_seconds=60)
    assert link["path"] == f"/console#code={link['code']}"
    listed = (await alice.get(f"/sessions/{session}/shares"))["shares"]
    assert [each["id"] for each in listed] == [link["id"]]
    assert "code" not in listed[0]
    assert listed[0]["rights"] == share["rights"]
    async with console_client(server.url) as guest, console_client(server.url) as second:
        content = await guest.log_in(code=link["code"])
        assert (content["rights"], content["session_id"]) == (rights, session)
        assert (await second.refused("POST", "/login", {"code": link["code"]}))["status"] == 401
        await guest.get(f"/sessions/{session}")
        assert [s["session_id"] for s in (await guest.get("/sessions"))["sessions"]] == [session]
        assert (await guest.refused("GET", f"/sessions/{other}"))["status"] == 404
        for method, path in (
            ("GET", "/usage"),
            ("GET", "/nodes"),
            ("POST", f"/sessions/{session}/shares"),
            ("POST", f"/sessions/{session}/actions/close"),
            ("POST", f"/sessions/{session}/actions/export"),
        ):
            refused = await guest.refused(method, path, None if method == "GET" else {})
            assert (refused["status"], refused["code"]) == (403, "not_allowed"), path
        take = f"/sessions/{session}/actions/take"
        if rights == "view":
            assert (await guest.refused("POST", take, {}))["code"] == "not_allowed"
        else:
            epoch = (await guest.post(take))["epoch"]
            control = (await alice.get(f"/sessions/{session}"))["control"]
            assert control["holder"] == "a guest of alice at the console"
            await guest.act(session, "give-back", epoch=epoch)


@pytest.mark.parametrize("rights", matrix("control", "view"))
async def test_a_link_is_opened_beside_a_login_and_for_its_session_alone(
    alice: ConsoleClient, ben: ConsoleClient, session: str, rights: str
) -> None:
    share = {"link": True, "rights": "use" if rights == "control" else rights}
    link = await alice.post(f"/sessions/{session}/shares", **share)
    for _ in range(2):
        shown = await ben.post("/login", code=link["code"], look=True)
        assert shown == {
            "name": "a guest of alice at the console",
            "rights": rights,
            "session_id": session,
            "is_beside": True,
        }
    assert (await ben.refused("GET", f"/sessions/{session}"))["status"] == 404
    before = await ben.get("/me")
    await ben.log_in(code=link["code"])
    assert await ben.get("/me") == before
    assert session not in [each["session_id"] for each in (await ben.get("/sessions"))["sessions"]]
    access = "use" if rights == "control" else "view"
    assert (await ben.get(f"/sessions/{session}"))["access"] == access
    take = f"/sessions/{session}/actions/take"
    if rights == "control":
        await ben.act(session, "give-back", epoch=(await ben.post(take))["epoch"])
    else:
        assert (await ben.refused("POST", take, {}))["code"] == "not_allowed"
    assert (await ben.refused("POST", f"/sessions/{session}/shares", {}))["code"] == "not_allowed"
    assert (await ben.refused("POST", take, {}, x_csrf_token="x"))["code"] == "csrf"
    assert (await ben.refused("POST", "/login", {"code": link["code"], "look": True}))[
        "status"
    ] == 401
    ben.cookie, alone, ben.csrf = "", ben.cookie, ""
    assert (await ben.get("/me"))["session_id"] == session
    # The cookie of a link is that of a link only.
    ben.guest_cookie, guest = alone, ben.guest_cookie
    assert (await ben.refused("GET", "/me"))["status"] == 401
    ben.cookie, ben.guest_cookie, ben.csrf = alone, guest, before["csrf"]
    await ben.post("/logout")
    assert (await ben.refused("GET", f"/sessions/{session}"))["status"] == 401
    assert (await ben.refused("GET", "/me"))["status"] == 401


async def test_a_revoked_link_loses_its_login_and_its_stream_at_once(
    server: Running, agent: Client, alice: ConsoleClient, session: str
) -> None:
    link = await alice.post(f"/sessions/{session}/shares", link=True)
    async with console_client(server.url) as guest:
        await guest.log_in(code=link["code"])
        async with guest.events() as events:
            await agent.call_tool("echo", {"session_id": session, "text": "hello"})
            await events.session(session_id=session)
            response = await alice.send("DELETE", f"/sessions/{session}/shares/{link['id']}")
            assert response.status_code == 200
            with anyio.fail_after(1):
                while await events.line() is not None:
                    pass
        assert (await guest.refused("GET", "/me"))["status"] == 401
    assert (await alice.get(f"/sessions/{session}/shares"))["shares"] == []
    gone = await alice.refused("DELETE", f"/sessions/{session}/shares/{link['id']}")
    assert gone["status"] == 404


@pytest.mark.thorough
async def test_more_logins_and_links_than_a_person_may_have_end_none_of_another(
    server: Running, alice: ConsoleClient, root: ConsoleClient, session: str, config_file: Path
) -> None:
    link = await alice.post(f"/sessions/{session}/shares", link=True)
    unused = await alice.post(f"/sessions/{session}/shares", link=True)
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with (
        console_client(server.url) as guest,
        console_client(server.url) as ben,
        way.connect(headers={"authorization": f"Bearer {BEN}"}) as bens_agent,
    ):
        await guest.log_in(code=link["code"])
        bens_session = await opened_session(bens_agent)
        first = (await ben.log_in(token=BEN))["csrf"], ben.cookie
        for _ in range(MAX_LOGINS + 5):
            await ben.log_in(token=BEN)
            await ben.post(f"/sessions/{bens_session}/shares", link=True)
        for person in (alice, root, guest, ben):
            assert (await person.get("/me"))["csrf"] == person.csrf
        listed = (await alice.get(f"/sessions/{session}/shares"))["shares"]
        assert {each["id"] for each in listed} == {link["id"], unused["id"]}
        assert len((await ben.get(f"/sessions/{bens_session}/shares"))["shares"]) == MAX_LOGINS
        ben.csrf, ben.cookie = first
        # The server looks a login up again after FRESH_SECONDS.
        await until(partial(_is_logged_out, ben))
        assert (await guest.log_in(code=unused["code"]))["session_id"] == session


@pytest.mark.parametrize("watcher", matrix("person", "guest", "guests"))
async def test_the_streams_of_one_person_are_bounded_and_leave_those_of_others(
    server: Running, alice: ConsoleClient, ben: ConsoleClient, session: str, watcher: str
) -> None:
    async with AsyncExitStack() as stack:
        # More connections than one client of httpx2 has.
        watchers = [
            await stack.enter_async_context(console_client(server.url))
            for _ in range(MAX_STREAMS // MAX_GUEST_STREAMS)
        ]
        code = ""
        for number, each in enumerate(watchers):
            if watcher == "person":
                await each.log_in(token=BEN)
            elif number == 0 or watcher == "guests":
                code = (await alice.post(f"/sessions/{session}/shares", link=True))["code"]
                await each.log_in(code=code)
            else:
                each.guest_cookie, each.csrf = watchers[0].guest_cookie, watchers[0].csrf
        most = MAX_GUEST_STREAMS if watcher == "guest" else MAX_STREAMS
        for number in range(most):
            await stack.enter_async_context(watchers[number % len(watchers)].events())
        refused = await watchers[0].refused("GET", "/events")
        assert (refused["status"], refused["code"]) == (429, "session_limit")
        if watcher == "person":
            # Another login of the same person is no other person.
            assert (await ben.refused("GET", "/events"))["code"] == "session_limit"
        async with alice.events():
            assert await alice.get("/me")
        if watcher == "guest":
            # One guest leaves places to the others of its host.
            other = await stack.enter_async_context(console_client(server.url))
            await other.log_in(
                code=(await alice.post(f"/sessions/{session}/shares", link=True))["code"]
            )
            async with other.events():
                assert await other.get("/me")

    await until(partial(_can_follow, ben))


async def _is_logged_out(person: ConsoleClient) -> bool:
    return (await person.send("GET", "/me")).status_code == 401


async def _can_follow(person: ConsoleClient) -> bool:
    with suppress(AssertionError):
        async with person.events():
            return True
    return False


async def link_entries(person: ConsoleClient, session: str) -> list[tuple[str, str]]:
    """Return the events of links in the timeline of a session, with the person of each."""
    entries = (await person.get(f"/sessions/{session}/timeline"))["entries"]
    return [
        (entry["status"], entry["control"]["by"])
        for entry in entries
        if entry["kind"] == "control" and entry["status"].startswith("link_")
    ]


async def test_the_timeline_tells_who_gave_used_and_revoked_a_link(
    server: Running, agent: Client, alice: ConsoleClient, root: ConsoleClient, session: str
) -> None:
    await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    link = await alice.post(f"/sessions/{session}/shares", link=True, rights="use")
    async with console_client(server.url) as guest:
        await guest.log_in(code=link["code"])
        await guest.act(session, "take")
        refused = await agent.call_tool("echo", {"session_id": session, "text": "hello"})
        assert code_of(refused) == "human_in_control"
        await root.send("DELETE", f"/sessions/{session}/shares/{link['id']}")
    # The guest had control, which ended with the link.
    result = await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    assert "until the access of that person was revoked" in str(result.content)
    [_, opened, revoked] = events = await link_entries(alice, session)
    assert events[0] == ("link_created", "alice at the console")
    assert opened == ("link_opened", "a guest of alice at the console")
    assert revoked[0] == "link_revoked"
    timeline = await alice.send("GET", f"/sessions/{session}/timeline")
    assert link["code"] not in timeline.text


async def test_no_link_leads_to_a_closed_session(alice: ConsoleClient, session: str) -> None:
    used = await alice.post(f"/sessions/{session}/shares", link=True)
    await alice.act(session, "close")
    refused = await alice.refused("POST", f"/sessions/{session}/shares", {"link": True})
    assert (refused["status"], refused["code"]) == (409, "session_closed")
    refused = await alice.refused("POST", "/login", {"code": used["code"]})
    assert refused["code"] == "session_closed"
    links = (await alice.get(f"/sessions/{session}/shares"))["shares"]
    assert [each["id"] for each in links] == [used["id"]]


async def test_no_page_shows_a_session_in_a_frame_unless_the_operator_names_its_origin(
    server: Running, alice: ConsoleClient, session: str
) -> None:
    embed = {"link": True, "rights": "embed"}
    refused = await alice.refused("POST", f"/sessions/{session}/shares", embed)
    assert (refused["status"], refused["code"]) == (400, "invalid_argument")
    async with httpx2.AsyncClient(base_url=server.url) as client:
        page = await client.get("/console/embed.html")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


async def test_a_link_lives_for_a_quarter_of_an_hour_at_most(
    alice: ConsoleClient, session: str
) -> None:
    link = await alice.post(f"/sessions/{session}/shares", link=True, expires_in_seconds=3600)
    left = datetime.fromisoformat(link["expires_at"]).timestamp() - time.time()
    assert 800 < left <= LINK_SECONDS
    for wrong in ({"expires_in_seconds": 0}, {"rights": "own"}, {"subject": "ben"}, {"group": "a"}):
        body = {"link": True, **wrong}
        refused = await alice.refused("POST", f"/sessions/{session}/shares", body)
        assert (refused["status"], refused["code"]) == (400, "invalid_argument")


async def test_a_stream_without_events_sends_comments_and_ends_with_its_login(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(gateway)
    cookie, login = await console.logins.open(ConsoleUser("eve"))
    headers = [("cookie", f"{COOKIE}={cookie}")]
    request = AsgiRequest(b"", headers, method="GET", path=f"{API}/events")

    def comments() -> list[bytes]:
        bodies = [message.get("body", b"") for message in request.messages]
        return [body for body in bodies if body.startswith(b":")]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(request.of, Starlette(routes=console.routes()))
        await until(lambda: comments() == [b": open\n\n"])
        await LoopClock(monkeypatch).by(COMMENT_SECONDS)
        await until(lambda: len(comments()) == 2)
        await console.logins.end(login)
    assert request.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_idle_streams_read_nothing_of_sessions_and_a_change_wakes_them(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, transactions = Console(gateway), gateway.store.transactions
    cookie, login = await console.logins.open(ConsoleUser("eve"))
    headers = [("cookie", f"{COOKIE}={cookie}")]
    streams = [AsgiRequest(b"", headers, method="GET", path=f"{API}/events") for _ in range(5)]
    begun, ended, read = 0, 0, transactions.read

    async def counted(query: Callable[[Connection], object]) -> object:
        nonlocal begun, ended
        begun += 1
        try:
            return await read(query)
        finally:
            ended += 1

    async with anyio.create_task_group() as tasks:
        for stream in streams:
            tasks.start_soon(stream.of, Starlette(routes=console.routes()))
        await until(lambda: all(b": open" in stream.text for stream in streams))
        later, looks = LoopClock(monkeypatch), 8
        monkeypatch.setattr(transactions, "read", counted)
        for _ in range(looks):
            await later.by(CHECK_SECONDS)
            await until(lambda: begun == ended)
        # Those of the login, of the other nodes, and of two kinds of notices, the last three once for all streams.
        # One of each kind may fall on the edge.
        once = looks * CHECK_SECONDS / OTHER_NODES_SECONDS + 1
        assert begun <= looks + 1 + once + 2 * once
        session = await gateway.registry.create(LOCAL)
        data = f'"session_id":"{session.id}"'.encode()
        await until(lambda: all(data in stream.text for stream in streams))
        await console.logins.end(login)
