"""The context of calls that Statehold makes itself, such as probes and recipe steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...sessions.errors import NotAllowed
from ...sessions.json_codec import JSON
from .negotiation import OFFERED_CAPABILITIES


class InternalContext:
    """The context of a call without a caller. It refuses questions and discards progress and log messages."""

    meta: Mapping[str, Any] = {}
    wants_progress = False
    log_level: str | None = None
    input_responses: JSON | None = None
    request_state: str | None = None
    can_return_input_required = False
    result_tokens: int | None = None
    wants_facts = False
    reachable = False
    operation_id: str | None = None
    is_owner = False

    @property
    def capabilities(self) -> JSON:
        # Lists belong to all callers, and a server may leave out what its client cannot use.
        return OFFERED_CAPABILITIES

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return

    async def log(self, params: JSON) -> None:
        return

    async def ask(self, method: str, params: JSON) -> JSON:
        raise NotAllowed("Statehold made this call itself and answers no questions.")
