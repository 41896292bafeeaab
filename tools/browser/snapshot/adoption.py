"""Taking over a context whose server ended while its browser, in a host, ran on.

The pages are as they were. The browser does not know the order of the tabs, nor the tabs and sites that a restored session
has not used yet: a small file has them, written after each call that changes one of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from ....sessions.json_codec import JSON
from ....sessions.services import RestoreReport
from ...processes.workdir import private_folder
from ..devtools.sdk import guid_of
from ..process.host import HostAddress
from .model import ContextSnapshot, SavedTab
from .restore import RestoredContext
from .saved_storage import OriginStorage
from .saved_tab import DormantTab

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from ..session.session import BrowserSession

CLOSE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class ContextPlace:
    """The place of a context that outlives its server. Secret, see HostAddress."""

    host: HostAddress
    context: str
    """The id of the context in its browser."""
    port: int
    """The port of the context's access to the network."""

    @property
    def port_name(self) -> str:
        """The name under which the keeper holds the socket of the port."""
        return f"port-{self.port}"

    def to_token(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_token(token: str) -> ContextPlace:
        fields = json.loads(token)
        return ContextPlace(HostAddress(**fields.pop("host")), **fields)


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """The part of a session's state that neither its browser nor its snapshot holds."""

    tabs: list[str] = field(default_factory=list[str])
    """The tabs in order: the id of each page, or the digest of the saved tab that has no page yet."""
    current: int = 0
    dormant_origins: list[str] = field(default_factory=list[str])
    unread_origins: list[str] = field(default_factory=list[str])
    activities: list[str] = field(default_factory=list[str])
    """See BrowserSession.activities()."""
    scripts: str = "none"
    """See AgentScripts.state."""
    typed: JSON = field(default_factory=dict[str, Any])
    """See TypedTexts.to_json()."""
    may_be_typed: bool = False
    """See SessionSecrets.may_be_typed."""

    @staticmethod
    def of(session: BrowserSession) -> ContextRecord:
        tabs = [
            _digest(entry.saved_tab) if isinstance(entry, DormantTab) else guid_of(entry)
            for entry in session.tabs.pages
        ]
        return ContextRecord(
            tabs,
            session.tabs.current_index,
            sorted(session.origins.dormant),
            sorted(session.watch.unread_origins),
            session.activities(),
            session.scripts.state,
            session.secrets.named.typed.to_json(),
            session.secrets.may_be_typed,
        )

    def resume(self, session: BrowserSession) -> None:
        """Take over what a person typed, and which pages the agent scripted."""
        session.scripts.resume(self.scripts)
        session.secrets.named.typed.restore(self.typed)
        session.secrets.may_be_typed = self.may_be_typed


class ContextFile:
    """The file with the record of one context. Each call takes about 100 microseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: ContextRecord | None = None

    def write(self, record: ContextRecord) -> None:
        """Write the record if it has changed.

        Raises:
            OSError: The disk is full, for example.
        """
        if record == self._written:
            return
        private_folder(self._path.parent)
        temporary = self._path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "w") as file:
            file.write(json.dumps(asdict(record)))
        os.replace(temporary, self._path)
        self._written = record

    def read(self) -> ContextRecord:
        """Return the record; an empty one if there is none that can be read."""
        with suppress(OSError, ValueError, TypeError):
            return ContextRecord(**json.loads(self._path.read_text()))
        return ContextRecord()

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


async def adopt_context(
    context: BrowserContext,
    snapshot: ContextSnapshot,
    record: ContextRecord,
    *,
    prepare: Callable[[BrowserContext, OriginStorage], Awaitable[None]],
) -> RestoredContext:
    """Return a context as a server left it that ended. `prepare` is called before any page is used.

    The context is closed if that fails.

    Raises:
        playwright's Error: The browser is gone.
    """
    try:
        return await _adopt(context, snapshot, record, prepare)
    except BaseException:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await context.close()
        raise


async def _adopt(
    context: BrowserContext,
    snapshot: ContextSnapshot,
    record: ContextRecord,
    prepare: Callable[[BrowserContext, OriginStorage], Awaitable[None]],
) -> RestoredContext:
    await _close_blank_pages(context, record)
    origins = OriginStorage(context, dormant=snapshot.origins)
    origins.records.dormant.intersection_update(record.dormant_origins)
    origins.watch.unread_origins.update(record.unread_origins)
    await prepare(context, origins)
    if context.pages:
        await origins.attach(context.pages[0])
    pages = {guid_of(page): page for page in context.pages}
    saved_tabs = {_digest(tab): tab for tab in snapshot.tabs}
    tabs: list[Page | DormantTab] = []
    current = 0
    for number, name in enumerate(record.tabs):
        if number == record.current:
            current = len(tabs)
        if name in pages:
            tabs.append(pages[name])
        elif name in saved_tabs:
            tabs.append(DormantTab(saved_tabs[name], number, context, origins))
    return RestoredContext(
        context, origins, tabs, min(current, max(0, len(tabs) - 1)), RestoreReport()
    )


async def _close_blank_pages(context: BrowserContext, record: ContextRecord) -> None:
    """Close the pages through which the former server read the storage of sites. They are no tabs."""
    for page in context.pages:
        if record.tabs and guid_of(page) not in record.tabs and await page.opener() is None:
            with anyio.move_on_after(CLOSE_SECONDS), suppress(Exception):
                await page.close()


def _digest(tab: SavedTab) -> str:
    return sha256(json.dumps(asdict(tab), sort_keys=True).encode()).hexdigest()
