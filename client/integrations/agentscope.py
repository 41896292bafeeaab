"""agentscope 1's session API on a Statehold: modules of agents go into sessions and come back.

    session = JSONSession(save_dir="./sessions")
    await session.load_session_state(session_id="alice", agent=agent)
    ...
    await session.save_session_state(session_id="alice", agent=agent)

A module is anything with `state_dict()` and `load_state_dict()`: agents and memories of agentscope, and any StateModule.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from ...sessions.ids import name_of_id
from ..errors import SessionNotFound
from ..modules import (
    LoadResult,
    Stateful,
    StateModule,
    dump_modules,
    load_modules,
    read_states,
    require_modules,
    save_states,
)

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON
    from ..connect import StrPath
    from ..sync.client import Client


FOLDER: Final = "statehold"
STATE_BYTES: Final = 64 << 20
"""Bytes that the states of one session in a folder may take."""


class SessionBase(ABC):
    """The interface of a place that keeps the states of modules, by the id of a session and of its user."""

    @abstractmethod
    async def save_session_state(
        self, session_id: str, user_id: str = "", **state_modules_mapping: Stateful
    ) -> None:
        """Save the states of modules under their names."""

    @abstractmethod
    async def load_session_state(
        self,
        session_id: str,
        user_id: str = "",
        allow_not_exist: bool = True,
        **state_modules_mapping: Stateful,
    ) -> LoadResult | None:
        """Load the states of modules, all or none."""


class _StoredSession(SessionBase):
    """Keeps the states in sessions of a Statehold, each named by its session id, until they are deleted.

    Any task, thread and event loop of asyncio may use it. All objects of a program with the same folder share one Statehold,
    which runs in a thread of its own from the first use to close(), or to the end of the program.
    """

    def __init__(
        self,
        data: Path,
        session_id: str | None,
        *,
        url: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.session_id = session_id
        self._statehold = (
            _statehold_of(data)
            if url is None
            else _Statehold({"url": url, "token": token, "headers": headers})
        )

    @property
    def client(self) -> Client:
        """The blocking client underneath, with the list of sessions, their history, and all else. The first use connects."""
        return self._statehold.open()

    async def save_session_state(
        self,
        session_id: str | None = None,
        user_id: str = "",
        **state_modules_mapping: Stateful,
    ) -> None:
        """Save the states of modules under their names, in one write. The session is created if there is none.

        States of other modules that the session has stay in it.

        Raises:
            TypeError: a value is not JSON; nothing was saved.
            StateInvalid: they take more than 64 MiB, on a server `limits.state_bytes`; nothing was saved.
        """
        name = self._name(session_id)
        states = dump_modules(state_modules_mapping)
        client = await anyio.to_thread.run_sync(self._statehold.open)
        await client.portal.wait(_save, client, name, user_id, states)

    async def load_session_state(
        self,
        session_id: str | None = None,
        user_id: str = "",
        allow_not_exist: bool = True,
        **state_modules_mapping: Stateful,
    ) -> LoadResult | None:
        """Load the states of modules, all or none.

        `allow_not_exist`, True as in agentscope: modules without a saved state stay as they are, with a warning; returns
        None when none has one.

        Raises:
            SessionNotFound: there is no such session, or it has no state of a module that the error names.
            KeyError: the saved state lacks an attribute; no module was changed.
        """
        name = self._name(session_id)
        require_modules(state_modules_mapping)
        client = await anyio.to_thread.run_sync(self._statehold.open)
        saved = await client.portal.wait(_read, client, name, user_id)
        return load_modules(
            {} if saved is None else saved,
            state_modules_mapping,
            session=None if saved is None else f"session {name!r}",
            allow_not_exist=allow_not_exist,
            strict=True,
        )

    def close(self) -> None:
        """End the Statehold of this folder, or the connection. The next use opens it again. May be called twice."""
        self._statehold.close()

    def _name(self, session_id: str | None) -> str:
        name = self.session_id if session_id is None else session_id
        if name is None:
            raise TypeError("session_id is missing: name the session")
        return name_of_id(name)


class JSONSession(_StoredSession):
    """Keeps the states below the folder `save_dir`, or on the Statehold at `url`; its database replaces files of JSON.

    `session_id` is for calls that name no session.
    """

    def __init__(
        self,
        save_dir: StrPath = "./",
        *,
        session_id: str | None = None,
        url: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.save_dir = save_dir
        super().__init__(Path(save_dir) / FOLDER, session_id, url=url, token=token, headers=headers)


class SqliteSession(_StoredSession):
    """Keeps the states in the folder `<sqlite_path>.statehold`; a database of agentscope at that path stays as it is."""

    def __init__(self, sqlite_path: StrPath, session_id: str | None = None) -> None:
        self.sqlite_path = sqlite_path
        data = Path(f"{os.fspath(sqlite_path)}.{FOLDER}")
        super().__init__(data, session_id)


class _Statehold:
    """The client of one folder or server. It connects on its first use, and again after close() and in a forked process."""

    def __init__(self, options: JSON) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._process = 0

    def open(self) -> Client:
        with self._lock:
            if self._client is None or not self._client.is_open or self._process != os.getpid():
                self._client, self._process = _connect(self._options), os.getpid()
                self._client.__enter__()
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.close()


_folders: Final[dict[str, _Statehold]] = {}


def _statehold_of(data: Path) -> _Statehold:
    """Return the Statehold of a folder, the same for all users of it in this program."""
    folder = os.fspath(data.absolute())
    return _folders.setdefault(folder, _Statehold({"services": {}, "data": folder}))


def _connect(options: JSON) -> Client:
    from ..sync.connect import connect

    if "data" not in options:
        return connect(**options)
    from ...server.config.model import Config
    from ...server.config.sections import LimitSettings

    # A memory with pictures is larger than the states of other programs.
    return connect(**options, config=Config(limits=LimitSettings(state_bytes=STATE_BYTES)))


async def _save(client: Client, name: str, user_id: str, states: JSON) -> None:
    directory = client.inner.namespace(name_of_id(user_id)).directory
    session = await directory.open(
        {"name": name, "services": [], "user_id": name_of_id(user_id) or None}
    )
    await save_states(session.state, states)
    # Any other process may use it from now on.
    await session.pause()


async def _read(client: Client, name: str, user_id: str) -> JSON | None:
    try:
        session = await client.inner.namespace(name_of_id(user_id)).directory.get(name)
    except SessionNotFound:
        return None
    return await read_states(session)


__all__ = ["JSONSession", "SessionBase", "SqliteSession", "StateModule"]
