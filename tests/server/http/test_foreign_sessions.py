"""Legacy clients whose requests reach two processes in turn: the process with their connection answers each."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPDeprecationWarning
from support.gateway_process import (
    JSON,
    Running,
    count,
    opened_session,
    service,
    serving,
    structured,
    text_of,
    toml,
)
from support.machines import cluster
from support.round_robin import connected, http_client
from support.runs import clear, wait_for_call, wait_for_cancellation
from support.selection import matrix
from support.token_file import write_tokens
from support.waiting import until

WAYS: list[tuple[str, str]] = []
HOPS = pytest.mark.parametrize(
    ("urls", "transport"),
    matrix(("unix", "http"), ("unix", "sse"), ("peer", "http")),
    indirect=["urls"],
    scope="module",
)
"""Each way between the processes and each transport once: a request is passed on after its framing is read."""
ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"
ACCEPT = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
CLIENT: JSON = {"name": "test", "version": "1"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "calls.jsonl"


@pytest.fixture(scope="module")
def settings(log: Path) -> JSON:
    return {
        "server": {"auto_session": True},
        "services": {
            "asking": service("asking"),
            "quick": service("quick", "--log", str(log), prefix="quick_"),
        },
    }


@pytest.fixture(scope="module", params=["unix"])
def urls(
    request: pytest.FixtureRequest, settings: JSON, tmp_path_factory: pytest.TempPathFactory
) -> Generator[list[str]]:
    """Two processes: of one data folder, or as on two machines."""
    folder = tmp_path_factory.mktemp("two")
    data = [folder / "one", folder / "one"]
    if request.param == "peer":
        data[1] = folder / "other"
        settings = {**settings, **cluster(request.getfixturevalue("postgresql").fresh())}
    config = folder / "statehold.toml"
    config.write_text(toml(settings))
    with serving(config, data[0]) as one, serving(config, data[1]) as other:
        yield [one.url, other.url]
    assert "Traceback" not in one.log + other.log


def message(method: str, params: JSON, number: int | None = 1) -> JSON:
    body: JSON = {"jsonrpc": "2.0", "method": method, "params": params}
    return body if number is None else {**body, "id": number}


async def initialize(http: httpx2.AsyncClient) -> dict[str, str]:
    """Open a transport session and return its headers."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    answer = await http.post("/mcp", json=message("initialize", hello), headers=ACCEPT)
    assert answer.status_code == 200, answer.text
    headers = {**ACCEPT, "mcp-session-id": answer.headers["mcp-session-id"]}
    initialized = message("notifications/initialized", {}, None)
    assert (await http.post("/mcp", json=initialized, headers=headers)).status_code == 202
    return headers


async def ping(http: httpx2.AsyncClient, headers: dict[str, str]) -> int:
    answer = await http.post("/mcp", json=message("ping", {}), headers=headers)
    return answer.status_code


@HOPS
async def test_calls_reach_the_session_of_the_connection(urls: list[str], transport: str) -> None:
    async with connected(urls, transport) as client:
        session = await opened_session(client)
        assert [await count(client, session) for _ in range(6)] == list(range(1, 7))
        # Without a session, the call uses that of the connection.
        automatic = [structured(await client.call_tool("inc", {}))["count"] for _ in range(4)]
        assert automatic == [1, 2, 3, 4]
        assert len((await client.list_tools()).tools) > 10


@HOPS
async def test_a_client_is_asked_and_answers(urls: list[str], transport: str) -> None:
    async def elicit(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": params.message})

    async with connected(urls, transport, elicitation_callback=elicit) as client:
        session = await opened_session(client)
        for _ in range(2):
            with anyio.fail_after(20):
                result = await client.call_tool("ask", {"session_id": session})
            assert "What is the answer?" in text_of(result)


@pytest.mark.thorough
@HOPS
async def test_progress_arrives_as_it_is_sent(urls: list[str], transport: str) -> None:
    steps: list[float] = []
    is_over = False

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert not is_over
        steps.append(progress)

    async with connected(urls, transport) as client:
        session = await opened_session(client)
        for _ in range(2):
            is_over = False
            arguments = {"session_id": session, "seconds": 0.2}
            with anyio.fail_after(20):
                result = await client.call_tool("quick_slow", arguments, progress_callback=note)
            is_over = True
            assert text_of(result) == "done"
    assert steps == [1.0, 2.0, 3.0, 4.0, 5.0] * 2


@HOPS
async def test_a_cancelled_call_is_cancelled_upstream(
    urls: list[str], transport: str, log: Path
) -> None:
    async with connected(urls, transport) as client:
        session = await opened_session(client)
        for _ in range(2):
            clear(log)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "quick_hang", {"session_id": session})
                await wait_for_call(log, "hang")
                tasks.cancel_scope.cancel()
            await wait_for_cancellation(log)
            assert await count(client, session, "quick_get") == 0


async def test_a_stream_through_the_other_process_carries_notifications(
    urls: list[str],
) -> None:
    heard = anyio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.set()

    async with connected(urls, "http", message_handler=listen) as client:
        session = await opened_session(client)
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource(  # pyright: ignore[reportDeprecated]
                f"session://{session}/state"
            )
        await client.call_tool("state_update", {"session_id": session, "values": {"a": 1}})
        with anyio.fail_after(20):
            await heard.wait()


def without_expiry(text: str) -> str:
    return re.sub(r'"expires_at":"[^"]*"', "", text)


async def test_a_response_is_the_same_through_either_process(urls: list[str]) -> None:
    async with http_client(urls) as http:
        headers = await initialize(http)
        arguments = {"text": 'Zürich \u2028 "\\\x00', "n": 2**63 - 1}
        echo = json.dumps(message("tools/call", {"name": "quick_echo", "arguments": arguments}))
        typed = {**headers, "content-type": "application/json"}
        # The first call starts the server, and a call that takes long is answered by a stream.
        await http.post("/mcp", content=echo.encode(), headers=typed)
        for body in (echo.encode(), b"\xff", b"[]"):
            one, other = [await http.post("/mcp", content=body, headers=typed) for _ in range(2)]
            assert one.status_code == other.status_code
            assert without_expiry(one.text) == without_expiry(other.text)
            assert one.headers["content-type"] == other.headers["content-type"]


async def test_a_request_that_is_too_large_is_refused_by_both(urls: list[str]) -> None:
    async with http_client(urls) as http:
        headers = await initialize(http)
        large = message("ping", {"text": "x" * (5 << 20)})
        statuses = [
            (await http.post("/mcp", json=large, headers=headers)).status_code for _ in range(2)
        ]
        assert statuses == [413, 413]
        assert await ping(http, headers) == 200


async def test_a_deleted_session_is_unknown_to_both(urls: list[str]) -> None:
    async with http_client(urls) as http:
        headers = await initialize(http)
        assert [await ping(http, headers) for _ in range(3)] == [200] * 3
        assert (await http.delete("/mcp", headers=headers)).status_code == 200
        assert [await ping(http, headers) for _ in range(2)] == [404, 404]


async def test_a_session_of_no_process_is_unknown(urls: list[str]) -> None:
    async with http_client(urls) as http:
        for unknown in (f"{'0' * 16}.{'0' * 32}", "../../x", "x" * 5000):
            assert await ping(http, {**ACCEPT, "mcp-session-id": unknown}) == 404
        posted = await http.post(
            f"/messages/{'0' * 16}/?session_id={'0' * 32}", json=message("ping", {})
        )
        assert posted.status_code == 404


@pytest.mark.thorough
async def test_a_call_that_outlives_its_connection_is_resumed_through_the_other_process(
    urls: list[str],
) -> None:
    async with http_client(urls) as http:
        headers = await initialize(http)
        call = message("tools/call", {"name": "quick_slow", "arguments": {"seconds": 1.5}})
        for _ in range(2):
            async with http.stream("POST", "/mcp", json=call, headers=headers) as response:
                with anyio.fail_after(20):
                    lines = response.aiter_lines()
                    first = await anext(lines)
            event_id = first.removeprefix("id: ")
            assert event_id != first
            async with http.stream(
                "GET", "/mcp", headers={**headers, "last-event-id": event_id}
            ) as resumed:
                with anyio.fail_after(20):
                    async for line in resumed.aiter_lines():
                        if '"done"' in line:
                            break


@pytest.mark.thorough
async def test_another_caller_gets_the_answer_for_an_unknown_session(tmp_path: Path) -> None:
    tokens, config = tmp_path / "tokens", tmp_path / "statehold.toml"
    write_tokens(tokens, f"{ALICE} alice\n{BEN} ben\n")
    config.write_text(toml({"server": {"tokens": str(tokens)}, "services": {}}))
    folder = tmp_path / "data"
    with serving(config, folder) as one, serving(config, folder) as other:
        both = [one.url, other.url]
        alice = {"authorization": f"Bearer {ALICE}"}
        async with http_client(both, headers=alice) as hers:
            headers = await initialize(hers)
            for authorization, expected in (
                (f"Bearer {ALICE}", 200),
                (f"Bearer {BEN}", 404),
                ("Bearer wrong-token-0123456789", 401),
                ("", 401),
            ):
                changed = {**headers, "authorization": authorization}
                assert [await ping(hers, changed) for _ in range(2)] == [expected] * 2


@pytest.mark.thorough
async def test_a_process_with_tokens_and_one_without_know_no_sessions_of_each_other(
    tmp_path: Path,
) -> None:
    tokens, config, open_config = (tmp_path / name for name in ("tokens", "tokens.toml", "toml"))
    write_tokens(tokens, f"{ALICE} alice\n")
    config.write_text(toml({"server": {"tokens": str(tokens)}, "services": {}}))
    open_config.write_text(toml({"services": {}}))
    alice = {"authorization": f"Bearer {ALICE}"}
    with serving(config, tmp_path) as one, serving(open_config, tmp_path) as other:
        for own, foreign in ((one.url, other.url), (other.url, one.url)):
            async with http_client([own], headers=alice) as http:
                headers = await initialize(http)
            async with http_client([foreign], headers=alice) as http:
                assert await ping(http, headers) == 404


async def test_a_client_of_an_ended_process_is_told_how_to_go_on(urls: list[str]) -> None:
    async with http_client(urls) as http:
        headers = {**ACCEPT, "mcp-session-id": f"{'0' * 16}.{'0' * 32}"}
        refused = await http.post("/mcp", json=message("ping", {}), headers=headers)
        assert refused.status_code == 404
        text = refused.json()["error"]["message"]
        assert text.startswith("Session not found")
        assert "Connect the MCP client again" in text


@pytest.mark.thorough
async def test_the_session_of_a_killed_process_is_unknown(
    config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path) as one, serving(config_file, tmp_path) as other:
        async with http_client([one.url]) as http:
            headers = await initialize(http)
        async with http_client([other.url]) as http:
            assert await ping(http, headers) == 200
            call = message("tools/call", {"name": "quick_slow", "arguments": {"seconds": 60}})
            answers: list[JSON] = []

            async def run() -> None:
                answer = await http.post("/mcp", json=call, headers=headers)
                answers.append(answer.json() if answer.status_code != 200 else _last(answer))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await _wait_for_stream(one, http, headers)
                one.process.send_signal(signal.SIGKILL)
            assert answers[0]["id"] == 1
            assert "ended during the request" in answers[0]["error"]["message"]
            assert await ping(http, headers) == 404
            assert await ping(http, await initialize(http)) == 200


def _last(answer: httpx2.Response) -> JSON:
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[-1].removeprefix("data: "))


async def _wait_for_stream(
    owner: Running, http: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    """Return when the owner has an automatic session, so that its call runs."""

    async def has_session() -> bool:
        listed = message("tools/call", {"name": "session_list", "arguments": {}}, 2)
        answer = await http.post("/mcp", json=listed, headers=headers)
        return "sh_" in answer.text

    await until(has_session)


@pytest.mark.thorough
async def test_a_stopped_process_is_reported_and_answers_later(
    config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path) as one, serving(config_file, tmp_path) as other:
        async with http_client([one.url]) as http:
            headers = await initialize(http)
        async with http_client([other.url]) as http:
            one.process.send_signal(signal.SIGSTOP)
            try:
                assert await ping(http, headers) == 503
            finally:
                one.process.send_signal(signal.SIGCONT)
            assert await ping(http, headers) == 200


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["edge", "owner"])
async def test_a_stream_through_another_process_does_not_keep_either_from_ending(
    config_file: Path, tmp_path: Path, ending: str
) -> None:
    with serving(config_file, tmp_path) as owner, serving(config_file, tmp_path) as edge:
        async with http_client([owner.url]) as http:
            headers = await initialize(http)
        async with (
            http_client([edge.url]) as http,
            http.stream("GET", "/mcp", headers=headers) as stream,
        ):
            assert stream.status_code == 200
            process = edge if ending == "edge" else owner
            assert process.stop(within=10) == 0
            assert [line async for line in stream.aiter_lines()] == []
    assert "Cancel" not in edge.log + owner.log
    assert "Traceback" not in edge.log + owner.log


async def test_a_request_that_is_passed_on_cannot_approve_its_call(tmp_path: Path) -> None:
    tokens, config = tmp_path / "tokens", tmp_path / "statehold.toml"
    write_tokens(tokens, f"{ALICE} alice\n")
    bank = service("quick", approve="all")
    config.write_text(toml({"server": {"tokens": str(tokens)}, "services": {"bank": bank}}))

    async def approve(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        if params.mode == "url":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"decision": "Approve once"})

    alice = {"authorization": f"Bearer {ALICE}"}
    with serving(config, tmp_path) as one, serving(config, tmp_path) as other:
        urls = [one.url, other.url]
        async with connected(urls, "http", headers=alice, elicitation_callback=approve) as client:
            session = await opened_session(client)
            answers: list[types.CallToolResult] = []
            for text in "abcd":
                answers.append(
                    await client.call_tool("echo", {"session_id": session, "text": text})
                )
                if text == "b":
                    # The next calls reach the other process.
                    await client.list_tools()
    # The process that passes a request on knows the scopes of its token, the other one does not.
    assert {answer.is_error for answer in answers} == {False, True}
    refused = {text_of(answer).partition(":")[0] for answer in answers if answer.is_error}
    assert refused == {"not_allowed"}
