"""The tools as callers see them, read from a file: their modules would take a sixth of the start of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import orjson

from ...sessions.services import ToolSpec
from .config import BrowserConfig

FILE: Final = Path(__file__).with_suffix(".json")
"""It has the tools of toolset() with every capability; tests/tools/browser/tools/test_tool_list.py writes it."""


def enabled_toolsets(config: BrowserConfig, *, logins: bool = False) -> set[str]:
    """Return the toolsets that a configuration turns on; `logins`: there are some to lend."""
    return {"core", *config.caps, *(["logins"] if logins else [])}


def tool_specs(config: BrowserConfig, *, logins: bool = False) -> dict[str, ToolSpec]:
    """Return the specs of the tools that toolset() returns, by name and in its order. Blocks for a moment."""
    enabled = enabled_toolsets(config, logins=logins)
    return {
        tool["definition"]["name"]: ToolSpec(
            tool["definition"]["name"], tool["definition"], frozenset(tool["secret"])
        )
        for tool in orjson.loads(FILE.read_bytes())
        if tool["toolset"] in enabled
    }
