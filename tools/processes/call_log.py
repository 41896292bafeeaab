"""The call log of a kept child: memory that outlives this process, so that the next one knows the calls in flight.

It holds the last bytes that were read from the child's stdout, and notes of what was sent to it: the ids of calls with an
operation id, the ids of the child's requests that were answered, which of those calls asked, and whether a line to it was
begun but not ended. It is a file in memory that the keeper holds. A kill of this process at any moment loses nothing that
was read: the kernel writes it into this memory.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Final

from ...sessions.json_codec import dumps
from .piped_process import PipeEnd

_COUNTER: Final = struct.Struct("=Q")
_OPEN_LINE: Final = 2 * _COUNTER.size
_HEADER_BYTES: Final = 3 * _COUNTER.size
"""The numbers of bytes that were ever written to the two parts, and the mark of begin_line()."""
SENT_BYTES: Final = 1024 * 1024
READ_BYTES: Final = 65536
"""Most bytes of one read. So many bytes after the last ones are zero, which no message contains."""


class _Part:
    """A part of the memory that keeps the last `size` bytes that were written to it."""

    def __init__(self, memory: mmap.mmap, counter: int, start: int, size: int) -> None:
        self._memory = memory
        self._counter = counter * _COUNTER.size
        self._start = start
        self.size = size

    @property
    def written(self) -> int:
        """The number of bytes that were ever written."""
        return _COUNTER.unpack_from(self._memory, self._counter)[0]

    @written.setter
    def written(self, total: int) -> None:
        _COUNTER.pack_into(self._memory, self._counter, total)

    def place(self, position: int) -> int:
        """Return the place in the memory of the byte that is written as number `position`."""
        return self._start + position % self.size

    def put(self, position: int, data: bytes) -> None:
        """Write bytes without counting them."""
        place = self.place(position)
        head = data[: self._start + self.size - place]
        self._memory[place : place + len(head)] = head
        tail = data[len(head) :]
        self._memory[self._start : self._start + len(tail)] = tail

    def get(self, first: int, end: int) -> bytes:
        """Return the bytes that were written as numbers `first` to `end`, without the latter."""
        place, length = self.place(first), end - first
        head = self._memory[place : min(place + length, self._start + self.size)]
        return head + self._memory[self._start : self._start + length - len(head)]


@dataclass(frozen=True, slots=True)
class SentNotes:
    """The notes of what was sent to a child."""

    calls: dict[int, str]
    """The operation ids of the calls that were sent, by the id of their request.

    Left out are a call that was sent again with answers to its questions, since its answers cannot be told apart, and one
    whose line may not have been written to its end.
    """
    has_all_calls: bool
    """Whether `calls` has every call that was ever sent."""
    answered: set[int | str]
    """The ids of the child's requests that were answered."""
    askers: dict[int | str, int]
    """The ids of the requests of those calls that asked, by the ids of the child's requests."""


class CallLog:
    """The call log of one child. It lives until close(); the child's next connection opens it again.

    For one writer. Writing takes some microseconds and never blocks.
    """

    def __init__(self, descriptor: int) -> None:
        """Open the log of a descriptor, which it closes."""
        size = os.fstat(descriptor).st_size
        self._memory = mmap.mmap(descriptor, size)
        os.close(descriptor)
        self._sent = _Part(self._memory, 0, _HEADER_BYTES, SENT_BYTES)
        start = _HEADER_BYTES + SENT_BYTES
        self._received = _Part(self._memory, 1, start, size - start)
        self._count_unnoted()
        self.earlier = self._read_notes()
        """The notes of the processes before this one."""

    def _count_unnoted(self) -> None:
        """Count the bytes that the kernel wrote for a process that was killed before it could count them."""
        written = self._received.written
        following = self._received.get(written, written + READ_BYTES)
        self._received.written = written + len(following.partition(b"\0")[0])

    def record_call(self, number: int, operation_id: str) -> None:
        """Record a call with an operation id just before it is sent; `number` is the id of its request."""
        self._note([number, operation_id])

    def record_answered(self, request_id: int | str) -> None:
        """Record that a request of the child is being answered."""
        self._note([request_id])

    def record_asker(self, request_id: int | str, number: int) -> None:
        """Record that a request of the child is a question of a call with an operation id."""
        self._note([request_id, number, "asks"])

    @property
    def position(self) -> int:
        """The number of bytes of all notes so far: the first counter, that of the sent part."""
        return _COUNTER.unpack_from(self._memory)[0]

    @property
    def has_open_line(self) -> bool:
        """Whether a line to the child was begun and not ended."""
        return bool(self._open_line)

    @property
    def _open_line(self) -> int:
        """One more than the position at which the open line began; 0 without one."""
        return _COUNTER.unpack_from(self._memory, _OPEN_LINE)[0]

    def begin_line(self, position: int) -> None:
        """Mark a line that a kill may cut off. `position` is the position before the notes of the line."""
        if not self.has_open_line:
            _COUNTER.pack_into(self._memory, _OPEN_LINE, position + 1)

    def end_line(self) -> None:
        """Record that all lines are written to their end."""
        if _COUNTER.unpack_from(self._memory, _OPEN_LINE)[0]:
            _COUNTER.pack_into(self._memory, _OPEN_LINE, 0)

    def _note(self, note: list[int | str]) -> None:
        data, written = dumps(note).encode() + b"\n", self._sent.written
        self._sent.put(written, data)
        # Last, so that a kill before it leaves the notes as they were.
        self._sent.written = written + len(data)

    def read(self, descriptor: int) -> bytes:
        """Read the next bytes of the child's stdout into the log and return them; empty at its end.

        Raises:
            BlockingIOError: there are none now.
        """
        part = self._received
        written = part.written
        length = min(READ_BYTES, part.size - written % part.size)
        place = part.place(written)
        with memoryview(self._memory) as memory, memory[place : place + length] as target:
            count = os.readv(descriptor, [target])
        # Before the bytes are counted: those after them must be zero.
        part.put(written + READ_BYTES, bytes(count))
        part.written = written + count
        return self._memory[place : place + count]

    def _read_notes(self) -> SentNotes:
        written, size = self._sent.written, self._sent.size
        first = max(0, written - size)
        end = self._open_line - 1 if self.has_open_line else written
        # Without the note whose beginning was overwritten.
        lines = self._sent.get(first, end).split(b"\n")[1 if first else 0 : -1]
        notes: list[list[int | str]] = [json.loads(line) for line in lines]
        calls = [(int(note[0]), str(note[1])) for note in notes if len(note) == 2]
        rounds = Counter(number for number, _ in calls)
        return SentNotes(
            calls={number: operation for number, operation in calls if rounds[number] == 1},
            has_all_calls=not first and end == written and len(rounds) == len(calls),
            answered={note[0] for note in notes if len(note) == 1},
            askers={note[0]: int(note[1]) for note in notes if len(note) == 3},
        )

    def received(self) -> tuple[list[bytes], bytes]:
        """Return the last whole lines that were read from the child, and the beginning of the line after them.

        A line whose beginning is lost becomes one that is no JSON.
        """
        part = self._received
        written = part.written
        first = max(0, written - (part.size - 2 * READ_BYTES))
        head, *lines = part.get(first, written).split(b"\n")
        if not lines:
            return [], head if first == 0 else b"#" + head
        beginning = lines.pop()
        return ([head, *lines] if first == 0 else lines), beginning

    def close(self) -> None:
        """Give up the memory. May be called twice."""
        self._memory.close()


class LoggedPipe(asyncio.ReadTransport):
    """A read transport over a pipe. It owns the descriptor, from the first read until the end of the pipe or close()."""

    def __init__(self, pipe: PipeEnd, log: CallLog, protocol: asyncio.Protocol) -> None:
        super().__init__({"pipe": pipe})
        self._loop = asyncio.get_running_loop()
        self._fd = pipe.fileno()
        self._log = log
        self._protocol = protocol
        self._is_closed = False
        os.set_blocking(self._fd, False)
        protocol.connection_made(self)
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            data = self._log.read(self._fd)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._protocol.data_received(data)
        else:
            self.close()

    def pause_reading(self) -> None:
        self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        self._loop.add_reader(self._fd, self._read)

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Close the pipe. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._loop.call_soon(self._protocol.connection_lost, None)
