"""The trace of one session: a recording of its browser for Playwright's trace viewer."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from .....sessions.json_codec import JSON
from ... import errors
from ...errors import BrowserToolFailed
from ...logins.sites import NO_SITES, LoginSites
from ...secrets.named import NamedSecrets
from ...secrets.spellings import LOGIN, without_value_of_login
from ..files import Files, reason
from ..pause_hold import PauseHold

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext


PICTURES: Final = (".jpeg", ".jpg", ".png", ".webp", ".gif", ".avif", ".ico")
"""The suffixes of the files in a trace that are not searched for secrets."""
STOP_SECONDS: Final = 3.0
"""Seconds to end a trace that is discarded."""


class Trace:
    """The trace of a context, on or off. If the context ends while the trace is on, the trace is lost."""

    def __init__(
        self,
        context: BrowserContext,
        files: Files,
        holds: set[str],
        *,
        spawn: Callable[..., None],
        add_event: Callable[[str], None],
        scratch: Path | None,
        secrets: NamedSecrets,
    ) -> None:
        """`secrets`, and what a person typed, are masked in the file of the trace."""
        self._context = context
        self._files = files
        self._add_event = add_event
        self._scratch = scratch
        self._secrets = secrets
        self.sites = NO_SITES
        """The sites of logins, whose headers are left out."""
        self._name = f"trace-{token_hex(8)}"
        self.pause_hold = PauseHold("a trace", holds, spawn=spawn, expire=self._expire)

    async def start(self) -> None:
        """Begin to trace.

        Raises:
            BrowserToolFailed: A trace is already on.
        """
        if self.pause_hold.is_active:
            raise BrowserToolFailed(
                "Tracing has been already started; browser_stop_tracing ends it."
            )
        try:
            await self._context.tracing.start(name=self._name, screenshots=True, snapshots=True)
        except BaseException:
            await self._discard()
            await self._clear()
            raise
        self.pause_hold.begin()

    async def stop(self, name: str = "trace.zip") -> tuple[str, int]:
        """End the trace and return the name and the size of its file. If cancelled, the trace is lost, and an event says so.

        Raises:
            BrowserToolFailed: No trace is on, or it cannot be saved.
        """
        if not self.pause_hold.is_active:
            raise BrowserToolFailed("Tracing is not started; browser_start_tracing begins it.")
        self.pause_hold.end()
        path: Path | None = None
        try:
            path = await self._files.path(name)
            if self._secrets or self._secrets.typed or self.sites:
                await self._stop_masked(path)
            else:
                await self._context.tracing.stop(path=path)
            return path.name, await self._files.admit(path)
        except BaseException as error:
            await self._discard(path)
            if isinstance(error, errors.Error | OSError):
                raise BrowserToolFailed(f"The trace is lost: {reason(error)}.") from None
            self._add_event("The trace is lost: the call that ended it was given up.")
            raise
        finally:
            await self._clear()

    async def _stop_masked(self, path: Path) -> None:
        """End the trace and write its file without the values of secrets, which actions, pages and requests had."""
        folder = Path(await anyio.to_thread.run_sync(_private_folder, self._scratch))
        try:
            original = folder / "trace.zip"
            await self._context.tracing.stop(path=original)
            await anyio.to_thread.run_sync(_mask_zip, original, path, self._secrets, self.sites)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    async def _discard(self, path: Path | None = None) -> None:
        """End the trace without a file, whether it is on or not: after a failure Playwright may still be tracing."""
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            with suppress(Exception):
                await self._context.tracing.stop()
            if path is not None:
                await self._files.drop(path)

    async def _clear(self) -> None:
        if self._scratch is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_clear_folder, self._scratch, self._name)

    async def _expire(self) -> None:
        try:
            name, _ = await self.stop()
            what = self._files.address(name) + await self._files.deliver(name)
        except BrowserToolFailed as error:
            what = str(error)
        self._add_event(
            f"The trace ended by itself after {self.pause_hold.seconds:g} seconds: {what}"
        )


def _private_folder(parent: Path | None) -> str:
    return tempfile.mkdtemp(prefix="trace-", dir=parent)


def _mask_zip(original: Path, path: Path, secrets: NamedSecrets, sites: LoginSites) -> None:
    with zipfile.ZipFile(original) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename.endswith(".network") and sites:
                data = b"".join(_without_logins(line, sites) + b"\n" for line in data.splitlines())
            if not entry.filename.endswith(PICTURES):
                data = secrets.mask_bytes(data)
            target.writestr(entry, data)


def _without_logins(line: bytes, sites: LoginSites) -> bytes:
    """Return a request of a trace, without the headers that log in if it goes to one of the sites."""
    event: JSON = json.loads(line)
    messages = [event.get("snapshot", {}).get(part, {}) for part in ("request", "response")]
    if not sites.has_address(messages[0].get("url", "")):
        return line
    for message in messages:
        for header in message.get("headers", ()):
            header["value"] = without_value_of_login(header["name"], header["value"])
        for cookie in message.get("cookies", ()):
            cookie["value"] = LOGIN
    return json.dumps(event).encode()


def _clear_folder(scratch: Path, name: str) -> None:
    """Remove the source files of a trace, which Playwright leaves in the scratch folder: they may hold secrets."""
    for folder in {path.parent for path in scratch.glob(f"*/{name}*")}:
        _unlink(folder.glob(f"{name}*"))
        # The resources of pages are shared with other traces of the browser.
        if not any(folder.glob("*.trace")):
            _unlink((folder / "resources").glob("*"))


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
