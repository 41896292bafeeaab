"""The files of one session: downloads, and what tools write. Each is a resource that the caller can read."""

from __future__ import annotations

import base64
import mimetypes
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from ...sessions.errors import InvalidArgument
from ...sessions.services import JSON
from ..upstream.places import private_folder

if TYPE_CHECKING:
    from playwright.async_api import Download

FILES_OF_SESSION: Final = 4
"""All files of a session together may have so many times as much as one download."""
LOOK_SECONDS: Final = 0.1

_UNSAFE: Final = re.compile(r"[^\w.\- ()]+")


class Files:
    """The folder of a session's files, made at the first one. Their URIs are `files/NAME`.

    What is saved here outlives the browser, a pause and a restart, and is removed with the session.
    """

    def __init__(self, folder: Path, *, largest: int) -> None:
        self.folder = folder
        self._largest = largest
        self._news: list[str] = []
        self._kept: list[tuple[str, int]] = []

    def uri(self, name: str) -> str:
        return f"files/{name}"

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
        name = _UNSAFE.sub("_", Path(wanted.replace("\\", "/")).name).strip(". ")[:120] or "file"
        path = self.folder / name
        number = 1
        while path.exists():
            number += 1
            path = self.folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
        path.touch(0o600)
        return path

    async def write(self, name: str, data: bytes) -> Path:
        """Keep a file; the folder holds at most four times the largest download.

        Raises:
            OSError: there is no room for it.
        """
        await self._check_room(len(data))
        path = await self.path(name)
        await anyio.to_thread.run_sync(path.write_bytes, data)
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
        return data, mime_of(name)

    async def resource(self, name: str) -> JSON:
        """Return the MCP resource that describes a file."""
        size = await anyio.to_thread.run_sync(_size_of, self.folder / name)
        return {"uri": self.uri(name), "name": name, "mimeType": mime_of(name), "size": size}

    async def contents(self, uri: str) -> JSON:
        """Return a file as MCP resource contents: text where it is text, else base64.

        Raises:
            FileNotFoundError: there is no such file.
        """
        data, mime = await self.read(uri)
        if mime.startswith("text/") or mime == "application/json":
            try:
                return {"uri": uri, "mimeType": mime, "text": data.decode()}
            except UnicodeDecodeError:
                pass
        return {"uri": uri, "mimeType": mime, "blob": base64.b64encode(data).decode()}

    async def answer(self, method: str, params: JSON) -> JSON:
        """Answer resources/list and resources/read.

        Raises:
            InvalidArgument: there is no such file, or no such method.
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
        """Save a download when it is over; one that grows too large is ended."""
        name = download.suggested_filename or "download"
        path = await self.path(name)
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._bound, download)
                try:
                    await download.save_as(path)
                except Exception as error:
                    # Not through the task group, which would wrap it.
                    failure = error
                tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        size = path.stat().st_size
        if size > self._largest:
            path.unlink()
            self._news.append(
                f"The download of {name[:200]} was larger than {self._largest} bytes."
            )
            return
        self._news.append(f"Downloaded {path.name} ({size} bytes): {self.uri(path.name)}")
        self._kept.append((path.name, size))

    async def _bound(self, download: Download) -> None:
        """End a download whose file grows beyond the bound; the browser itself has none."""
        # Playwright tells the path only when it is over.
        artifact: Any = download._impl_obj._artifact  # pyright: ignore[reportPrivateUsage]
        whole = Path(artifact._initializer["absolutePath"])
        growing = whole.with_name(f"{whole.name}.crdownload")
        while max(_size_of(whole), _size_of(growing)) <= self._largest:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(LOOK_SECONDS)
        await download.cancel()

    async def _check_room(self, size: int) -> None:
        used = await anyio.to_thread.run_sync(self._size)
        if used + size > self._largest * FILES_OF_SESSION:
            raise OSError(
                f"the files of this session have {used} bytes, there is no room for {size} more"
            )

    def _size(self) -> int:
        return sum((self.folder / name).stat().st_size for name in self._names())

    def take_kept(self) -> list[tuple[str, int]]:
        """Return name and size of each download that was kept since this was asked last."""
        found, self._kept = self._kept, []
        return found

    def take_news(self) -> list[str]:
        found, self._news = self._news, []
        return found


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def mime_of(name: str) -> str:
    if name.endswith((".yml", ".yaml")):
        # Known to Python only since 3.14.
        return "text/yaml"
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


__all__ = ["Files", "mime_of"]
