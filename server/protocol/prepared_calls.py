"""Tool calls as the server prepares them from a request: a call of an own tool, or one to forward to a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ...tools.catalog import CatalogEntry
from ...tools.own.definition import Context, OwnTool
from .input_required import STATE


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call of one of our own tools."""

    tool: OwnTool
    context: Context
    arguments: JSON


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """A call of a service's tool in a session."""

    principal: Principal
    session: str
    """An id, or a name of the principal's."""
    entry: CatalogEntry
    arguments: JSON
    reported_seconds: float
    """Seconds of waiting for the service that were reported to the caller."""


def parked_call_state(params: Mapping[str, Any]) -> str | None:
    """Return the `requestState` with which a request continues a parked call, None for any other request."""
    state = params.get("requestState")
    return state if isinstance(state, str) and state.startswith(STATE) else None


def named_session(params: Mapping[str, Any]) -> object:
    arguments: object = params.get("arguments")
    return cast("JSON", arguments).get("session_id") if isinstance(arguments, dict) else None


__all__ = ["ForwardedCall", "OwnCall", "named_session", "parked_call_state"]
