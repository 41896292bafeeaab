"""`statehold demo`: the tour, and its end by a signal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx2
from anyio.abc import TaskStatus
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from ...server.exit_codes import FAILURE, INTERRUPTED, OK
from ...server.printing import complain, is_terminal, write_error
from ...sessions.attribution import NOTICE_META
from ...sessions.concurrency import unwrap_group
from ...tools.processes.launch import death_signal_prefix
from ..output import say
from .process import DemoFailed, DemoServer, wait_until_gone

STEP_SECONDS = 60.0
READING_SECONDS = 1.2
"""Pause between two steps in a terminal; without a terminal there is none."""


class Screen:
    """The output of the tour: plain lines, with some styling in a terminal unless NO_COLOR is set."""

    def __init__(self) -> None:
        self.is_terminal = is_terminal(sys.stdout)
        self._uses_style = self.is_terminal and not os.environ.get("NO_COLOR")
        self._width = min(shutil.get_terminal_size().columns, 110)

    def title(self, text: str) -> None:
        say(f"\n{self._style(text, '1')}")

    def line(self, who: str, action: str, result: object = "") -> None:
        say(f"   {who:<6}{action:<42}{result}".rstrip())

    def note(self, text: str) -> None:
        """Show a longer text, with a mark in front of it."""
        lines = textwrap.wrap(text, max(40, self._width - 9), break_long_words=False)
        say("\n".join(f"         {self._style(line, '36')}" for line in lines))

    def remark(self, text: str) -> None:
        say("\n".join(f"   {line}" for line in textwrap.wrap(text, max(40, self._width - 3))))

    def _style(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._uses_style else text


class Tour:
    """The tour. Entering makes its folder; leaving ends every process and removes the folder."""

    def __init__(self) -> None:
        self._screen = Screen()
        self._ids: dict[str, str] = {}
        self._pids: dict[str, int] = {}
        self._number = 0

    async def __aenter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="statehold-demo-"))
        self._server = DemoServer(self._folder)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._server.aclose()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def run(self) -> None:
        """Take every step.

        Raises:
            DemoFailed: a step failed; the error names it.
        """
        started_at = anyio.current_time()
        self._screen.title("Statehold in a minute")
        self._screen.remark(
            "A notebook server that knows nothing of sessions and keeps everything in memory. Two agents, ada and bob, "
            "whose client opens a new connection for every single call."
        )
        for title, step in (
            ("Start Statehold in front of it", self._start),
            ("Two sessions, isolated from each other", self._isolate),
            ("Pause a session and resume it", self._pause),
            ("Kill the notebook of ada during a call", self._crash),
            ("Kill Statehold itself", self._restart),
            ("Kill it while a page counts and a shell holds a variable", self._kill_while_live),
        ):
            await self._take(title, step)
        seconds = anyio.current_time() - started_at
        self._screen.title(
            f"That was all real, in {seconds:.0f} seconds. Now with servers of yours:"
        )
        say("   statehold serve --services ~/.cursor/mcp.json     any client's mcpServers file")
        say("   statehold --help                                  everything else")
        self._screen.title("See both sessions in the console, and take ada's page over:")
        say(f"   {await self._server.console_address()}")
        if self._screen.is_terminal:
            self._screen.remark("Press Enter to clean up.")
            await anyio.wait_readable(sys.stdin)
        await self._take("Clean up", self._clean_up)

    async def _take(self, title: str, step: Any) -> None:
        self._number += 1
        if self._screen.is_terminal and self._number > 1:
            await anyio.sleep(READING_SECONDS)
        self._screen.title(f"{self._number}. {title}")
        try:
            with anyio.fail_after(STEP_SECONDS):
                await step()
        except Exception as error:
            cause = _words(error)
            lines = [f"step {self._number} ({title}) failed: {cause}"]
            lines += [f"  | {line}" for line in self._server.last_log_lines]
            raise DemoFailed("\n".join(lines)) from error

    async def _start(self) -> None:
        await self._server.start()
        self._screen.line("$", "statehold serve --config notebook.toml", f"pid {self._server.pid}")
        self._screen.remark(f"It listens on {self._server.url}")

    async def _isolate(self) -> None:
        for who in ("ada", "bob"):
            session = _content(await self._call("session_create", name=who))
            self._ids[who] = session["session_id"]
            self._screen.line(who, f'session_create(name="{who}")', session["session_id"])
        await self._use("ada", "write_note", "notes", ["ada was here"], text="ada was here")
        for who, expected in (("ada", 1), ("ada", 2), ("bob", 1), ("ada", 3)):
            await self._count(who, expected)
        await self._use("bob", "write_note", "notes", ["bob's own"], text="bob's own")
        _check(self._pids["ada"] != self._pids["bob"], "both sessions have one process")
        ada, bob = self._pids["ada"], self._pids["bob"]
        self._screen.remark(f"A process for each: {ada} is ada's, {bob} is bob's.")

    async def _pause(self) -> None:
        session = _content(await self._call("session_pause", session_id=self._ids["ada"]))
        _check(session["status"] == "paused", f"the session is {session['status']}")
        await wait_until_gone([self._pids["ada"]])
        result = f"{session['status']}; process {self._pids['ada']} has ended"
        self._screen.line("ada", "session_pause()", result)
        await self._count("ada", 1, generation=2)
        await self._use("ada", "read_notes", "notes", ["ada was here"])

    async def _crash(self) -> None:
        result = await self._kill_during_call(self._pids["ada"])
        code, _, advice = _text(result).partition("\n")
        _check(code.startswith("outcome_unknown: "), f"the call was answered with {code}")
        self._screen.note(code)
        self._screen.note(advice)
        await self._count("bob", 2)
        await self._count("ada", 1, generation=3)
        await self._use("ada", "read_notes", "notes", ["ada was here"])
        self._screen.remark(
            "Bob noticed nothing. Ada was told; nothing was repeated behind her back."
        )

    async def _kill_during_call(self, pid: int) -> CallToolResult:
        call_started, results = anyio.Event(), list[CallToolResult]()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            call_started.set()

        async def think() -> None:
            async with self._connect() as client:
                arguments = {"session_id": self._ids["ada"], "seconds": 60}
                result = await client.call_tool("think", arguments, progress_callback=on_progress)
                results.append(result)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(think)
            await call_started.wait()
            self._screen.line("ada", "think(seconds=60)", "thinking ...")
            os.kill(pid, signal.SIGKILL)
            self._screen.line("$", f"kill -9 {pid}")
        return results[0]

    async def _restart(self) -> None:
        await self._call("session_pause", session_id=self._ids["bob"])
        self._screen.line("bob", "session_pause()", "paused")
        # Where no keeper can hold it, the process of ada ends with Statehold.
        is_kept = bool(death_signal_prefix())
        pid, notebook = self._server.pid, self._pids["ada"]
        await self._server.kill()
        self._screen.line("$", f"kill -9 {pid}")
        if is_kept:
            self._screen.line("", "the notebook of ada", f"process {notebook} waits")
        else:
            await wait_until_gone([notebook])
        await self._server.start()
        self._screen.line("$", "statehold serve --config notebook.toml", f"pid {self._server.pid}")
        sessions = _content(await self._call("session_list"))["sessions"]
        by_name = {session["name"]: session["session_id"] for session in sessions}
        for who in ("ada", "bob"):
            _check(by_name.get(who) == self._ids[who], f"{who} has another session")
            self._screen.line(who, "session_list()", by_name[who])
        await self._count("ada", 2 if is_kept else 1, generation=None if is_kept else 4)
        _check(is_kept == (self._pids["ada"] == notebook), "ada has another process")
        await self._use("ada", "read_notes", "notes", ["ada was here"])
        await self._use("bob", "read_notes", "notes", ["bob's own"], generation=2)
        if is_kept:
            self._screen.remark("Ada's notebook goes on where it was: the keeper held its process.")

    async def _kill_while_live(self) -> None:
        if not death_signal_prefix():
            self._screen.remark("Left out: on this system nothing live outlives Statehold.")
            return
        await self._use("ada", "shell", "output", "", line="animal=otter")
        counted = 0
        if self._server.has_browser:
            await self._evaluate("() => { n = 0; setInterval(() => n++, 100) }")
            counted = await self._counted()
        else:
            self._screen.remark("The page is left out: no browser is installed.")
        pid = self._server.pid
        await self._server.kill()
        self._screen.line("$", f"kill -9 {pid}")
        await self._server.start()
        self._screen.line("$", "statehold serve --config notebook.toml", f"pid {self._server.pid}")
        await self._use("ada", "shell", "output", "otter", line="echo $animal")
        if self._server.has_browser:
            _check(await self._counted() > counted, "the page does not count any further")
            self._screen.remark("The page went on counting while no Statehold ran.")

    async def _counted(self) -> int:
        """Return and show the number that the page has counted to."""
        text = await self._evaluate("() => n")
        number = int(text.splitlines()[1])
        self._screen.line("ada", "browser_evaluate('() => n')", f"n = {number}")
        return number

    async def _evaluate(self, function: str) -> str:
        result = await self._call(
            "browser_evaluate", session_id=self._ids["ada"], function=function
        )
        _check(not result.is_error, _text(result))
        return _text(result)

    async def _clean_up(self) -> None:
        for who, session in self._ids.items():
            session_status = _content(await self._call("session_close", session_id=session))
            self._screen.line(who, "session_close()", session_status["status"])
        pid = self._server.pid
        code = await self._server.stop()
        _check(code == 0, f"Statehold ended with exit code {code}")
        await wait_until_gone([pid, *self._pids.values()])
        self._screen.line("$", f"kill {pid}", f"exit code {code}, no process left")

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Client]:
        """Open one more connection, without the proxy of the environment."""
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=60) as http,
            Client(streamable_http_client(self._server.url, http_client=http)) as client,
        ):
            yield client

    async def _call(self, tool: str, **arguments: Any) -> CallToolResult:
        async with self._connect() as client:
            return await client.call_tool(tool, arguments)

    async def _count(self, who: str, expected: int, *, generation: int | None = None) -> None:
        await self._use(who, "count", "count", expected, generation=generation)

    async def _use(
        self,
        who: str,
        tool: str,
        key: str,
        expected: object,
        *,
        generation: int | None = None,
        **arguments: Any,
    ) -> None:
        """Call a tool in a session and show the answer; with `generation`, the answer must hold a notice of a new one."""
        result = await self._call(tool, session_id=self._ids[who], **arguments)
        content = _content(result)
        self._pids[who] = content["pid"]
        shown_arguments = ", ".join(f'{name}="{value}"' for name, value in arguments.items())
        self._screen.line(who, f"{tool}({shown_arguments})", f"{key} = {json.dumps(content[key])}")
        _check(content[key] == expected, f"{who} should get {expected}")
        note = (result.meta or {}).get(NOTICE_META)
        if note is not None:
            self._screen.note(str(note))
        if generation is not None:
            _check(note is not None, "no note tells that the connection was replaced")
            _check(f"to {generation};" in str(note), f"this should be generation {generation}")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoFailed(otherwise)


def _text(result: CallToolResult) -> str:
    block = result.content[0]
    return block.text if isinstance(block, TextContent) else f"a block of type {block.type}"


def _content(result: CallToolResult) -> dict[str, Any]:
    content: object = result.structured_content
    if result.is_error or not isinstance(content, dict):
        raise DemoFailed(_text(result))
    return cast("dict[str, Any]", content)


def _words(error: BaseException) -> str:
    """Return the text of an exception, or of the only one in a group."""
    error = unwrap_group(error)
    if isinstance(error, TimeoutError):
        return f"it took more than {STEP_SECONDS:g} seconds; the machine may be too busy"
    return str(error) if isinstance(error, DemoFailed) else f"{type(error).__name__}: {error}"


def demo() -> int:
    """Run the tour and return the exit code: 0, 1 after a failed step, which is named, or 130 when interrupted."""
    outcome: list[int] = []
    anyio.run(_demo, outcome)
    return outcome[0] if outcome else INTERRUPTED


async def _demo(outcome: list[int]) -> None:
    failure: DemoFailed | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_until_signal, tasks.cancel_scope)
        try:
            async with Tour() as tour:
                await tour.run()
            outcome.append(OK)
        except DemoFailed as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        outcome.append(complain(f"demo: {failure}", FAILURE))


async def _until_signal(
    scope: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """End the tour on Ctrl-C and on SIGTERM; its cleanup runs as always."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            write_error("\ninterrupted; cleaning up\n")
            scope.cancel()
            return
