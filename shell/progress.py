"""The progress of a command that may take long: a bar on stderr, for a person at a terminal."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..server.printing import complain, is_terminal
from .output import plain

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressBar:
    """A bar with a title, shown within its `with` block if stderr is a terminal, and not with --json.

    update(), note() and say() may be called from any thread.
    """

    def __init__(self, title: str, *, is_json: bool) -> None:
        self._title = title
        self._is_shown = (
            not is_json and is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        )
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self._is_shown:
            # Imported here: it takes as long as all other imports of a quick command.
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            columns = (TextColumn("{task.description}", markup=False), BarColumn())
            self._progress = Progress(
                *columns,
                TaskProgressColumn(),
                Elapsed(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._progress.add_task("", total=None)
            self.note(self._title)
            self._progress.start()
            # A command that is killed could not show the cursor again.
            self._progress.console.show_cursor(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()

    def update(self, done: int, total: int) -> None:
        """Show how much is done. Before the first update the bar only moves."""
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def note(self, text: str) -> None:
        """Show what is being done, instead of the title."""
        if self._progress is not None:
            text, width = plain(text), self._progress.console.width // 2
            shortened = text if len(text) <= width else f"{text[: width - 1]}\u2026"
            self._progress.update(self._progress.task_ids[0], description=shortened)

    def say(self, line: str) -> None:
        """Write a line to stderr, also without a terminal; it stays above the bar."""
        if self._progress is None:
            complain(line)
        else:
            self._progress.console.print(f"statehold: {plain(line)}", markup=False, highlight=False)
