"""The metadata of the authorization server (RFC 8414), for everyone."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from mcp.server.auth.routes import ID_JAG_GRANT_PROFILE
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...sessions.json_codec import JSON
from ..challenges import SERVER_METADATA
from ..config.facade import FacadeSettings
from ..scopes import SCOPES

_HEADERS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "*",
    "cache-control": "max-age=300",
}


class FacadeMetadata:
    """The document about the server at `public_url`."""

    def __init__(self, settings: FacadeSettings, public_url: str) -> None:
        self._rest = {"", "/", urlsplit(public_url).path}
        self._document = _document(settings, public_url)

    def routes(self) -> list[Route]:
        return [
            Route(
                f"{SERVER_METADATA}{{rest:path}}", endpoint=self._answer, methods=["GET", "OPTIONS"]
            )
        ]

    async def _answer(self, request: Request) -> Response:
        if request.path_params["rest"] not in self._rest:
            return JSONResponse({"error": "not_found"}, 404, _HEADERS)
        return JSONResponse(self._document, 200, _HEADERS)


def _document(settings: FacadeSettings, public_url: str) -> JSON:
    secret_methods = ["client_secret_post"] if settings.clients else []
    methods = ["none", *secret_methods]
    grants = ["authorization_code", "refresh_token"]
    document: JSON = {
        "issuer": public_url,
        "authorization_endpoint": f"{public_url}/authorize",
        "token_endpoint": f"{public_url}/token",
        "revocation_endpoint": f"{public_url}/revoke",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": grants,
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
    }
    if settings.registration:
        document["registration_endpoint"] = f"{public_url}/register"
    if settings.clients:
        grants.append(JWT_BEARER_GRANT_TYPE)
        document["authorization_grant_profiles_supported"] = [ID_JAG_GRANT_PROFILE]
    return document
