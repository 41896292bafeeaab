"""The browser_* tools, by theme."""

from __future__ import annotations

from ..config import BrowserConfig
from ..tool import BrowserTool
from . import (
    answering,
    configuring,
    cookies,
    debugging,
    filling,
    filming,
    listening,
    looking,
    mocking,
    mousing,
    navigating,
    pointing,
    printing,
    recording,
    running,
    storage_state,
    verifying,
    web_storage,
    windows,
)

_CORE = (navigating, looking, pointing, filling, answering, windows, listening, running)
_MORE = (
    cookies,
    web_storage,
    storage_state,
    mocking,
    printing,
    mousing,
    verifying,
    filming,
    recording,
    debugging,
    configuring,
)


def toolset(config: BrowserConfig) -> list[BrowserTool]:
    """Return the tools that a configuration turns on, in an order that does not change."""
    wanted = {"core", *config.caps}
    modules = (*_CORE, *_MORE)
    return [tool for module in modules for tool in module.TOOLS if tool.capability in wanted]


__all__ = ["toolset"]
