"""`statehold demo`: the tour, and its end by a signal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import termios
import textwrap
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
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
from ..output import as_typed, say
from .process import DemoFailed, DemoServer, wait_until_gone
from .site import INSIDE, OUTSIDE, PASSWORD, serve_site

STEP_SECONDS = 60.0
READING_SECONDS = 0.8
"""Pause between two steps in a terminal; without a terminal there is none."""
LINK_SECONDS = 115.0
"""Seconds after which another link to the console replaces one that is good for two minutes."""


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
        self._more = ExitStack()
        self._site = self._more.enter_context(serve_site())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._server.aclose()
        self._more.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def run(self) -> None:
        """Take every step.

        Raises:
            DemoFailed: a step failed; the error names it.
        """
        started_at = anyio.current_time()
        self._screen.title("A tour of Statehold")
        self._screen.remark(
            "Two agents, ada and bob, whose client opens a new connection for every single call. Behind Statehold: a "
            "browser, and a notebook server that knows nothing of sessions and keeps everything in memory."
        )
        for title, step in (
            ("Start Statehold", self._start),
            ("Two sessions, isolated from each other", self._isolate),
            ("Log in, and kill Statehold", self._survive),
            ("Kill the notebook of ada during a call", self._crash),
            ("Pause a session and resume it", self._pause),
        ):
            await self._take(title, step)
        seconds = anyio.current_time() - started_at
        self._screen.title(f"That was all real, in {seconds:.0f} seconds. Now yours:")
        for command, use in (
            ("statehold setup", "Claude, Cursor, VS Code and others"),
            ("statehold skill --install .claude/skills", "a coding agent in a shell"),
        ):
            say(f"   {as_typed(command):<50} {use}")

    async def end(self) -> None:
        """Show the console until Enter is pressed, where there is a terminal. Then clean up.

        Raises:
            DemoFailed: a step failed; the error names it.
        """
        if self._screen.is_terminal and is_terminal(sys.stdin):
            page = (
                "page in the console, and take it over"
                if self._server.has_browser
                else "session in the console"
            )
            self._screen.title(f"Open ada's {page}:")
            await self._show_console()
        await self._take("Clean up", self._clean_up)

    async def _show_console(self) -> None:
        # Keys that a person pressed during the tour do not end it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        while True:
            say(f"   {await self._server.console_address()}&at=s/{self._ids['ada']}")
            self._screen.remark(
                "The link works once, for two minutes. Enter or Ctrl-C ends the demo."
            )
            with anyio.move_on_after(LINK_SECONDS):
                await anyio.wait_readable(sys.stdin)
                return

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

    async def _survive(self) -> None:
        await self._use("ada", "shell", "output", "", line="animal=otter")
        if self._server.has_browser:
            await self._browse(OUTSIDE, "browser_navigate", url=self._site)
            password = {"target": "#password", "text": PASSWORD}
            await self._browse(INSIDE, "browser_type", **password, submit=True)
        else:
            self._screen.remark(
                "The login is left out: no browser is installed. `statehold doctor --install` does that."
            )
        # Where no keeper can hold them, the processes of ada end with Statehold.
        is_kept = bool(death_signal_prefix())
        if not is_kept:
            await self._call("session_pause", session_id=self._ids["ada"])
            self._screen.line("ada", "session_pause()", "saved")
        pid, notebook = self._server.pid, self._pids["ada"]
        await self._server.kill()
        self._screen.line("$", f"kill -9 {pid}")
        await self._server.start()
        self._screen.line("$", "statehold serve --config notebook.toml", f"pid {self._server.pid}")
        if self._server.has_browser:
            await self._browse(INSIDE, "browser_navigate", url=self._site)
        await self._count("ada", 4 if is_kept else 1, replaced=not is_kept)
        await self._use("ada", "shell", "output", "otter" if is_kept else "", line="echo $animal")
        _check(is_kept == (self._pids["ada"] == notebook), "ada has another process")
        if is_kept:
            self._screen.remark(
                "Nobody had to log in again. The browser, the notebook and its shell ran on without Statehold."
            )

    async def _crash(self) -> None:
        result = await self._kill_during_call(self._pids["ada"])
        code, _, advice = _text(result).partition("\n")
        _check(code.startswith("outcome_unknown: "), f"the call was answered with {code}")
        self._screen.note(code)
        self._screen.note(advice)
        await self._count("bob", 2)
        await self._count("ada", 1, replaced=True)
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

    async def _pause(self) -> None:
        session = _content(await self._call("session_pause", session_id=self._ids["bob"]))
        _check(session["status"] == "paused", f"the session is {session['status']}")
        await wait_until_gone([self._pids["bob"]])
        result = f"{session['status']}; process {self._pids['bob']} has ended"
        self._screen.line("bob", "session_pause()", result)
        await self._count("bob", 1, replaced=True)
        await self._use("bob", "read_notes", "notes", ["bob's own"])

    async def _browse(self, title: str, tool: str, **arguments: Any) -> None:
        """Call a tool of the browser in ada's session, after which the page has this title."""
        text = _text(await self._call(tool, session_id=self._ids["ada"], **arguments))
        words = arguments.get("text", self._site.removeprefix("http://"))
        self._screen.line("ada", f'{tool}("{words}")', title)
        _check(f"Page Title: {title}\n" in text, text)

    async def _clean_up(self) -> None:
        for who, session in self._ids.items():
            # A person may have control of it.
            closed = await self._call("session_close", session_id=session, force=True)
            self._screen.line(who, "session_close()", _content(closed)["status"])
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

    async def _count(self, who: str, expected: int, *, replaced: bool = False) -> None:
        await self._use(who, "count", "count", expected, replaced=replaced)

    async def _use(
        self,
        who: str,
        tool: str,
        key: str,
        expected: object,
        *,
        replaced: bool = False,
        **arguments: Any,
    ) -> None:
        """Call a tool in a session and show the answer; with `replaced`, a notice must tell of a new connection."""
        result = await self._call(tool, session_id=self._ids[who], **arguments)
        content = _content(result)
        self._pids[who] = content["pid"]
        shown_arguments = ", ".join(f'{name}="{value}"' for name, value in arguments.items())
        self._screen.line(who, f"{tool}({shown_arguments})", f"{key} = {json.dumps(content[key])}")
        _check(content[key] == expected, f"{who} should get {expected}")
        note = (result.meta or {}).get(NOTICE_META)
        if note is not None:
            self._screen.note(str(note))
        _check(replaced == (note is not None), f"the note of a new connection is {note!r}")


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
    return outcome[-1] if outcome else INTERRUPTED


async def _demo(outcome: list[int]) -> None:
    failure: DemoFailed | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_until_signal, tasks.cancel_scope)
        try:
            async with Tour() as tour:
                await tour.run()
                outcome.append(OK)
                await tour.end()
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
