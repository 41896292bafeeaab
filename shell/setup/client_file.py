"""One file of a client: its content without Statehold and with it, and the writing of it with a copy beside it.

The copy, `NAME.before-statehold`, is the file as it would be without Statehold. It is written before the file, and goes with
`--remove`. No other record is kept: the difference of the two is the work of setup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from ...access.config.types import ConfigError
from ...server.config.client_files import parse_document, read_servers
from ...sessions.json_codec import JSON
from ...tools.foreign_file import SETTINGS_BYTES, read_foreign, replace_foreign
from .clients import ENTRY, KnownClient
from .text_edits import cuts, format_of, insertions, render

COPY_SUFFIX: Final = ".before-statehold"
_NO_FILE: Final = b"(no file)\n"
"""The copy of a file that was not there; no client reads such a file."""
_BOM: Final = "\ufeff"
_UNUSUAL: Final = "its servers are written in an unusual way; add the entry by hand"


class Unwritable(Exception):
    """Raised when a client's file cannot be read or changed. Its text says why."""


class ClientText:
    """The content of a client's file: its values and its text."""

    def __init__(self, client: KnownClient, path: Path, content: bytes | None) -> None:
        """Raises Unwritable if it cannot be parsed."""
        self._client, self._path, self._kind = client, path, format_of(path)
        self.content = content
        try:
            self._text = (content or b"").decode()
            text = self._text.removeprefix(_BOM)
            document = parse_document(path, text) if text.strip() else None
            document = cast(object, {}) if document is None else document
            self._keys = client.table_keys(document)
            self.table = _table(document, self._keys)
        except UnicodeDecodeError:
            raise Unwritable("it is not UTF-8 text; save it as UTF-8") from None
        except ConfigError as error:
            raise Unwritable(str(error).removeprefix(f"{path}: ")) from None
        self.document = cast(JSON, document)

    def servers(self) -> JSON:
        """Return the servers with our settings, without those that start Statehold."""
        with suppress(ConfigError):
            return read_servers(self._path, self.document).services
        return {}

    def put(self, name: str, entry: JSON) -> ClientText:
        """Return the content with one more entry."""
        return self._insert(name, entry, render(self._kind, self._keys, name, entry))

    def put_back(self, name: str, other: ClientText) -> ClientText:
        """Return the content with an entry as another content of the file has it."""
        return self._insert(name, other.table[name], other.cut(name)[1])

    def own_lines(self) -> list[str]:
        """Return the lines of our entry, unless it has an environment of the user's."""
        own = self._client.own_entry(self.table)
        if own is None or self._client.settings(self.table[own]).get("env"):
            return []
        written = render(self._kind, self._keys, own, self.table[own])
        return [line.strip() for line in written.split("\n")]

    def _insert(self, name: str, entry: object, written: str) -> ClientText:
        table = {**self.table, name: entry}
        bom, text = self._text[: self._text.startswith(_BOM)], self._text.removeprefix(_BOM)
        for each in insertions(self._kind, text, self._keys, written):
            if (edited := self._edited(bom + each, table)) is not None:
                return edited
        raise Unwritable(_UNUSUAL)

    def cut(self, name: str) -> tuple[ClientText, str]:
        """Return the content without an entry, and the text of that. Raises Unwritable if it cannot be cut out."""
        rest = {key: value for key, value in self.table.items() if key != name}
        for text, entry in cuts(self._kind, self._text, name):
            if (edited := self._edited(text, rest)) is not None:
                return edited, entry
        raise Unwritable(_UNUSUAL)

    def _edited(self, text: str, table: JSON) -> ClientText | None:
        """Return the content with a new text, if it has these entries, and else the values of before."""
        with suppress(Unwritable):
            edited = ClientText(self._client, self._path, text.encode())
            others = [_without(each.document, self._keys) for each in (self, edited)]
            return edited if edited.table == table and others[0] == others[1] else None
        return None


def _table(document: object, keys: Sequence[str]) -> JSON:
    for key in keys:
        if isinstance(document, dict):
            document = cast(JSON, document).get(key)
            document = cast(object, {}) if document is None else document
    if not isinstance(document, dict):
        raise Unwritable("it has no table of servers where one belongs; correct it")
    return cast(JSON, document)


def _without(document: JSON, keys: Sequence[str]) -> JSON:
    """Return a document without the table, and without a table above it that has nothing else."""
    first, *below = keys
    rest = {key: value for key, value in document.items() if key != first}
    inner = _without(document.get(first) or {}, below) if below else {}
    return {**rest, first: inner} if inner else rest


@dataclass(frozen=True, slots=True)
class FileChange:
    """The work of one run on one file. `copy` is to stand beside it, None for no copy."""

    client: KnownClient
    path: Path
    before: bytes | None
    after: bytes | None
    copy: bytes | None
    moved: Sequence[str] = ()
    is_end: bool = False
    """Whether the copy is removed, also of a file that is as it was."""

    @property
    def is_change(self) -> bool:
        return self.before != self.after or self.is_end


class EditableFile:
    """The file of a client as it is on the disk.

    `is_behind` tells of a server that is no longer in the file whether it is behind Statehold, by our settings of it.
    """

    def __init__(
        self, client: KnownClient, path: Path, is_behind: Callable[[JSON], bool] = bool
    ) -> None:
        """Raises Unwritable if it cannot be read or parsed."""
        self.client = client
        self.path = path.resolve()  # a link stays one
        self.now = ClientText(client, self.path, read(self.path))
        copy = read(copy_of(self.path))
        self.own = client.own_entry(self.now.table)
        """The name of the entry that starts Statehold."""
        self.has_copy = copy is not None
        """Whether setup has changed the file, so that an entry is its own."""
        self._earlier = ClientText(client, self.path, None if copy == _NO_FILE else copy)
        earlier = self._earlier.servers() if self._may_have_moved() else {}
        self.moved = [
            name
            for name in self._earlier.table
            if name not in self.now.table and name in earlier and is_behind(earlier[name])
        ]
        """The servers that an earlier run put behind Statehold."""
        self.base = self._undo() if self.has_copy else self.now
        """The content without Statehold."""

    def _may_have_moved(self) -> bool:
        entry = self.client.settings(self.now.table.get(self.own or ""))
        return self.has_copy and (self.own is None or "--services" in entry.get("args", ()))

    def _undo(self) -> ClientText:
        text, earlier = self.now, self._earlier
        if self.own is not None:
            with suppress(Unwritable):
                again = _add(earlier, self.own, text.table[self.own], self.moved)
                if again.content == text.content:
                    return earlier
            text, _ = text.cut(self.own)
        for name in reversed(self.moved):
            text = text.put_back(name, earlier)
        return text

    def add(self, words: Sequence[str], moved: Sequence[str]) -> FileChange:
        """Return the change after which the file starts Statehold with a command line, and lacks the servers `moved`.

        An entry that setup did not write stays as it is.

        Raises:
            Unwritable: the file cannot be changed.
        """
        now = self.now.content
        if self.own is not None and not self.has_copy:
            return FileChange(self.client, self.path, now, now, None)
        if ENTRY in self.base.table:
            raise Unwritable(f"its entry {ENTRY} starts something else; rename that")
        after = _add(self.base, ENTRY, self.client.entry(words), moved)
        if after.document == self.now.document:
            return FileChange(self.client, self.path, now, now, None, moved)
        self._check_writable()
        copy = _NO_FILE if self.base.content is None else self.base.content
        return FileChange(self.client, self.path, now, after.content, copy, moved)

    def remove(self) -> FileChange:
        """Return the change after which the file is as it was before setup.

        Raises:
            Unwritable: the file cannot be changed.
        """
        self._check_writable()
        before, after = self.now.content, self.base.content
        return FileChange(self.client, self.path, before, after, None, is_end=True)

    def _check_writable(self) -> None:
        # Not by access(), which lets root write everything.
        if self.now.content is not None and not self.path.stat().st_mode & 0o222:
            raise Unwritable(f"it is read-only; run: chmod u+w {self.path}")


def _add(text: ClientText, name: str, entry: JSON, moved: Sequence[str]) -> ClientText:
    for each in moved:
        text, _ = text.cut(each)
    return text.put(name, entry)


def write(path: Path, before: bytes | None, after: bytes | None, copy: bytes | None) -> bool:
    """Write a file, None for none, after the copy beside it. Its mode stays; a new one is private. Return True.

    Raises:
        Unwritable: it is no longer as it was before, or cannot be written.
    """
    try:
        if read(path) != before:
            raise Unwritable("it was changed meanwhile; run setup again")
        path.parent.mkdir(parents=True, exist_ok=True)
        if copy is not None:
            replace_foreign(copy_of(path), copy, like=path)
        if after is None:
            path.unlink(missing_ok=True)
        else:
            replace_foreign(path, after)
        if copy is None:
            copy_of(path).unlink(missing_ok=True)
        return True
    except OSError as error:
        raise Unwritable(f"it cannot be written ({error.strerror})") from None


def copy_of(path: Path) -> Path:
    """Return the place of the copy of a file, or of the file behind a link."""
    file = path.resolve()
    return file.with_name(file.name + COPY_SUFFIX)


def read(path: Path) -> bytes | None:
    """Return the content of a file, None if there is none. Raises Unwritable if it cannot be read."""
    try:
        return read_foreign(path, SETTINGS_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unwritable(f"it cannot be read ({error.strerror})") from None
