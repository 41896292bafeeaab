"""The files of one session: downloads, and what tools write. Each is a resource that the caller can read."""

from __future__ import annotations

import base64
import codecs
import itertools
import mimetypes
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread

from ....sessions.errors import InvalidArgument
from ....sessions.json_codec import JSON
from ...processes.workdir import private_folder
from ..process.sdk import artifact_of
from .failures import in_words

if TYPE_CHECKING:
    from playwright.async_api import Download

FILES_OF_SESSION: Final = 4
"""All files of a session together may have so many times as much as one download."""
READ_BYTES: Final = 16 * 2**20
"""The largest file that a resource is read from: it is held several times over on its way to the caller."""
NAME_BYTES: Final = 180
SUFFIX_BYTES: Final = 20
"""Systems take names of 255 bytes; there has to be room for a number and for what a browser adds."""
MOST: Final = 1000
"""How many files a session may have."""
AT_ONCE: Final = 10
"""How many downloads may be under way in a session; more are ended at once."""
HEAD_BYTES: Final = 4096
"""How much of a file is read to see whether it is a text."""
LOOK_SECONDS: Final = 0.05
DELETE_SECONDS: Final = 2.0
CANCELED: Final = "canceled"
"""All that is said of a download that its browser ended."""
UNSEEN_SECONDS: Final = 1800.0
"""How long a download may go on of which nothing is seen here: a browser elsewhere sends it when it is over."""
SWEEPS: Final = (0.1, 0.3, 0.6, 1.5)
"""When what is left of a download that was ended is looked for, each some seconds after the last time."""

_UNSAFE: Final = re.compile(r"[^\w.\- ()]+")
_PLACES: Final = re.compile(r", \w+ '.*", re.DOTALL)
"""What Node puts behind the reason of a failure: what it did, and to which files of the machine."""


class Files:
    """The folder of a session's files, made at the first one. Their URIs are `files/NAME`, which callers know below `root`.

    What is saved here outlives the browser, a pause and a restart, and is removed with the session.
    """

    def __init__(
        self, folder: Path, *, largest: int, root: str = "", streamed: bool = False
    ) -> None:
        self.folder = folder
        self._root = root
        self._largest = largest
        self._streamed = streamed
        """Whether downloads are sent here by another Playwright, and not copied by ours."""
        self.hold: Callable[[], AbstractContextManager[None]] = nullcontext
        """Keeps more from arriving while a download is ended, which takes the browser a while."""
        self._news: list[str] = []
        self._kept: list[tuple[str, int]] = []
        self._arriving: dict[Download, int] = {}
        """What of each download that is under way has arrived."""

    def uri(self, name: str) -> str:
        """Return the URI of a file as the service knows it."""
        return f"files/{name}"

    def address(self, name: str) -> str:
        """Return the URI of a file as callers read it."""
        return f"{self._root}{quote(self.uri(name))}"

    def name_of(self, wanted: str) -> str:
        """Return the name of the file that a caller means by a name, a URI or an address."""
        if "://" in wanted:
            return unquote(wanted.rpartition("/files/")[2])
        return wanted.removeprefix("./").removeprefix("files/")

    async def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return await anyio.to_thread.run_sync(self._names)

    def _names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_file())

    async def path(self, wanted: str) -> Path:
        """Return where a new file of that name goes: below the folder, and beside a file that has the name already."""
        return await anyio.to_thread.run_sync(self._path, wanted)

    def _path(self, wanted: str) -> Path:
        private_folder(self.folder)
        name = _named(wanted)
        for number in itertools.count(1):
            path = self.folder / (
                name if number == 1 else f"{Path(name).stem}-{number}{Path(name).suffix}"
            )
            # Others look for a name at the same time.
            with suppress(FileExistsError):
                path.touch(0o600, exist_ok=False)
                return path
        raise AssertionError("unreachable: there is always one more number")

    async def write(self, name: str, data: bytes) -> Path:
        """Keep a file, all of it or nothing; the folder holds at most four times the largest download.

        Raises:
            OSError: there is no room for it.
        """
        await self._check_room(len(data))
        path = await self.path(name)
        try:
            await anyio.to_thread.run_sync(path.write_bytes, data)
        except BaseException:
            _remove(path)
            raise
        return path

    async def admit(self, path: Path) -> int:
        """Keep a file that somebody else wrote to a path of path(), and return its size.

        Raises:
            OSError: there is no room for it, or it was not written; then it is removed.
        """
        try:
            await anyio.to_thread.run_sync(path.chmod, 0o600)
            await self._check_room(0)
        except OSError:
            await self.drop(path)
            raise
        return await anyio.to_thread.run_sync(_size_of, path)

    async def drop(self, path: Path) -> None:
        """Remove a file, if it is there."""
        await anyio.to_thread.run_sync(partial(path.unlink, missing_ok=True))

    async def read(self, uri: str) -> tuple[bytes, str]:
        """Return the bytes and the MIME type of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        name = uri.removeprefix("files/")
        if name not in await self.names():
            raise FileNotFoundError(name)
        data = await anyio.to_thread.run_sync((self.folder / name).read_bytes)
        return data, await self.mime(name)

    async def mime(self, name: str) -> str:
        """Return the MIME type of a file."""
        return _mime_by_name(name) or await anyio.to_thread.run_sync(
            _mime_by_content, self.folder / name
        )

    async def resource(self, name: str) -> JSON:
        """Return the MCP resource that describes a file."""
        size = await anyio.to_thread.run_sync(_size_of, self.folder / name)
        return {
            "uri": self.uri(name),
            "name": name,
            "mimeType": await self.mime(name),
            "size": size,
        }

    async def contents(self, uri: str) -> JSON:
        """Return a file as MCP resource contents: text where it is text, else base64.

        Raises:
            FileNotFoundError: there is no such file.
            InvalidArgument: it is larger than `READ_BYTES`.
        """
        name = uri.removeprefix("files/")
        if name not in await self.names():
            raise FileNotFoundError(name)
        contents = await anyio.to_thread.run_sync(_contents, self.folder / name)
        return {"uri": uri, **contents}

    async def answer(self, method: str, params: JSON) -> JSON:
        """Answer resources/list and resources/read.

        Raises:
            InvalidArgument: there is no such file, it is too large, or there is no such method.
        """
        if method == "resources/list":
            return {"resources": [await self.resource(name) for name in await self.names()]}
        if method != "resources/read":
            raise InvalidArgument(f"The browser has no {method}.")
        try:
            return {"contents": [await self.contents(str(params.get("uri")))]}
        except FileNotFoundError:
            raise InvalidArgument("The session has no such file.") from None

    async def keep_download(self, download: Download) -> None:
        """Save a download when it is over; one that grows too large, or that there is no room for, is ended.

        Raises:
            OSError: it failed or was ended, and why.
        """
        name = download.suggested_filename or "download"
        begun = len(self._arriving) < AT_ONCE
        try:
            if not begun:
                await self._cancel(download)
                raise OSError(f"{AT_ONCE} others are under way")
            self._arriving[download] = 0
            await self._keep(download, await self.path(name))
        finally:
            if begun:
                self._arriving.pop(download, None)
            await _deleted(download)

    async def swept(self, download: Download) -> None:
        """Remove what the browser still writes of a download that was ended: it may begin its file after that."""
        for seconds in SWEEPS:
            await anyio.sleep(seconds)
            await anyio.to_thread.run_sync(_remove, *_places_of(download))

    async def _keep(self, download: Download, path: Path) -> None:
        ended: list[str] = []
        free = _room_of(download)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._bound, download, path, ended, free)
                try:
                    await self._save(download, path, ended)
                except Exception as error:
                    # Not through the task group, which would wrap it.
                    why = reason(error)
                    ended.append(_ended_there(free) if why == CANCELED else why)
                tasks.cancel_scope.cancel()
            size = _size_of(path)
            if size > self._largest:
                ended.append(f"it is larger than {self._largest} bytes")
            if ended:
                raise OSError(ended[0])
            await self._check_room(0)
            await anyio.to_thread.run_sync(path.chmod, 0o600)
        except BaseException:
            _remove(path)
            raise
        self._news.append(f"Downloaded {path.name} ({size} bytes): {self.address(path.name)}")
        self._kept.append((path.name, size))

    async def _save(self, download: Download, path: Path, ended: list[str]) -> None:
        if not self._streamed:
            await download.save_as(path)
            return
        # save_as() would go on until all was sent: what is over in its browser cannot be cancelled.
        stream = await artifact_of(download).create_read_stream()
        try:
            async with await anyio.open_file(path, "wb") as file:
                async for chunk in stream:
                    await file.write(chunk)
                    if ended:
                        return
        finally:
            stream.destroy()

    async def _bound(
        self, download: Download, path: Path, ended: list[str], free: list[int]
    ) -> None:
        """End a download that grows beyond the bounds; the browser itself has none. Notes how much room it has there."""
        room = self._largest * FILES_OF_SESSION - await anyio.to_thread.run_sync(self._size)
        seen_until = anyio.current_time() + UNSEEN_SECONDS
        while not ended:
            size = max(map(_size_of, (path, *_places_of(download))))
            free[:] = sorted([*free, *_room_of(download)])[:1]
            self._arriving[download] = size
            if size > self._largest:
                ended.append(f"it is larger than {self._largest} bytes")
            elif sum(self._arriving.values()) > room:
                ended.append("there is no room for it among the files of the session")
            elif not size and anyio.current_time() > seen_until:
                ended.append(f"nothing of it arrived within {UNSEEN_SECONDS:g} seconds")
            await anyio.sleep(0 if ended else LOOK_SECONDS)
        await self._cancel(download)

    async def _cancel(self, download: Download) -> None:
        with self.hold():
            await download.cancel()

    async def _check_room(self, size: int) -> None:
        used = await anyio.to_thread.run_sync(self._size)
        if len(await self.names()) > MOST:
            raise OSError(f"a session may have {MOST} files")
        if used + size > self._largest * FILES_OF_SESSION:
            raise OSError(
                f"the files of this session have {used} bytes, there is no room for {size} more"
            )

    def _size(self) -> int:
        # A download that is given up may be gone since it was listed.
        return sum(_size_of(self.folder / name) for name in self._names())

    def take_kept(self) -> list[tuple[str, int]]:
        """Return name and size of each download that was kept since this was asked last."""
        found, self._kept = self._kept, []
        return found

    def take_news(self) -> list[str]:
        """Return what is to be told of files since this was asked last."""
        found, self._news = self._news, []
        return found


def reason(error: BaseException) -> str:
    """Return why something was not done, without the folders of the machine."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _PLACES.sub("", in_words(error))


def _named(wanted: str) -> str:
    """Return the name of a file that every system takes: with its suffix, and without the folders."""
    name = _UNSAFE.sub("_", Path(wanted.replace("\\", "/")).name).strip(". ")
    suffix = Path(name).suffix
    if len(suffix.encode()) > SUFFIX_BYTES:
        suffix = ""
    stem = name.removesuffix(suffix).encode()[: NAME_BYTES - len(suffix.encode())]
    return stem.decode(errors="ignore").rstrip(". ") + suffix or "file"


def _contents(path: Path) -> JSON:
    mime, size = _mime_by_name(path.name) or _mime_by_content(path), path.stat().st_size
    if size > READ_BYTES:
        raise InvalidArgument(
            f"The file has {size} bytes; files of more than {READ_BYTES} bytes are not sent. Who has the machine finds it"
            f" in the data folder: browser/files/{path.parent.name}/{path.name}"
        )
    data = path.read_bytes()
    if mime.startswith("text/") or mime == "application/json":
        with suppress(UnicodeDecodeError):
            return {"mimeType": mime, "text": data.decode()}
    return {"mimeType": mime, "blob": base64.b64encode(data).decode()}


def _places_of(download: Download) -> tuple[Path, Path]:
    """Return where a browser here puts a download, when it is whole and while it grows."""
    # Playwright tells the path only when it is over.
    whole = Path(artifact_of(download)._initializer["absolutePath"])
    return whole, whole.with_name(f"{whole.name}.crdownload")


def _room_of(download: Download) -> list[int]:
    """Return how many bytes are free where the browser puts a download; nothing for one on another machine."""
    with suppress(OSError):
        return [shutil.disk_usage(_places_of(download)[0].parent).free]
    return []


def _ended_there(free: list[int]) -> str:
    """Say why a browser ended a download, which it does not tell."""
    left = "".join(f" ({room} bytes were left)" for room in free)
    return f"the browser ended it, as its connection ended or there was no room for temporary files{left}"


async def _deleted(download: Download) -> None:
    """Remove what the browser has of a download, which it would keep until its context closes."""
    with suppress(Exception), anyio.move_on_after(DELETE_SECONDS, shield=True):
        await download.delete()
    await anyio.to_thread.run_sync(_remove, *_places_of(download))


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mime_by_name(name: str) -> str | None:
    if name.endswith((".yml", ".yaml")):
        # Known to Python only since 3.14.
        return "text/yaml"
    return mimetypes.guess_type(name)[0]


def _mime_by_content(path: Path) -> str:
    """Return whether a file is a text, of which its name says nothing, such as console.log."""
    with suppress(OSError, UnicodeDecodeError):
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        # The last character may be cut in two.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
        if "\0" not in text:
            return "text/plain"
    return "application/octet-stream"


__all__ = ["READ_BYTES", "Files", "reason"]
