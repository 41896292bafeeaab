"""The loan of a login of browsers to a session for a block."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from .errors import SessionError

if TYPE_CHECKING:
    from .session import Session

RELEASE_SECONDS: Final = 10.0
"""Seconds that giving a login back may take; else the session does that when it is idle."""


@asynccontextmanager
async def lend(session: Session, name: str, wait_seconds: int) -> AsyncGenerator[None]:
    """Lend a login to a session for a block. Its end gives the login back, also if that fails for now.

    Raises:
        LoginBusy: another session still has it after `wait_seconds`, at most 60.
        LoginUnavailable: its person has to log in again.
    """
    await session.call("login_use", login=name, wait_seconds=wait_seconds)
    try:
        yield
    finally:
        with anyio.move_on_after(RELEASE_SECONDS, shield=True), suppress(SessionError):
            await session.call("login_release", login=name)
