"""The call log of a kept child: memory that outlives this process, so that the next one knows the calls in flight.

It holds the last bytes that were read from the child's stdout, and notes of what was sent to it: the ids of calls with an
operation id, and the ids of the child's requests that were answered. It is a file in memory that the keeper holds, so a kill
of this process loses nothing that was written to it.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from typing import Final

_HEADER: Final = struct.Struct("=QQ")
"""The numbers of bytes that were ever written to the two parts."""
SENT_BYTES: Final = 1024 * 1024


class _Ring:
    """A part of the memory that keeps the last `size` bytes that were written to it."""

    def __init__(self, memory: mmap.mmap, counter: int, start: int, size: int) -> None:
        self._memory = memory
        self._counter = counter
        self._start = start
        self._size = size

    def _written(self) -> int:
        return _HEADER.unpack_from(self._memory)[self._counter]

    def write(self, data: bytes) -> None:
        written = self._written()
        total = written + len(data)
        data = data[-self._size :]
        position = (total - len(data)) % self._size
        head = data[: self._size - position]
        self._memory[self._start + position : self._start + position + len(head)] = head
        tail = data[len(head) :]
        self._memory[self._start : self._start + len(tail)] = tail
        # Last, so that a kill before it leaves the notes as they were.
        struct.pack_into("=Q", self._memory, 8 * self._counter, total)

    def read(self) -> tuple[bytes, bool]:
        """Return the bytes it keeps, and whether they are all that were ever written."""
        written = self._written()
        end = self._memory[self._start : self._start + written % self._size]
        if written <= self._size:
            whole = self._memory[self._start : self._start + written]
            return whole, True
        return self._memory[
            self._start + written % self._size : self._start + self._size
        ] + end, False


class CallLog:
    """The call log of one child. It lives until close(); the child's next connection opens it again.

    For one writer. Writing takes some microseconds and never blocks.
    """

    def __init__(self, descriptor: int) -> None:
        """Open the log of a descriptor, which it closes."""
        size = os.fstat(descriptor).st_size
        self._memory = mmap.mmap(descriptor, size)
        os.close(descriptor)
        self._sent = _Ring(self._memory, 0, _HEADER.size, SENT_BYTES)
        self._received = _Ring(
            self._memory, 1, _HEADER.size + SENT_BYTES, size - _HEADER.size - SENT_BYTES
        )

    def note_call(self, number: int, operation_id: str) -> None:
        """Note a call with an operation id before it is sent; `number` is the id of its request."""
        self._sent.write(json.dumps([number, operation_id]).encode() + b"\n")

    def note_answered(self, request_id: int | str) -> None:
        """Note that a request of the child is being answered."""
        self._sent.write(json.dumps([request_id]).encode() + b"\n")

    def note_received(self, data: bytes) -> None:
        """Note what was read from the child's stdout."""
        if not self._memory.closed:
            self._received.write(data)

    def calls(self) -> dict[int, str]:
        """Return the operation ids of the calls that were sent, by the id of their request."""
        return {int(note[0]): str(note[1]) for note in self._notes() if len(note) == 2}

    @property
    def has_all_calls(self) -> bool:
        """Whether calls() has every call that was ever sent."""
        return self._sent.read()[1]

    def answered(self) -> set[int | str]:
        """Return the ids of the child's requests that were answered."""
        return {note[0] for note in self._notes() if len(note) == 1}

    def _notes(self) -> list[list[int | str]]:
        data, is_whole = self._sent.read()
        lines = data.split(b"\n")[0 if is_whole else 1 : -1]
        return [json.loads(line) for line in lines]

    def received(self) -> tuple[list[bytes], bytes]:
        """Return the last whole lines that were read from the child, and the beginning of the line after them.

        A line whose beginning is lost becomes one that is no JSON.
        """
        data, is_whole = self._received.read()
        head, *lines = data.split(b"\n")
        if not lines:
            return [], head if is_whole else b"#" + head
        beginning = lines.pop()
        return ([head, *lines] if is_whole else lines), beginning

    def close(self) -> None:
        """Give up the memory. May be called twice."""
        self._memory.close()


__all__ = ["CallLog"]
