"""The browser_* tools, by theme."""

from __future__ import annotations

from ..config import BrowserConfig
from ..tool import BrowserTool
from . import answering, filling, listening, looking, navigating, pointing, running, windows

_MODULES = (navigating, looking, pointing, filling, answering, windows, listening, running)


def toolset(config: BrowserConfig) -> list[BrowserTool]:
    """Return the tools that a configuration turns on, in an order that does not change."""
    wanted = {"core", *config.caps}
    return [tool for module in _MODULES for tool in module.TOOLS if tool.capability in wanted]


__all__ = ["toolset"]
