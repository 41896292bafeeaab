"""The loan of a login of browsers to a session for a block."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio

from .errors import SessionError

RELEASE_SECONDS: Final = 10.0
"""Seconds that giving a login back may take; else the session does that when it is idle."""


@asynccontextmanager
async def lend(
    call: Callable[..., Awaitable[object]], name: str, wait_seconds: int
) -> AsyncGenerator[None]:
    """Lend a login for a block to the session of `call`. Its end gives the login back, also if that fails for now.

    Raises:
        LoginBusy: another session still has it after `wait_seconds`, at most 60.
        LoginUnavailable: its person has to log in again.
    """
    await call("login_use", login=name, wait_seconds=wait_seconds)
    try:
        yield
    finally:
        with anyio.move_on_after(RELEASE_SECONDS, shield=True), suppress(SessionError):
            await call("login_release", login=name)


__all__ = ["RELEASE_SECONDS", "lend"]
