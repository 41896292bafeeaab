"""One connection over each transport in each era: its messages and its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from callers import NOTHING, UPSTREAMS, Caller, Serving, text_of, view
from support.fork_server import ForkServer
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown
from statehold.sessions.repeats import may_repeat
from statehold.sessions.services import SERVERS_LEVEL
from statehold.tools.upstream import connection as subject
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.errors import UpstreamMisbehaved, UpstreamRefused
from statehold.tools.upstream.service import UpstreamService

Era = Literal["legacy", "modern"]

ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"answer": "42"}},
    "sampling/createMessage": {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "said"},
    },
    "roots/list": {"roots": [{"uri": "file:///r"}]},
}


async def answering(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return ANSWERS[method]


@pytest.fixture(
    params=matrix(
        *("stdio-legacy", "http-modern"),
        *("stdio-modern", "http-legacy", "sse-legacy", "sse-modern"),
        quick=2,
    )
)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def transport(way: str) -> str:
    return way.partition("-")[0]


@pytest.fixture
def era(way: str) -> Era:
    return "modern" if way.endswith("-modern") else "legacy"


@pytest.fixture
def counter(
    transport: str,
    era: Era,
    serving: Serving,
    fork_server: ForkServer,
    counter_server: Callable[..., str],
    tmp_path: Path,
) -> UpstreamService:
    """The counting server on the SDK, over each transport and in each era."""
    log = ("--log", str(tmp_path / "log"))
    if transport == "stdio":
        return serving("counter", **fork_server.service(UPSTREAMS / "counter.py", *log), era=era)
    url = counter_server(transport, *log)
    return UpstreamService("counter", UpstreamConfig(url=url, era=era))


async def test_everything_passes_over_every_transport_in_both_eras(
    counter: UpstreamService, era: Era, transport: str
) -> None:
    tools = {spec.name: spec for spec in await counter.tools()}
    assert may_repeat(tools["get"].definition)
    assert not may_repeat(tools["inc"].definition)
    assert counter.specs["get"] == tools["get"]
    assert "none" not in counter.specs
    connection = await counter.open(view(), None)
    try:
        assert connection.peer.era == era
        caller = Caller(progress=True, log_level="info", answer=answering, meta={"x/y": 1})

        assert text_of(await connection.call("inc", {"n": 2}, Caller())) == "2"
        assert text_of(await connection.call("inc", {}, Caller())) == "3"

        received = (await connection.call("echo", {"n": 2**63 + 1, "f": 1.5}, caller)).payload
        assert received["structuredContent"]["arguments"] == {"n": 2**63 + 1, "f": 1.5}
        assert received["structuredContent"]["_meta"]["x/y"] == 1

        assert (await connection.call("fail", {}, Caller())).is_error

        await connection.call("slow", {"seconds": 0.01, "steps": 4}, caller)
        assert [step for step, _, _ in caller.progress_reports] == [1, 2, 3, 4]
        assert caller.progress_reports[0][1:] == (4, "step 1")

        await connection.call("log", {"text": "heard"}, caller)
        await connection.call("log", {"text": "too low", "level": "debug"}, caller)
        assert [message["data"] for message in caller.logs] == ["heard"]

        assert "42" in text_of(await connection.call("ask", {}, caller))
        assert "said" in text_of(await connection.call("sample", {}, caller))
        assert [method for method, _ in caller.questions] == [
            "elicitation/create",
            "sampling/createMessage",
        ]

        big = await connection.call("big", {"kib": 2048}, Caller())
        assert len(text_of(big)) == 2048 * 1024

        result = await connection.request("resources/read", {"uri": "counter://value"}, Caller())
        assert result["contents"][0]["text"] == "3"

        with pytest.raises(UpstreamRefused) as raised:
            await connection.call("no_such_tool", {}, Caller())
        assert raised.value.rpc_code == -32602
        assert not connection.lost.is_set()
    finally:
        await connection.aclose()
    with pytest.raises(ConnectionLost):
        await connection.call("get", {}, Caller())
    assert not connection.lost.is_set()


async def test_a_cancelled_call_is_cancelled_upstream_and_the_connection_goes_on(
    counter: UpstreamService, tmp_path: Path
) -> None:
    connection = await counter.open(view(), None)
    try:
        call_started = anyio.Event()

        class Watching(Caller):
            async def progress(
                self, progress: float, total: float | None, message: str | None
            ) -> None:
                call_started.set()

        async with anyio.create_task_group() as tasks:
            arguments = {"seconds": 60, "steps": 6000}
            tasks.start_soon(connection.call, "slow", arguments, Watching(progress=True))
            with anyio.fail_after(10):
                await call_started.wait()
            tasks.cancel_scope.cancel()
        await until(lambda: "cancelled" in (tmp_path / "log").read_text())
        assert text_of(await connection.call("inc", {}, Caller())) == "1"
    finally:
        await connection.aclose()


async def test_a_large_result_is_searched_in_a_thread(
    serving: Serving, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate, threads = subject.validate_result, list[int]()

    def spy(*args: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return validate(*args, **options)

    monkeypatch.setattr(subject, "validate_result", spy)
    service = serving("counter", **fork_server.service(UPSTREAMS / "counter.py"), era="legacy")
    connection = await service.open(view(), None)
    try:
        await connection.call("get", {}, Caller())
        await connection.call("big", {"kib": 2048}, Caller())
    finally:
        await connection.aclose()
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


async def test_a_crash_during_a_call_is_reported_to_its_callers(counter: UpstreamService) -> None:
    connection = await counter.open(view(), None)
    outcomes: list[type[BaseException]] = []

    async def call(tool: str, arguments: dict[str, Any]) -> None:
        try:
            await connection.call(tool, arguments, Caller())
        except (OutcomeUnknown, ConnectionLost) as error:
            outcomes.append(type(error))

    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "slow", {"seconds": 60})
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(call, "crash", NOTHING)
            await connection.lost.wait()
        assert outcomes == [OutcomeUnknown, OutcomeUnknown]
        assert connection.reason
        with pytest.raises(ConnectionLost):
            await connection.call("get", {}, Caller())
    finally:
        await connection.aclose()


async def test_closing_ends_calls_in_flight_and_is_no_loss(counter: UpstreamService) -> None:
    connection = await counter.open(view(), None)
    call_ended = anyio.Event()

    async def call() -> None:
        with pytest.raises(OutcomeUnknown):
            await connection.call("slow", {"seconds": 60}, Caller())
        call_ended.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await connection.aclose()
            await call_ended.wait()
    await connection.aclose()
    assert not connection.lost.is_set()


async def test_a_connection_may_be_opened_inside_one_scope_and_closed_in_another_task(
    counter: UpstreamService,
) -> None:
    with anyio.fail_after(30):
        connection = await counter.open(view(), None)
    assert text_of(await connection.call("inc", {}, Caller())) == "1"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.aclose)


async def test_a_modern_upstream_gets_the_capabilities_of_each_caller(serving: Serving) -> None:
    connection = await serving("quick", "--era", "modern").open(view(), None)
    try:
        capabilities: dict[str, Any] = {"sampling": {}, "extensions": {"u/i": {}}}
        caller = Caller(capabilities=capabilities, log_level="warning")
        received = (await connection.call("echo", {}, caller)).payload["structuredContent"]["_meta"]
        prefix = "io.modelcontextprotocol/"
        assert received[f"{prefix}clientCapabilities"] == capabilities
        assert received[f"{prefix}logLevel"] == "warning"
        assert received[f"{prefix}clientInfo"]["name"] == "statehold"
    finally:
        await connection.aclose()


LEFT = SERVERS_LEVEL


@pytest.mark.parametrize(
    ("callers", "expected"),
    matrix(
        ([LEFT, None, "error", LEFT, "info"], ["own", "own", "debug", "debug", "debug"]),
        ([LEFT, LEFT], ["own", "own"]),
        ([None, "error", None], ["own", "error", "error"]),
        (["info", "error", "debug"], ["info", "info", "debug"]),
        (["error", LEFT, "error"], ["error", "debug", "debug"]),
    ),
)
async def test_an_older_upstream_keeps_its_log_level_until_a_caller_sets_one(
    serving: Serving, callers: list[str | None], expected: list[str]
) -> None:
    connection = await serving("asking", "--era", "legacy").open(view(), None)
    try:
        levels = [
            text_of(await connection.call("log", {"text": "said"}, Caller(log_level=level)))
            for level in callers
        ]
    finally:
        await connection.aclose()
    assert levels == expected


@pytest.mark.parametrize("level", matrix(LEFT, "error", None))
async def test_a_modern_upstream_logs_to_a_caller_that_leaves_the_level_to_it(
    serving: Serving, level: str | None
) -> None:
    connection = await serving("quick", "--era", "modern").open(view(), None)
    try:
        caller = Caller(log_level=level)
        received = (await connection.call("echo", {}, caller)).payload["structuredContent"]["_meta"]
        expected = "debug" if level == LEFT else level
        assert received.get("io.modelcontextprotocol/logLevel") == expected
    finally:
        await connection.aclose()


async def test_progress_of_many_calls_at_once_reaches_each_in_order(serving: Serving) -> None:
    connection = await serving("quick").open(view(), None)
    callers = [Caller(progress=True) for _ in range(20)]
    try:
        async with anyio.create_task_group() as tasks:
            for caller in callers:
                tasks.start_soon(connection.call, "slow", {"seconds": 0.05}, caller)
    finally:
        await connection.aclose()
    for caller in callers:
        assert [step for step, _, _ in caller.progress_reports] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("tool", "good"),
    matrix(
        ("no_content", False),
        ("unknown_block", True),
        ("wrong_id", True),
        ("not_json", True),
        ("too_deep", False),
        ("unasked_request", True),
        ("null_content", False),
        ("text_result", False),
        ("broken_block", False),
        ("list_structured", True),
        ("twice", True),
        ("stray_progress", True),
        ("unknown_notification", True),
        ("too_long_a_number", False),
        quick=6,
    ),
)
async def test_a_lie_costs_its_own_call_at_most(serving: Serving, tool: str, good: bool) -> None:
    connection = await serving("bad", "lying").open(view(), None)
    try:
        with anyio.fail_after(10):
            if good:
                assert (await connection.call(tool, {}, Caller(progress=True))).payload[
                    "content"
                ] is not None
            else:
                with pytest.raises((UpstreamMisbehaved, UpstreamRefused)):
                    await connection.call(tool, {}, Caller())
            assert text_of(await connection.call("get", {}, Caller())) == "0"
    finally:
        await connection.aclose()


@pytest.mark.fault
async def test_a_kill_9_is_reported_with_the_signal_and_the_last_output(serving: Serving) -> None:
    service = serving("bad", "flood-stderr", "1", env={"MY_TOKEN": "jjjjjjjj"})
    connection = await service.open(view(), None)
    try:
        pid = (await connection.call("get", {}, Caller())).payload["structuredContent"]["pid"]
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:

                async def hang() -> None:
                    with pytest.raises(OutcomeUnknown) as unknown:
                        await connection.call("hang", {}, Caller())
                    assert "SIGKILL" in unknown.value.message

                tasks.start_soon(hang)
                await anyio.wait_all_tasks_blocked()
                os.kill(pid, signal.SIGKILL)
        assert connection.reason is not None
        assert "was killed by SIGKILL" in connection.reason
        assert "jjjjjjjj" not in connection.reason
        assert len(connection.reason) <= 2048
    finally:
        await connection.aclose()
