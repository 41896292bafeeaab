"""The page of an MCP App that a tool or a result names in its `_meta`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ..sessions.json_codec import JSON

OLD_KEY: Final = "ui/resourceUri"
"""The key of the page in older servers. New ones often set it beside `ui.resourceUri`."""


def app_page(meta: object) -> str | None:
    """Return the URI of the page that a `_meta` names, None without one."""
    if not isinstance(meta, dict):
        return None
    found = cast("JSON", meta)
    app: object = found.get("ui")
    uri: object = cast("JSON", app).get("resourceUri") if isinstance(app, dict) else None
    uri = found.get(OLD_KEY) if uri is None else uri
    return uri if isinstance(uri, str) else None


def with_app_page(meta: Mapping[str, Any], address: Callable[[str], str]) -> JSON:
    """Return a `_meta` that names its page, if it has one, by another address."""
    uri, found = app_page(meta), dict(meta)
    if uri is None:
        return found
    if OLD_KEY in found:
        found[OLD_KEY] = address(uri)
    if isinstance(found.get("ui"), dict):
        found["ui"] = {**found["ui"], "resourceUri": address(uri)}
    return found


__all__ = ["app_page", "with_app_page"]
