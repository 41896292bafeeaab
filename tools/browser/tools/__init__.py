"""The browser_* tools, by theme."""

from __future__ import annotations

from ..config import BrowserConfig
from ..tool import BrowserTool
from . import (
    code,
    configuration,
    console_network,
    cookies,
    debugging,
    dialogs,
    form,
    mouse,
    navigation,
    network_mocks,
    pdf,
    pointer,
    recording,
    snapshot,
    storage_state,
    tabs,
    testing,
    tracing_video,
    web_storage,
)

_CORE = (navigation, snapshot, pointer, form, dialogs, tabs, console_network, code)
_MORE = (
    cookies,
    web_storage,
    storage_state,
    network_mocks,
    pdf,
    mouse,
    testing,
    tracing_video,
    recording,
    debugging,
    configuration,
)


def toolset(config: BrowserConfig) -> list[BrowserTool]:
    """Return the tools that a configuration turns on, in an order that does not change."""
    wanted = {"core", *config.caps}
    modules = (*_CORE, *_MORE)
    return [tool for module in modules for tool in module.TOOLS if tool.toolset in wanted]


__all__ = ["toolset"]
