"""The Python client for programs that block: the same names and the same methods, without `await`.

    with connect("http://127.0.0.1:8931") as hub:
        with hub.session("checkout", services=["browser"]) as s:
            s.call("browser_navigate", url="http://shop.test/")

One background thread runs the event loop of all open hubs; hubs and sessions may be used in any thread.
"""

from __future__ import annotations

from .block import AutoSession, SessionBlock
from .connect import connect
from .hub import Hub
from .session import Progress, Session
from .state import State

__all__ = ["connect", "Hub", "Session", "SessionBlock", "AutoSession", "State", "Progress"]
