"""Messages from upstream to client during a call: progress, logs, questions and cancellation, in all four pairings of
eras.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.gateway_process import (
    ASKS_SESSION,
    JSON,
    Way,
    code_of,
    count,
    meta_of,
    opened_session,
    service,
    structured,
    text_of,
)
from support.selection import matrix, matrix_of
from support.waiting import until

from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.open_calls import OpenCalls
from statehold.server.protocol.request_checks import Requester
from statehold.server.protocol.server import StateholdServer

EACH = [("http", "modern"), ("sse", "legacy"), ("stdio", "modern")]
WAYS = matrix_of(EACH)
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture(scope="module")
def upstream_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upstream") / "calls.jsonl"


@pytest.fixture(scope="module")
def settings(upstream_log: Path) -> JSON:
    log = str(upstream_log)
    return {
        "services": {
            "legacy": service("asking", "--era", "legacy", "--log", log, prefix="legacy_"),
            "modern": service("asking", "--era", "modern", "--log", log, prefix="modern_"),
        }
    }


@dataclass
class Person:
    """The user of a client: the answers to give, and the questions and messages that came."""

    answer: str = "42"
    asked: list[Any] = field(default_factory=list[Any])
    told: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    was_told: anyio.Event = field(default_factory=anyio.Event)
    arrived: anyio.Event = field(default_factory=anyio.Event)
    answering: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.answering.set()

    def reset(self) -> None:
        self.__init__()

    async def elicit(self, _: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        self.arrived.set()
        await self.answering.wait()
        return types.ElicitResult(action="accept", content={"answer": self.answer})

    async def sample(
        self, _: object, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.asked.append(params.max_tokens)
        content = types.TextContent(text=self.answer)
        return types.CreateMessageResult(role="assistant", content=content, model="a person")

    async def roots(self, _: object) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///here", name="here")])  # pyright: ignore[reportArgumentType]

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.told.append((params.level, params.data))
        self.was_told.set()

    @property
    def callbacks(self) -> JSON:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
            "logging_callback": self.log,
        }


@pytest.fixture(scope="module")
def the_person() -> Person:
    return Person()


@pytest.fixture
def person(the_person: Person) -> Person:
    the_person.reset()
    return the_person


@pytest.fixture(scope="module")
async def asked(way: Way, the_person: Person, gateway: Gateway) -> AsyncGenerator[Client]:
    """A connection with a user who can be asked. It ends before the gateway does."""
    async with way.connect(**the_person.callbacks) as connected:
        yield connected


@pytest.fixture(params=matrix("legacy", "modern"))
def era(request: pytest.FixtureRequest) -> str:
    """The era of the upstream."""
    return request.param


@pytest.fixture(scope="module")
async def shared(asked: Client) -> str:
    """A session that all tests of one way share, so that its upstreams are started once."""
    return await opened_session(asked)


# Questions.


@pytest.mark.parametrize("tool", ["ask", "sample", "roots"])
async def test_a_question_reaches_the_caller_and_the_answer_the_tool(
    asked: Client, person: Person, shared: str, era: str, tool: str
) -> None:
    with anyio.fail_after(20):
        result = await asked.call_tool(f"{era}_{tool}", {"session_id": shared}, meta=ASKS_SESSION)
    answer = json.loads(text_of(result))
    if tool == "ask":
        assert person.asked == [f"{era} asks: What is the answer?"]
        assert (answer["action"], answer["content"]) == ("accept", {"answer": "42"})
    elif tool == "sample":
        assert person.asked == [64]
        assert answer["content"] == {"type": "text", "text": "42"}
    else:
        assert answer["roots"][0]["uri"] == "file:///here"
    assert meta_of(result)["statehold/session"]["id"] == shared
    assert meta_of(result)["statehold/session"]["status"] == "idle"


async def test_a_tool_may_ask_twice(asked: Client, person: Person, shared: str, era: str) -> None:
    with anyio.fail_after(20):
        result = await asked.call_tool(f"{era}_ask_twice", {"session_id": shared})
    assert person.asked == [f"{era} asks: What is the answer?"] * 2
    assert text_of(result).count("42") == (2 if era == "legacy" else 1)


async def test_the_result_after_a_question_reports_a_replaced_connection(
    memory: Way, era: str
) -> None:
    async with memory.connect(**Person().callbacks) as client:
        session = await opened_session(client)
        assert await count(client, session, f"{era}_inc") == 1
        await client.call_tool(f"{era}_crash", {"session_id": session})
        with anyio.fail_after(20):
            result = await client.call_tool(f"{era}_ask", {"session_id": session})
    answer = json.loads(text_of(result))
    assert "generation 1 to 2" in answer["statehold_notice"]
    assert answer["content"] == {"answer": "42"}


async def test_a_client_without_elicitation_is_not_asked(
    way: Way, client: Client, era: str
) -> None:
    session = await opened_session(client)
    call = client.call_tool(f"{era}_ask", {"session_id": session})
    if way.modern and era == "modern":
        with pytest.raises(MCPError, match="cannot answer elicitation/create"):
            await call
    else:
        text = text_of(await call)
        assert "cannot answer" in text
    assert await count(client, session, f"{era}_inc") == 1


async def test_a_question_reaches_only_the_client_that_called(way: Way, era: str) -> None:
    """A legacy upstream does not name the call that asks: of several first questions some are refused, later none."""
    if way.transport == "stdio":
        pytest.skip("one process, one client")
    people = [Person(answer=f"answer {n}") for n in range(3)]
    received: list[list[str]] = [[] for _ in people]

    async def one(number: int, session: str) -> None:
        person = people[number]
        async with way.connect(**person.callbacks) as mine:
            result = await mine.call_tool(f"{era}_ask", {"session_id": session})
            answer = json.loads(text_of(result))
            received[number].append(
                answer["content"]["answer"] if "content" in answer else "refused"
            )

    async with way.connect() as other:
        session = await opened_session(other)
    for _ in range(2):
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(len(people)):
                    tasks.start_soon(one, number, session)
    for person, answers in zip(people, received, strict=True):
        assert answers[0] in (person.answer, "refused")
        assert answers[1] == person.answer
        if era == "modern":
            assert answers[0] == person.answer


# Progress and log messages.


async def test_progress_arrives_in_order(client: Client, era: str) -> None:
    got: list[tuple[float, float | None]] = []
    session = await opened_session(client)

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        got.append((progress, total))

    with anyio.fail_after(20):
        result = await client.call_tool(
            f"{era}_slow", {"session_id": session, "seconds": 0.05}, progress_callback=progress
        )
    assert text_of(result) == "done"
    assert got == [(float(n), 5.0) for n in range(1, 6)]


async def test_log_messages_arrive_at_the_level_that_was_asked_for(
    way: Way, asked: Client, person: Person, shared: str, era: str
) -> None:
    async def log(level: str) -> None:
        meta: Any = {"io.modelcontextprotocol/logLevel": "warning"} if way.modern else None
        arguments = {"session_id": shared, "level": level, "text": f"{level} of {era}"}
        await asked.call_tool(f"{era}_log", arguments, meta=meta)

    if not way.modern:
        await asked.set_logging_level("warning")  # pyright: ignore[reportDeprecated]
    await log("info")
    await log("error")
    with anyio.fail_after(10):
        await person.was_told.wait()
    assert person.told == [("error", f"error of {era}")]


async def test_a_modern_client_that_asks_for_no_log_gets_none(
    way: Way, asked: Client, person: Person, shared: str, era: str
) -> None:
    if not way.modern:
        pytest.skip("a legacy client is told unless it says otherwise")
    await asked.call_tool(f"{era}_log", {"session_id": shared, "level": "error", "text": "?"})
    await asked.call_tool(f"{era}_get", {"session_id": shared})
    assert person.told == []


async def test_clients_of_one_session_cause_the_log_level_upstream_that_they_set(way: Way) -> None:
    """A client that sets none leaves it to the server, as it does directly, and gets all messages."""
    if way.transport == "stdio":
        pytest.skip("one process, one client")
    silent, setting = Person(), Person()
    async with (
        way.connect(**silent.callbacks) as one,
        way.connect(**setting.callbacks) as other,
    ):
        session = await opened_session(one)

        async def log(client: Client, level: str, wanted: str | None = None) -> str:
            meta: Any = {"io.modelcontextprotocol/logLevel": wanted} if wanted else None
            arguments = {"session_id": session, "level": level, "text": level}
            return text_of(await client.call_tool("legacy_log", arguments, meta=meta))

        assert await log(one, "info") == "own"
        if not way.modern:
            await other.set_logging_level("error")  # pyright: ignore[reportDeprecated]
        # A modern client that sets no level wants no messages, so nothing is left to the server.
        wanted = "error" if way.modern else None
        lowest = "error" if way.modern else "debug"
        assert await log(other, "error", wanted) == lowest
        assert await log(other, "info", wanted) == lowest
        assert await log(one, "debug") == lowest
    assert silent.told == ([] if way.modern else [("info", "info"), ("debug", "debug")])
    assert setting.told == [("error", "error")]


# Cancellation.


async def upstream_has(log: Path, marker: str, event: str | None = None) -> None:
    """Wait until the upstream has logged the call with a marker, or an event of it."""

    def is_logged() -> bool:
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        return any(e.get("event") == event and marker in str(e["arguments"]) for e in entries)

    await until(is_logged)


async def test_a_cancelled_call_is_cancelled_upstream_and_the_connection_stays(
    way: Way, client: Client, upstream_log: Path, era: str
) -> None:
    session = await opened_session(client)
    assert await count(client, session, f"{era}_inc") == 1
    marker = f"cancel {way.transport} {way.era} {era}"
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def hang() -> None:
                await client.call_tool(f"{era}_hang", {"session_id": session, "marker": marker})

            tasks.start_soon(hang)
            await upstream_has(upstream_log, marker)
            tasks.cancel_scope.cancel()
        await upstream_has(upstream_log, marker, "cancelled")
        result = await client.call_tool(f"{era}_inc", {"session_id": session})
        assert structured(result)["count"] == 2

        async def idle_info() -> JSON | None:
            info = structured(await client.call_tool("session_info", {"session_id": session}))
            return None if info["in_flight"] else info

        info = await until(idle_info)
    assert info is not None
    assert (info["status"], info["generation"]) == ("idle", 1)


# Parked calls: a question of a legacy upstream to a 2026-07-28 client.


class ParkedCall:
    """A call that was answered with a question, to be continued by hand."""

    def __init__(self, client: Client, session: str, tool: str = "legacy_ask") -> None:
        self.client = client
        self.session = session
        self.tool = tool
        self.asked = types.InputRequiredResult(request_state="nothing yet")

    async def start(self) -> ParkedCall:
        result = await self._send(None, None)
        assert isinstance(result, types.InputRequiredResult)
        self.asked = result
        return self

    @property
    def state(self) -> str:
        assert self.asked.request_state is not None
        return self.asked.request_state

    async def answer(
        self,
        client: Client | None = None,
        *,
        session: str | None = None,
        tool: str | None = None,
        state: str | None = None,
    ) -> Any:
        result = types.ElicitResult(action="accept", content={"answer": "late"})
        answers: Any = dict.fromkeys(self.asked.input_requests or {}, result)
        parked = ParkedCall(client or self.client, session or self.session, tool or self.tool)
        return await parked._send(answers, state or self.state)

    async def answer_in_vain(self, **answer: str) -> None:
        """Check that an answer is refused with a JSON-RPC error, as SEP-2322 wants it for an altered state."""
        with pytest.raises(MCPError, match="has ended") as error_info:
            await self.answer(None, **answer)
        assert error_info.value.error.code == types.INVALID_PARAMS
        assert error_info.value.error.data["code"] == "invalid_argument"

    async def _send(self, answers: Any, state: str | None) -> Any:
        return await self.client.session.call_tool(
            self.tool,
            {"session_id": self.session},
            input_responses=answers,
            request_state=state,
            allow_input_required=True,
            meta=ASKS_SESSION,
        )


@pytest.fixture
async def modern(memory: Way, the_person: Person) -> AsyncGenerator[Client]:
    if not memory.modern:
        pytest.skip("a legacy client is asked while its call runs")
    async with memory.connect(**the_person.callbacks) as connected:
        yield connected


async def test_a_parked_call_can_be_continued_over_another_connection(
    memory: Way, modern: Client, the_person: Person
) -> None:
    parked = await ParkedCall(modern, await opened_session(modern)).start()
    async with memory.connect(**the_person.callbacks) as other:
        result = await parked.answer(other)
    assert json.loads(text_of(result))["content"] == {"answer": "late"}


async def test_a_session_with_a_parked_call_is_busy_and_stays_as_it_is(modern: Client) -> None:
    session = await opened_session(modern)
    parked = await ParkedCall(modern, session).start()
    info = structured(await modern.call_tool("session_info", {"session_id": session}))
    assert (info["status"], info["in_flight"]) == ("active", 1)
    refused = await modern.call_tool("session_pause", {"session_id": session})
    assert code_of(refused) == "session_busy"
    assert json.loads(text_of(await parked.answer()))["content"] == {"answer": "late"}
    paused = structured(await modern.call_tool("session_pause", {"session_id": session}))
    assert paused["status"] == "paused"


async def test_a_parked_call_is_not_taken_up_by_another_session_tool_or_state(
    modern: Client,
) -> None:
    session, other = await opened_session(modern), await opened_session(modern)
    parked = await ParkedCall(modern, session).start()
    await parked.answer_in_vain(session=other)
    await parked.answer_in_vain(tool="legacy_ask_twice")
    await parked.answer_in_vain(state="park:unknown")
    await parked.answer_in_vain(state=parked.state[:-1])
    assert json.loads(text_of(await parked.answer()))["content"] == {"answer": "late"}
    await parked.answer_in_vain()


@pytest.mark.parametrize(
    "malformed",
    matrix('["KEY"]', '{"KEY": 5}', '"KEY"', "5", '{"KEY": null}', '{"KEY": []}', quick=2),
)
async def test_malformed_answers_leave_a_parked_call_waiting(
    mcp_server: StateholdServer, modern: Client, malformed: str
) -> None:
    session = await opened_session(modern)
    parked = await ParkedCall(modern, session).start()
    [key] = parked.asked.input_requests or {}
    waiting = len(mcp_server.open_calls)
    ctx: Any = SimpleNamespace(
        method="tools/call",
        params={
            "name": "legacy_ask",
            "arguments": {"session_id": session},
            "requestState": parked.state,
            "inputResponses": json.loads(malformed.replace("KEY", key)),
        },
        protocol_version="2026-07-28",
        request=None,
        lifespan_context={},
        session=SimpleNamespace(client_capabilities=types.ClientCapabilities()),
    )
    refused = await mcp_server.call(ctx)
    assert refused["_meta"]["statehold/error"]["code"] == "invalid_argument"
    assert len(mcp_server.open_calls) == waiting
    assert json.loads(text_of(await parked.answer()))["content"] == {"answer": "late"}


async def test_a_parked_call_is_continued_by_the_name_and_the_id_of_its_session(
    modern: Client,
) -> None:
    session = await opened_session(modern, name="asked by name")
    for first, then in ((session, "asked by name"), ("asked by name", session)):
        parked = await ParkedCall(modern, first).start()
        result = await parked.answer(session=then)
        assert json.loads(text_of(result))["content"] == {"answer": "late"}


async def test_a_parked_call_ends_with_its_session(modern: Client) -> None:
    session = await opened_session(modern)
    parked = await ParkedCall(modern, session).start()
    closed = await modern.call_tool("session_close", {"session_id": session, "force": True})
    assert structured(closed)["status"] == "closed"
    await parked.answer_in_vain()


async def test_an_unknown_request_state_reaches_the_upstream_without_our_mark(
    modern: Client,
) -> None:
    """A state of the upstream comes back to it without our mark; any other state does not reach it."""
    session = await opened_session(modern)
    parked = await ParkedCall(modern, session, "modern_ask").start()
    assert parked.state == "up:asked"
    result = await parked.answer()
    assert json.loads(text_of(result))["content"] == {"answer": "late"}
    result = await parked.answer(state="made up")
    assert json.loads(text_of(result))["content"] == {"answer": "late"}


async def test_an_unanswered_question_expires(gateway: Gateway) -> None:
    mcp_server = StateholdServer(gateway, version="0")
    mcp_server.open_calls = OpenCalls(gateway, Requester(None, auto_session=False), ttl=0.05)
    async with Client(mcp_server, cache=None, **Person().callbacks) as client:
        session = await opened_session(client)
        parked = await ParkedCall(client, session).start()
        with anyio.fail_after(10):
            await next(s for s in gateway.registry.owned_sessions() if s.id == session).quiet.wait()
        assert len(mcp_server.open_calls) == 0
        await parked.answer_in_vain()
        assert await count(client, session, "legacy_inc") == 1
