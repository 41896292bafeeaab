"""Upstreams that hang, crash, flood and lie: each gets a clear error, and nothing is left of it."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import psutil
import pytest
from callers import NOTHING, Caller, Serving, text_of, view
from support.engine import engine
from support.selection import matrix

from statehold.sessions.errors import (
    CallTimedOut,
    ConnectionLost,
    OutcomeUnknown,
    ServiceUnavailable,
)
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService

pytestmark = pytest.mark.fault


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The event loop of production; the other tests run on that of asyncio."""
    return "asyncio", {"use_uvloop": True}


@pytest.mark.parametrize(
    ("mode", "reason"),
    matrix(
        (["exit-at-start"], "exited with code 7; it last said: bad: API_KEY is not set"),
        (["hang-at-start"], "did not answer within"),
        (["slow-start", "60"], "did not answer within"),
        (["flood-at-start", "bytes", "64"], "without a newline"),
    ),
)
async def test_a_server_that_does_not_start_is_unavailable_and_leaves_nothing(
    serving: Serving, mode: list[str], reason: str, leaks: Any
) -> None:
    service = serving("bad", *mode, connect_seconds=0.5 if reason.startswith("did") else 30)
    await serving("quick").tools()
    leaks = leaks.baseline()
    with pytest.raises(ServiceUnavailable) as unavailable:
        await service.open(view(), None)
    assert reason in unavailable.value.message
    await leaks.check()


async def test_junk_lines_before_the_first_answer_do_no_harm(serving: Serving) -> None:
    connection = await serving("bad", "flood-at-start", "lines", "64").open(view(), None)
    assert text_of(await connection.call("inc", {}, Caller())) == "1"
    await connection.aclose()


@pytest.mark.parametrize("mode", matrix("bom", "glued"))
async def test_a_byte_order_mark_and_text_around_messages_do_no_harm(
    serving: Serving, mode: str
) -> None:
    connection = await serving("bad", mode).open(view(), None)
    with anyio.fail_after(60):
        assert text_of(await connection.call("inc", {}, Caller())) == "1"
        assert text_of(await connection.call("inc", {}, Caller())) == "2"
    await connection.aclose()


@pytest.mark.parametrize(
    "text",
    matrix("Loading ... ", "=>", "ready:\t", '{"level": 30} ', '{"id": 9} ', "{ "),
)
async def test_an_answer_behind_a_text_that_ends_with_a_blank_is_found(
    serving: Serving, text: str
) -> None:
    connection = await serving("bad", "prompting", text).open(view(), None)
    with anyio.fail_after(60):
        assert text_of(await connection.call("inc", {}, Caller())) == "1"
        assert text_of(await connection.call("inc", {}, Caller())) == "2"
    assert connection.rpc.noise()
    await connection.aclose()


@pytest.mark.parametrize("stderr", matrix("", "stderr says more"))
async def test_a_server_that_does_not_answer_is_told_by_its_noise(
    serving: Serving, stderr: str
) -> None:
    seconds = {"connect_seconds": 30, "first_connect_seconds": 5}
    service = serving("bad", "talks-at-start", stderr, **seconds)
    with pytest.raises(ServiceUnavailable) as raised:
        await service.tools()
    words = "that is not MCP; it last said: Welcome to the server Enter your API key:"
    assert words in raised.value.message
    assert "download" not in raised.value.message
    assert stderr in raised.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    matrix(
        ("Enter the code: ", "Enter the code:"),
        ("Ready.\n", "Ready"),
        ('[proxy] {"result": 1}\n', '[proxy] {"result": 1}'),
        ("l\0o\0s\0t\0\n", "lost (in UTF-16 instead of UTF-8)"),
    ),
)
async def test_a_text_in_place_of_an_answer_is_quoted_when_the_call_took_too_long(
    serving: Serving, text: str, words: str
) -> None:
    service: Any = serving("bad", "muttering", text.replace("\0", "NUL"), call_seconds=0.5)
    async with engine(service) as node:
        session = await node.create()
        with anyio.fail_after(60), pytest.raises(CallTimedOut) as raised:
            await node.call(session.id, "inc", service="bad")
        assert raised.value.message.endswith(f"that is not MCP; it last said: {words}.")


async def test_a_call_that_takes_too_long_in_silence_quotes_nothing(serving: Serving) -> None:
    service: Any = serving("quick", call_seconds=0.3)
    async with engine(service) as node:
        session = await node.create()
        with anyio.fail_after(60), pytest.raises(CallTimedOut) as raised:
            await node.call(session.id, "hang", service="quick")
        assert "said" not in raised.value.message


async def test_a_slow_server_is_waited_for(serving: Serving) -> None:
    connection = await serving("bad", "slow-start", "0.3").open(view(), None)
    assert text_of(await connection.call("inc", {}, Caller())) == "1"
    await connection.aclose()


async def test_a_flood_without_a_newline_ends_its_connection_and_costs_bounded_memory(
    serving: Serving,
) -> None:
    connection = await serving("bad", "flood-stdout", "bytes", "1024").open(view(), None)
    before = psutil.Process().memory_info().rss
    with anyio.fail_after(30), pytest.raises(OutcomeUnknown):
        await connection.call("flood", NOTHING, Caller())
    assert connection.reason is not None
    assert "without a newline" in connection.reason
    assert psutil.Process().memory_info().rss - before < 64 * 2**20
    await connection.aclose()


@pytest.mark.thorough
async def test_a_flood_of_lines_and_one_on_stderr_are_survived_in_bounded_memory(
    serving: Serving,
) -> None:
    lines = await serving("bad", "flood-stdout", "lines", "128").open(view("a"), None)
    errors = await serving("bad", "flood-stderr", "128").open(view("b"), None)
    quiet = await serving("quick").open(view("c"), None)
    before = psutil.Process().memory_info().rss
    try:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lines.call, "flood", NOTHING, Caller())
                tasks.start_soon(errors.call, "flood", NOTHING, Caller())
                for number in range(1, 50):
                    assert text_of(await quiet.call("inc", {}, Caller())) == str(number)
        assert psutil.Process().memory_info().rss - before < 64 * 2**20
        assert text_of(await lines.call("inc", {}, Caller())) == "1"
    finally:
        for connection in (lines, errors, quiet):
            await connection.aclose()


async def test_a_server_that_answers_no_call_is_cancelled_and_closed_in_time(
    serving: Serving,
) -> None:
    connection = await serving("bad", "mute").open(view(), None)
    with anyio.move_on_after(0.1) as scope:
        await connection.call("get", {}, Caller())
    assert scope.cancelled_caught
    with anyio.fail_after(5):
        await connection.aclose()


async def test_a_server_that_crashes_again_and_again_is_reported_each_time(
    serving: Serving,
) -> None:
    service = serving("bad", "crash-loop")
    for _ in range(3):
        connection = await service.open(view(), None)
        with pytest.raises((OutcomeUnknown, ConnectionLost)):
            await connection.call("get", {}, Caller())
        with anyio.fail_after(5):
            await connection.lost.wait()
        assert (
            connection.reason == "the process exited with code 6; it last said: bad: crashing again"
        )
        await connection.aclose()


async def test_a_stubborn_family_is_killed_within_the_bound(serving: Serving) -> None:
    service = serving("bad", "stubborn")
    connection = await service.open(view(), None)
    family = (await connection.call("family", {}, Caller())).payload["structuredContent"]
    with anyio.fail_after(6):
        await connection.aclose()
    for pid in family.values():
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("command", ["no-such-program", "/dev/null"])
async def test_a_command_that_cannot_run_says_why_without_a_path(command: str) -> None:
    service = UpstreamService("broken", UpstreamConfig(command=command))
    with pytest.raises(ServiceUnavailable) as unavailable:
        await service.open(view(), None)
    assert unavailable.value.message.startswith("broken could not be started: ")
    assert "/dev" not in unavailable.value.message


async def test_a_working_folder_that_is_not_there_says_so() -> None:
    config = UpstreamConfig(command=sys.executable, cwd="/no/such/folder")
    with pytest.raises(ServiceUnavailable) as unavailable:
        await UpstreamService("broken", config).open(view(), None)
    assert "its working folder cannot be used" in unavailable.value.message


async def test_many_openings_at_once_probe_once(serving: Serving, tmp_path: Any) -> None:
    service = serving("quick")
    probes = 0
    probe = service._probe  # pyright: ignore[reportPrivateUsage]

    async def count_probe() -> None:
        nonlocal probes
        probes += 1
        await probe()

    service._probe = count_probe  # pyright: ignore[reportPrivateUsage]
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(service.tools)
    assert probes == 1


@pytest.mark.thorough
async def test_an_opening_that_is_cancelled_at_any_moment_leaves_nothing(
    serving: Serving, leaks: Any
) -> None:
    service = serving("quick")
    await service.tools()
    leaks = leaks.baseline()
    for moment in range(12):
        with anyio.move_on_after(moment * 0.01):
            connection = await service.open(view(), None)
            await connection.aclose()
    await leaks.check()


async def test_the_first_start_has_its_own_time_and_its_error_the_remedy(
    serving: Serving,
) -> None:
    service = serving("bad", "hang-at-start", connect_seconds=30, first_connect_seconds=0.5)
    with pytest.raises(ServiceUnavailable, match="raise first_connect_seconds in") as raised:
        await service.tools()
    assert "did not answer within 0.45 seconds" in raised.value.message


async def test_a_later_start_has_the_usual_time(serving: Serving) -> None:
    service = serving("quick", connect_seconds=20, first_connect_seconds=15)
    assert service.connect_seconds == 15
    await service.tools()
    assert service.connect_seconds == 20
