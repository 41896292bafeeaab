"""The Python client for programs that block: the same names and the same methods, without `await`.

    with connect("http://127.0.0.1:8931") as client:
        with client.session("checkout", services=["browser"]) as s:
            s.call("browser_navigate", url="http://shop.test/")

One background thread runs the event loop of all open clients; clients and sessions may be used from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import errors
from ..modules import Loaded, StateModule
from ..protocol.elicitation import Answer, Question
from ..results import (
    CallResult,
    Conflict,
    Entry,
    History,
    Image,
    Merged,
    ResourceContent,
    ServiceInfo,
    ServiceStatus,
    SessionBrief,
    SessionInfo,
    StateValue,
    Stats,
    Summary,
    Tool,
)
from .block import AutoSession, SessionBlock
from .client import Client
from .connect import Elicitation, connect
from .session import Progress, Session
from .state import State

if TYPE_CHECKING:
    from ...server.config.model import ConfigError


def __getattr__(name: str) -> object:
    if name == "ConfigError":
        return errors.ConfigError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "connect",
    "Client",
    "Session",
    "SessionBlock",
    "AutoSession",
    "State",
    "StateModule",
    "CallResult",
    "errors",
    "ConfigError",
    "Answer",
    "Conflict",
    "Elicitation",
    "Entry",
    "History",
    "Image",
    "Loaded",
    "Merged",
    "Progress",
    "Question",
    "ResourceContent",
    "ServiceInfo",
    "ServiceStatus",
    "SessionBrief",
    "SessionInfo",
    "StateValue",
    "Stats",
    "Summary",
    "Tool",
]
