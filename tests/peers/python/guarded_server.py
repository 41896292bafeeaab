"""An MCP server that demands access tokens of an OpenID provider: `guarded_server.py fastmcp|sdk ISSUER
[PORT]`.

`fastmcp` is the package of that name, `sdk` the FastMCP of mcp 1.30. It prints its port. Its tool `whoami` answers with the
subject of the token.
"""

import json
import socket
import sys
import urllib.request

import anyio.to_thread
import jwt
import uvicorn
from pydantic import AnyHttpUrl

CHOSEN, ISSUER, *PORTS = sys.argv[1:]
with urllib.request.urlopen(f"{ISSUER}/.well-known/openid-configuration") as answer:
    KEYS = json.load(answer)["jwks_uri"]
LISTENER = socket.create_server(("127.0.0.1", int(PORTS[0]) if PORTS else 0))
PORT = LISTENER.getsockname()[1]
URL = f"http://127.0.0.1:{PORT}"


def fastmcp():
    from fastmcp import FastMCP
    from fastmcp.server.auth import RemoteAuthProvider
    from fastmcp.server.auth.providers.jwt import JWTVerifier
    from fastmcp.server.dependencies import get_access_token

    verifier = JWTVerifier(
        jwks_uri=KEYS, issuer=ISSUER, audience=f"{URL}/mcp", required_scopes=["notes"]
    )
    auth = RemoteAuthProvider(
        token_verifier=verifier, authorization_servers=[AnyHttpUrl(ISSUER)], base_url=URL
    )
    server = FastMCP("guarded", auth=auth)

    @server.tool
    def whoami() -> str:
        return get_access_token().claims["sub"]

    return server.http_app()


def sdk():
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.fastmcp import FastMCP

    keys = jwt.PyJWKClient(KEYS)

    class Verifier:
        async def verify_token(self, token):
            return await anyio.to_thread.run_sync(self.verify, token)

        def verify(self, token):
            try:
                key = keys.get_signing_key_from_jwt(token)
                claims = jwt.decode(
                    token, key, [key.algorithm_name], issuer=ISSUER, audience=f"{URL}/mcp"
                )
            except jwt.PyJWTError:
                return None
            return AccessToken(
                token=token,
                client_id=claims["client_id"],
                scopes=claims["scope"].split(),
                expires_at=claims["exp"],
            )

    auth = AuthSettings(
        issuer_url=ISSUER,
        resource_server_url=f"{URL}/mcp",
        required_scopes=["notes"],
        validate_token_resource=False,
    )
    server = FastMCP("guarded", port=PORT, auth=auth, token_verifier=Verifier())

    @server.tool()
    def whoami() -> str:
        token = get_access_token().token
        return jwt.decode(token, options={"verify_signature": False})["sub"]

    return server.streamable_http_app()


app = {"fastmcp": fastmcp, "sdk": sdk}[CHOSEN]()
print(json.dumps({"port": PORT}), flush=True)  # noqa: T201
config = uvicorn.Config(app, log_level="warning")
anyio.run(uvicorn.Server(config).serve, [LISTENER])
