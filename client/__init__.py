"""The Python client: sessions of a Statehold, over HTTP, over stdio, or embedded in this process.

    async with connect("http://127.0.0.1:8931") as client:
        async with client.session("checkout", services=["browser"]) as s:
            await s.call("browser_navigate", url="http://shop.test/")
            await s.state.update({"step": 2})

`statehold.client.sync` is the same without `await`. Importing this imports neither the MCP SDK nor the server; connect()
imports only the modules of the transport that it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tools.own.results import (
    Conflict,
    History,
    HistoryEntry,
    MergeResult,
    ServiceInfo,
    ServiceStatus,
    SessionInfo,
    StateValue,
    Stats,
)
from . import errors
from .client import Client
from .connect import connect
from .modules import LoadResult, StateModule
from .options import SessionOptions
from .protocol.elicitation import Answer, ElicitationCallback, Question
from .results import CallResult, Image, ResourceContent, SessionBrief, SessionList, Summary, Tool
from .runs import Run
from .scopes import AutoSession, SessionBlock
from .session import Session
from .state import State
from .tasks import Task
from .transport.base import ProgressCallback

if TYPE_CHECKING:
    from ..access.config.types import ConfigError


def __getattr__(name: str) -> object:
    if name == "ConfigError":
        return errors.ConfigError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "connect",
    "Client",
    "Session",
    "SessionBlock",
    "Run",
    "AutoSession",
    "State",
    "StateModule",
    "CallResult",
    "errors",
    "ConfigError",
    "Answer",
    "Conflict",
    "ElicitationCallback",
    "HistoryEntry",
    "History",
    "Image",
    "LoadResult",
    "MergeResult",
    "ProgressCallback",
    "Question",
    "ResourceContent",
    "ServiceInfo",
    "ServiceStatus",
    "SessionBrief",
    "SessionInfo",
    "SessionList",
    "SessionOptions",
    "StateValue",
    "Stats",
    "Summary",
    "Task",
    "Tool",
]
