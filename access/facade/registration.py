"""Clients that register themselves (RFC 7591). Their `client_id` holds their metadata, so nothing is stored.

Strangers register any number of clients, and none of them fills the store. A `client_id` proves nothing: everyone may
register a client with any name.
"""

from __future__ import annotations

import base64
import json
import secrets
from typing import Final, cast

from mcp.server.auth.provider import RegistrationError
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import ValidationError

from ...sessions.json_codec import JSON
from .clients import FacadeClient

PREFIX: Final = "shc_"
ID_CHARACTERS: Final = 1000
_KEPT: Final = ("client_name", "redirect_uris", "grant_types")


def registered_id(client: OAuthClientInformationFull) -> str:
    """Return the `client_id` of a client that registers itself.

    Raises:
        RegistrationError: it has no redirect URI, or too much metadata.
    """
    if not client.redirect_uris:
        raise RegistrationError("invalid_redirect_uri", "There should be a redirect URI")
    document = client.model_dump(mode="json", include=set(_KEPT), exclude_none=True)
    document["id"] = secrets.token_urlsafe(6)
    body = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    client_id = PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")
    if len(client_id) > ID_CHARACTERS:
        raise RegistrationError("invalid_client_metadata", "The metadata are too long")
    return client_id


def registered_client(client_id: str) -> FacadeClient | None:
    """Return the client of a `client_id`, None if it is none of registered_id()."""
    text = client_id.removeprefix(PREFIX)
    if len(client_id) > ID_CHARACTERS or not client_id.startswith(PREFIX):
        return None
    try:
        document: object = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    members = {key: value for key, value in cast("JSON", document).items() if key in _KEPT}
    members |= {"client_id": client_id, "token_endpoint_auth_method": "none"}
    try:
        return FacadeClient.model_validate(members)
    except ValidationError:
        return None
