"""Notifications for people who have no console open, by the command and the address of `[notify]`."""

from __future__ import annotations

import logging
from typing import Final

from ...sessions.json_codec import JSON, dumps
from ...tools.processes.command import CommandFailed, run_command
from ..config.sections import NotifySettings

logger = logging.getLogger("statehold.notify")

_HEADERS: Final = {"content-type": "application/json"}


async def send_notification(settings: NotifySettings, notification: JSON) -> None:
    """Give a notification to the command and to the address, once each. A failure is logged, without the address.

    The command reads the notification as JSON from stdin; the address gets it with POST. Neither may take longer than
    `settings.seconds`.
    """
    body = dumps(notification).encode()
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
