"""`statehold principals revoke`: everything of a caller ends on every node, and each later request is refused."""

from __future__ import annotations

import datetime
import json
import logging
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from support.console_client import ConsoleClient, console_client
from support.databases import PostgreSQL
from support.gateway_process import (
    JSON,
    Running,
    Way,
    kill,
    modern_call,
    opened_session,
    service,
    serving,
    statehold,
    structured,
    toml,
)
from support.hostile_issuer import ALL_SCOPES, AUDIENCE, HostileIssuer
from support.selection import matrix
from support.task_client import task_client
from support.token_file import write_tokens
from support.waiting import until

logger = logging.getLogger("tests")

WAYS: list[tuple[str, str]] = []
BEN = "ben-token-0123456789"
LIFE_SECONDS, LEEWAY_SECONDS = 5, 30
PROMPT = 1.5
"""Seconds after which every node has ended everything: a second, and half of one on a busy machine."""


@dataclass
class Nodes:
    """Two servers on one store."""

    config: Path
    data: Path
    issuer: HostileIssuer
    running: list[Running] = field(default_factory=list[Running])

    def run(self, words: list[str]) -> str:
        flags = ["--config", str(self.config), "--data", str(self.data)]
        done = subprocess.run(
            [*statehold(), *words, *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def json(self, *words: str) -> Any:
        """Return the JSON output of a command."""
        output = await anyio.to_thread.run_sync(self.run, list(words))
        return json.loads(output)

    async def principals(self, *words: str) -> Any:
        return await self.json("principals", *words, "--json")

    def token(self, subject: str, **claims: Any) -> str:
        return self.issuer.token(sub=subject, scope=ALL_SCOPES, **claims)

    def way(self, number: int, era: Any) -> Way:
        return Way("http", era, self.config, self.data, url=self.running[number].url)

    async def status(self, number: int, token: str) -> int:
        """Return the status of a request that needs a token: 401, or that of a body that is no message."""
        async with httpx2.AsyncClient(base_url=self.running[number].url, timeout=60) as raw:
            answer = await raw.post("/mcp", headers=bearer(token), content="{}")
            if answer.status_code == 401:
                assert 'error="invalid_token"' in answer.headers["www-authenticate"]
            return answer.status_code

    async def wait_status(self, token: str, status: int) -> None:
        for number in range(len(self.running)):

            async def is_reached(number: int = number) -> bool:
                return await self.status(number, token) == status

            await until(is_reached)


@contextmanager
def two_nodes(folder: Path, issuer: HostileIssuer, url: str | None = None) -> Generator[Nodes]:
    tokens = write_tokens(folder / "tokens", f"{BEN} ben name=laptop\n")
    document: JSON = {
        "toolsets": ["core", "lifecycle", "admin"],
        "server": {"tokens": str(tokens), "public_url": "https://mcp.example.org"},
        "auth": {"issuers": [{"issuer": issuer.url}], "audience": [AUDIENCE]},
        "audit": "on",
        "services": {"quick": service("quick")},
    }
    document |= {} if url is None else {"store": {"url": url}}
    nodes = Nodes(folder / "statehold.toml", folder / "data", issuer)
    nodes.config.write_text(toml(document))
    with ExitStack() as stack:
        for _ in range(2):
            nodes.running.append(stack.enter_context(serving(nodes.config, nodes.data)))
        yield nodes


@pytest.fixture(scope="module")
def nodes(issuer: HostileIssuer, tmp_path_factory: pytest.TempPathFactory) -> Generator[Nodes]:
    with two_nodes(tmp_path_factory.mktemp("nodes"), issuer) as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def time_of(revoked: JSON) -> float:
    return datetime.datetime.fromisoformat(revoked["revoked_at"]).timestamp()


class Ends:
    """When each of some works of a caller ended."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self.times: dict[str, float] = {}
        self.begun: dict[str, anyio.Event] = {}

    def watch(self, name: str, work: Callable[[anyio.Event], Coroutine[Any, Any, object]]) -> None:
        """Run a work that sets an event when it has begun, until it ends, well or not."""
        self.begun[name] = anyio.Event()
        self._tasks.start_soon(self._run, name, work)

    async def _run(
        self, name: str, work: Callable[[anyio.Event], Coroutine[Any, Any, object]]
    ) -> None:
        try:
            await work(self.begun[name])
        except AssertionError:
            raise
        except Exception:
            if not self.begun[name].is_set():
                raise
        self.times[name] = time.time()

    async def wait_begun(self) -> None:
        for event in self.begun.values():
            await event.wait()

    async def wait_after(self, moment: float) -> float:
        """Wait for all ends, and return the seconds of the last one after a moment."""
        await until(lambda: self.times.keys() == self.begun.keys())
        return max(self.times.values()) - moment


@asynccontextmanager
async def working(nodes: Nodes, token: str) -> AsyncGenerator[tuple[Ends, str, ConsoleClient]]:
    """Have a caller do everything that lasts, at both nodes. Yield its ends, its session, and its console."""
    async with AsyncExitStack() as stack:
        first, second = nodes.way(0, "modern"), nodes.way(1, "legacy")
        modern = await stack.enter_async_context(first.connect(headers=bearer(token)))
        legacy = await stack.enter_async_context(second.connect(headers=bearer(token)))
        session = await opened_session(modern)
        raws = [
            await stack.enter_async_context(httpx2.AsyncClient(base_url=node.url, timeout=60))
            for node in nodes.running
        ]
        console = await stack.enter_async_context(console_client(nodes.running[1].url))
        await console.log_in(token=token)
        arguments = {"session_id": session, "seconds": 30}

        async def call(begun: anyio.Event, raw: httpx2.AsyncClient) -> None:
            body, headers = modern_call("slow", arguments)
            begun.set()
            answer = await raw.post("/mcp", json=body, headers={**headers, **bearer(token)})
            assert "error" in answer.json() or answer.json()["result"]["isError"]

        async def call_legacy(begun: anyio.Event) -> None:
            begun.set()
            await legacy.call_tool("slow", arguments)

        async def read_sse(begun: anyio.Event) -> None:
            async with raws[1].stream("GET", "/sse", headers=bearer(token)) as stream:
                async for _ in stream.aiter_bytes():
                    begun.set()

        async def listen(begun: anyio.Event) -> None:
            way = nodes.way(1, "modern")
            async with (
                way.connect(headers=bearer(token)) as client,
                client.listen(tools_list_changed=True) as events,
            ):
                begun.set()
                async for _ in events:
                    pass

        async def read_console(begun: anyio.Event) -> None:
            async with console.events() as events:
                while await events.line() is not None:
                    begun.set()

        async with anyio.create_task_group() as tasks:
            ends = Ends(tasks)
            ends.watch("call", lambda begun: call(begun, raws[0]))
            ends.watch("forwarded call", lambda begun: call(begun, raws[1]))
            ends.watch("legacy call", call_legacy)
            ends.watch("sse", read_sse)
            ends.watch("listen", listen)
            ends.watch("console", read_console)
            await ends.wait_begun()

            async def are_running() -> bool:
                info = await modern.call_tool("session_info", {"session_id": session})
                return structured(info)["in_flight"] == 3

            await until(are_running)
            yield ends, session, console
            tasks.cancel_scope.cancel()


async def check_revocation(nodes: Nodes, subject: str) -> float:
    """Revoke a caller who does everything that lasts, and restore it. Return the seconds to the last end."""
    token = nodes.token(subject)
    async with working(nodes, token) as (ends, session, console):
        issuer = ["--issuer", nodes.issuer.url]
        revoked = await nodes.principals("revoke", subject, *issuer, "--reason", "left")
        assert (revoked["subject"], revoked["reason"]) == (subject, "left")
        seconds = await ends.wait_after(time_of(revoked))
        logger.info("the last of %d ends came after %.2f s", len(ends.times), seconds)
        assert seconds < PROMPT, ends.times
        await nodes.wait_status(token, 401)
        assert (await console.refused("GET", "/me"))["status"] == 401
        refusal = await console.refused("POST", "/login", {"token": token})
        assert (refusal["status"], refusal["code"]) == (401, "login_failed")
        show = ["sessions", "show", session, "--json"]

        async def is_closed() -> bool:
            shown = await nodes.json(*show)
            return (shown["status"], shown["reason"]) == ("closed", "revoked")

        await until(is_closed)
        operation = f"principals revoke {nodes.issuer.url}/{subject} (left)"

        async def is_recorded() -> bool:
            exported = await anyio.to_thread.run_sync(nodes.run, ["audit", "export"])
            entries = [json.loads(line) for line in exported.splitlines()]
            refused = [each for each in entries if each.get("outcome") == "principal_revoked"]
            assert {each["subject"] for each in refused} <= {subject}
            is_revoked = any(each.get("operation") == operation for each in entries)
            return is_revoked and {each["event"] for each in refused} == {"refusal", "login"}

        await until(is_recorded)
        await nodes.principals("restore", subject)
        await nodes.wait_status(token, 400)
    return seconds


@pytest.mark.timeout(120)
async def test_a_revocation_ends_everything_on_both_nodes_within_a_second(nodes: Nodes) -> None:
    with anyio.fail_after(100):
        await check_revocation(nodes, "ada")


@pytest.mark.thorough
@pytest.mark.timeout(180)
async def test_a_revocation_ends_everything_on_two_nodes_of_a_postgresql(
    issuer: HostileIssuer, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with two_nodes(tmp_path, issuer, postgresql.fresh()) as nodes, anyio.fail_after(150):
        await check_revocation(nodes, "ada")


@pytest.mark.thorough
@pytest.mark.timeout(120)
async def test_a_revocation_of_a_static_token_outlives_the_kill_of_its_servers(
    nodes: Nodes, issuer: HostileIssuer, tmp_path: Path
) -> None:
    with two_nodes(tmp_path, issuer) as killed, anyio.fail_after(100):
        async with killed.way(0, "modern").connect(headers=bearer(BEN)) as client:
            session = await opened_session(client)
            revoked = await killed.principals("revoke", "--token", "laptop", "--until", "90d")
            for running in killed.running:
                kill(running)
        assert (revoked["subject"], revoked["keeps_sessions"]) == ("ben", False)
        with serving(killed.config, killed.data) as restarted:
            killed.running = [restarted]
            await killed.wait_status(BEN, 401)
            show = ["sessions", "show", session, "--json"]

            async def is_closed() -> bool:
                shown = await killed.json(*show)
                return (shown["status"], shown["reason"]) == ("closed", "revoked")

            await until(is_closed)
            [listed] = (await killed.principals("list"))["principals"]
            assert listed["revoked"]["until"] == revoked["until"]
            await killed.principals("restore", "--token", "laptop")
            await killed.wait_status(BEN, 400)


async def test_a_revocation_ends_the_tasks_of_a_caller_in_sessions_of_others(nodes: Nodes) -> None:
    url, issuer = f"{nodes.running[0].url}/mcp", nodes.issuer.url
    ada, fay = (bearer(nodes.token(subject)) for subject in ("ada", "fay"))
    with anyio.fail_after(30):
        async with task_client(url, headers=ada) as owner, task_client(url, headers=fay) as other:
            this = {"session_id": await owner.session()}
            sharing = {"subject": "fay", "issuer": issuer, "rights": "use"}
            await owner.call("session_share", {**this, **sharing})
            slow = {**this, "seconds": 60}
            created = await other.call("slow", slow, {"statehold/hand_over": True})
            assert created["resultType"] == "task"
            await nodes.principals("revoke", "fay", "--issuer", issuer)

            async def has_ended() -> bool:
                info = await owner.call("session_info", this)
                return info["structuredContent"]["in_flight"] == 0

            await until(has_ended)
            await nodes.principals("restore", "fay", "--issuer", issuer)


@pytest.mark.thorough
async def test_kept_sessions_go_on_after_the_restoration(nodes: Nodes) -> None:
    token = nodes.token("cid")
    with anyio.fail_after(25):
        async with nodes.way(0, "modern").connect(headers=bearer(token)) as client:
            session = await opened_session(client)
            await nodes.principals("revoke", "cid", "--keep-sessions")
            await nodes.wait_status(token, 401)
            await nodes.principals("restore", "cid")
            await nodes.wait_status(token, 400)
            info = await client.call_tool("session_info", {"session_id": session})
            assert structured(info)["status"] == "paused"
            assert not (await client.call_tool("inc", {"session_id": session})).is_error


@pytest.mark.thorough
@pytest.mark.parametrize("era", matrix("modern", "legacy"))
async def test_a_call_in_the_session_of_another_ends_and_the_session_goes_on(
    nodes: Nodes, era: str
) -> None:
    token = nodes.token(f"fay {era}")
    with anyio.fail_after(25):
        async with (
            nodes.way(0, "modern").connect(headers=bearer(BEN)) as owner,
            nodes.way(1, era).connect(headers=bearer(token)) as guest,
            anyio.create_task_group() as tasks,
        ):
            session = await opened_session(owner)
            share = {"session_id": session, "subject": f"fay {era}", "rights": "use"}
            issuer = {"issuer": nodes.issuer.url}
            structured(await owner.call_tool("session_share", {**share, **issuer}))
            ends = Ends(tasks)

            async def call(begun: anyio.Event) -> None:
                begun.set()
                with pytest.raises(MCPError):
                    await guest.call_tool("slow", {"session_id": session, "seconds": 20})

            ends.watch("call", call)

            async def is_running() -> bool:
                info = await owner.call_tool("session_info", {"session_id": session})
                return structured(info)["in_flight"] == 1

            await until(is_running)
            revoked = await nodes.principals("revoke", f"fay {era}")
            assert await ends.wait_after(time_of(revoked)) < PROMPT
            info = await owner.call_tool("session_info", {"session_id": session})
            assert structured(info)["status"] in ("idle", "active")


def test_a_command_line_that_names_no_caller_or_several_is_refused(nodes: Nodes) -> None:
    flags = ["--config", str(nodes.config), "--data", str(nodes.data)]
    for words, code in (
        (["revoke"], 2),
        (["revoke", "eve", "--token", "laptop"], 2),
        (["revoke", "eve", "--until", "yesterday"], 2),
        (["revoke", "local", "--issuer", ""], 2),
        (["revoke", "--token", "phone"], 3),
        (["restore", "nobody"], 3),
    ):
        command = [*statehold(), "principals", *words, *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr


@pytest.mark.thorough
async def test_a_stream_ends_with_its_access_token_and_a_call_does_not(nodes: Nodes) -> None:
    session_token = nodes.token("dora")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            nodes.way(0, "modern").connect(headers=bearer(session_token))
        )
        session = await opened_session(client)
        raw = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=nodes.running[0].url, timeout=60)
        )
        ends_at = int(time.time()) + LIFE_SECONDS
        token = nodes.token("dora", exp=ends_at - LEEWAY_SECONDS)
        answers: list[httpx2.Response] = []

        async def call() -> None:
            seconds = ends_at + 1 - time.time()
            body, headers = modern_call("slow", {"session_id": session, "seconds": seconds})
            answers.append(await raw.post("/mcp", json=body, headers={**headers, **bearer(token)}))

        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                async with raw.stream("GET", "/sse", headers=bearer(token)) as stream:
                    assert stream.status_code == 200
                    async for _ in stream.aiter_bytes():
                        pass
                assert time.time() >= ends_at
            assert time.time() < ends_at + 1 + PROMPT
            assert answers[0].json()["result"]["content"][0]["text"] == "done"
            assert await nodes.status(0, token) == 401
            # Another token of the same caller goes on with the session.
            info = await client.call_tool("session_info", {"session_id": session})
            assert not info.is_error
