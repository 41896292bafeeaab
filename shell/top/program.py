"""The loop of `statehold top` at a terminal: draw, read keys, act."""

from __future__ import annotations

import errno
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from rich.console import Console
from rich.control import Control

from ...server.exit_codes import FAILURE, OK
from ..output import say
from .poller import Poller
from .sample import Sample, SessionRow, Source
from .screen import draw
from .terminal import Terminal
from .view import ScreenRequest, View

DRAW_SECONDS: Final = 1.0
"""Seconds after which the screen is drawn again without news: the ages go on."""
_SUSPEND: Final = ScreenRequest("suspend")
_PROGRESS: Final = {"pause": "pausing", "resume": "resuming", "close": "closing"}


class Program:
    """The program at the terminal of this process, which it owns while it shows sessions."""

    def __init__(self, source: Source, open_command: Sequence[str] | None) -> None:
        """`open_command`: the words of the command that opens a session, whose id follows; None if it cannot."""
        self._source = source
        self._open_command = open_command
        # A terminal that cannot show a character gets a question mark.
        stdout: Any = sys.stdout
        stdout.reconfigure(errors="replace")
        self._console = Console(highlight=False)

    def run(self, first: Sample) -> int:
        """Show sessions until the user quits or the terminal is gone. Return the exit code.

        Raises:
            KeyboardInterrupt, SystemExit: Ctrl-C, or a signal. The terminal is as it was before.
        """
        view = View(first)
        with closing(Terminal()) as terminal:
            poller = Poller(self._source, first, terminal.wake)
            with closing(poller):
                try:
                    while (request := self._show(terminal, poller, view)).action != "quit":
                        if request is _SUSPEND:
                            terminal.suspend()
                        elif request.row is not None:
                            self._open(request.row)
                except EOFError:
                    return FAILURE
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    # The terminal is gone.
                    return FAILURE
        return OK

    def _show(self, terminal: Terminal, poller: Poller, view: View) -> ScreenRequest:
        """Show the screen until something has to be done outside of it."""
        with terminal.raw(), self._console.screen(hide_cursor=True) as screen:
            while True:
                look = poller.take(view.selected)
                view.update(look.sample, look.rates)
                for outcome in look.outcomes:
                    view.say(outcome, time.monotonic())
                self._console.control(Control.home())
                screen.update(
                    draw(
                        view,
                        title=self._source.title,
                        note=self._source.note,
                        size=(self._console.width, self._console.height),
                        now=time.time(),
                        at=time.monotonic(),
                    )
                )
                for key in terminal.read_keys(DRAW_SECONDS):
                    request = view.press(key)
                    if request is not None and (end := self._do(request, poller, view)):
                        return end
                if terminal.is_suspended:
                    return _SUSPEND

    def _do(self, request: ScreenRequest, poller: Poller, view: View) -> ScreenRequest | None:
        """Start an action. Return the request if it has to be done outside of the screen."""
        if request.action == "quit":
            return request
        if request.action == "open":
            if self._open_command is not None:
                return request
            assert request.row is not None
            command = f"statehold sessions open {shlex.quote(request.row.title)}"
            view.say(f"open it on the machine of the server: {command}", time.monotonic())
        elif request.row is not None:
            view.say(f"{_PROGRESS[request.action]} {request.row.title}", time.monotonic())
            poller.act(request.row, request.action)
        return None

    def _open(self, row: SessionRow) -> None:
        """Run `statehold sessions open` in the terminal, and wait for its end."""
        assert self._open_command is not None
        command = [*self._open_command, row.id]
        say(f"$ statehold {shlex.join(command[4:])}")
        # Ctrl-C ends the command, which gives the session back; this program goes on. An ignored signal would be inherited.
        earlier = signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            code = subprocess.run(command, check=False).returncode
        finally:
            signal.signal(signal.SIGINT, earlier)
        if code != OK:
            say("press Enter to go back to the sessions")
            sys.stdin.readline()
