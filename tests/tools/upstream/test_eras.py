"""The protocol era that is spoken with an upstream: which one, why, and how long the choice is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from callers import UPSTREAMS, Caller, Serving, text_of, view
from support.fork_server import ForkServer
from support.odd_http import Response, odd_server, rpc_error
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.errors import UpstreamRefused
from statehold.tools.upstream.negotiation import Peer
from statehold.tools.upstream.service import UpstreamService


async def peer_of(service: UpstreamService) -> Peer:
    """Return the peer of a new connection, checked to answer a call."""
    connection = await service.open(view(), None)
    try:
        assert text_of(await connection.call("inc", {}, Caller())) == "1"
        return connection.peer
    finally:
        await connection.aclose()


@pytest.mark.parametrize("server_era", matrix("both", "modern", "legacy", quick=2))
@pytest.mark.parametrize("configured", matrix("auto", "legacy", "modern", quick=2))
async def test_the_newest_era_is_spoken_over_stdio_or_the_configured_one(
    serving: Serving, server_era: str, configured: str
) -> None:
    service = serving("quick", "--era", server_era, era=configured)
    if server_era != "both" and configured not in ("auto", server_era):
        with pytest.raises(ServiceUnavailable):
            await service.open(view(), None)
        return
    expected_era = server_era if server_era != "both" else configured
    for _ in range(2):
        assert (await peer_of(service)).era == (
            "modern" if expected_era == "auto" else expected_era
        )


async def test_a_caller_of_the_older_protocol_is_served_as_a_direct_client(
    serving: Serving, fork_server: ForkServer
) -> None:
    service = serving("asks_modern", **fork_server.service(UPSTREAMS / "asks_modern.py"))
    await service.tools()
    for older, tool in ((True, "ask_older"), (False, "ask"), (True, "ask_in_text")):
        connection = await service.open(replace(view(), has_older_caller=older), None)
        assert connection.peer.modern != older
        result = await connection.call(tool, {}, Caller(answer=answering, modern=False))
        assert text_of(result) in ("42", "answered")
        await connection.aclose()
    modern_only = serving("quick", "--era", "modern")
    connection = await modern_only.open(replace(view(), has_older_caller=True), None)
    assert connection.peer.modern
    await connection.aclose()


@pytest.mark.parametrize(
    ("mode", "seconds"),
    matrix(
        (("dies-on-unknown-first-message",), 30),
        (("asked", "ignores"), 4),
        (("asked", "hangs"), 8),
        (("asked", "nonsense"), 30),
        (("asked", "junk"), 4),
        (("asked", "confused"), 30),
        (("asked", "refuses"), 30),
    ),
)
async def test_an_old_server_that_a_newer_request_harms_is_spoken_to_in_the_older_era(
    serving: Serving, mode: tuple[str, ...], seconds: float
) -> None:
    service = serving("bad", *mode, connect_seconds=seconds)
    for _ in range(2):
        peer = await peer_of(service)
        assert (peer.era, bool(peer.era_reason)) == ("legacy", True)


@pytest.mark.thorough
async def test_a_slow_server_that_took_both_introductions_is_started_again(
    serving: Serving,
) -> None:
    # It is asked after three seconds.
    peer = await peer_of(serving("bad", "pinned", "3.5", connect_seconds=20))
    assert peer.era == "modern"


@pytest.mark.parametrize(
    ("server_era", "configured", "era"),
    matrix(("both", "auto", "legacy"), ("both", "modern", "modern"), ("modern", "auto", "modern")),
)
async def test_a_shared_process_is_spoken_to_in_the_older_era_if_it_speaks_that(
    serving: Serving, server_era: str, configured: str, era: str
) -> None:
    service = serving("quick", "--era", server_era, scope="shared", era=configured)
    await service.tools()
    assert service.profile is not None
    assert (service.profile.peer.era, (await peer_of(service)).era) == (era, era)


def methods(log: Path) -> list[list[str]]:
    """Return the methods that each process of a server received."""
    processes: dict[int, list[str]] = {}
    for line in map(json.loads, log.read_text().splitlines()):
        processes.setdefault(line["pid"], []).append(line["tool"])
    return list(processes.values())


async def test_the_answer_is_kept_for_the_configuration_until_the_server_has_another_version(
    serving: Serving, tmp_path: Path
) -> None:
    log, version = tmp_path / "log", tmp_path / "version"
    version.write_text("1")

    def service() -> UpstreamService:
        return serving("bad", "asked", "refuses", str(version), "--log", str(log))

    await service().tools()
    for current, first in (
        ("1", "initialize"),
        ("2", "initialize"),
        ("2", "server/discover"),
        ("2", "initialize"),
    ):
        version.write_text(current)
        known = service()
        assert await known.recall()
        await known.refresh()
        assert methods(log)[-1][0] == first
    assert methods(log)[0][:2] == ["server/discover", "initialize"]


@pytest.mark.parametrize(
    ("arguments", "era"),
    matrix(
        (("--stateless",), "modern"),
        ((), "legacy"),
        (("--stateless", "--era", "legacy"), "legacy"),
        (("--era", "modern"), "modern"),
        (("--stateless", "--era", "modern"), "modern"),
        quick=2,
    ),
)
async def test_a_server_that_keeps_a_session_over_http_is_spoken_to_in_the_older_era(
    counter_server: Callable[..., str], arguments: tuple[str, ...], era: str
) -> None:
    config = UpstreamConfig(url=counter_server("http", *arguments), type="http")
    service = UpstreamService("counter", config)
    await service.tools()
    for _ in range(2):
        connection = await service.open(view(), None)
        assert connection.peer.era == era
        await connection.call("inc", {}, Caller())
        await connection.aclose()
    check = await service.check()
    assert (check.era, bool(check.era_reason)) == (era, True)


@pytest.mark.parametrize("era", matrix("auto", "modern"))
@pytest.mark.parametrize("supported", matrix(["2026-07-28"], ["2026-07-28", "2025-11-25"], [], "?"))
async def test_a_newer_server_that_refuses_a_request_and_names_its_version_is_asked_again(
    era: Any, supported: Any
) -> None:
    refused: list[str] = []

    def refuse(message: dict[str, Any]) -> Response | None:
        if message["method"] != "server/discover" or refused:
            return None
        refused.append(message["method"])
        return rpc_error(400, -32022, "No", message["id"], data={"supported": supported})

    with odd_server(era="modern", refuse=refuse) as odd:
        config = UpstreamConfig(url=odd.url, type="http", era=era)
        service = UpstreamService("odd", config)
        if "2026-07-28" not in supported:
            with pytest.raises(ServiceUnavailable):
                await service.open(view(), None)
            return
        await (await service.open(view(), None)).aclose()
        assert odd.count_of("server/discover") == 2
        methods = [method for _, _, method in odd.requests]
        assert [headers.get("mcp-method") for headers in odd.headers] == methods


@pytest.mark.thorough
async def test_a_server_over_sse_is_spoken_to_in_the_older_era(
    counter_server: Callable[..., str],
) -> None:
    service = UpstreamService("counter", UpstreamConfig(url=counter_server("sse")))
    assert (await peer_of(service)).era == "legacy"


async def answering(_method: str, _params: object) -> Any:
    return {"action": "accept", "content": {"answer": "42"}}


async def test_a_tool_that_asks_by_the_newer_revision_asks_or_names_the_era_to_set(
    serving: Serving, fork_server: ForkServer
) -> None:
    program = fork_server.service(UPSTREAMS / "asks_modern.py")
    connection = await serving("asks_modern", **program).open(view(), None)
    assert text_of(await connection.call("ask", {}, Caller(answer=answering))) == "answered"
    await connection.aclose()
    connection = await serving("asks_modern", **program, era="legacy").open(view(), None)
    with pytest.raises(UpstreamRefused) as raised:
        await connection.call("ask", {}, Caller())
    assert 'set era = "modern" in [services.asks_modern]' in raised.value.message
    await connection.aclose()


@pytest.mark.parametrize("tool", matrix("ask_in_text", "ask_older"))
async def test_a_server_whose_tools_ask_by_the_older_revision_is_spoken_to_in_that_from_then_on(
    serving: Serving, fork_server: ForkServer, tool: str
) -> None:
    async def refusal_of(service: UpstreamService) -> str:
        connection = await service.open(view(), None)
        caller = Caller(answer=answering, capabilities={"elicitation": {}})
        try:
            result = await connection.call(tool, {}, caller)
        except UpstreamRefused as error:
            return error.message
        finally:
            await connection.aclose()
        return result.payload["content"][-1]["text"]

    program = fork_server.service(UPSTREAMS / "asks_modern.py")
    service = serving("asks_modern", **program)
    assert "session_restart" in await refusal_of(service)
    assert await refusal_of(service) == "42"
    await service.tools()
    # The next process knows it.
    again = serving("asks_modern", **program)
    await again.recall()
    assert await refusal_of(again) == "42"
    assert 'era = "legacy"' in await refusal_of(serving("asks", **program, era="modern"))
