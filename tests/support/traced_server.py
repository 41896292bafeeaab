"""A `statehold` that reports the functions of ours that it executes: `python traced_server.py serve ...`.

A line on stdin starts a recording, and the next one ends it; then a line of JSON goes to stdout: the executed functions by
file, and the longest chain of frames of ours above the event loop. Recordings cover all threads. They leave out loops that
look for changes.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

import statehold.server

ROOT = Path(statehold.server.__file__).resolve().parents[1]
FOLDERS = ("sessions", "tools", "access", "server", "console", "shell")
BACKGROUND = ("sessions/principals/policy_watch.py", "server/process/access_files.py")
EVENT_LOOP = "asyncio/runners.py"


class Recording:
    """The functions that ran in all threads while it was on."""

    def __init__(self) -> None:
        self.is_on = False
        self._names: dict[CodeType, tuple[str, str] | None] = {}
        self.functions: dict[str, dict[str, None]] = {}
        self.stack: list[str] = []

    def clear(self) -> None:
        self.functions, self.stack = {}, []

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call; sys.setprofile and threading.setprofile take this function."""
        if not self.is_on or event != "call":
            return
        name = self._name(frame.f_code)
        if name is None:
            return
        stack = [name]
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.endswith(EVENT_LOOP):
            caller_name = self._name(caller.f_code)
            if caller_name is not None:
                stack.append(caller_name)
            caller = caller.f_back
        if stack[-1][0].startswith(BACKGROUND):
            return
        file, function = name
        self.functions.setdefault(file, {})[function] = None
        if len(stack) > len(self.stack):
            self.stack = [": ".join(name) for name in reversed(stack)]

    def _name(self, code: CodeType) -> tuple[str, str] | None:
        """Return file and name of a function of ours; None for any other."""
        if code not in self._names:
            self._names[code] = self._describe(code)
        return self._names[code]

    def _describe(self, code: CodeType) -> tuple[str, str] | None:
        file = Path(code.co_filename).resolve()
        if not file.is_relative_to(ROOT):
            return None
        path = file.relative_to(ROOT)
        return (str(path), code.co_qualname) if path.parts[0] in FOLDERS else None


def answer_commands(recording: Recording) -> None:
    for _ in sys.stdin:
        if not recording.is_on:
            recording.clear()
            recording.is_on = True
            report: dict[str, object] = {}
        else:
            recording.is_on = False
            functions = {file: list(names) for file, names in recording.functions.items()}
            report = {"functions": functions, "stack": recording.stack}
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    the_recording = Recording()
    threading.Thread(target=answer_commands, args=(the_recording,), daemon=True).start()
    threading.setprofile(the_recording.note)
    sys.setprofile(the_recording.note)

    from statehold.shell.main import main

    sys.exit(main())
