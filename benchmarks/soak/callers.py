"""The callers of a soak: each works in a session of its own, checks the results, and reports wrong ones."""

from __future__ import annotations

import itertools
import re
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
from mcp import Client

from ..plan import Era
from .findings import Acknowledgement, Findings

NOTE: Final = "Note from Statehold"
ANSWER_SECONDS: Final = 90.0
"""Longer than any call of the soak may take, recovery included."""
REPEATS: Final = 3
"""Number of times that a call without an answer is sent again with its operation id."""
REST_SECONDS: Final = (0.02, 0.2)
RECONNECT_SECONDS: Final = 0.2
GONE: Final = ("session_not_found", "session_expired", "session_closed")
NOTED: Final = re.compile(r"Note from Statehold: the connection to (\w+) was replaced")
COUNTERS: Final = {"inc": "quick", "web_inc": "web"}


class Reachable(Protocol):
    """The nodes as callers see them."""

    has_browser: bool

    def connect(
        self, transport: str, era: Era, name: str, random: Random
    ) -> AbstractAsyncContextManager[Client]: ...


class NoAnswer(Exception):
    """Raised when a call got no answer in time."""


@dataclass(slots=True)
class Call:
    """A call that is sent until an answer comes, at most a few times, always with the same operation id."""

    operation: str
    tool: str
    arguments: dict[str, Any]
    sent: int = 0
    began: float = field(default_factory=time.monotonic)


class Caller:
    """One client. It connects again after each failure and now and then, over any serving node or over stdio."""

    def __init__(
        self,
        number: int,
        way: tuple[str, Era, bool],
        deployment: Reachable,
        findings: Findings,
        site: str,
        random: Random,
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.session = ""
        self.tag = f"caller{number}"
        self.writes: dict[int, float] = {}
        """The numbers that state_update acknowledged for the session, and when it did."""
        self._transport = way[0]
        self._era: Era = way[1]
        self._browses = way[2] and deployment.has_browser
        self._deployment = deployment
        self._findings = findings
        self._site = site
        self._random = random
        self._answer_seconds = answer_seconds
        self._created_at = 0.0
        self._numbers = itertools.count(1)
        self._counts: dict[str, int] = {}
        """The last count of each counter."""
        self._counted_since: dict[str, float] = {}
        """When the first count of each counter's connection was answered."""
        self._sent: dict[str, int] = {}
        self._logged_in = False
        self._pending: Call | None = None
        self._saw_login = False
        """Whether a call showed the login since it was made or lost."""
        self._noticed_services: set[str] = set()
        """Services whose replacement a notice reported since their last result."""
        self._recover = False
        """Whether the session failed and has to be restarted by its caller."""
        self._stopping = False

    def stop(self) -> None:
        """Let the caller end after its current call."""
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            try:
                async with self._connect() as client:
                    for _ in range(self._random.randrange(5, 60)):
                        if self._stopping:
                            return
                        await self._step(client)
                        await anyio.sleep(self._random.uniform(*REST_SECONDS))
            except Exception:
                # The node was killed or stopped.
                self._findings.calls["reconnects"] += 1
                await anyio.sleep(RECONNECT_SECONDS)

    def _connect(self) -> AbstractAsyncContextManager[Client]:
        return self._deployment.connect(self._transport, self._era, self.tag, self._random)

    # Calls.

    async def _step(self, client: Client) -> None:
        if not self.session:
            await self._create(client)
            return
        call = self._pending = self._pending or self._next()
        if call.sent > REPEATS:
            self._pending = None
            if call.tool in COUNTERS:
                # An answer that never arrived may have had the note.
                self._noticed_services.add(COUNTERS[call.tool])
            return
        call.sent += 1
        result = await self._send(client, call)
        self._pending = None
        self._judge(call, result)

    async def _create(self, client: Client) -> None:
        name = f"{self.tag}-{next(self._numbers)}"
        result = await self._answer(client, "session_create", {"name": name}, None)
        if not result.is_error:
            assert result.structured_content is not None
            self.session = result.structured_content["session_id"]
            self._created_at = time.time()

    def _next(self) -> Call:
        operation = f"{self.tag}-{next(self._numbers)}"
        if self._recover:
            return Call(operation, "session_restart", {})
        kinds = ["inc"] * 4 + ["web_inc"] * 3 + ["state_update"] * 2 + ["session_pause"]
        kinds += ["browser_evaluate"] * 4 if self._browses else []
        tool = self._random.choice(kinds)
        arguments: dict[str, Any] = {}
        if tool in COUNTERS:
            arguments = {"n": 1, "operation": operation, "caller": self.tag, "of": self.session}
            self._sent[tool] = self._sent.get(tool, 0) + 1
        elif tool == "state_update":
            arguments = {"values": {"written": max(self.writes, default=0) + 1}}
        elif tool == "browser_evaluate" and self._logged_in:
            arguments = {"function": "() => `<${document.cookie}>`"}
        elif tool == "browser_evaluate":
            # Some of these only navigate, and the next one logs in.
            script = f"() => {{ document.cookie = 'who={self.tag}; max-age=9999'; return 'set' }}"
            arguments = {"function": script}
            if self._random.random() < 0.5:
                tool, arguments = "browser_navigate", {"url": f"{self._site}/counter"}
        return Call(operation, tool, arguments)

    async def _send(self, client: Client, call: Call) -> types.CallToolResult:
        arguments = {"session_id": self.session, **call.arguments}
        return await self._answer(client, call.tool, arguments, call.operation)

    async def _answer(
        self, client: Client, tool: str, arguments: dict[str, Any], operation: str | None
    ) -> types.CallToolResult:
        meta: Any = {"statehold/operation_id": operation} if operation else None
        with anyio.move_on_after(self._answer_seconds):
            result = await client.call_tool(tool, arguments, meta=meta)
            code = code_of(result) if result.is_error else "ok"
            self._findings.calls[code] += 1
            return result
        self._findings.add("calls without an answer", f"{self.tag}: {tool} ({operation})")
        raise NoAnswer

    # Checks.

    def _judge(self, call: Call, result: types.CallToolResult) -> None:
        waited = time.monotonic() - call.began
        self._findings.longest_wait = max(self._findings.longest_wait, waited)
        # A note may come with the result of any call of the session, an error too.
        for service in NOTED.findall(text_of(result)):
            self._noticed_services.add(service)
        if result.is_error:
            session_failed = code_of(result) == "session_failed"
            if session_failed and call.tool == "session_restart":
                # Its recovery was given up, it is closed, and its caller was told so.
                self._findings.calls["sessions given up"] += 1
                self._forget()
            self._recover = session_failed and bool(self.session)
            if code_of(result) in GONE:
                if not self._findings.explains(self._created_at):
                    text = f"{self.tag}, {self.session}: {code_of(result)}"
                    self._findings.add("lost acknowledgements", text)
                self._forget()
            return
        self._recover = False
        text = text_of(result)
        if call.tool in COUNTERS:
            self._acknowledge(call)
            self._judge_count(call, result)
        elif call.tool.startswith("browser_"):
            self._acknowledge(call)
            self._judge_cookie(call, text)
        elif call.tool == "state_update":
            self.writes[call.arguments["values"]["written"]] = time.time()

    def _acknowledge(self, call: Call) -> None:
        self._findings.acknowledged[call.operation] = Acknowledgement(self.session, time.time())

    def _judge_count(self, call: Call, result: types.CallToolResult) -> None:
        assert result.structured_content is not None
        count, before = int(result.structured_content["count"]), self._counts.get(call.tool, 0)
        if count > self._sent[call.tool]:
            self._findings.add("crossings", f"{call.operation}: {call.tool} said {count}")
        service = COUNTERS[call.tool]
        since = self._counted_since.setdefault(call.tool, time.time())
        # Without the commit of its opening, nobody knows that there was a connection.
        is_explained = service in self._noticed_services or self._findings.explains(since)
        if count <= before:
            self._counted_since[call.tool] = time.time()
        if count <= before and not is_explained:
            text = f"{call.operation}: {call.tool} fell from {before} to {count} without a note"
            self._findings.add("silent losses", text)
        self._noticed_services.discard(service)
        self._counts[call.tool] = count

    def _judge_cookie(self, call: Call, text: str) -> None:
        if call.tool == "browser_navigate":
            return
        output = text.partition("### Result")[2].partition("###")[0]
        if "who=" in output and f"who={self.tag}" not in output:
            self._findings.add("crossings", f"{call.operation}: {output[:200]!r}")
        if not self._logged_in:
            # On an empty page nothing is kept; only what a later call shows counts as a login.
            self._noticed_services.discard("browser")
            self._logged_in = NOTE not in text and "set" in output
            self._saw_login = False
            return
        there = f"who={self.tag}" in output
        if not there and self._saw_login and "browser" not in self._noticed_services:
            self._findings.add("silent losses", f"{call.operation}: the login is gone, no note")
        self._noticed_services.discard("browser")
        self._saw_login = self._logged_in = there

    def _forget(self) -> None:
        self.session, self._logged_in = "", False
        self.writes.clear()
        self._counts.clear()
        self._counted_since.clear()
        self._noticed_services.clear()
        self._sent.clear()


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(b.text for b in result.content if isinstance(b, types.TextContent))


def code_of(result: types.CallToolResult) -> str:
    error: Any = (result.meta or {}).get("statehold/error") or {}
    return str(error.get("code", "tool error"))
