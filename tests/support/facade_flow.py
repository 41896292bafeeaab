"""Clients of the authorization server, over an issuer that answers what a test sets."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2

from .facade_browser import FacadeBrowser, query_of
from .gateway_process import JSON, Running, modern_call, service, serving, toml
from .hostile_issuer import HostileIssuer

CLIENT, SECRET = "facade:1", "secret+with/odd=signs"
ASSERTING, ASSERTING_SECRET = "asserting", "asserting-secret-0123456789"
CALLBACK = "http://127.0.0.1:4711/callback"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def facade_settings(url: str, issuer: str, **facade: Any) -> JSON:
    table = {"issuer": issuer, "client_id": CLIENT, "client_secret": SECRET, "registration": True}
    return {
        "audit": "on",
        "toolsets": ["core", "lifecycle", "admin"],
        "server": {"public_url": url},
        "auth": {
            "audience": [f"{url}/mcp"],
            "roles": {"staff": "operator"},
            "facade": {**table, **facade},
        },
        "services": {"quick": service("quick")},
    }


def facade_config(folder: Path, url: str, issuer: str, **facade: Any) -> Path:
    """Write the configuration of a server that is an authorization server at `url`, over an issuer."""
    config = folder / "statehold.toml"
    config.write_text(toml(facade_settings(url, issuer, **facade)))
    return config


@contextmanager
def facade_server(folder: Path, issuer: str, **facade: Any) -> Generator[Running]:
    """Run such a server."""
    port = free_port()
    config = facade_config(folder, f"http://127.0.0.1:{port}", issuer, **facade)
    with serving(config, folder / "data", "--port", str(port)) as running:
        yield running


@dataclass
class Flow:
    """A client of the authorization server at `url`, with a person and a browser."""

    url: str
    issuer: HostileIssuer
    client_id: str
    http: httpx2.AsyncClient
    browser: FacadeBrowser
    redirect_uri: str = CALLBACK
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    sent: dict[str, str] = field(default_factory=dict[str, str])
    """The parameters that the last login took to the issuer."""

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def authorize_url(self, **changes: str | None) -> str:
        parameters = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "state": "state of the client",
            "scope": "statehold:use",
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "resource": f"{self.url}/mcp",
            **changes,
        }
        query = {name: value for name, value in parameters.items() if value is not None}
        return f"{self.url}/authorize?{urlencode(query)}"

    async def go_to_issuer(self, **changes: str | None) -> None:
        """Agree, and go to the issuer."""
        end = f"{self.issuer.url}/authorize?"
        self.sent = query_of(await self.browser.follow(self.authorize_url(**changes), end))

    def sign(self, **changes: Any) -> None:
        """Have the issuer answer the next code with an ID token; `changes` are of its claims or of its head."""
        claims: JSON = {"aud": CLIENT, "nonce": self.sent["nonce"], "scope": None}
        arguments: JSON = {"client_id": None, "header": {"typ": "JWT"}, **changes}
        document = {"id_token": self.issuer.token(**{**claims, **arguments})}
        self.issuer.answers["/token"] = (200, {}, json.dumps(document).encode())

    async def come_back(self, **changes: str | None) -> httpx2.Response:
        given = {"code": "1", "state": self.sent["state"], "iss": self.issuer.url} | changes
        query = {name: value for name, value in given.items() if value is not None}
        return await self.browser.get(f"{self.url}/callback?{urlencode(query)}")

    async def code(self, **changes: Any) -> str:
        """Log in, and return the code that the client gets; `changes` are of the ID token."""
        await self.go_to_issuer()
        self.sign(**changes)
        answer = await self.come_back()
        assert answer.status_code == 302, answer.text
        query = query_of(answer.headers["location"])
        assert query["state"] == "state of the client"
        assert query["iss"] == self.url
        return query["code"]

    async def register(self) -> str:
        """Register a client, and return its id."""
        metadata = {"client_name": "Tool", "redirect_uris": [self.redirect_uri]}
        answer = await self.http.post("/register", json=metadata)
        assert answer.status_code == 201, answer.text
        client = answer.json()
        assert client["token_endpoint_auth_method"] == "none"
        assert client.get("client_secret") is None
        return client["client_id"]

    async def token(self, **form: str) -> httpx2.Response:
        return await self.http.post("/token", data={"client_id": self.client_id, **form})

    async def exchange(self, code: str, **changes: str) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }
        return await self.token(**{**form, **changes})

    async def refresh(self, token: str, **changes: str) -> httpx2.Response:
        return await self.token(
            **{"grant_type": "refresh_token", "refresh_token": token, **changes}
        )

    async def log_in(self, **changes: Any) -> JSON:
        """Log in, and return the tokens."""
        answer = await self.exchange(await self.code(**changes))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def call(self, token: str, tool: str, arguments: JSON | None = None) -> httpx2.Response:
        """Call a tool with an access token."""
        body, headers = modern_call(tool, arguments or {})
        headers["authorization"] = f"Bearer {token}"
        return await self.http.post("/mcp", json=body, headers=headers)

    async def status(self, token: str, tool: str = "session_list") -> int:
        return (await self.call(token, tool)).status_code


__all__ = [
    "ASSERTING",
    "ASSERTING_SECRET",
    "CALLBACK",
    "CLIENT",
    "SECRET",
    "Flow",
    "facade_config",
    "facade_server",
    "free_port",
]
