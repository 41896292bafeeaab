"""What Playwright and its driver tell each other, kept from what would stop everybody else."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import Any, Final

LARGEST: Final = 128 * 2**20
"""The largest answer, in bytes."""
VALUES: Final = 100_000
"""How many values one answer may have: taking so many apart takes half a second, in which nobody else is served."""

_SMALL: Final = 2**19
_ANSWER: Final = re.compile(rb'\{"id":("[^"]*"|\d+),')


class Input:
    """The driver's stdin, which drops what is written after its end, as asyncio's own pipes do.

    uvloop raises RuntimeError, which Playwright passes on to whoever calls it; so does it its own error a moment later, when
    it reads the end of stdout.
    """

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        with suppress(RuntimeError):
            self._stream.write(data)

    def close(self) -> None:
        self._stream.close()


def received(message: bytes) -> Any:
    """Return a message of the driver as Playwright takes it; in place of an answer that is too large, an error."""
    if len(message) > _SMALL and (answer := _ANSWER.match(message)) is not None:
        reason = ""
        if len(message) > LARGEST:
            reason = f"more than {LARGEST // 2**20} MiB"
        # In texts the quotation mark is escaped.
        elif message.count(b'{"') > VALUES:
            reason = f"more than {VALUES} values"
        if reason:
            error = {"name": "Error", "message": f"The page answered with {reason}."}
            return {"id": json.loads(answer[1]), "error": {"error": error}}
    return json.loads(message)


__all__ = ["Input", "received"]
