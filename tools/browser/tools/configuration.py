"""The part of the browser's configuration that a caller may see."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any, Final

from ...definition import NoArguments
from ..call import BrowserCall
from ..config import BrowserConfig
from ..tool import BrowserTool, tool

VISIBLE: Final[dict[str, tuple[str, ...]]] = {
    "browser": ("channel", "headless", "attach"),
    "pages": (
        "viewport",
        "user_agent",
        "locale",
        "timezone",
        "device",
        "mobile",
        "device_scale_factor",
        "permissions",
        "ignore_https_errors",
        "test_id_attribute",
    ),
    "network": ("allow", "block", "private", "bytes_per_second"),
    "tools": (
        "caps",
        "approve",
        "snapshot",
        "snapshot_tokens",
        "snapshot_boxes",
        "console_level",
        "codegen",
        "action_seconds",
        "navigation_seconds",
        "script_seconds",
        "settle",
        "settle_seconds",
        "tabs",
        "download_bytes",
        "image_responses",
        "uploads",
    ),
    "sessions": ("checkpoint", "on_lost"),
}
"""The settings that are shown with their values, by theme. Others may hold a secret, a private path or address."""

PRESENCE_ONLY: Final = (
    "executable",
    "cdp_endpoint",
    "ws_endpoint",
    "proxy",
    "init_script",
    "init_page",
    "output_dir",
    "key",
    "secrets",
    "secrets_command",
    "storage_state",
    "http_credentials",
)
"""The settings that are only shown as set or not."""


def visible_settings(config: BrowserConfig) -> dict[str, dict[str, Any]]:
    """Return the settings that have a value, by theme and without secrets."""
    settings = config.model_dump(mode="json")
    parts = {
        theme: {name: settings[name] for name in names if settings[name] not in (None, [])}
        for theme, names in VISIBLE.items()
    }
    parts["browser"] |= {
        name: "(set)" for name in PRESENCE_ONLY if settings[name] not in (None, [], {})
    }
    if config.executable is not None:
        parts["browser"]["executable"] = PurePath(config.executable).name
    return {theme: part for theme, part in parts.items() if part}


@tool("browser_get_config", title="Get config", cap="config", read_only=True)
async def get_config(call: BrowserCall, arguments: NoArguments) -> None:
    """Return how the browser is configured: its pages, its limits, what it may reach. Without secrets."""
    call.answer.result(json.dumps(visible_settings(call.config), ensure_ascii=False, indent=2))


TOOLS: list[BrowserTool] = [get_config]
