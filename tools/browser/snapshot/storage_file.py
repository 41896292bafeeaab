"""A storage state in a file, as Playwright and browser_storage_state write it: cookies and the storage of sites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, cast

import anyio.to_thread

from ....sessions.json_codec import JSON
from ...foreign_file import read_foreign
from ..errors import InvalidSetting
from .model import ContextSnapshot, StoredOrigin

MAX_BYTES: Final = 256 << 20
"""The most bytes of the configured file."""


def parse_storage_state(data: bytes) -> ContextSnapshot:
    """Return the cookies and the storage in the bytes of a file, as a context without tabs. One of the two may be missing.

    Raises:
        ValueError: It is no storage state.
    """
    try:
        content: object = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON, so it is no saved storage state") from None
    state = cast("JSON", content) if isinstance(content, dict) else {}
    cookies, entries = (state.get(part) for part in ("cookies", "origins"))
    if cookies is None and entries is None:
        raise ValueError("is no saved storage state: it has no list cookies and none origins")
    if not all(isinstance(part, list | None) for part in (cookies, entries)):
        raise ValueError("is no saved storage state: cookies and origins are lists")
    try:
        origins = {
            str(entry["origin"]): StoredOrigin.from_state(entry)
            for entry in cast("list[JSON]", entries or [])
        }
    except (KeyError, TypeError, AttributeError):
        raise ValueError("is no saved storage state: an origin is incomplete") from None
    if not all(map(_is_cookie, cast("list[object]", cookies or []))):
        raise ValueError("is no saved storage state: a cookie is none")
    return ContextSnapshot(cookies=cast("list[JSON]", cookies or []), origins=origins)


def _is_cookie(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(
        cast("JSON", entry).get("expires", -1), int | float
    )


async def load_storage_state(path: str | None) -> ContextSnapshot | None:
    """Return what the configured file holds for a new session, or None if no file is configured.

    Raises:
        InvalidSetting: The file cannot be read, or is no storage state.
    """
    if path is None:
        return None
    try:
        data = await anyio.to_thread.run_sync(read_foreign, Path(path), MAX_BYTES)
        return parse_storage_state(data)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except ValueError as error:
        problem = str(error)
    raise InvalidSetting(f"`storage_state` {problem}.")
