"""One child process of the keeper: its pipes, its exit code, and the last part of its stderr while no node reads it."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any, Final, cast

from confinement import start_confined
from marks import kill_marked
from protocol import STDERR_BYTES, close_all

CALL_LOG_BYTES: Final = 2 * 1024 * 1024
"""The size of a call log. Only the pages that were written take memory."""
READ_BYTES: Final = 65536


def require_spawn(request: dict[str, Any]) -> None:
    """Check the fields of a request to start a program.

    Raises:
        KeyError, ValueError: one is missing, or not of its type.
    """
    texts = [request["session"], request["service"], request["mark"], request["cwd"]]
    numbers = [request["generation"], request["epoch"]]
    command, env = request["command"], request["env"]
    is_valid = (
        isinstance(command, list)
        and isinstance(env, dict)
        and request["mark"]
        and all(type(number) is int for number in numbers)
    )
    if is_valid:
        texts += cast("list[Any]", command)
        for item in cast("dict[str, Any]", env).items():
            texts += item
    if not is_valid or not command or not all(isinstance(text, str) for text in texts):
        raise ValueError("not a program")


class Child:
    """A child in its own process session, from its start until close().

    Its command sets the parent-death signal, so that the kernel kills it when the keeper dies. With the descriptor of a
    Landlock ruleset, it is confined.

    Raises:
        OSError, ValueError: the program cannot be started.
    """

    def __init__(self, key: int, request: dict[str, Any], ruleset: int | None) -> None:
        self.key = key
        self.session: str = request["session"]
        self.service: str = request["service"]
        self.generation: int = request["generation"]
        self.epoch: int = request["epoch"]
        self.mark: str = request["mark"]
        self.holder: Any = None
        """The connection of the node that has its descriptors; None without one."""
        self.alone_since: float | None = None
        """When its node ended; None while a node has it, and while it is being killed."""
        self.kept_seconds = 0.0
        """The seconds that it lives at least without a node; its node sets them while a call is to outlive that."""
        self.is_released = False
        """Whether its node closes it: the keeper has no pipe of it any more."""
        self.held: dict[str, int] = {}
        """Descriptors that its node has the keeper hold for the next one, by name."""
        self.is_ending = False
        """Whether the keeper killed it."""
        self.code: int | None = None
        """Its exit code, minus the number of the signal that killed it; None while it runs."""
        self._stderr = bytearray()

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                request["command"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=request["env"],
                cwd=request["cwd"],
                start_new_session=True,
            )

        self._process = start() if ruleset is None else start_confined(ruleset, start)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._pipes = (process.stdin, process.stdout, process.stderr)
        os.set_blocking(process.stderr.fileno(), False)
        self._call_log = os.memfd_create("statehold-calls")
        os.ftruncate(self._call_log, CALL_LOG_BYTES)
        self.pidfd = os.pidfd_open(process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def identity(self) -> tuple[str, str, int]:
        return self.session, self.service, self.generation

    @property
    def stderr(self) -> int:
        """The descriptor of its stderr."""
        return self._pipes[2].fileno()

    @property
    def descriptors(self) -> list[int]:
        return [*(pipe.fileno() for pipe in self._pipes), self._call_log]

    @property
    def stderr_tail(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    def describe(self, now: float) -> dict[str, Any]:
        since = self.alone_since
        return {
            "key": self.key,
            "pid": self.pid,
            "session": self.session,
            "service": self.service,
            "has_node": self.holder is not None,
            "alone_seconds": None if since is None else now - since,
            "code": self.code,
        }

    def read_stderr(self) -> bool:
        """Read the next part of its stderr. Return False at its end."""
        try:
            data = os.read(self.stderr, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._stderr += data
        del self._stderr[:-STDERR_BYTES]
        return bool(data)

    def reap(self) -> None:
        """Take the exit code of the process, which has ended."""
        self.code = self._process.wait()

    def release(self) -> None:
        """Close our ends of its pipes, so that it sees the end of its stdin when its node closes that."""
        if not self.is_released:
            self.is_released = True
            for pipe in self._pipes:
                pipe.close()
            os.close(self._call_log)

    def kill(self) -> None:
        """Kill its process group, and its descendants that left the group."""
        if self.code is None:
            _kill_group(self.pid)
        kill_marked([self.mark])

    def close(self) -> None:
        self.release()
        close_all([self.pidfd, *self.held.values()])
        self.held.clear()


def _kill_group(pid: int) -> None:
    # Its leader is not reaped yet, so the number is still that of its group.
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
