"""A server process that is killed again and again: no call with an operation id runs twice, and each has one answer."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import anyio
import httpx2
import pytest
from support.gateway_process import Running, service, serving, toml
from support.runs import runs, wait_for_call
from support.selection import matrix

from statehold.sessions.json_codec import JSON

AT_ONCE = 5
HANGING = "hanging"
"""The call that is surely in flight when the server is killed first; of the others it depends."""

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("fork_server")]

VERSION = "2026-07-28"
INFO = "io.modelcontextprotocol"


class Killed:
    """A `statehold serve` on one data folder that is killed at random moments and started again."""

    def __init__(self, folder: Path, stack: ExitStack, *, linger: int = 60) -> None:
        self._folder = folder
        self._stack = stack
        self.log = folder / "calls.jsonl"
        self._config = folder / "statehold.toml"
        services = {"quick": service("quick", "--log", str(self.log))}
        keeper = {"linger_seconds": linger}
        self._config.write_text(toml({"keeper": keeper, "services": services}))
        self.running = self.start()
        self.back = anyio.Event()

    def start(self) -> Running:
        self._stack.close()
        return self._stack.enter_context(serving(self._config, self._folder / "data"))

    async def kill(self) -> None:
        self.running.process.kill()
        await anyio.to_thread.run_sync(self.running.process.wait)
        self.running = await anyio.to_thread.run_sync(self.start)
        self.back.set()
        self.back = anyio.Event()

    async def call(self, http: httpx2.AsyncClient, tool: str, arguments: JSON, meta: JSON) -> JSON:
        """Call a tool; repeat the same call while its server dies, until there is an answer."""
        known: JSON = {f"{INFO}/protocolVersion": VERSION, f"{INFO}/clientCapabilities": {}}
        client = {f"{INFO}/clientInfo": {"name": "tests", "version": "1"}}
        params = {"name": tool, "arguments": arguments, "_meta": {**known, **client, **meta}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        while True:
            back = self.back
            try:
                url = f"{self.running.url}/mcp"
                response = await http.post(url, json=body, headers=headers, timeout=30)
            except httpx2.TransportError:
                with anyio.fail_after(60):
                    await back.wait()
                continue
            assert response.status_code == 200, response.text
            return response.json()["result"]


def outcome(result: JSON) -> int | str:
    """Return the count that a call returned, -1 if it counts nothing, or the code of its error."""
    if result.get("isError"):
        return result["_meta"]["statehold/error"]["code"]
    return result.get("structuredContent", {"count": -1})["count"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("linger", "calls", "kills"),
    matrix(
        pytest.param(0, 30, 1, id="one kill"),
        pytest.param(0, 120, 4, id="without a keeper"),
        pytest.param(60, 120, 4, id="with a keeper"),
    ),
)
async def test_no_operation_runs_twice_however_often_the_server_is_killed(
    tmp_path: Path, linger: int, calls: int, kills: int
) -> None:
    """With a keeper, every operation has its answer, too."""
    tool_in_flight = "slow" if linger else "hang"
    chance = random.Random(20260729)
    moments = sorted(chance.sample(range(5, calls), kills))
    outcomes: dict[str, int | str] = {}
    left = iter(range(calls))
    with ExitStack() as stack:
        server = Killed(tmp_path, stack, linger=linger)
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            session, other = [
                (await server.call(http, "session_create", {}, {}))["structuredContent"][
                    "session_id"
                ]
                for _ in range(2)
            ]

            async def one(mark: str) -> int | str:
                tool, of = (tool_in_flight, other) if mark == HANGING else ("inc", session)
                meta = {"statehold/operation_id": f"op-{mark}"}
                arguments: JSON = {"session_id": of, "mark": mark}
                if tool == "slow":
                    arguments["seconds"] = 2
                return outcome(await server.call(http, tool, arguments, meta))

            async def caller() -> None:
                for number in left:
                    outcomes[str(number)] = await one(str(number))

            async def hanging() -> None:
                outcomes[HANGING] = await one(HANGING)

            async def killer() -> None:
                await wait_for_call(server.log, tool_in_flight)
                for moment in moments:
                    while len(outcomes) < moment:  # noqa: ASYNC110 the moment is to be any
                        await anyio.sleep(chance.random() / 200)
                    await server.kill()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hanging)
                tasks.start_soon(killer)
                for _ in range(AT_ONCE):
                    tasks.start_soon(caller)
            again = {mark: await one(mark) for mark in outcomes}
            shown: set[str] = set()
            for of in (session, other):
                wanted = {"session_id": of, "status": ["outcome_unknown"], "last": 1000}
                history = await server.call(http, "session_history", wanted, {})
                shown |= {e["operation_id"] for e in history["structuredContent"]["entries"]}
    counts = runs(server.log)
    assert max(counts.values()) == 1, "a call ran twice"
    assert again == outcomes, "a repeat got something else"
    answered = {mark for mark, result in outcomes.items() if isinstance(result, int)}
    unknown = {mark for mark, result in outcomes.items() if not isinstance(result, int)}
    assert {outcomes[mark] for mark in unknown} <= {"outcome_unknown"}
    assert answered <= set(counts)
    assert len(answered) + len(unknown) == calls + 1
    assert unknown == (set() if linger else unknown | {HANGING})
    assert shown == {f"op-{mark}" for mark in unknown}


@pytest.mark.thorough
@pytest.mark.timeout(120)
async def test_a_repeat_after_a_kill_carries_the_note_of_the_first_answer(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = Killed(tmp_path, stack)
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            created = await server.call(http, "session_create", {}, {})
            session = {"session_id": created["structuredContent"]["session_id"]}
            await server.call(http, "inc", session, {})
            await server.call(http, "crash", session, {})
            meta = {"statehold/operation_id": "one"}
            first = await server.call(http, "inc", session, meta)
            assert "Lost:" in first["_meta"]["statehold/notice"]
            await server.kill()
            repeat = await server.call(http, "inc", session, meta)
            assert outcome(repeat) == outcome(first)
            assert repeat["_meta"]["statehold/notice"] == first["_meta"]["statehold/notice"]
