"""A server of the SDK that asks for OAuth, with its own authorization server: a second use of a refresh token ends all.

It prints its port, and writes one JSON line per event to a log. Whoever opens the page of its login is logged in at once.
"""

from __future__ import annotations

import argparse
import base64
import json
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import RequestParams, Tool
from pydantic import AnyHttpUrl
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

MACHINE = ("machine", "secret-of-the-machine")
"""The id and the secret of a client that logs itself in."""
MORE = "notes:write"


class Provider:
    """One authorization server, in memory."""

    def __init__(self, url: str, seconds: int, log: str, *, refreshes: bool) -> None:
        self.url = url
        self.seconds = seconds
        self.stated: int | None = None
        """The life of an access token as the client is told, if that is another one."""
        self.log = log
        self.refreshes = refreshes
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.used: set[str] = set()

    def number(self) -> int:
        """Return the number of the login whose token came with the request."""
        token = get_access_token()
        assert token is not None
        return list(self.clients).index(token.client_id) + 1

    def write(self, event: str, **more: object) -> None:
        with open(self.log, "a") as file:
            file.write(json.dumps({"event": event, **more}) + "\n")

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info
        self.write("registered", secret=client_info.client_secret)

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        self.write("authorized", resource=params.resource, scopes=params.scopes)
        return construct_redirect_uri(
            str(params.redirect_uri), code=code.code, state=params.state, iss=f"{self.url}/"
        )

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        self.write("exchanged")
        return self.issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        if refresh_token in self.used:
            self.refresh.clear()
            self.access.clear()
            self.write("reused")
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if refresh_token.token in self.used:
            raise TokenError("invalid_grant")
        self.used.add(refresh_token.token)
        del self.refresh[refresh_token.token]
        self.write("refreshed")
        return self.issue(client.client_id, scopes, refresh_token.resource)

    def issue(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"at-{secrets.token_urlsafe(24)}", f"rt-{secrets.token_urlsafe(24)}"
        common: dict[str, Any] = {"client_id": client_id, "scopes": scopes, "resource": resource}
        ends_at = int(time.time() + self.seconds)
        self.write("issued", tokens=[access, refresh])
        self.access[access] = AccessToken(token=access, expires_at=ends_at, **common)
        if self.refreshes:
            self.refresh[refresh] = RefreshToken(token=refresh, **common)
        return OAuthToken(
            access_token=access,
            expires_in=self.seconds if self.stated is None else self.stated,
            scope=" ".join(scopes),
            refresh_token=refresh if self.refreshes else None,
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def exchange_identity_assertion(self, client: Any, params: Any) -> OAuthToken:
        raise NotImplementedError

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)
        self.write("revoked", kind=type(token).__name__)

    async def require_more(self, request: Request, follow: Any) -> Response:
        """Refuse a call of `whoami` whose token lacks the scope MORE."""
        token = self.access.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        is_call = b'"whoami"' in await request.body()
        if not is_call or token is None or MORE in token.scopes:
            return await follow(request)
        challenge = f'Bearer error="insufficient_scope", scope="{MORE}"'
        return Response(status_code=403, headers={"www-authenticate": challenge})

    def answers(self) -> dict[str, Any]:
        file = Path(f"{self.log}.answers")
        return json.loads(file.read_text()) if file.exists() else {}

    async def answer_by_file(self, request: Request, follow: Any) -> Response:
        """Give the answer that the test has put into a file, beside the log, for the path of a request."""
        if (answer := self.answers().get(request.url.path)) is None:
            return await follow(request)
        self.write(request.url.path, authorization=request.headers.get("authorization"))
        return Response(**answer)

    async def token_of_client(self, request: Request) -> Response:
        """Give the client MACHINE a token of its own, which the SDK's authorization server has no grant for."""
        form = await request.form()
        expected = f"Basic {base64.b64encode(':'.join(MACHINE).encode()).decode()}"
        if (form["grant_type"], request.headers["authorization"]) != (
            "client_credentials",
            expected,
        ):
            given = base64.b64decode(request.headers["authorization"].split()[1]).decode()
            return JSONResponse({"error": "invalid_client", "given": given}, status_code=401)
        self.write("machine", resource=form["resource"])
        token = self.issue(MACHINE[0], ["notes"], str(form["resource"]))
        return JSONResponse(token.model_dump(exclude={"refresh_token"}))


class Guarded(MCPServer):
    """A server that has a tool with the number of the login, the first of which is `1`."""

    def __init__(self, provider: Provider, settings: AuthSettings) -> None:
        skills = [Skills(provider)]
        super().__init__("guarded", auth=settings, auth_server_provider=provider, extensions=skills)
        self.provider = provider

    async def list_tools(self) -> list[Tool]:
        name = f"of_{self.provider.number()}"
        return [*await super().list_tools(), Tool(name=name, input_schema={"type": "object"})]


class Skills(Extension):
    """A skill with the number of the login."""

    identifier = "io.modelcontextprotocol/skills"

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding("skills/list", RequestParams, self.list)]

    async def list(self, ctx: Any, params: RequestParams) -> dict[str, Any]:
        name = f"of-{self.provider.number()}"
        front = {"name": name, "description": "Notes"}
        uri = f"skill://{name}/SKILL.md"
        return {"skills": [{"uri": uri, "frontmatter": front, "resources": "dynamic"}]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600, help="life of an access token")
    parser.add_argument("--stated", type=int, help="its life as the client is told")
    parser.add_argument("--no-refresh", action="store_true")
    parser.add_argument("--revokes", action="store_true", help="with a revocation endpoint")
    parser.add_argument("--more", action="store_true", help="calls need the scope MORE, too")
    parser.add_argument("--machine", action="store_true", help="for the client MACHINE alone")
    parser.add_argument("--answers", action="store_true", help="with answers of the test")
    parser.add_argument("--log", required=True)
    parsed = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    provider = Provider(url, parsed.seconds, parsed.log, refreshes=not parsed.no_refresh)
    provider.stated = parsed.stated
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(url),
        resource_server_url=AnyHttpUrl(f"{url}/mcp"),
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["notes", MORE], default_scopes=["notes"]
        ),
        revocation_options=RevocationOptions(enabled=parsed.revokes),
        required_scopes=["notes"],
        validate_token_resource=True,
    )
    server = Guarded(provider, settings)

    @server.tool()
    async def whoami() -> str:
        provider.write("called")
        return "logged in"

    @server.tool()
    async def echo(ctx: Context, way: str) -> str:
        """Repeat the token of the request, in a result, a message or an error."""
        assert ctx.headers is not None
        header = ctx.headers["authorization"]
        texts = [header, json.dumps({"headers": [header]}), quote(header)]
        texts += [base64.b64encode(b"x" * n + header.encode()).decode() for n in range(3)]
        if way == "message":
            await ctx.report_progress(1, 2, " ".join(texts))
        elif way == "error":
            raise ToolError(" ".join(texts))
        return " ".join(texts)

    app = server.streamable_http_app()
    if parsed.machine:
        provider.clients[MACHINE[0]] = OAuthClientInformationFull(client_id=MACHINE[0])
        app.router.routes.insert(0, Route("/token", provider.token_of_client, methods=["POST"]))
    if parsed.answers:
        app.add_middleware(BaseHTTPMiddleware, dispatch=provider.answer_by_file)
    if parsed.more:
        app.add_middleware(BaseHTTPMiddleware, dispatch=provider.require_more)
    config = uvicorn.Config(app, log_level="warning")
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    anyio.run(uvicorn.Server(config).serve, [listener])


if __name__ == "__main__":
    main()
