"""The sessions of agentscope 1: a file of JSON for each, with the states of modules by their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from .....sessions.json_codec import JSON
from .....tools.foreign_file import read_foreign
from ...errors import CommandError
from .foreign import LARGEST, ForeignSession, Sessions, Unreadable, read_json

MODULES: Final = "modules"
"""The key in the state of a session under which the client's load_session_state() finds modules."""


def read_agentscope(folder: Path, *, users: bool) -> tuple[int, Sessions]:
    """Return how many sessions a folder has, and the sessions.

    `users`: the name of a file begins with a user's id and an underscore. The session is then in the namespace of the user.

    Raises:
        CommandError: there is no such folder, or it cannot be read.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise CommandError.usage(
            f"{folder}: {error.strerror}; name a folder of JSONSession"
        ) from None
    return len(files), _sessions(files, users)


def _sessions(files: list[Path], users: bool) -> Iterator[ForeignSession | Unreadable]:
    for file in files:
        try:
            yield _session(file, users)
        except OSError as error:
            yield Unreadable(file.name, error.strerror or str(error))
        except (ValueError, RecursionError) as error:
            yield Unreadable(file.name, str(error))


def _session(file: Path, users: bool) -> ForeignSession:
    # agentscope writes halves of surrogate pairs, too; editors of Windows write a byte order mark.
    text = read_foreign(file, LARGEST).decode("utf-8-sig", "surrogatepass")
    try:
        states = read_json(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(states, dict):
        raise ValueError("it holds no states of modules")
    states = cast("JSON", states)
    wrong = [name for name, state in states.items() if not isinstance(state, dict)]
    if wrong:
        raise ValueError(f"the state of {wrong[0]!r:.100} is no object")
    user, separator, name = file.stem.partition("_")
    if users and not (user and separator and name):
        raise ValueError("its name has no user: it should be USER_SESSION.json")
    return ForeignSession(
        source=file.name,
        origin=f"agentscope:{file.stem}",
        name=name if users else file.stem,
        namespace=user if users else "",
        state={MODULES: states},
        labels={"user_id": user} if users else {},
    )


__all__ = ["read_agentscope"]
