"""Python programs with their imports done: `python -m support.fork_server SOCKET` forks one for each that is asked for.

Importing the SDK takes a program longer than everything else it does in a test. A program started in this way is a
separate process like any other, but its command line is that of the fork server; tests of command lines need the real
program.
"""

from __future__ import annotations

import gc
import importlib
import marshal
import os
import random
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Literal, NoReturn

from .fork_client import request_program

HERE: Final = Path(__file__).resolve().parent
PRELOADED: Final = (
    "anyio._backends._asyncio",
    "mcp.server.lowlevel",
    "mcp.server.runner",
    "mcp.server.sse",
    "mcp.server.stdio",
    "mcp.server.streamable_http_manager",
    "mcp.server.subscriptions",
    "playwright.async_api",
    "starlette.applications",
    "statehold.shell.main",
    "statehold.console.app",
    "statehold.server.config.environment",
    "statehold.server.config.load",
    "statehold.server.operate.handler",
    "statehold.server.gateway.stores",
    "statehold.server.process.http",
    "statehold.server.process.stdio",
    "statehold.tools.browser.service",
    "uvicorn",
    "uvloop",
)


class ForkedProgram:
    """A program that a fork server runs, with the part of the interface of `subprocess.Popen` that the tests use."""

    def __init__(
        self, address: Path, arguments: Sequence[str], env: Mapping[str, str], *, piped: bool
    ) -> None:
        self.returncode: int | None = None
        self.args = arguments
        source, self.stdin = self._pipe("wb") if piped else (os.open(os.devnull, os.O_RDONLY), None)
        out, self.stdout = self._pipe("rb") if piped else (os.open(os.devnull, os.O_WRONLY), None)
        error, self.stderr = (os.dup(2), None) if piped else self._pipe("rb")
        streams = (source, out, error)
        self._fork_server, self._status, self.pid = request_program(
            str(address), arguments, env, streams
        )
        for stream in streams:
            os.close(stream)

    @staticmethod
    def _pipe(mode: Literal["rb", "wb"]) -> tuple[int, IO[bytes]]:
        """Return the program's end of a pipe, and ours."""
        read, write = os.pipe()
        theirs, ours = (write, read) if mode == "rb" else (read, write)
        return theirs, open(ours, mode)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._fork_server], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._fork_server], [], [], timeout)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = os.waitstatus_to_exitcode(int(self._status.readline()))
            self._status.close()
            self._fork_server.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may end between the question and the signal.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A running one."""

    current: ClassVar[ForkServer | None] = None

    def __init__(self, address: Path) -> None:
        self.address = address

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, piped: bool = False
    ) -> ForkedProgram:
        """Start a Python program out of it. Its standard error can be read, or, when piped, its other streams used."""
        return ForkedProgram(
            self.address, arguments, os.environ if env is None else env, piped=piped
        )

    def told_by(self, *arguments: str, lines: int) -> list[str]:
        """Run a program until it has printed a number of lines, and kill it."""
        process = self.start(*arguments, piped=True)
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            output = [process.stdout.readline().decode() for _ in range(lines)]
            process.kill()
            process.wait(10)
        return output

    def command(self, *arguments: str) -> list[str]:
        """Return a command that starts a program out of it and ends with it, as `[sys.executable, ...]` would without."""
        # Neither site-packages nor the environment: all it imports is in the standard library.
        return [
            sys.executable,
            "-S",
            "-E",
            str(HERE / "fork_client.py"),
            str(self.address),
            *arguments,
        ]

    def service(self, program: Path | str, *arguments: str, **options: Any) -> dict[str, Any]:
        """Describe a service that runs a program out of it, outside of any sandbox: none has its socket."""
        command, *rest = self.command(str(program), *arguments)
        return {"command": command, "args": rest, "sandbox": "off", **options}

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Generator[ForkServer]:
        address = folder / "fork_server"
        process = subprocess.Popen(
            [sys.executable, "-m", "support.fork_server", str(address)],
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            cls.current = cls(address)
            yield cls.current
        finally:
            cls.current = None
            process.stdin.close()
            process.wait(10)
            process.stdout.close()


class ForkParent:
    """The process that forks."""

    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(64)
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, socket.socket] = {}
        self._signals, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Fork until standard input is closed, then end every program that is left."""
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wake)
        for readable in (sys.stdin.fileno(), self._listening, self._signals):
            self._selector.register(readable, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                # An event before it may have ended the watch and closed the socket.
                if self._selector.get_map().get(key.fd) is not key:
                    continue
                if key.fileobj == sys.stdin.fileno():
                    for pid in self._children:
                        os.kill(pid, signal.SIGKILL)
                    return
                if key.fileobj is self._listening:
                    self._fork()
                elif key.fileobj == self._signals:
                    self._reap()
                else:
                    self._kill_abandoned(key.fileobj)

    def _fork(self) -> None:
        asking, _ = self._listening.accept()
        request = _receive_request(asking)
        if request is None:
            asking.close()
            return
        message, streams = request
        pid = os.fork()
        if pid == 0:
            self._run_program(marshal.loads(message), streams)
        for stream in streams:
            os.close(stream)
        self._children[pid] = asking
        self._selector.register(asking, selectors.EVENT_READ)
        # One that was killed meanwhile has its program killed by _kill_abandoned().
        with suppress(OSError):
            asking.sendall(f"{pid}\n".encode())

    def _run_program(self, program: Any, streams: list[int]) -> NoReturn:
        code: int = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(3, 1 << 16)
            os.setsid()
            random.seed()
            os.chdir(program["folder"])
            os.environ.clear()
            os.environ.update(program["environment"])
            code = _run(program["arguments"])
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._signals, 1024)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                asking = self._children.pop(pid)
                with suppress(KeyError):  # the asking process may be gone
                    self._selector.unregister(asking)
                with suppress(OSError):
                    asking.sendall(f"{status}\n".encode())
                asking.close()

    def _kill_abandoned(self, asking: Any) -> None:
        """Kill the program of a process that was itself killed."""
        with suppress(ConnectionError):
            if asking.recv(64):
                return
        self._selector.unregister(asking)
        for pid, connection in self._children.items():
            if connection is asking:
                os.kill(pid, signal.SIGKILL)


def _receive_request(asking: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the program that a process asks for, and its streams; None if that process was killed meanwhile."""
    streams: list[int] = []
    try:
        message, streams, _, _ = socket.recv_fds(asking, 1 << 16, 3)
        while len(message) < 4 or len(message) < 4 + int.from_bytes(message[:4], sys.byteorder):
            more = asking.recv(1 << 16)
            if not more:
                raise ConnectionAbortedError
            message += more
    except OSError:
        for stream in streams:
            os.close(stream)
        return None
    return message[4:], streams


def _ignore(*_: object) -> None:
    """The number of the signal is in the pipe already."""


def _run(arguments: list[str]) -> int:
    """Run a program as Python itself would: a file, `-m` and a module, or `-c` and its text."""
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        elif arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path[0] = str(Path(arguments[0]).parent)
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    parent = ForkParent(sys.argv[1])
    print("ready", flush=True)  # noqa: T201
    parent.run()


if __name__ == "__main__":
    main()

__all__ = ["ForkServer", "ForkedProgram"]
