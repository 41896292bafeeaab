"""Glewlwyd, an OpenID provider of Debian, on a loopback port with a database of its own, and a person who logs in there."""

from __future__ import annotations

import base64
import gzip
import hashlib
import secrets
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from statehold.sessions.json_codec import JSON

from .waiting import until_blocking

MODULES = Path("/usr/lib/glewlwyd")
SCHEMA = Path("/usr/share/doc/glewlwyd/database/init.sqlite3.sql.gz")
CALLBACK = "http://localhost:9/callback"
CLIENT, ACCOUNT, PASSWORD = "statehold-client", "alice", "alice-password-0123456789"
SETTINGS = """\
port={port}
bind_address="127.0.0.1"
external_url="http://127.0.0.1:{port}"
login_url="login.html"
api_prefix="api"
log_mode="console"
log_level="WARNING"
cookie_secure=0
session_expiration=3600
session_key="GLEWLWYD2_SESSION_ID"
admin_session_authentication="cookie"
profile_session_authentication="cookie"
login_api_enabled=true
admin_scope="g_admin"
profile_scope="g_profile"
user_module_path="{modules}/user"
client_module_path="{modules}/client"
user_auth_scheme_module_path="{modules}/scheme"
plugin_module_path="{modules}/plugin"
hash_algorithm="SHA512"
database = {{ type = "sqlite3"; path = "{database}"; }};
"""


class Glewlwyd:
    """A running provider. `issuer` is its issuer identifier."""

    def __init__(self, port: int, scopes: list[str], resource: str, seconds: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.issuer = f"{self.url}/api/oidc"
        self._scopes = scopes
        self._resource = resource
        self._seconds = seconds

    def configure(self) -> None:
        """Add the scopes, the person, the client and the OpenID Connect plugin, as an administrator does."""
        with httpx2.Client(base_url=self.url, timeout=60) as admin:
            _send(admin, "auth/", {"username": "admin", "password": "password"})
            for scope in self._scopes:
                _send(admin, "scope/", {"name": scope, "password_required": False, "scheme": {}})
            person = {"username": ACCOUNT, "password": PASSWORD, "enabled": True}
            _send(admin, "user/", {**person, "scope": ["openid", *self._scopes]})
            client = {
                "client_id": CLIENT,
                "confidential": False,
                "enabled": True,
                "redirect_uri": [CALLBACK],
                "authorization_type": ["code", "refresh_token"],
                "scope": [],
            }
            _send(admin, "client/", client)
            plugin = {"module": "oidc", "name": "oidc", "display_name": "OIDC", "enabled": True}
            _send(admin, "mod/plugin/", {**plugin, "parameters": self._parameters()})

    def _parameters(self) -> JSON:
        key = rsa.generate_private_key(65537, 2048)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return {
            "iss": self.issuer,
            "jwt-type": "rsa",
            "jwt-key-size": "256",
            "key": private.decode(),
            "cert": public.decode(),
            "access-token-duration": self._seconds,
            "refresh-token-duration": 3600,
            "code-duration": 60,
            "refresh-token-rolling": True,
            "allow-non-oidc": True,
            "auth-type-code-enabled": True,
            "auth-type-refresh-enabled": True,
            "auth-type-token-enabled": False,
            "auth-type-id-token-enabled": True,
            "auth-type-none-enabled": False,
            "auth-type-password-enabled": False,
            "auth-type-client-enabled": False,
            "auth-type-device-enabled": False,
            "pkce-allowed": True,
            "pkce-required": True,
            "pkce-method-plain-allowed": False,
            "subject-type": "public",
            "jwks-show": True,
            "resource-allowed": True,
            "resource-scope": {scope: [self._resource] for scope in self._scopes},
        }

    def log_in(self, scope: str) -> JSON:
        """Have the person log in and agree, and exchange the code by PKCE. Return the answer of the token endpoint."""
        verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": CALLBACK,
            "scope": scope,
            "state": "state-0123456789",
            "nonce": "nonce-0123456789",
            "resource": self._resource,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            # The page of the login adds it once the person has agreed.
            "g_continue": "",
        }
        with httpx2.Client(base_url=self.url, timeout=60) as person:
            _send(person, "auth/", {"username": ACCOUNT, "password": PASSWORD})
            agreed = person.put(f"/api/auth/grant/{CLIENT}", json={"scope": scope})
            assert agreed.status_code == 200, agreed.text
            answer = person.get("/api/oidc/auth", params=query)
            assert answer.status_code == 302, answer.text
            location = answer.headers["location"]
            assert location.startswith(CALLBACK), location
            form = {
                "grant_type": "authorization_code",
                "client_id": CLIENT,
                "code": parse_qs(urlsplit(location).query)["code"][0],
                "redirect_uri": CALLBACK,
                "code_verifier": verifier,
                "resource": self._resource,
            }
            return self._token(person, form)

    def add_client(self, client_id: str, secret: str, redirect_uri: str) -> None:
        """Add a client with a secret, as an administrator does."""
        with httpx2.Client(base_url=self.url, timeout=60) as admin:
            _send(admin, "auth/", {"username": "admin", "password": "password"})
            client = {
                "client_id": client_id,
                "confidential": True,
                "password": secret,
                "enabled": True,
                "redirect_uri": [redirect_uri],
                "authorization_type": ["code", "refresh_token"],
                "token_endpoint_auth_method": ["client_secret_basic", "client_secret_post"],
                "scope": [],
            }
            _send(admin, "client/", client)

    def answer(self, url: str, client_id: str, scope: str = "openid") -> str:
        """Have the person log in and agree at the URL to which a client leads. Return the URL that leads back."""
        with httpx2.Client(timeout=60) as person:
            login = {"username": ACCOUNT, "password": PASSWORD}
            assert person.post(f"{self.url}/api/auth/", json=login).status_code == 200
            agreed = person.put(f"{self.url}/api/auth/grant/{client_id}", json={"scope": scope})
            assert agreed.status_code == 200, agreed.text
            # The page of the login adds it once the person has agreed.
            answer = person.get(f"{url}&g_continue")
            assert answer.status_code == 302, answer.text
            return answer.headers["location"]

    def refresh(self, refresh_token: str) -> JSON:
        form = {
            "grant_type": "refresh_token",
            "client_id": CLIENT,
            "refresh_token": refresh_token,
            "resource": self._resource,
        }
        with httpx2.Client(base_url=self.url, timeout=60) as person:
            return self._token(person, form)

    def _token(self, person: httpx2.Client, form: dict[str, str]) -> JSON:
        answer = person.post("/api/oidc/token", data=form)
        assert answer.status_code == 200, answer.text
        return answer.json()


def _send(client: httpx2.Client, path: str, body: Any) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 200, (path, answer.status_code, answer.text)


@contextmanager
def running_glewlwyd(
    folder: Path, port: int, scopes: list[str], resource: str, *, seconds: int = 300
) -> Generator[Glewlwyd]:
    """Run a provider until the block ends. Its tokens of the scopes are for `resource`, and live for `seconds`."""
    database, settings = folder / "glewlwyd.db", folder / "glewlwyd.conf"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(gzip.decompress(SCHEMA.read_bytes()).decode())
    settings.write_text(SETTINGS.format(port=port, modules=MODULES, database=database))
    with (folder / "glewlwyd.log").open("wb") as log:
        process = subprocess.Popen(
            ["glewlwyd", f"--config-file={settings}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    provider = Glewlwyd(port, scopes, resource, seconds)
    try:
        until_blocking(lambda: _answers(provider.url), within=60)
        provider.configure()
        yield provider
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/api/", timeout=5).status_code > 0
    except httpx2.TransportError:
        return False


__all__ = ["Glewlwyd", "running_glewlwyd"]
