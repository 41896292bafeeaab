"""How the browser is configured, as far as a caller may know."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any, Final

from ..call import Call
from ..config import BrowserConfig
from ..definition import BrowserTool, NoArguments, tool

SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "browser": ("channel", "headless"),
    "pages": (
        "viewport",
        "user_agent",
        "locale",
        "timezone",
        "device",
        "permissions",
        "ignore_https_errors",
        "test_id_attribute",
    ),
    "network": ("allow", "block", "private", "bytes_per_second"),
    "tools": (
        "caps",
        "snapshot",
        "action_seconds",
        "navigation_seconds",
        "script_seconds",
        "settle_seconds",
        "tabs",
        "download_bytes",
        "uploads",
    ),
    "sessions": ("checkpoint",),
}
"""What is shown as it is. Everything else may hold a secret, or a path or an address that is nobody's business."""

SAID: Final = ("executable", "cdp_endpoint", "ws_endpoint", "proxy", "init_script", "key")
"""Of these it is only said that they are set."""


def shown(config: BrowserConfig) -> dict[str, dict[str, Any]]:
    """Return a configuration without secrets, by theme, and without what is not set."""
    known = config.model_dump(mode="json")
    parts = {
        theme: {name: known[name] for name in names if known[name] not in (None, [])}
        for theme, names in SHOWN.items()
    }
    parts["browser"] |= {name: "(set)" for name in SAID if known[name] is not None}
    if config.executable is not None:
        parts["browser"]["executable"] = PurePath(config.executable).name
    return {theme: part for theme, part in parts.items() if part}


@tool("browser_get_config", title="Get config", cap="config", kind="read")
async def get_config(call: Call, given: NoArguments) -> None:
    """Return how the browser is configured: its pages, its limits, what it may reach. Without secrets."""
    call.answer.result(json.dumps(shown(call.config), ensure_ascii=False, indent=2))


TOOLS: list[BrowserTool] = [get_config]
