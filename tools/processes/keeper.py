"""The connection of this process to the keeper of its data folder, which holds child processes beyond our own end.

See keeper/protocol.py for the packets. Linux only: elsewhere, and when the keeper cannot be reached, children are our own.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ...keeper import protocol
from ...keeper.protocol import Packet
from . import procfs
from .keeper_command import (
    ANSWER_SECONDS,
    KeeperRefusal,
    KeeperStatus,
    KeeperUnreachable,
    NoKeeper,
    connect_to_keeper,
)
from .launch import death_signal_prefix, require_program
from .piped_process import PipeEnd

logger = logging.getLogger("statehold.upstream")

PROGRAM: Final = Path(protocol.__file__).parent
START_SECONDS: Final = 5.0
ADOPT_SECONDS: Final = 15.0
"""Seconds that the answer to an adoption may take: there is no other way to that child."""
IN_USE_SECONDS: Final = 0.5
"""Seconds that an adoption waits for the end of the node that has the child. A killed node ends within milliseconds."""
RETRY_SECONDS: Final = 0.02
LOG: Final = "keeper.log"


@dataclass(frozen=True, slots=True)
class KeptIdentity:
    """The name under which the keeper holds a child, and the epoch of the session in which this node asks for it."""

    session: str
    service: str
    generation: int
    epoch: int

    def fields(self) -> Packet:
        return {
            "session": self.session,
            "service": self.service,
            "generation": self.generation,
            "epoch": self.epoch,
        }


class KeptProcess:
    """A child of the keeper whose pipes this process has. It lives as long as the program; see Process."""

    def __init__(self, client: KeeperClient, answer: Packet, descriptors: Sequence[int]) -> None:
        self._client = client
        self._pipes = descriptors[:3]
        self._on_exit: Callable[[], None] | None = None
        self.key: int = answer["key"]
        self.pid: int = answer["pid"]
        self.call_log: int = descriptors[3]
        """The descriptor of its call log."""
        self.earlier_stderr: str = answer.get("stderr", "")
        """The last part of its stderr that the keeper has read."""
        self.returncode: int | None = answer.get("code")
        self.mark: str = answer["mark"]
        self.keeper_pid = client.pid

    def take_pipes(self) -> tuple[PipeEnd, PipeEnd, PipeEnd]:
        stdin, stdout, stderr = map(PipeEnd, self._pipes)
        return stdin, stdout, stderr

    def watch(self, on_exit: Callable[[], None]) -> None:
        if self.returncode is None:
            self._on_exit = on_exit
        else:
            asyncio.get_running_loop().call_soon(on_exit)

    def record_exit(self, code: int) -> None:
        """Record its end. Called by the client."""
        if self.returncode is None:
            self.returncode = code
            if self._on_exit is not None:
                self._on_exit()

    async def release(self) -> bool:
        return await self._client.release(self)

    async def hold(self, name: str, descriptor: int) -> None:
        """Have the keeper hold a copy of a descriptor until the child is gone, for the next node that adopts the child.

        Raises:
            KeeperRefusal, KeeperUnreachable: it does not hold it.
        """
        request = {"verb": "hold", "key": self.key, "name": name}
        await self._client.request(request, [descriptor])

    async def fetch(self, name: str) -> int:
        """Return a descriptor that an earlier node had the keeper hold; the caller closes it. Raises as hold() does."""
        request = {"verb": "fetch", "key": self.key, "name": name}
        _, (descriptor,) = await self._client.request(request)
        return descriptor

    async def keep(self, seconds: float) -> None:
        """Have the keeper hold the child without a node for so many seconds, if that is longer than its own time.

        Raises as hold() does. Until another node adopts the child.
        """
        await self._client.request({"verb": "keep", "key": self.key, "seconds": seconds})

    async def leave(self) -> None:
        """Leave the child to the next node, as after the end of this one. Its end is not reported any more."""
        await self._client.leave(self)

    async def drop(self, name: str) -> None:
        """Have the keeper close its copy of a descriptor. Raises as hold() does."""
        await self._client.request({"verb": "drop", "key": self.key, "name": name})


class KeeperClient:
    """The connection to the keeper. It opens with the first request and lives until aclose(), or until the keeper dies.

    When the keeper dies, its children die with it. A later request starts another keeper. `linger` is the time in seconds
    that children live without a node.
    """

    def __init__(
        self,
        folder: Path,
        linger: float,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        adopt_seconds: float = ADOPT_SECONDS,
        in_use_seconds: float = IN_USE_SECONDS,
    ) -> None:
        self._folder = folder
        self._linger = linger
        self._answer_seconds = answer_seconds
        self._adopt_seconds = adopt_seconds
        self._in_use_seconds = in_use_seconds
        self._opening = anyio.Lock()
        self._socket: socket.socket | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[Packet, list[int]]]] = {}
        self._processes: dict[int, KeptProcess] = {}
        self.pid: int | None = None
        """The pid of the keeper of the last request, None before the first one."""

    async def spawn(
        self,
        identity: KeptIdentity,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        mark: str,
        ruleset: int | None = None,
    ) -> KeptProcess:
        """Start a program as a child of the keeper, confined by a Landlock ruleset. A cancelled start leaves nothing behind.

        Raises:
            OSError, ValueError: the program cannot be started.
            KeeperUnreachable: there is no keeper, or it does not keep this program.
        """
        prefix = death_signal_prefix()
        if not prefix:
            raise KeeperUnreachable("setpriv of util-linux is not installed")
        require_program(command[0], env.get("PATH", os.defpath), cwd)
        request = {
            "verb": "spawn" if ruleset is None else "confine",
            "command": [*prefix, *command],
            "env": dict(env),
            "cwd": cwd or os.getcwd(),
            "mark": mark,
            **identity.fields(),
        }
        try:
            descriptors = [] if ruleset is None else [ruleset]
            return self._process(*await self._request(request, descriptors=descriptors))
        except KeeperRefusal as error:
            if error.answer["error"] != protocol.FAILED:
                raise KeeperUnreachable(f"it refused the program ({error})") from error
            number = error.answer["errno"]
            raise OSError(number, os.strerror(number), error.answer["file"]) from None

    async def adopt(self, identity: KeptIdentity) -> KeptProcess:
        """Take over a child that the keeper holds. Waits up to `in_use_seconds` for the end of the node that has it.

        Raises:
            KeeperRefusal: it holds no such child, another node has the child, or the session by now.
            NoKeeper: there is no keeper, so that the child has ended.
            KeeperUnreachable: it does not answer. A later adoption may succeed.
        """
        request = {"verb": "adopt", **identity.fields()}
        give_up_at = anyio.current_time() + self._in_use_seconds
        while True:
            try:
                return self._process(
                    *await self._request(request, start=False, seconds=self._adopt_seconds)
                )
            except KeeperRefusal as error:
                is_in_use = error.answer["error"] == protocol.IN_USE
                if not is_in_use or anyio.current_time() >= give_up_at:
                    raise
            await anyio.sleep(RETRY_SECONDS)

    async def status(self) -> KeeperStatus | None:
        """Return what the keeper holds; None without a keeper.

        Raises:
            KeeperUnreachable: it does not answer.
        """
        try:
            answer, _ = await self._request({"verb": "list"}, start=False)
        except NoKeeper:
            return None
        assert self.pid is not None
        return KeeperStatus.of(self.pid, answer)

    async def release(self, process: KeptProcess) -> bool:
        """Have the keeper close its ends of a child's pipes. Return False if another node has the child by now."""
        if process.keeper_pid != self.pid:
            # Another keeper may have given its key to another child.
            return True
        try:
            await self._request({"verb": "release", "key": process.key}, start=False)
        except KeeperRefusal as error:
            is_ours = error.answer["error"] != protocol.STALE
            if not is_ours:
                self._processes.pop(process.key, None)
            return is_ours
        except KeeperUnreachable as error:
            logger.debug("the keeper did not release child %d: %s", process.pid, error)
        return True

    async def leave(self, process: KeptProcess) -> None:
        """Have the keeper hold a child for the next node. Does nothing if the keeper has ended: then so has the child."""
        self._processes.pop(process.key, None)
        if process.keeper_pid == self.pid:
            with suppress(KeeperRefusal, KeeperUnreachable):
                await self._request({"verb": "leave", "key": process.key}, start=False)

    async def aclose(self) -> None:
        """Close the connection. May be called twice. The keeper goes on holding the children that were not released."""
        self._lose()

    async def request(
        self, packet: Packet, descriptors: Sequence[int] = ()
    ) -> tuple[Packet, list[int]]:
        """Send one request about a child that this node holds; return the answer.

        Raises:
            KeeperRefusal, KeeperUnreachable: there is no such child, or no keeper.
        """
        return await self._exchange(packet, self._answer_seconds, descriptors)

    def _process(self, answer: Packet, descriptors: list[int]) -> KeptProcess:
        process = self._processes[answer["key"]] = KeptProcess(self, answer, descriptors)
        return process

    async def _request(
        self,
        packet: Packet,
        *,
        start: bool = True,
        seconds: float | None = None,
        descriptors: Sequence[int] = (),
    ) -> tuple[Packet, list[int]]:
        async with self._opening:
            if self._socket is None:
                await self._open(start=start)
        return await self._exchange(packet, seconds or self._answer_seconds, descriptors)

    async def _exchange(
        self, packet: Packet, seconds: float, descriptors: Sequence[int] = ()
    ) -> tuple[Packet, list[int]]:
        if self._socket is None:
            raise KeeperUnreachable("the connection is closed")
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            protocol.send(self._socket, {**packet, "number": number}, descriptors)
            with anyio.fail_after(seconds):
                answer, received = await future
        except ConnectionError as error:
            raise NoKeeper("it ended") from error
        except TimeoutError as error:
            raise KeeperUnreachable(f"it does not answer (pid {self.pid})") from error
        except OSError as error:
            raise KeeperUnreachable(str(error)) from error
        if "error" in answer:
            raise KeeperRefusal(answer)
        return answer, received

    async def _open(self, *, start: bool) -> None:
        if not procfs.LINUX:
            raise NoKeeper("only Linux has it")
        connection = connect_to_keeper(self._folder)
        if connection is None and start:
            await anyio.to_thread.run_sync(self._start)
            connection = connect_to_keeper(self._folder)
        if connection is None:
            raise NoKeeper("none runs")
        self._socket = connection
        self.pid, _ = protocol.peer_of(connection)
        loop = asyncio.get_running_loop()
        loop.add_reader(connection.fileno(), self._on_readable, connection)
        try:
            await self._exchange(
                {"verb": "hello", "version": protocol.VERSION, "linger": self._linger},
                self._answer_seconds,
            )
        except KeeperRefusal as error:
            self._lose()
            raise KeeperUnreachable(f"it refused this process ({error})") from error
        except BaseException:
            self._lose()
            raise

    def _start(self) -> None:
        """Start a keeper and wait until it listens, or until another one does. Blocks."""
        ready, ready_end = os.pipe()
        arguments = [self._folder, str(ready_end)]
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            log = os.open(self._folder / LOG, flags, 0o600)
            try:
                # Forked once more, so that it is not our descendant: some clients end all descendants of what they started.
                subprocess.run(
                    ["setsid", "--fork", sys.executable, "-I", "-S", PROGRAM, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=[ready_end],
                    cwd="/",
                    env={"PATH": os.defpath},
                    check=True,
                )
            finally:
                os.close(log)
                os.close(ready_end)
            poll = select.poll()
            poll.register(ready, select.POLLIN)
            poll.poll(START_SECONDS * 1000)
        except (OSError, subprocess.CalledProcessError) as error:
            logger.warning("the keeper could not be started: %s", error)
        finally:
            os.close(ready)

    def _on_readable(self, connection: socket.socket) -> None:
        while True:
            try:
                received = protocol.receive(connection)
            except BlockingIOError:
                return
            except (OSError, ValueError):
                received = None
            if received is None:
                if self._processes:
                    logger.warning("the keeper ended, and %d child processes", len(self._processes))
                for process in self._processes.values():
                    # The kernel kills it as well, but not one that the keeper started just before.
                    procfs.signal_group(process.pid, signal.SIGKILL)
                self._lose()
                return
            self._dispatch(*received)

    def _dispatch(self, packet: Packet, descriptors: list[int]) -> None:
        if "exited" in packet:
            process = self._processes.pop(packet["exited"], None)
            if process is not None:
                process.record_exit(packet["code"])
            return
        future = self._answers.pop(packet["number"], None)
        if future is not None and not future.done():
            future.set_result((packet, descriptors))
            return
        # Its request was cancelled or took too long.
        protocol.close_all(descriptors)
        if descriptors and "key" in packet and self._socket is not None:
            is_adoption = "stderr" in packet
            for verb in ("leave",) if is_adoption else ("end", "release"):
                protocol.send(
                    self._socket,
                    {"verb": verb, "key": packet["key"], "number": next(self._numbers)},
                )

    def _lose(self) -> None:
        """Forget the connection. The children of a dead keeper die with it, by their parent-death signal."""
        connection, self._socket = self._socket, None
        if connection is None:
            return
        asyncio.get_running_loop().remove_reader(connection.fileno())
        connection.close()
        answers, self._answers = self._answers, {}
        for future in answers.values():
            if not future.done():
                future.set_exception(NoKeeper("it ended"))
        processes, self._processes = self._processes, {}
        for process in processes.values():
            process.record_exit(-signal.SIGKILL)
