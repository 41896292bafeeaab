"""The sessions that `statehold sessions export` wrote into a folder, a document for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ....sessions.actions.document import Document, read_document
from ....sessions.errors import InvalidArgument
from ....sessions.records import Timeouts
from ....tools.foreign_file import read_foreign
from ...errors import CommandError
from .foreign import DIGEST, Sessions, Unreadable

LARGEST: Final = 1 << 30
"""The most bytes of a document that is imported."""


@dataclass(slots=True)
class StoredDocument:
    """A document, imported as it is."""

    source: str
    content: Document
    left_out: list[str] = field(default_factory=list[str])

    @property
    def origin(self) -> str:
        return self.content.session.id

    @property
    def name(self) -> str | None:
        return self.content.session.name

    @property
    def digest(self) -> object:
        """The metadata as they are: a document is imported once, and nothing of it changes there."""
        return self.content.session.metadata.get(DIGEST)

    def document(self, timeouts: Timeouts, now: float, namespace: str) -> Document:
        return self.content


def read_documents(folder: Path) -> tuple[int, Sessions]:
    """Return how many documents a folder has, and the sessions in the order of their creation, as export names the files.

    Raises:
        CommandError: the folder cannot be read, or has none.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise CommandError.usage(f"{folder}: {error.strerror}; name another folder") from None
    if not files:
        raise CommandError.usage(
            f"{folder} has no documents of sessions; for those of another system add --from"
        )
    return len(files), _sessions(files)


def _sessions(files: list[Path]) -> Iterator[StoredDocument | Unreadable]:
    for file in files:
        try:
            yield StoredDocument(file.name, read_document(read_foreign(file, LARGEST)))
        except OSError as error:
            yield Unreadable(file.name, error.strerror or str(error))
        except (InvalidArgument, RecursionError) as error:
            yield Unreadable(file.name, str(error))
