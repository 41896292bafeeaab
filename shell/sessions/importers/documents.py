"""The sessions that `statehold sessions export` wrote into a folder, a document for each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from ....sessions.actions.document import Document, read_document
from ....sessions.errors import InvalidArgument
from ....tools.foreign_file import read_foreign
from .foreign import DIGEST, Importable, Sessions, Unreadable

LARGEST: Final = 1 << 30
"""The most bytes of a document that is imported."""


def read_documents(folder: Path) -> tuple[int, Sessions]:
    """Return how many documents a folder has, and the sessions in the order of their creation, as export names the files.

    Raises:
        OSError: the folder cannot be read, or has none.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    if not files:
        raise OSError(0, "has no documents of sessions; for those of another system add --from")
    return len(files), _sessions(files)


def _sessions(files: list[Path]) -> Iterator[Importable | Unreadable]:
    for file in files:
        try:
            content = read_document(read_foreign(file, LARGEST))
            about = content.session
            digest = about.metadata.get(DIGEST)
            yield Importable(file.name, about.id, about.name, digest, partial(_itself, content))
        except OSError as error:
            yield Unreadable(file.name, error.strerror or str(error))
        except (InvalidArgument, RecursionError) as error:
            yield Unreadable(file.name, str(error))


def _itself(content: Document, *_: object) -> Document:
    return content
