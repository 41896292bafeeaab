"""The commands of the operator: `[notify]` for people who have no console open, and `[summary]`."""

from __future__ import annotations

import json
import logging
import math
from typing import Final

from ...sessions.errors import SessionLimit
from ...sessions.json_codec import JSON, dumps
from ...sessions.live.budget import Budget
from ...tools.processes.command import CommandFailed, run_command
from ..config.sections import NotifySettings, SummarySettings

logger = logging.getLogger("statehold.notify")

MAX_AT_ONCE: Final = 8
"""Notifications that are sent at once."""
MAX_WAITING: Final = 1000
"""Notifications that may wait; more are left out."""
_HEADERS: Final = {"content-type": "application/json"}


class Notifications:
    """Sends the notifications of one process. `shared`: each principal has a share of those that are sent and that wait.

    The command reads a notification as JSON from stdin; the address gets it with POST. Neither may take longer than
    `settings.seconds`.
    """

    def __init__(self, settings: NotifySettings, *, shared: bool) -> None:
        self._settings = settings
        self._places = Budget(MAX_AT_ONCE, queue=MAX_WAITING, queue_seconds=math.inf, shared=shared)

    async def send(self, owner: str, notification: JSON) -> None:
        """Give a notification about a session of an owner to the command and to the address, once each.

        A failure is logged, without the address.
        """
        try:
            async with self._places.place(owner):
                await self._send(dumps(notification).encode())
        except SessionLimit:
            logger.warning("a notification was left out: too many wait")

    async def _send(self, body: bytes) -> None:
        settings = self._settings
        if settings.command:
            try:
                await run_command(settings.command, seconds=settings.seconds, data=body)
            except CommandFailed as error:
                logger.warning("the command of [notify] failed: %s", error)
        if settings.url is not None:
            await _post(settings.url.get_secret_value(), body, settings.seconds)


async def _post(url: str, body: bytes, seconds: float) -> None:
    # Imported here: most processes send nothing.
    import httpx2

    from ...tools.http_client import http_options

    try:
        async with httpx2.AsyncClient(timeout=seconds, **http_options(url)) as http:
            response = await http.post(url, content=body, headers=_HEADERS)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        logger.warning("the address of [notify] was not reached: %s", type(error).__name__)
        return
    if not response.is_success:
        logger.warning("the address of [notify] answered %d", response.status_code)


OUTPUT_BYTES: Final = 1 << 20
"""Most bytes of its answer."""


async def ask_summary_command(settings: SummarySettings, session: JSON) -> object:
    """Return the answer of the command for a session, as JSON.

    Raises:
        ValueError: it has none; see run_command().
    """
    output = await run_command(
        settings.command,
        seconds=settings.seconds,
        data=dumps(session).encode(),
        output_bytes=OUTPUT_BYTES,
    )
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        raise ValueError("its output is not JSON") from None
