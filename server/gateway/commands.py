"""The command of the operator that sums up sessions: `[summary]`."""

from __future__ import annotations

import json
from typing import Final

from ...sessions.json_codec import JSON, dumps
from ...tools.processes.command import run_command
from ..config.sections import SummarySettings

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
