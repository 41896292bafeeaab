"""The saved form of a browser context: its cookies, its storage and its tabs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final, Protocol

import orjson

from ....sessions.json_codec import JSON
from ....sessions.services import Snapshot
from .encryption import Encryption, opened

VERSION: Final = 1
"""The version of the saved form; another one is not restored."""


@dataclass(frozen=True, slots=True)
class SavedTab:
    """One tab: where it was, and what had been done on its page."""

    url: str
    title: str = ""
    history: list[str] = field(default_factory=list[str])
    """The addresses before and after `url`, oldest first; `place` is where `url` stands among them."""
    place: int = 0
    viewport: list[int] | None = None
    media: dict[str, str] = field(default_factory=dict[str, str])
    """The media features that it emulates."""
    status: int = 0
    """What its site had answered, as an HTTP status; 0 when the page did not say."""
    posted: bool = False
    """Whether it showed the answer to a form; loading its address shows something else."""
    page: str | None = None
    """Fields and scroll positions, as page/state.js wrote them."""
    entry: str | None = None
    """Session storage, history state and the window's name, as page/state.js wrote them."""
    sessions: dict[str, str] = field(default_factory=dict[str, str])
    """Session storage of other origins that it has been at, as page/state.js wrote it."""
    lost: list[str] = field(default_factory=list[str])
    """What of it could not be saved, in words."""


@dataclass(frozen=True, slots=True)
class ContextSnapshot:
    """What was saved of a context. Secret: it holds logins."""

    cookies: list[JSON] = field(default_factory=list[JSON])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    tabs: list[SavedTab] = field(default_factory=list[SavedTab])
    current: int = 0
    lost: list[str] = field(default_factory=list[str])
    """What of the context as a whole could not be saved, in words."""
    on: list[str] = field(default_factory=list[str])
    """What was on and is lost with the context, in words: mocked requests, a recording."""

    def snapshot(self, seal: Encryption | None = None) -> Snapshot:
        """Turn it into what a session stores, encrypted when there is a seal."""
        data: JSON = {"version": VERSION, **asdict(self)}
        if seal is None:
            return Snapshot(data)
        return Snapshot(
            {"version": VERSION, "sealed": True}, {"sealed": seal.seal(orjson.dumps(data))}
        )

    @staticmethod
    def of(snapshot: Snapshot, seal: Encryption | None = None) -> ContextSnapshot:
        """Turn a snapshot back. What cannot be read is said in `lost`, and nothing else comes back then.

        Raises:
            SealBroken: it is encrypted, and the key is missing or another one.
        """
        data = snapshot.data
        if data.get("version") != VERSION:
            what = f"everything (it was saved in a form, {data.get('version')!r}, that is not known here)"
            return ContextSnapshot(lost=[what])
        if data.get("sealed"):
            data = orjson.loads(opened(seal, snapshot.blobs.get("sealed", b"")))
        rest = {key: value for key, value in data.items() if key not in ("version", "tabs")}
        try:
            return ContextSnapshot(**rest, tabs=[SavedTab(**tab) for tab in data["tabs"]])
        except (KeyError, TypeError):
            return ContextSnapshot(lost=["everything (what was saved is damaged)"])


class DormantTab(Protocol):
    """A restored tab whose page is not open yet."""

    @property
    def saved(self) -> SavedTab:
        """The tab as it was saved, without the storage that its sites had the browser clear since."""
        ...


__all__ = ["VERSION", "ContextSnapshot", "DormantTab", "SavedTab"]
