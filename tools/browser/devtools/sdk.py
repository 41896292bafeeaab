"""The private parts of Playwright that Statehold uses, and the limits on messages of its driver.

tests/tools/browser/process/test_sdk.py has a test for each.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from types import FrameType

    from playwright._impl._async_base import AsyncContextManager
    from playwright.async_api import BrowserContext, Download, Page
    from playwright.async_api._generated import WebStorage

logger = logging.getLogger("statehold.browser")

MAX_KINDS: Final = 100
"""The most kinds of errors of listeners that are logged in one process: by type and lines."""
_logged_kinds: set[tuple[object, ...]] = set()
MAX_ANSWER_BYTES: Final = 128 * 2**20
"""The largest answer, in bytes."""
MAX_VALUES: Final = 100_000
"""The most values in one answer: decoding so many blocks the event loop for half a second."""

LISTENER_REPORT: Final = "__statehold_report_error__"
"""The global variable of a module with a function that gets the errors of the module's event listeners."""

_SMALL: Final = 2**19
_ANSWER: Final = re.compile(
    rb'(\{"guid":"[^"]*","method":"message","params":\{"message":)?\{"id":("[^"]*"|\d+),'
)
"""The start of an answer: of the driver itself, or passed on by it from a browser elsewhere."""


class Input:
    """The driver's stdin. It drops data written after its end, as asyncio's own pipes do.

    uvloop raises RuntimeError there, and Playwright would pass that on to its caller. Playwright raises an error of its own
    a moment later, when it reads the end of stdout.
    """

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        with suppress(RuntimeError):
            self._stream.write(data)

    def close(self) -> None:
        self._stream.close()


def decode_message(message: bytes) -> Any:
    """Return a message of the driver as Playwright expects it. An answer that is too large is replaced by an error."""
    if len(message) > _SMALL and (answer := _ANSWER.match(message)) is not None:
        reason = ""
        if len(message) > MAX_ANSWER_BYTES:
            reason = f"more than {MAX_ANSWER_BYTES // 2**20} MiB"
        # Inside JSON strings the quotation mark is escaped, so this counts objects only.
        elif message.count(b'{"') > MAX_VALUES:
            reason = f"more than {MAX_VALUES} values"
        if reason:
            error = {"name": "Error", "message": f"The page answered with {reason}."}
            short = {"id": json.loads(answer[2]), "error": {"error": error}}
            if answer[1] is None:
                return short
            return json.loads(answer[1] + json.dumps(short).encode() + b"}}")
    return json.loads(message)


def capture_callers() -> list[FrameType]:
    """Return the stack of a Playwright call, innermost frame first, without the frame of the function that reads it.

    Playwright's own function includes that frame, which holds the list. Each call then leaves a reference cycle with the
    locals of all its callers, and only a full garbage collection frees it.
    """
    from playwright._impl.utils.stack_trace import capture_raw_stack

    # The first two frames are this function and its caller.
    return capture_raw_stack()[2:]


def report_listener_error(emitter: object, event: object, error: BaseException) -> None:
    """Report the error of an event listener to the module that it comes from, and log it.

    Playwright would close the connection to the browser of a host, or raise the error from its next method, which may be
    that of another session. The log has the traceback of the first error of each kind.
    """
    frames = list(walk_tb(error.__traceback__))
    kind = (type(error), *(line for _, line in frames))
    is_new = kind not in _logged_kinds and len(_logged_kinds) < MAX_KINDS
    if is_new:
        _logged_kinds.add(kind)
        logger.error("a listener of an event of Playwright failed", exc_info=error)
    else:
        logger.debug("a listener of an event of Playwright failed again: %s", type(error).__name__)
    for frame, _ in frames:
        report = frame.f_globals.get(LISTENER_REPORT)
        if report is not None:
            report(error)
            return


def attach_client(
    process: asyncio.subprocess.Process, on_closed: Callable[[object], object]
) -> tuple[Any, asyncio.Future[Any]]:
    """Connect Playwright to a driver process that was spawned by us.

    Returns Playwright's client, which has `stop()`, and the future of its Playwright object. `on_closed` is called when the
    driver ends.
    """
    from playwright._impl import client_stack_trace
    from playwright._impl.event_emitter import EventEmitter
    from playwright._impl.out_of_process import PlaywrightClient

    client_stack_trace.capture_raw_stack = capture_callers  # pyright: ignore[reportPrivateImportUsage]
    emitter: Any = EventEmitter
    emitter._handle_listener_error = report_listener_error
    client: Any = PlaywrightClient()
    transport = client._transport
    closed: asyncio.Future[None] = client._close_promise

    async def connect() -> None:
        transport._stopped_future = asyncio.get_running_loop().create_future()
        transport._proc = process
        transport._output = Input(cast("asyncio.StreamWriter", process.stdin))

    transport.connect = connect
    transport.deserialize_message = decode_message
    # Retrieve the exceptions, so that asyncio does not report them as never retrieved; `on_closed` tells of the end.
    failure: asyncio.Future[None] = transport.on_error_future
    starting: asyncio.Future[Any] = client._playwright
    for future in (failure, starting):
        future.add_done_callback(lambda future: future.cancelled() or future.exception())
    closed.add_done_callback(on_closed)
    return client, starting


def driver_command() -> tuple[str, str]:
    """Return the paths of the node that comes with Playwright, and of the driver's program."""
    from playwright._impl._driver import compute_driver_executable

    return compute_driver_executable()


def driver_environment() -> dict[str, str]:
    """Return the environment that Playwright gives its driver. With it, a screenshot does not wait for fonts without end."""
    from playwright._impl._driver import get_driver_env  # pyright: ignore[reportUnknownVariableType]

    return cast("dict[str, str]", get_driver_env()) | {"PW_TEST_SCREENSHOT_NO_FONTS_READY": "1"}


def guid_of(target: BrowserContext | Page) -> str:
    """Return the id of a context or page in its browser's driver; the same for everyone who attaches to the browser."""
    return target._impl_obj._guid  # pyright: ignore


def artifact_of(download: Download) -> Any:
    """Return the file of a download as the driver knows it."""
    return download._impl_obj._artifact  # pyright: ignore[reportPrivateUsage]


__all__ = [
    "LISTENER_REPORT",
    "AsyncContextManager",
    "Input",
    "WebStorage",
    "artifact_of",
    "attach_client",
    "driver_command",
    "driver_environment",
    "guid_of",
    "decode_message",
]
