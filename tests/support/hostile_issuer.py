"""An issuer of access tokens that signs anything, on a loopback port, and answers with what a test sets."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from statehold.sessions.json_codec import JSON

AUDIENCE = "https://mcp.example.org/mcp"
ALL_SCOPES = "statehold:admin"
INTROSPECTOR = ("statehold", "introspection-secret-0123456789")


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


class HostileIssuer:
    """The issuer at `url`. `answers` replaces the answer to a path: a status, headers and a body."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests = Counter[str]()
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.keys: dict[str, Any] = {"rsa": rsa.generate_private_key(65537, 2048)}
        self.opaque: dict[str, JSON] = {}
        self.callers: list[str] = []
        self.now: Callable[[], str] | None = None
        """The date of its answers, in place of the right one."""
        self.forms: list[dict[str, list[str]]] = []
        """The forms that /token got."""

    def add_key(self, key_id: str, kind: str = "ec") -> None:
        self.keys[key_id] = (
            ec.generate_private_key(ec.SECP256R1())
            if kind == "ec"
            else ed25519.Ed25519PrivateKey.generate()
        )

    def claims(self, **changes: Any) -> JSON:
        """Return the claims of a good token with changes; None removes a claim."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "alice",
            "client_id": "laptop",
            "iat": now,
            "exp": now + 300,
            "scope": ALL_SCOPES,
        } | changes
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self,
        claims: JSON | None = None,
        *,
        header: JSON | None = None,
        key_id: str = "rsa",
        algorithm: str = "RS256",
        key: Any = None,
        **changes: Any,
    ) -> str:
        """Return a signed token; `changes` are of its claims, `header` of its head."""
        head = {"typ": "at+jwt", "kid": key_id, "alg": algorithm} | (header or {})
        head = {name: value for name, value in head.items() if value is not None}
        payload = self.claims(**changes) if claims is None else claims
        signed = f"{encoded(head)}.{encoded(payload)}"
        if algorithm == "none":
            return f"{signed}."
        method: Any = get_default_algorithms()[algorithm]
        key = self.keys[key_id] if key is None else key
        signature = method.sign(signed.encode(), method.prepare_key(key))
        return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    def jwks(self) -> JSON:
        return {"keys": [{**_jwk(key), "kid": name} for name, key in self.keys.items()]}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.requests[path] += 1
        if path == "/token":
            self.forms.append(parse_qs(body.decode()))
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            document = {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/jwks",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "authorization_response_iss_parameter_supported": True,
            }
        elif path == "/jwks":
            document = self.jwks()
        elif path == "/introspect" and method == "POST":
            token = parse_qs(body.decode())["token"][0]
            document = self.opaque.get(token, {"active": False})
        else:
            return 404, {}, b"{}"
        return 200, {"content-type": "application/json"}, json.dumps(document).encode()


def _jwk(key: Any) -> JSON:
    kinds = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256"}
    name = next((name for kind, name in kinds.items() if isinstance(key, kind)), "EdDSA")
    method: Any = get_default_algorithms()[name]
    return {**method.to_jwk(key.public_key(), as_dict=True), "use": "sig"}


@contextmanager
def hostile_issuer() -> Generator[HostileIssuer]:
    """Run an issuer until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            issuer.callers.append(self.headers.get("authorization", ""))
            status, headers, body = issuer.answer(
                self.command, self.path, self.rfile.read(size) if size else b""
            )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        do_POST = do_GET

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(timestamp) if issuer.now is None else issuer.now()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    issuer = HostileIssuer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


__all__ = ["AUDIENCE", "HostileIssuer", "encoded", "hostile_issuer"]
