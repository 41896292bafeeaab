"""The browser_* tools, by theme."""

from __future__ import annotations

from ..config import BrowserConfig
from ..tool import BrowserTool
from . import (
    answering,
    cookies,
    filling,
    listening,
    looking,
    mocking,
    navigating,
    pointing,
    running,
    storage_state,
    web_storage,
    windows,
)

_CORE = (navigating, looking, pointing, filling, answering, windows, listening, running)
_MORE = (cookies, web_storage, storage_state, mocking)


def toolset(config: BrowserConfig) -> list[BrowserTool]:
    """Return the tools that a configuration turns on, in an order that does not change."""
    wanted = {"core", *config.caps}
    modules = (*_CORE, *_MORE)
    return [tool for module in modules for tool in module.TOOLS if tool.capability in wanted]


__all__ = ["toolset"]
