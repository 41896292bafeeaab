"""The documents that tell clients where this server is, before they connect: its card (SEP-2127), and the catalog with it.

They name no services and no tools, since everybody can read them. This file imports nothing of ours: a release writes the
same documents without an installation.
"""

from __future__ import annotations

from typing import Any, Final

CARD_TYPE: Final = "application/mcp-server-card+json"
CATALOG_TYPE: Final = "application/ai-catalog+json"
CARD_PATH: Final = "/mcp/server-card"
CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"


def describe(publisher: str, description: str, version: str) -> dict[str, Any]:
    """Return name, title, description and version of the server that a domain publishes."""
    name = f"{'.'.join(reversed(publisher.split('.')))}/statehold"
    return {"name": name, "title": "Statehold", "description": description, "version": version}


def card(description: dict[str, Any], url: str, **more: Any) -> dict[str, Any]:
    """Return the card of a server at a URL, which `more` describes further."""
    remote = {"type": "streamable-http", "url": url, **more}
    return {"$schema": _SCHEMA, **description, "remotes": [remote]}


def catalog(publisher: str, **entry: Any) -> dict[str, Any]:
    """Return the catalog of a domain with one card: its `url`, or the card itself as `data`."""
    identifier = f"urn:air:{publisher}:mcp:statehold"
    return {
        "specVersion": "1.0",
        "entries": [{"identifier": identifier, "type": CARD_TYPE, **entry}],
    }
