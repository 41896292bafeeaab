"""The requests of commands at the background server: the session that a command names; see sockets/command.py."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from ...sessions.errors import (
    InvalidArgument,
    NameTaken,
    OwnedByAnotherNode,
    SessionClosed,
    SessionError,
    SessionNotFound,
)
from ...sessions.records import LOCAL
from ...sessions.wording import did_you_mean, near_names
from ..gateway.gateway import Gateway
from ..gateway.pinned_sessions import ABSENT
from ..sockets.command import ANY, EXISTING, NEW

SIMILAR: Final = 0.75
"""The similarity from which a name is taken for a misspelling of another, as difflib measures it."""


@dataclass(frozen=True)
class CommandRequest:
    """The members of the request of a command."""

    session: str | None
    presence: str
    settings: Mapping[str, str] | None
    """The digests of the settings that the command asks of the server; None takes the server as it is."""

    @classmethod
    def parse(cls, members: Mapping[str, Any]) -> Self:
        """Read a request. Unknown members, of a newer version, are ignored.

        Raises:
            InvalidArgument: it is malformed.
        """
        session, settings = members.get("session"), members.get("settings")
        presence = members.get("presence", ANY)
        if (
            not isinstance(session, str | None)
            or not isinstance(settings, dict | None)
            or presence not in (ANY, NEW, EXISTING)
        ):
            raise InvalidArgument("The request of the command is malformed.")
        return cls(session, presence, cast("dict[str, str] | None", settings))


async def is_new(gateway: Gateway, name: str, presence: str) -> bool:
    """Return whether the first call of a command creates its session.

    Raises:
        SessionNotFound: there is none, and none is to be created; or there is one of a similar name.
        NameTaken: there is one, and it has to be new.
        SessionError: the session has that id and is no longer open.
    """
    try:
        await gateway.registry.find(LOCAL, name, gateway.config.namespace)
    except OwnedByAnotherNode:
        pass
    except ABSENT as error:
        await _refuse_absent(gateway, name, presence, error)
        return True
    if presence == NEW:
        raise session_exists(name)
    return False


def session_exists(name: str) -> NameTaken:
    """Return the error of a command that asks for a new session, where there is one."""
    return NameTaken(f"There is a session {name:.100} already.")


async def _refuse_absent(gateway: Gateway, name: str, presence: str, error: SessionError) -> None:
    if name.startswith("sh_"):
        raise error
    if presence == EXISTING:
        await _refuse_closed(gateway, name)
        hint = did_you_mean(name, (await gateway.pinned_sessions.references(LOCAL))["names"])
        raise SessionNotFound(f"There is no session {name:.100}.{hint}")
    if presence == NEW:
        return
    names = (await gateway.pinned_sessions.references(LOCAL))["names"]
    others = [each for each in names if _letters(each) != _letters(name)]
    similar = near_names(name, others, similarity=SIMILAR)
    if similar:
        raise SessionNotFound(
            f"There is no session {name:.100}, but one called {similar[0]:.100}.",
            recovery="Use that name, or --new for a new session.",
        )


async def _refuse_closed(gateway: Gateway, name: str) -> None:
    """Raise SessionClosed if a session of this name was closed and is not purged."""
    with suppress(SessionNotFound, OwnedByAnotherNode):
        info = await gateway.registry.info(LOCAL, name, gateway.config.namespace)
        raise SessionClosed(
            f"The session {name:.100} is closed ({info['reason']}, {info['closed_at']}).",
            session_id=info["session_id"],
        )


def _letters(name: str) -> str:
    """Return a name without digits: `task2` is no misspelling of `task1`."""
    return "".join(letter for letter in name if not letter.isdigit())
