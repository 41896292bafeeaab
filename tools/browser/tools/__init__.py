"""The browser_* tools. A module per group, named as in @playwright/mcp where that has the group."""

from __future__ import annotations

from ..config import BrowserConfig
from ..tool import BrowserTool
from ..tool_list import enabled_toolsets
from . import (
    code,
    configuration,
    cookies,
    devtools,
    dialogs,
    form,
    login,
    mouse,
    navigation,
    network,
    recording,
    route,
    snapshot,
    storage,
    tabs,
    testing,
    web_storage,
)

_MODULES = (
    *(navigation, snapshot, mouse, form, dialogs, tabs, network, code),
    *(cookies, web_storage, storage, route, testing, recording),
    *(devtools, configuration, login),
)


def toolset(config: BrowserConfig, *, logins: bool = False) -> list[BrowserTool]:
    """Return the tools that a configuration turns on, in an order that does not change; `logins`: there are some to lend."""
    enabled = enabled_toolsets(config, logins=logins)
    return [tool for module in _MODULES for tool in module.TOOLS if tool.toolset in enabled]


__all__ = ["toolset"]
