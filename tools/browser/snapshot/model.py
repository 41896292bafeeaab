"""The saved form of a browser context: its cookies, its storage and its tabs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson

from ....sessions.json_codec import JSON
from ....sessions.services import Snapshot
from ....sessions.store.sealing.encryption import Encryption, decrypt

VERSION: Final = 2
"""The version of the saved form; other versions are not restored."""
NO_ITEMS: Final = "[]"


@dataclass(frozen=True, slots=True)
class StoredOrigin:
    """The localStorage and IndexedDB of one origin. Each part is JSON in the form of Playwright's storage state."""

    items: str | None = None
    """localStorage; None if it was never read."""
    databases: Mapping[str, str] = field(default_factory=dict[str, str])
    """The databases by name."""

    @property
    def size(self) -> int:
        return len(self.items or "") + sum(map(len, self.databases.values()))

    def __bool__(self) -> bool:
        return self.items not in (None, NO_ITEMS) or bool(self.databases)

    @staticmethod
    def from_state(state: JSON) -> StoredOrigin:
        """Read an origin of a storage state.

        Raises:
            KeyError, TypeError: It has another form.
        """
        databases = {
            str(database["name"]): json.dumps(database) for database in state.get("indexedDB") or ()
        }
        return StoredOrigin(json.dumps(state["localStorage"]), databases)

    def to_state(self, origin: str) -> JSON:
        """Return the origin as part of a storage state."""
        databases = [json.loads(database) for database in self.databases.values()]
        state: JSON = {"origin": origin, "localStorage": json.loads(self.items or NO_ITEMS)}
        return state | ({"indexedDB": databases} if databases else {})


@dataclass(frozen=True, slots=True)
class SavedTab:
    """One tab: its address and history, and the state of its page."""

    url: str
    title: str = ""
    history: list[str] = field(default_factory=list[str])
    """All addresses in the tab's history, oldest first; `position` is the index of `url` among them."""
    position: int = 0
    viewport: list[int] | None = None
    media: dict[str, str] = field(default_factory=dict[str, str])
    """The media features that it emulates."""
    status: int = 0
    """The HTTP status of the page; 0 if the page did not report it."""
    posted: bool = False
    """Whether the page was the answer to a form; its address alone does not load it again."""
    page: str | None = None
    """Fields and scroll positions, as page/fields.js wrote them."""
    entry: str | None = None
    """The history state and the window's name, as page/tab.js wrote them."""
    sessions: dict[str, str] = field(default_factory=dict[str, str])
    """The session storage of each origin that the tab has shown, as page/tab.js wrote it."""
    lost: list[str] = field(default_factory=list[str])
    """The parts of the tab that could not be saved, in words."""

    def masked(self, mask: Callable[[str], str]) -> SavedTab:
        """Return the tab with its addresses, its title and the state of its page as `mask` returns them."""
        return replace(
            self,
            url=mask(self.url),
            title=mask(self.title),
            history=[*map(mask, self.history)],
            page=self.page and mask(self.page),
            entry=self.entry and mask(self.entry),
        )


@dataclass(frozen=True, slots=True)
class ContextSnapshot:
    """The saved state of a context. Secret: it holds logins."""

    cookies: list[JSON] = field(default_factory=list[JSON])
    origins: dict[str, StoredOrigin] = field(default_factory=dict[str, StoredOrigin])
    tabs: list[SavedTab] = field(default_factory=list[SavedTab])
    current: int = 0
    lost: list[str] = field(default_factory=list[str])
    """The parts of the context as a whole that could not be saved, in words."""
    pages: list[JSON] = field(default_factory=list[JSON])
    """The titles and addresses of the tabs, masked as in results; empty if there is nothing to mask."""
    typed: JSON = field(default_factory=dict[str, Any])
    """Digests of the texts that a person typed, see TypedTexts."""
    activities: list[str] = field(default_factory=list[str])
    """The activities that are lost with the context, in words: mocked requests, a recording."""

    def to_snapshot(self, encryption: Encryption | None = None) -> Snapshot:
        """Return the form that a session stores, encrypted if `encryption` is given."""
        data: JSON = {"version": VERSION, **asdict(self)}
        if encryption is None:
            return Snapshot(data)
        return Snapshot(
            {"version": VERSION, "sealed": True}, {"sealed": encryption.encrypt(orjson.dumps(data))}
        )

    @staticmethod
    def from_snapshot(snapshot: Snapshot, encryption: Encryption | None = None) -> ContextSnapshot:
        """Return the state in a snapshot. If it cannot be read, return an empty state whose `lost` says so.

        Raises:
            DecryptionFailed: It is encrypted, and the key is missing or a different one.
        """
        data = snapshot.data
        if data.get("version") != VERSION:
            message = f"everything (it was saved in a form, {data.get('version')!r}, that is not known here)"
            return ContextSnapshot(lost=[message])
        if data.get("sealed"):
            data = orjson.loads(decrypt(encryption, snapshot.blobs.get("sealed", b"")))
        rest = {key: value for key, value in data.items() if key != "version"}
        try:
            rest["tabs"] = [SavedTab(**tab) for tab in data["tabs"]]
            rest["origins"] = {key: StoredOrigin(**each) for key, each in data["origins"].items()}
            return ContextSnapshot(**rest)
        except (KeyError, TypeError):
            return ContextSnapshot(lost=["everything (what was saved is damaged)"])
