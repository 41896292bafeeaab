"""The JSON Schema (2020-12) of a state: which schemas are allowed, and whether a value fits one.

A caller supplies the schema and the value, and can make a check endless: references that double at each level, or a long
pattern and a long text. The engine cannot be interrupted and holds the interpreter's lock. So checks run in child
processes, which the system ends when one takes too long.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from ..errors import InvalidArgument, StateInvalid
from ..json_codec import JSON, dumps
from .patch import pointer

SCHEMA_LIMIT: Final = 64 << 10
"""Bytes of a schema as JSON text."""
CHECK_SECONDS: Final = 1.0
"""Processor time of one check."""
MAX_PROCESSES: Final = 2
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_PROGRAM: Final = Path(__file__).with_name("checker.py")

_RULES: Final = {
    "$ref": "a reference leads nowhere, or to a remote schema, and these are not fetched",
    "format": "it is no regular expression that can be used: it is broken, too large, or looks around or back",
}
"""Error texts of schemas by the rule they break; the engine's own text is used for the others."""


async def check_schema(schema: Mapping[str, Any], *, owner: str = "") -> None:
    """Check a new schema; `owner` is the key of the principal who gave it.

    Raises:
        InvalidArgument: it is invalid, refers to something outside of itself, or takes too long to check.
    """
    try:
        text = dumps(schema)
    except (TypeError, ValueError):
        raise _schema_error("it is not JSON") from None
    except RecursionError:
        raise _schema_error("it is too deep") from None
    if len(text.encode()) > SCHEMA_LIMIT:
        raise _schema_error(f"it takes {len(text.encode())} bytes; {SCHEMA_LIMIT} are allowed")
    if schema.get("$schema", DIALECT) not in (DIALECT, f"{DIALECT}#"):
        raise _schema_error(f"it is written in another dialect than {DIALECT}")
    error = await _check(owner, text)
    if isinstance(error, str):
        raise _schema_error(f"it {error}")
    if error is not None:
        path = pointer(error["path"]) or "it"
        reason = _RULES.get(error["rule"], error["message"])
        raise _schema_error(f"{path:.200} is no valid schema: {reason:.300}")


async def check_value(
    schema: JSON, value: object, session_id: str | None = None, *, owner: str = ""
) -> None:
    """Check a value against a session's schema, which was checked; `owner` is the principal that the work is counted for.

    Raises:
        StateInvalid: it does not fit (the message names the place and the rule), or the check takes too long.
    """
    error = await _check(owner, dumps(schema), dumps(value))
    if error is None:
        return
    if isinstance(error, str):
        text = f"The state cannot be checked against the session's schema: the check {error}."
    elif not error["schema_path"]:
        text = f"The state cannot be checked against the session's schema: {error['message']:.300}."
    else:
        path, rule = pointer(error["path"]) or "The state", pointer(error["schema_path"])
        message = error["message"]
        text = f"{path:.200} does not fit the session's schema at {rule:.200}: {message:.300}."
    raise StateInvalid(text, session_id=session_id)


def _schema_error(why: str) -> InvalidArgument:
    return InvalidArgument(f"state_schema: {why}.")


class _Turn:
    """The right of one principal to use a process."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()


_limiter: anyio.CapacityLimiter | None = None
_turns: Final[WeakValueDictionary[str, _Turn]] = WeakValueDictionary()


async def _check(owner: str, *texts: str) -> Any:
    """Return the answer of a child process: None, the first error, or a text that says why there is no answer.

    A principal uses one process at a time, and queues once for it, so the others are served in turn.
    """
    global _limiter
    if _limiter is None:  # it can be created within an event loop only
        _limiter = anyio.CapacityLimiter(MAX_PROCESSES)
    turn = _turns.setdefault(owner, _Turn())
    async with turn.lock:
        return await anyio.to_thread.run_sync(partial(_ask, texts), limiter=_limiter)
    raise AssertionError("unreachable: a lock swallows no exception")


_idle: Final[dict[int, list[subprocess.Popen[bytes]]]] = {}
"""Child processes that wait for a check, by the process that started them: a fork must not use those of its parent."""


def _ask(texts: tuple[str, ...]) -> Any:
    idle = _idle.setdefault(os.getpid(), [])
    process = idle.pop() if idle else _start()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(texts).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = b""
    if line.endswith(b"\n"):
        idle.append(process)
        return json.loads(line)
    _end(process)
    return "takes too long" if process.returncode == -signal.SIGPROF else "is too deep or too large"


def _start() -> subprocess.Popen[bytes]:
    """Start a child process. It ends when its input does, so it does not outlive this process."""
    return subprocess.Popen(
        [sys.executable, "-P", str(_PROGRAM), str(CHECK_SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # a terminal's Ctrl-C is for this process
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


@atexit.register
def _end_all() -> None:
    for process in _idle.pop(os.getpid(), ()):
        _end(process)
