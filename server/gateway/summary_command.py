"""Summaries by the command of `[summary]`."""

from __future__ import annotations

import json

from ...sessions.json_codec import JSON, dumps
from ...tools.processes.command import run_command
from ..config.sections import SummarySettings


async def ask_summary_command(settings: SummarySettings, session: JSON) -> object:
    """Return the answer of the command for a session, as JSON.

    Raises:
        ValueError: it has none; see run_command().
    """
    data = dumps(session).encode()
    return json.loads(await run_command(settings.command, seconds=settings.seconds, data=data))


__all__ = ["ask_summary_command"]
