"""The files of one session: downloads, and files written by tools. Each is a resource that the caller can read."""

from __future__ import annotations

import base64
import codecs
import mimetypes
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread

from ....sessions.errors import InvalidArgument
from ....sessions.json_codec import JSON
from ...processes.workdir import private_folder
from ..devtools.sdk import artifact_of
from ..errors import describe_error
from .output_folder import OutputFolder, new_file
from .recording import markdown_log

if TYPE_CHECKING:
    from playwright.async_api import Download

FILES_OF_SESSION: Final = 4
"""All files of a session together may be so many times as large as the largest download."""
READ_BYTES: Final = 16 * 2**20
"""The largest file that is sent as a resource; on its way to the caller it is in memory several times."""
NAME_BYTES: Final = 180
SUFFIX_BYTES: Final = 20
"""With NAME_BYTES, the limits of a file name. Systems take 255 bytes; a number and a browser's suffix must fit as well."""
MAX_FILES: Final = 1000
"""The most files of a session."""
MAX_DOWNLOADS: Final = 10
"""The most concurrent downloads of a session; more are cancelled at once."""
HEAD_BYTES: Final = 4096
"""The bytes of a file that are read to find out whether it is a text."""
LOOK_SECONDS: Final = 0.05
DELETE_SECONDS: Final = 2.0
CANCELED: Final = "canceled"
"""The whole error message of a download that its browser ended."""
UNSEEN_SECONDS: Final = 1800.0
"""Seconds for which no byte of a download may arrive here: a browser on another machine sends a download when complete."""
SWEEPS: Final = (0.1, 0.3, 0.6, 1.5)
"""The pauses, in seconds, before each removal of the remains of a cancelled download."""

_UNSAFE: Final = re.compile(r"[^\w.\- ()]+")
_NODE_DETAILS: Final = re.compile(r", \w+ '.*", re.DOTALL)
"""Matches the end of an error message of Node: the operation, and the paths of files on this machine."""


Mask: TypeAlias = Callable[[bytes], bytes]


def _unchanged(data: bytes) -> bytes:
    return data


class Files:
    """The folder of a session's files, created with the first file. Their URIs are `files/NAME`; callers see `root` before.

    The files outlive the browser, a pause and a restart, and are removed with the session.
    """

    def __init__(
        self,
        folder: Path,
        *,
        largest: int,
        root: str = "",
        is_remote: bool = False,
        output: OutputFolder | None = None,
        shows_paths: bool = False,
    ) -> None:
        """`output`: the folder that gets copies of all files. `shows_paths`: callers may see its path."""
        self.folder = folder
        self._root = root
        self._largest = largest
        self._is_remote = is_remote
        """Whether another Playwright server sends the downloads, instead of our driver copying them."""
        self._output = output
        self._shows_paths = shows_paths
        self.pause_traffic: Callable[[], AbstractContextManager[None]] = nullcontext
        """Stops the traffic of the context while a download is cancelled, which takes the browser a while."""
        self._events: list[str] = []
        self._saved_downloads: list[tuple[str, int]] = []
        self._arrived_bytes: dict[Download, int] = {}
        """The bytes that have arrived of each download under way."""

    def uri(self, name: str) -> str:
        """Return the URI of a file as the service knows it."""
        return f"files/{name}"

    def address(self, name: str) -> str:
        """Return the URI of a file as callers read it."""
        return f"{self._root}{quote(self.uri(name))}"

    def name_of(self, reference: str) -> str:
        """Return the name of the file that a name, a URI or an address refers to."""
        if "://" in reference:
            return unquote(reference.rpartition("/files/")[2])
        return reference.removeprefix("./").removeprefix("files/")

    async def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return await anyio.to_thread.run_sync(self._names)

    def _names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_file())

    async def path(self, name: str) -> Path:
        """Create an empty file of that name and return its path. If the name is taken, a number is added."""
        return await anyio.to_thread.run_sync(self._path, name)

    def _path(self, requested: str) -> Path:
        private_folder(self.folder)
        return new_file(self.folder, _safe_name(requested))

    async def write(self, name: str, data: bytes) -> Path:
        """Write a file, completely or not at all; the folder holds at most FILES_OF_SESSION times the largest download.

        Raises:
            OSError: There is no room for it.
        """
        await self._check_room(len(data))
        path = await self.path(name)
        try:
            await anyio.to_thread.run_sync(path.write_bytes, data)
        except BaseException:
            _remove(path)
            raise
        return path

    async def rename(self, path: Path, name: str) -> tuple[str, bool]:
        """Give a file the name that the caller chose; return it, and whether it replaced another file of that name."""
        return await anyio.to_thread.run_sync(self._rename, path, name)

    def _rename(self, path: Path, requested: str) -> tuple[str, bool]:
        target = self.folder / _safe_name(requested)
        is_replaced = target != path and target.exists()
        path.replace(target)
        return target.name, is_replaced

    async def admit(self, path: Path) -> int:
        """Keep a file that was written to the result of path(), and return its size.

        Raises:
            OSError: There is no room for it, or it was not written; it is then removed.
        """
        try:
            await anyio.to_thread.run_sync(path.chmod, 0o600)
            await self._check_room(0)
        except OSError:
            await self.drop(path)
            raise
        return await anyio.to_thread.run_sync(_size_of, path)

    async def deliver(self, name: str) -> str:
        """Copy a file to the output folder, if there is one. Return a note about the copy that follows its address."""
        if self._output is None:
            return ""
        try:
            copy = await anyio.to_thread.run_sync(self._output.copy, self.folder / name)
        except OSError as error:
            return f" (not copied to `output_dir`: {error.strerror})"
        return f" (copied to {copy if self._shows_paths else copy.name})"

    async def drop(self, path: Path) -> None:
        """Remove a file, if it is there."""
        await anyio.to_thread.run_sync(partial(path.unlink, missing_ok=True))

    async def read(self, uri: str) -> tuple[bytes, str]:
        """Return the bytes and the MIME type of a file.

        Raises:
            FileNotFoundError: There is no such file.
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

    async def contents(self, uri: str, *, mask: Mask = _unchanged) -> JSON:
        """Return a file as MCP resource contents: as text if it is text, else as base64. `mask` changes its bytes.

        Raises:
            FileNotFoundError: There is no such file.
            InvalidArgument: The file is larger than `READ_BYTES`.
        """
        name = uri.removeprefix("files/")
        if name not in await self.names():
            raise FileNotFoundError(name)
        contents = await anyio.to_thread.run_sync(_contents, self.folder / name, mask)
        return {"uri": uri, **contents}

    async def answer(self, method: str, params: JSON, *, mask: Mask = _unchanged) -> JSON:
        """Answer resources/list, resources/templates/list and resources/read. `mask` changes the bytes of a file.

        Raises:
            InvalidArgument: There is no such file, it is too large, or there is no such method.
        """
        if method == "resources/list":
            return {"resources": [await self.resource(name) for name in await self.names()]}
        if method == "resources/templates/list":
            return {"resourceTemplates": []}
        if method != "resources/read":
            raise InvalidArgument(f"The browser has no {method}.")
        try:
            return {"contents": [await self.contents(str(params.get("uri")), mask=mask)]}
        except FileNotFoundError:
            raise InvalidArgument("The session has no such file.") from None

    async def keep_download(self, download: Download, name: str) -> None:
        """Wait for a download and save it under a name. A download that grows too large, or has no room, is cancelled.

        Raises:
            OSError: The download failed or was cancelled; the message says why.
        """
        is_admitted = len(self._arrived_bytes) < MAX_DOWNLOADS
        try:
            if not is_admitted:
                await self._cancel(download)
                raise OSError(f"{MAX_DOWNLOADS} others are under way")
            self._arrived_bytes[download] = 0
            await self._receive(download, await self.path(name))
        finally:
            if is_admitted:
                self._arrived_bytes.pop(download, None)
            await _delete(download)

    async def remove_remains(self, download: Download) -> None:
        """Remove the remains of a cancelled download, several times: the browser may create its file after the cancel."""
        for seconds in SWEEPS:
            await anyio.sleep(seconds)
            await anyio.to_thread.run_sync(_remove, *_paths_of(download))

    async def _receive(self, download: Download, path: Path) -> None:
        reasons: list[str] = []
        free_space = _free_space_of(download)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._enforce_limits, download, path, reasons, free_space)
                try:
                    await self._copy(download, path, reasons)
                except Exception as error:
                    # Recorded instead of raised: the task group would wrap it.
                    message = reason(error)
                    reasons.append(
                        _reasons_of_browser(free_space) if message == CANCELED else message
                    )
                tasks.cancel_scope.cancel()
            size = _size_of(path)
            if size > self._largest:
                reasons.append(f"it is larger than {self._largest} bytes")
            if reasons:
                raise OSError(reasons[0])
            await self._check_room(0)
            await anyio.to_thread.run_sync(path.chmod, 0o600)
        except BaseException:
            _remove(path)
            raise
        note = await self.deliver(path.name)
        self._events.append(
            f'Downloaded file {path.name} to "{self.address(path.name)}" ({size} bytes){note}'
        )
        self._saved_downloads.append((path.name, size))

    async def _copy(self, download: Download, path: Path, reasons: list[str]) -> None:
        if not self._is_remote:
            await download.save_as(path)
            return
        # save_as() would receive all of it: a download that is complete in its browser cannot be cancelled.
        stream = await artifact_of(download).create_read_stream()
        try:
            async with await anyio.open_file(path, "wb") as file:
                async for chunk in stream:
                    await file.write(chunk)
                    if reasons:
                        return
        finally:
            stream.destroy()

    async def _enforce_limits(
        self, download: Download, path: Path, reasons: list[str], free_space: list[int]
    ) -> None:
        """Cancel a download that exceeds the limits; the browser itself has none.

        `reasons` receives the reason, and `free_space` the least free space seen on the disk of the browser.
        """
        available = self._largest * FILES_OF_SESSION - await anyio.to_thread.run_sync(self._size)
        seen_until = anyio.current_time() + UNSEEN_SECONDS
        while not reasons:
            size = max(map(_size_of, (path, *_paths_of(download))))
            free_space[:] = sorted([*free_space, *_free_space_of(download)])[:1]
            self._arrived_bytes[download] = size
            if size > self._largest:
                reasons.append(f"it is larger than {self._largest} bytes")
            elif sum(self._arrived_bytes.values()) > available:
                reasons.append("there is no room for it among the files of the session")
            elif not size and anyio.current_time() > seen_until:
                reasons.append(f"nothing of it arrived within {UNSEEN_SECONDS:g} seconds")
            await anyio.sleep(0 if reasons else LOOK_SECONDS)
        await self._cancel(download)

    async def _cancel(self, download: Download) -> None:
        with self.pause_traffic():
            await download.cancel()

    async def _check_room(self, size: int) -> None:
        size_so_far = await anyio.to_thread.run_sync(self._size)
        if len(await self.names()) > MAX_FILES:
            raise OSError(f"a session may have {MAX_FILES} files")
        if size_so_far + size > self._largest * FILES_OF_SESSION:
            raise OSError(
                f"the files of this session have {size_so_far} bytes, there is no room for {size} more"
            )

    def _size(self) -> int:
        # A cancelled download may be gone since it was listed; it counts as 0.
        return sum(_size_of(self.folder / name) for name in self._names())

    def take_downloads(self) -> list[tuple[str, int]]:
        """Return name and size of each download saved since the last call."""
        downloads, self._saved_downloads = self._saved_downloads, []
        return downloads

    def take_events(self) -> list[str]:
        """Return the messages about files since the last call."""
        events, self._events = self._events, []
        return events


def reason(error: BaseException) -> str:
    """Return the reason of an error, without the paths of this machine."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _NODE_DETAILS.sub("", describe_error(error))


def _safe_name(text: str) -> str:
    """Return a file name that every system accepts: with its suffix, and without folders."""
    name = _UNSAFE.sub("_", Path(text.replace("\\", "/")).name).strip(". ")
    suffix = Path(name).suffix
    if len(suffix.encode()) > SUFFIX_BYTES:
        suffix = ""
    stem = name.removesuffix(suffix).encode()[: NAME_BYTES - len(suffix.encode())]
    name = stem.decode(errors="ignore").rstrip(". ") + suffix or "file"
    # Some systems do not tell capitals apart.
    return f"file-{name}" if name.casefold() == markdown_log.NAME else name


def _contents(path: Path, mask: Mask) -> JSON:
    mime, size = _mime_by_name(path.name) or _mime_by_content(path), path.stat().st_size
    if size > READ_BYTES:
        raise InvalidArgument(
            f"The file has {size} bytes; files of more than {READ_BYTES} bytes are not sent. It is"
            f" in the data folder of the server: browser/files/{path.parent.name}/{path.name}"
        )
    data = mask(path.read_bytes())
    if mime.startswith("text/") or mime == "application/json":
        with suppress(UnicodeDecodeError):
            return {"mimeType": mime, "text": data.decode()}
    return {"mimeType": mime, "blob": base64.b64encode(data).decode()}


def _paths_of(download: Download) -> tuple[Path, Path]:
    """Return the paths at which a browser on this machine writes a download: the complete file, and the growing one."""
    # Playwright's public API has the path only after the end of the download.
    whole = Path(artifact_of(download)._initializer["absolutePath"])
    return whole, whole.with_name(f"{whole.name}.crdownload")


def _free_space_of(download: Download) -> list[int]:
    """Return the free bytes on the disk of the download, as a list of one; empty for a browser on another machine."""
    with suppress(OSError):
        return [shutil.disk_usage(_paths_of(download)[0].parent).free]
    return []


def _reasons_of_browser(free_space: list[int]) -> str:
    """Return the likely reasons why a browser ended a download; the browser reports none."""
    details = "".join(f" ({room} bytes were left)" for room in free_space)
    return f"the browser ended it, as its connection ended or there was no room for temporary files{details}"


async def _delete(download: Download) -> None:
    """Remove the browser's copy of a download, which it would keep until its context closes."""
    with suppress(Exception), anyio.move_on_after(DELETE_SECONDS, shield=True):
        await download.delete()
    await anyio.to_thread.run_sync(_remove, *_paths_of(download))


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
        # Python knows this type only since 3.14.
        return "text/yaml"
    return mimetypes.guess_type(name)[0]


def _mime_by_content(path: Path) -> str:
    """Return the MIME type of a file whose name does not tell, such as console.log: text or binary."""
    with suppress(OSError, UnicodeDecodeError):
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        # The last character may be cut in two.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
        if "\0" not in text:
            return "text/plain"
    return "application/octet-stream"


def file_name(name: str | None, default: str) -> str:
    """Return the wanted name of a file, with the usual suffix if it has none, or the usual name."""
    if not name:
        return default
    return name if Path(name).suffix else f"{name}{Path(default).suffix}"
