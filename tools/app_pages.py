"""The page (a `ui://` resource) of an MCP App that a tool or a result names in its `_meta`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ..sessions.json_codec import JSON

OLD_KEY: Final = "ui/resourceUri"
"""The key that older servers use. Newer servers often set it in addition to `ui.resourceUri`."""


def app_page(meta: object) -> str | None:
    """Return the page URI in a `_meta`, None if there is none."""
    if not isinstance(meta, dict):
        return None
    fields = cast("JSON", meta)
    app: object = fields.get("ui")
    uri: object = cast("JSON", app).get("resourceUri") if isinstance(app, dict) else None
    uri = fields.get(OLD_KEY) if uri is None else uri
    return uri if isinstance(uri, str) else None


def with_app_page(meta: Mapping[str, Any], address: Callable[[str], str]) -> JSON:
    """Return a copy of a `_meta` in which `address` has replaced the page URI, if there is one."""
    uri, renamed = app_page(meta), dict(meta)
    if uri is None:
        return renamed
    if OLD_KEY in renamed:
        renamed[OLD_KEY] = address(uri)
    if isinstance(renamed.get("ui"), dict):
        renamed["ui"] = {**renamed["ui"], "resourceUri": address(uri)}
    return renamed


__all__ = ["app_page", "with_app_page"]
