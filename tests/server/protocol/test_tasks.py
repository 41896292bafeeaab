"""Tool calls that become tasks (SEP-2663): results, questions and ends, for the client that began them and for others."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from support.fork_server import ForkServer
from support.gateway_process import UPSTREAMS, Running, kill, service, serving, toml
from support.listening import run_listening
from support.selection import matrix
from support.task_client import ANSWER, TASKS, Gate, TaskClient, task_client
from support.waiting import until

from statehold.sessions.json_codec import JSON

ERAS = ("legacy", "modern")
FORM: JSON = {
    "mode": "form",
    "message": "Really?",
    "requestedSchema": {"type": "object", "properties": {"answer": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def server(folder: Path) -> Generator[Running]:
    """A server with one service per era, whose tools `hold`, `hang` and `slow` are marked as long."""
    services: JSON = {
        era: service(
            *("asking", "--era", era, "--long", "--log", str(folder / "log")),
            prefix=f"{era}_",
            concurrency=1000,
        )
        for era in ERAS
    }
    services["one"] = service("asking", "--long", prefix="one_", concurrency=1)
    config = folder / "statehold.toml"
    config.write_text(toml({"services": services}))
    with serving(config, folder / "data") as running:
        yield running


@pytest.fixture
async def client(server: Running) -> AsyncGenerator[TaskClient]:
    with anyio.fail_after(60):
        async with task_client(f"{server.url}/mcp") as opened:
            yield opened


def logged(folder: Path, event: str) -> list[JSON]:
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return [line for line in lines if line.get("event") == event]


@pytest.mark.parametrize("era", matrix(*ERAS, quick=1))
async def test_a_long_call_becomes_a_task_with_the_result_of_the_call(
    client: TaskClient, tmp_path: Path, era: str
) -> None:
    session, gate = await client.session(), Gate(tmp_path / "gate")
    created = await client.call(f"{era}_hold", {"session_id": session, "fifo": str(gate.path)})
    assert created["resultType"] == "task"
    assert created["taskId"].startswith(f"{session}.")
    found = await client.get(created["taskId"])
    assert (found["resultType"], found["status"]) == ("complete", "working")
    assert found["createdAt"] == created["createdAt"]
    await gate.release()
    ended = await client.end_of(created["taskId"])
    assert ended["status"] == "completed"
    assert ended["createdAt"] == created["createdAt"]
    assert ended["result"]["content"] == [{"type": "text", "text": "held"}]
    assert ended["result"]["resultType"] == "complete"
    entry = (await client.call("session_history", {"session_id": session}))["structuredContent"]
    assert [each.get("tool") for each in entry["entries"]].count("hold") == 1


async def test_a_call_that_ends_in_time_is_answered_as_ever(
    client: TaskClient, server: Running
) -> None:
    session = await client.session()
    result = await client.call("modern_inc", {"session_id": session})
    assert result["structuredContent"]["count"] == 1
    async with task_client(f"{server.url}/mcp", tasks=False) as plain:
        other = await plain.session()
        assert result | {"structuredContent": None} == await plain.call(
            "modern_inc", {"session_id": other}
        ) | {"structuredContent": None}


async def test_a_call_becomes_a_task_at_once_if_its_client_asks_for_that(
    client: TaskClient, server: Running
) -> None:
    session, meta = await client.session(), {"statehold/hand_over": True}
    created = await client.call("modern_inc", {"session_id": session}, meta)
    assert created["resultType"] == "task"
    ended = await client.end_of(created["taskId"])
    assert ended["result"]["structuredContent"]["count"] == 1
    async with task_client(f"{server.url}/mcp", tasks=False) as plain:
        result = await plain.call("modern_inc", {"session_id": session}, meta)
        assert result["structuredContent"]["count"] == 2


async def test_the_receipt_of_such_a_call_expires_whoever_chose_its_id(client: TaskClient) -> None:
    session, named = await client.session(), {"statehold/operation_id": "mine"}
    asks = {"statehold/hand_over": True}
    kept = [
        (await client.call("modern_hang", {"session_id": session}, meta))["ttlMs"]
        for meta in (named, asks, {**asks, "statehold/operation_id": "other"})
    ]
    assert kept == [None, 172_800_000, 172_800_000]
    await client.call("session_close", {"session_id": session, "force": True})
    ended = await client.end_of(f"{session}.other")
    assert 86_400_000 <= ended["ttlMs"] < 172_800_000


async def test_a_client_that_declares_no_tasks_gets_the_result(
    server: Running, client: TaskClient, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    results: list[JSON] = []
    async with task_client(f"{server.url}/mcp", tasks=False) as plain:
        session = await plain.session()

        async def hold() -> None:
            arguments = {"session_id": session, "fifo": str(gate.path)}
            results.append(await plain.call("modern_hold", arguments))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await gate.release()
        assert results[0]["content"] == [{"type": "text", "text": "held"}]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = await plain.send(method, {"taskId": f"{session}.x", "inputResponses": {}})
            assert refused["error"]["code"] == -32021
            assert refused["error"]["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}


@pytest.mark.parametrize("era", matrix(*ERAS, quick=1))
async def test_a_question_is_answered_through_the_task(client: TaskClient, era: str) -> None:
    session = await client.session()
    created = await client.call(f"{era}_ask_twice", {"session_id": session})
    task, keys = created["taskId"], list[str]()
    assert created["status"] == "input_required"
    for _ in range(2):
        found = await until(lambda: asked(client, task, keys))
        [(key, question)] = found["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        keys.append(key)
        await client.result("tasks/update", {"taskId": task, "inputResponses": {"unknown": ANSWER}})
        assert (await client.get(task))["status"] == "input_required"
        await client.result("tasks/update", {"taskId": task, "inputResponses": {key: ANSWER}})
    assert len(set(keys)) == 2
    ended = await client.end_of(task)
    assert "late" in ended["result"]["content"][0]["text"]


async def asked(client: TaskClient, task: str, but: list[str]) -> JSON:
    """Return the task if it asks a question that is not known yet."""
    found = await client.get(task)
    return found if found.get("inputRequests", {}).keys() - set(but) else {}


async def test_a_cancelled_task_ends_its_call_at_the_server(
    client: TaskClient, folder: Path
) -> None:
    session = await client.session()
    created = await client.call("modern_hang", {"session_id": session})
    result = await client.result("tasks/cancel", {"taskId": created["taskId"]})
    assert result["resultType"] == "complete"
    assert (await client.end_of(created["taskId"]))["status"] == "cancelled"
    await until(lambda: logged(folder, "cancelled"))
    info = (await client.call("session_info", {"session_id": session}))["structuredContent"]
    assert info["in_flight"] == 0


async def test_a_task_whose_call_is_refused_has_failed(client: TaskClient, tmp_path: Path) -> None:
    session, gate = await client.session(), Gate(tmp_path / "gate")
    created = await client.call("modern_hold", {"session_id": session, "fifo": str(gate.path)})
    await gate.release("not today")
    ended = await client.end_of(created["taskId"])
    assert ended["status"] == "failed"
    assert ended["error"]["code"] == -32077
    assert "not today" in ended["error"]["message"]
    assert ended["error"]["data"] == {"why": "it is late"}


async def test_calls_that_wait_for_others_are_tasks_too(client: TaskClient, tmp_path: Path) -> None:
    session = await client.session()
    gates = [Gate(tmp_path / f"gate{number}") for number in range(3)]
    arguments = [{"session_id": session, "fifo": str(gate.path)} for gate in gates]
    tasks = [(await client.call("one_hold", each))["taskId"] for each in arguments]
    for task, gate in zip(tasks, gates, strict=True):
        assert (await client.get(task))["status"] == "working"
        await gate.release()
        assert (await client.end_of(task))["status"] == "completed"


async def test_a_task_of_a_closed_session_ends_with_the_reason(
    client: TaskClient, tmp_path: Path
) -> None:
    session, gate = await client.session(), Gate(tmp_path / "gate")
    created = await client.call("modern_hold", {"session_id": session, "fifo": str(gate.path)})
    await client.call("session_close", {"session_id": session, "force": True})
    ended = await client.end_of(created["taskId"])
    assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
    assert ended["result"]["_meta"]["statehold/error"]["code"] == "session_closed"


async def test_calls_with_one_operation_id_are_one_task(client: TaskClient, tmp_path: Path) -> None:
    session, gate = await client.session(), Gate(tmp_path / "gate")
    created: list[JSON] = []

    async def hold() -> None:
        arguments = {"session_id": session, "fifo": str(gate.path)}
        meta = {"statehold/operation_id": "mine"}
        created.append(await client.call("modern_hold", arguments, meta))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(hold)
    assert {each["taskId"] for each in created} == {f"{session}.mine"}
    await gate.release()
    assert (await client.end_of(f"{session}.mine"))["status"] == "completed"
    history = (await client.call("session_history", {"session_id": session}))["structuredContent"]
    assert [each.get("tool") for each in history["entries"]].count("hold") == 1


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_task_keeps_no_request(server: Running, client: TaskClient) -> None:
    memory, session = Path(f"/proc/{server.process.pid}/smaps_rollup"), await client.session()

    async def growth(tasks: int) -> int:
        before = _kib(memory)
        async with task_client(f"{server.url}/mcp", headers={"x-filler": "x" * 16_384}) as large:
            for _ in range(tasks):
                meta = {"statehold/hand_over": True}
                await large.call("modern_hang", {"session_id": session}, meta)
        return _kib(memory) - before

    await growth(100)
    assert await growth(200) < 200 * 28
    await client.call("session_close", {"session_id": session, "force": True})


def _kib(memory: Path) -> int:
    [line] = [each for each in memory.read_text("ascii").splitlines() if each.startswith("Pss:")]
    return int(line.split()[1])


async def test_a_task_that_does_not_exist_is_not_found(client: TaskClient) -> None:
    session = await client.session()
    errors: list[JSON] = []
    for task in (f"{session}.none", "sh_none.x", "x", "", ".", f"{session}."):
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            answer = await client.send(method, {"taskId": task, "inputResponses": {}})
            errors.append(answer["error"])
    assert errors == [{"code": -32602, "message": "Task not found"}] * len(errors)


async def test_a_subscriber_learns_the_question_and_the_end_of_a_task(client: TaskClient) -> None:
    session = await client.session()
    task = (await client.call("legacy_ask_twice", {"session_id": session}))["taskId"]
    told: list[str] = []
    async with aclosing(client.listen([task, f"{session}.none"])) as messages:
        async for message in messages:
            if message["method"] == "notifications/subscriptions/acknowledged":
                assert message["params"]["notifications"] == {"taskIds": [task]}
                continue
            assert message["method"] == "notifications/tasks"
            told.append(message["params"]["status"])
            if message["params"]["status"] == "completed":
                assert message["params"]["result"]["content"][0]["type"] == "text"
                break
            answers = dict.fromkeys(message["params"]["inputRequests"], ANSWER)
            await client.result("tasks/update", {"taskId": task, "inputResponses": answers})
    assert told == ["input_required", "input_required", "completed"]


STOPS = matrix(pytest.param(kill, id="killed"), pytest.param(Running.stop, id="stopped"), quick=2)
Stop = Callable[[Running], object]


@dataclass
class Restarted:
    """A server that is stopped in the middle of a task, and its next process."""

    folder: Path
    services: JSON
    settings: JSON = field(default_factory=dict[str, object])

    @contextmanager
    def serving(self) -> Generator[str]:
        config = self.folder / "statehold.toml"
        config.write_text(toml({"services": self.services, **self.settings}))
        with serving(config, self.folder / "data") as running:
            self.running = running
            yield f"{running.url}/mcp"

    async def begin(self, tool: str, stop: Stop, **arguments: object) -> JSON:
        """Call a tool in a new session, stop the server, and return the task."""
        with self.serving() as url:
            async with task_client(url) as client:
                session = await client.session()
                created = await client.call(tool, {"session_id": session, **arguments})
            stop(self.running)
        return created

    def calls(self) -> list[str]:
        lines = map(json.loads, (self.folder / "log").read_text().splitlines())
        return [line["tool"] for line in lines if line.get("event") is None]


@pytest.fixture
def restarted(tmp_path: Path) -> Restarted:
    log = str(tmp_path / "log")
    asking = service("asking", "--era", "legacy", "--long", "--log", log)
    return Restarted(tmp_path, {"asking": asking})


@pytest.mark.parametrize("stop", STOPS)
async def test_a_task_goes_on_in_the_next_process(restarted: Restarted, stop: Stop) -> None:
    gate = Gate(restarted.folder / "gate")
    task = (await restarted.begin("hold", stop, fifo=str(gate.path)))["taskId"]
    with restarted.serving() as url:
        async with task_client(url) as client:
            assert (await client.get(task))["status"] == "working"
            named = {"session_id": task.partition(".")[0], "kind": "call"}
            history = await client.call("session_history", named)
            [entry] = history["structuredContent"]["entries"]
            assert entry["status"] == "started"
            await gate.release()
            ended = await client.end_of(task)
            assert ended["result"]["content"] == [{"type": "text", "text": "held"}]
    assert restarted.calls() == ["hold"]


@pytest.mark.parametrize("stop", STOPS)
async def test_an_open_question_is_asked_again_by_the_next_process(
    restarted: Restarted, stop: Stop
) -> None:
    created = await restarted.begin("ask_twice", stop)
    [(key, question)] = created["inputRequests"].items()
    keys = list[str]()
    with restarted.serving() as url:
        async with task_client(url) as client:
            task = created["taskId"]
            for _ in range(2):
                found = await until(lambda: asked(client, task, keys))
                [key_now] = found["inputRequests"].keys() - set(keys)
                keys.append(key_now)
                answers = {key_now: ANSWER}
                await client.result("tasks/update", {"taskId": task, "inputResponses": answers})
            ended = await client.end_of(task)
            assert json.loads(ended["result"]["content"][0]["text"]) == [ANSWER, ANSWER]
    assert len({key, *keys}) == 3
    assert question["method"] == "elicitation/create"
    assert restarted.calls() == ["ask_twice"]


async def test_a_question_of_another_call_is_not_asked_in_a_task(restarted: Restarted) -> None:
    """The question of a call that does not go on is withdrawn."""
    gate = Gate(restarted.folder / "gate")
    with restarted.serving() as url:
        async with task_client(url) as client, task_client(url, tasks=False) as other:
            session = await client.session()
            asks: JSON = {"name": "ask", "arguments": {"session_id": session}}
            parked = await other.result("tools/call", asks)
            answers = dict.fromkeys(parked["inputRequests"], ANSWER)
            answered = {"inputResponses": answers, "requestState": parked["requestState"]}
            await other.result("tools/call", {**asks, **answered})
            arguments = {"session_id": session, "fifo": str(gate.path)}
            task = (await client.call("hold", arguments))["taskId"]
            # It is known as a tool that asks, so that the question is not that of the task.
            parked = await other.result("tools/call", asks)
            assert parked["resultType"] == "input_required"
            kill(restarted.running)
    with restarted.serving() as url:
        async with task_client(url) as client:
            assert (await client.get(task))["status"] == "working"
            await gate.release()
            assert (await client.end_of(task))["status"] == "completed"


async def test_a_question_of_2026_07_28_ends_with_the_process(tmp_path: Path) -> None:
    asking = service("asking", "--era", "modern", "--log", str(tmp_path / "log"))
    restarted = Restarted(tmp_path, {"asking": asking})
    created = await restarted.begin("ask", kill)
    assert created["status"] == "input_required"
    with restarted.serving() as url:
        async with task_client(url) as client:
            ended = await client.end_of(created["taskId"])
            error = ended["result"]["_meta"]["statehold/error"]
            assert error["code"] == "outcome_unknown"


async def test_a_task_under_an_id_of_its_client_goes_on_in_the_next_process(
    restarted: Restarted,
) -> None:
    mine = {"statehold/operation_id": "mine"}
    with restarted.serving() as url:
        async with task_client(url) as client:
            session = await client.session()
            task = (await client.call("ask", {"session_id": session}, mine))["taskId"]
            kill(restarted.running)
    with restarted.serving() as url:
        async with task_client(url) as client:
            found = await until(lambda: asked(client, task, []))
            assert found["ttlMs"] is None
            # A repeat joins the call, and hides no question of it.
            again = await client.call("ask", {"session_id": session}, mine)
            assert again["taskId"] == task
            found = await client.get(task)
            answers = dict.fromkeys(found["inputRequests"], ANSWER)
            await client.result("tasks/update", {"taskId": task, "inputResponses": answers})
            assert (await client.end_of(task))["status"] == "completed"
    assert restarted.calls() == ["ask"]


async def test_a_task_that_still_waited_for_others_did_not_run(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", Gate(tmp_path / "gate")
    asking = service("asking", "--long", "--log", str(log), concurrency=1)
    restarted = Restarted(tmp_path, {"asking": asking})
    with restarted.serving() as url:
        async with task_client(url) as client:
            session = await client.session()
            arguments = {"session_id": session, "fifo": str(gate.path)}
            tasks = [(await client.call("hold", arguments))["taskId"] for _ in range(2)]
            kill(restarted.running)
    with restarted.serving() as url:
        async with task_client(url) as client:
            unsent = await client.end_of(tasks[1])
            assert unsent["result"]["_meta"]["statehold/error"]["code"] == "connection_lost"
            await gate.release()
            assert (await client.end_of(tasks[0]))["result"]["content"][0]["text"] == "held"
    assert restarted.calls() == ["hold"]


async def test_the_next_process_cancels_a_task(restarted: Restarted) -> None:
    created = await restarted.begin("hang", kill)
    with restarted.serving() as url:
        async with task_client(url) as client:
            assert (await client.get(created["taskId"]))["status"] == "working"
            await client.result("tasks/cancel", {"taskId": created["taskId"]})
            assert (await client.end_of(created["taskId"]))["status"] == "cancelled"
            await until(lambda: logged(restarted.folder, "cancelled"))


@pytest.mark.parametrize("stop", STOPS)
async def test_the_next_process_follows_the_task_of_a_server_over_http(
    fork_server: ForkServer, tmp_path: Path, stop: Stop
) -> None:
    log = str(tmp_path / "log")
    program = fork_server.command(str(UPSTREAMS / "task_server.py"), "--log", log)
    (tmp_path / "log").touch()
    done = {"status": "completed", "result": {"content": [{"type": "text", "text": "done"}]}}
    question = {"method": "elicitation/create", "params": FORM}
    waits = {"status": "input_required", "inputRequests": {"a": question}}
    with run_listening([*program, "--transport", "http", "--era", "modern"]) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        restarted = Restarted(tmp_path, {"tasks": {"url": url}})
        created = await restarted.begin("must", stop, script=[waits, waits, done])
        assert created["status"] == "input_required"
        with restarted.serving() as address:
            async with task_client(address) as client:
                task = created["taskId"]
                found = await until(lambda: asked(client, task, []))
                answers = dict.fromkeys(found["inputRequests"], ANSWER)
                await client.result("tasks/update", {"taskId": task, "inputResponses": answers})
                ended = await client.end_of(task)
                assert ended["result"]["content"] == [{"type": "text", "text": "done"}]
        tools = restarted.calls()
    assert tools.count("must") == 1
    assert "tasks/cancel" not in tools


async def test_a_clean_stop_gives_a_call_that_cannot_go_on_its_time(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """Nobody has the answer of a server over HTTP after this process."""
    program = fork_server.command(str(UPSTREAMS / "counter.py"), "--transport", "http")
    with run_listening(program) as port:
        restarted = Restarted(tmp_path, {"counter": {"url": f"http://127.0.0.1:{port}/mcp"}})
        with restarted.serving() as url:
            async with task_client(url) as client:
                arguments: JSON = {"session_id": await client.session(), "seconds": 2}
                created = await client.call("slow", arguments, {"statehold/hand_over": True})
            restarted.running.stop()
        with restarted.serving() as url:
            async with task_client(url) as client:
                ended = await client.end_of(created["taskId"])
                assert ended["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_a_repeat_that_becomes_a_task_keeps_its_call_from_ending_with_the_first_request(
    tmp_path: Path,
) -> None:
    gate, mine = Gate(tmp_path / "gate"), {"statehold/operation_id": "mine"}
    (tmp_path / "log").touch()
    restarted = Restarted(tmp_path, {"asking": service("asking", "--log", str(tmp_path / "log"))})
    with restarted.serving() as url:
        async with task_client(url) as one, task_client(url) as other:
            session = await one.session()
            arguments = {"session_id": session, "fifo": str(gate.path)}
            async with anyio.create_task_group() as first:
                first.start_soon(one.call, "hold", arguments, mine)
                await until(lambda: "hold" in restarted.calls())
                repeat = {**mine, "statehold/hand_over": True}
                created = await other.call("hold", arguments, repeat)
                assert created["taskId"] == f"{session}.mine"
                first.cancel_scope.cancel()
            await gate.release()
            assert (await other.end_of(f"{session}.mine"))["result"]["content"][0]["text"] == "held"


async def test_a_repeat_of_a_call_that_ends_with_its_request_is_no_task(tmp_path: Path) -> None:
    gate, mine = Gate(tmp_path / "gate"), {"statehold/operation_id": "mine"}
    (tmp_path / "log").touch()
    asking = service("asking", "--long", "--log", str(tmp_path / "log"))
    settings: JSON = {"toolsets": ["core", "calls"]}
    restarted = Restarted(tmp_path, {"asking": asking}, settings)
    results: list[JSON] = []
    with restarted.serving() as url:
        async with task_client(url, tasks=False) as plain, task_client(url) as client:
            arguments = {"session_id": await plain.session(), "fifo": str(gate.path)}

            async def call(caller: TaskClient) -> None:
                results.append(await caller.call("hold", arguments, mine))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, plain)
                await until(lambda: "hold" in restarted.calls())
                tasks.start_soon(call, client)
                listed = await client.call("call_list", {})
                assert listed["structuredContent"]["calls"] == []
                await gate.release()
    assert [each["content"][0]["text"] for each in results] == ["held", "held"]


async def test_results_under_ids_of_clients_fill_the_receipts_of_a_session(
    tmp_path: Path,
) -> None:
    asking = service("asking", "--long", "--era", "legacy")
    restarted = Restarted(tmp_path, {"asking": asking}, {"history": {"receipts": 2}})
    with restarted.serving() as url:
        async with task_client(url) as client:
            arguments: JSON = {"session_id": await client.session(), "seconds": 0}
            codes: list[object] = []
            for number in range(3):
                meta = {"statehold/operation_id": f"mine{number}"}
                created = await client.call("slow", arguments, meta)
                if created["resultType"] == "task":
                    created = (await client.end_of(created["taskId"]))["result"]
                codes.append(created.get("_meta", {}).get("statehold/error", {}).get("code"))
            assert codes == [None, None, "session_limit"]
            # Those under ids of ours end by themselves, and are counted apart.
            assert (await client.call("slow", arguments))["resultType"] == "task"


async def test_servers_declare_tasks_to_clients_of_the_newer_revision_only(
    client: TaskClient, server: Running
) -> None:
    discovered = await client.result("server/discover", {})
    assert discovered["capabilities"]["extensions"][TASKS] == {}
