"""Prints the result of a call: texts and paths on stdout, everything about it on stderr. Also decides the exit code."""

from __future__ import annotations

import binascii
import os
import time

from ...server.exit_codes import ASKS, CODES, FAILURE, OK, TOOL_FAILED
from ...server.printing import complain, write_json, write_line
from ...server.sockets.request import as_list, as_object
from ...sessions.one_line import one_line
from .words import Words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


ERROR_META = "statehold/error"
_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "text/plain": ".txt",
}


def complain_of(
    code: str,
    message: str,
    recovery: str,
    session: str | None = None,
    *,
    retry_after: object = None,
) -> int:
    """Write an error of the server to stderr, with what to do in a shell, and return its exit code."""
    # Imported here: only an error needs it.
    from ...sessions.wording import SHELL, next_step

    text = f"{message} {next_step(recovery, SHELL, session, retry_after=retry_after)}"
    return complain(one_line(text), CODES.get(code, FAILURE))


def exit_code(result: dict[str, Any]) -> int:
    """Return the exit code of a result."""
    if result.get("resultType") == "input_required":
        return ASKS
    error = as_object(as_object(result.get("_meta")).get(ERROR_META))
    if error:
        return CODES.get(str(error.get("code")), FAILURE)
    return TOOL_FAILED if result.get("isError") is True else OK


def show(
    result: dict[str, Any],
    words: Words,
    tool: str,
    folder: str,
    read_link: Callable[[str], bytes | None],
    session: str | None = None,
) -> int:
    """Print a result and return its exit code. Files are written to -o, or below `folder`.

    `read_link` reads a file of the session by its address; None if it cannot.

    Raises:
        OSError: a file cannot be written.
    """
    code = exit_code(result)
    if words.has("--json"):
        write_json(result)
        return code
    blocks = [as_object(block) for block in as_list(result.get("content"))]
    if as_object(result.get("_meta")).get(ERROR_META):
        text = "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        error = as_object(as_object(result["_meta"])[ERROR_META])
        _complain_of_error(text, error, session)
        return code
    files = _Files(words.options.get("-o"), tool, folder)
    kinds = {block.get("type") for block in blocks}
    has_text = False
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            has_text = True
            write_line(str(block.get("text", "")))
        elif kind == "resource_link":
            _show_link(block, files, read_link, is_shown="image" in kinds)
        elif kind == "resource":
            _show_resource(as_object(block.get("resource")), files)
        elif kind in ("image", "audio"):
            data = _decode(block.get("data"))
            write_line(files.write(data, "", str(block.get("mimeType"))))
    content = result.get("structuredContent")
    if content is not None and not has_text:
        write_json(content)
    return code


def _complain_of_error(text: str, error: dict[str, Any], session: str | None) -> None:
    """Write an error of ours to stderr: its text is `code: message`, then what to do."""
    code, recovery = str(error.get("code")), str(error.get("recovery") or "")
    text = text.removeprefix("### Error\n").removeprefix(f"{code}: ")
    message = text.removesuffix(recovery).strip() if recovery else text
    complain_of(code, message, recovery, session, retry_after=error.get("retry_after_seconds"))


def _show_link(
    block: dict[str, Any],
    files: _Files,
    read_link: Callable[[str], bytes | None],
    *,
    is_shown: bool,
) -> None:
    """Print the path of a file of the session, or an address elsewhere. `is_shown`: its picture is in the result too."""
    uri, mime = str(block.get("uri")), str(block.get("mimeType"))
    is_address = "://" in uri and not uri.startswith("session://")
    if is_address:
        write_line(uri)
    elif not (is_shown and mime.startswith("image/")):
        data = read_link(uri)
        name = str(block.get("name") or "")
        write_line(uri if data is None else files.write(data, name, mime))


def _show_resource(resource: dict[str, Any], files: _Files) -> None:
    if "text" in resource:
        write_line(str(resource["text"]))
    elif "blob" in resource:
        name = str(resource.get("uri", "")).rpartition("/")[2]
        mime = str(resource.get("mimeType"))
        write_line(files.write(_decode(resource["blob"]), name, mime))


def _decode(data: object) -> bytes:
    return binascii.a2b_base64(str(data))


class _Files:
    """The files of one result: at the path of -o, in its folder, or in a folder of the data folder."""

    def __init__(self, chosen: str | None, tool: str, folder: str) -> None:
        self._path = chosen
        self._tool = tool
        self._folder = folder
        self._count = 0

    def write(self, data: bytes, name: str, mime: str) -> str:
        """Write a file and return its path. A file that exists is replaced only at the path of -o."""
        self._count += 1
        name = _file_name(name) or f"{_file_name(self._tool)}{_SUFFIXES.get(mime, '')}"
        if (
            self._path is not None
            and not os.path.isdir(self._path)
            and not self._path.endswith("/")
        ):
            path = self._path if self._count == 1 else _numbered(self._path, self._count)
            return _write(path, data, is_new=False)
        folder = self._folder if self._path is None else self._path
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if self._path is None:
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
        path, number = os.path.join(folder, name), 1
        while True:
            try:
                return _write(path, data, is_new=True)
            except FileExistsError:
                number += 1
                path = _numbered(os.path.join(folder, name), number)


def _write(path: str, data: bytes, *, is_new: bool) -> str:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else os.O_TRUNC)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
    return path


def _numbered(path: str, number: int) -> str:
    stem, suffix = os.path.splitext(path)
    return f"{stem}-{number}{suffix}"


def _file_name(name: str) -> str:
    """Return a name that is no path and is not hidden, of plain characters; a server may send any."""
    letters = [letter if letter.isalnum() or letter in "._-" else "_" for letter in name]
    return "".join(letters).lstrip("._")[:100]
