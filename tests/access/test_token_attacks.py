"""Forged, foreign and malformed tokens at a running server: none gets in, on any route of the application."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from mcp.server.lowlevel import Server
from support.application_routes import filled_routes
from support.gateway_process import JSON, Running
from support.hostile_issuer import AUDIENCE, HostileIssuer, encoded, hostile_issuer
from support.selection import matrix

from statehold.server.gateway.gateway import Gateway

PUBLIC = (
    *("/livez", "/readyz", "/health", "/mcp/server-card", "/.well-known/ai-catalog.json"),
    "/.well-known/oauth-protected-resource",
)
"""The routes that need no token and no login, besides the files of the console's page."""
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"accept": "application/json, text/event-stream"}
FOREIGN_KEY = rsa.generate_private_key(65537, 2048)
Attack = Callable[[HostileIssuer], str]


def public_pem(issuer: HostileIssuer) -> bytes:
    return (
        issuer.keys["rsa"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def hmac_signed(issuer: HostileIssuer, secret: bytes) -> str:
    import hashlib
    import hmac

    signed = (
        f"{encoded({'typ': 'at+jwt', 'alg': 'HS256', 'kid': 'rsa'})}.{encoded(issuer.claims())}"
    )
    signature = hmac.digest(secret, signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def own_jwk() -> JSON:
    from jwt.algorithms import RSAAlgorithm

    return RSAAlgorithm.to_jwk(FOREIGN_KEY.public_key(), as_dict=True)


def tampered(issuer: HostileIssuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{encoded(issuer.claims(sub='root'))}.{signature}"


def foreign(issuer: HostileIssuer, **header: object) -> str:
    return issuer.token(key=FOREIGN_KEY, header=dict(header))


def from_other_issuer(issuer: HostileIssuer) -> str:
    with hostile_issuer() as other:
        return other.token()


NOW = int(time.time())
ATTACKS: dict[str, Attack] = {
    "alg none": lambda i: i.token(algorithm="none"),
    "alg None": lambda i: i.token(algorithm="none", header={"alg": "None"}),
    "alg missing": lambda i: i.token(header={"alg": None}),
    "alg a list": lambda i: i.token(header={"alg": ["RS256"]}),
    "alg not allowed": lambda i: i.token(algorithm="RS512"),
    "alg of another key": lambda i: i.token(algorithm="ES256", key=i.keys["ec"]),
    "HS256 with the public key": lambda i: hmac_signed(i, public_pem(i)),
    "HS256 without a key": lambda i: hmac_signed(i, b""),
    "no signature": lambda i: i.token().rpartition(".")[0] + ".",
    "tampered claims": tampered,
    "foreign key with a known kid": foreign,
    "jwk": lambda i: foreign(i, jwk=own_jwk()),
    "jku": lambda i: foreign(i, jku=f"{i.url}/jwks"),
    "x5u": lambda i: foreign(i, x5u=f"{i.url}/certificate"),
    "jwk with a good signature": lambda i: i.token(header={"jwk": own_jwk()}),
    "unknown crit": lambda i: i.token(header={"crit": ["exp"], "exp": NOW}),
    "empty crit": lambda i: i.token(header={"crit": []}),
    "b64 false": lambda i: i.token(header={"b64": False, "crit": ["b64"]}),
    "kid no string": lambda i: i.token(header={"kid": 7}),
    "kid as a path": lambda i: i.token(header={"kid": "../../rsa"}),
    "unknown kid": lambda i: i.token(header={"kid": "unknown"}),
    "no kid of several": lambda i: i.token(key=FOREIGN_KEY, header={"kid": None}),
    "typ JWT": lambda i: i.token(header={"typ": "JWT"}),
    "typ missing": lambda i: i.token(header={"typ": None}),
    "typ of an ID-JAG": lambda i: i.token(header={"typ": "oauth-id-jag+jwt"}),
    "ID token": lambda i: i.token(header={"typ": "JWT"}, aud="laptop", nonce="n"),
    "ID token for us": lambda i: i.token(nonce="n", at_hash="h"),
    "refresh token": lambda i: i.token(typ="Refresh"),
    "bound to a key": lambda i: i.token(cnf={"jkt": "0" * 43}),
    "other issuer, same sub": from_other_issuer,
    "issuer with a slash": lambda i: i.token(iss=f"{i.url}/"),
    "issuer in upper case": lambda i: i.token(iss=i.url.upper()),
    "issuer missing": lambda i: i.token(iss=None),
    "issuer a list": lambda i: i.token(iss=[i.url]),
    "other audience": lambda i: i.token(aud="https://other.example.org/mcp"),
    "audience with two slashes": lambda i: i.token(aud=f"{AUDIENCE}//"),
    "audience with a query": lambda i: i.token(aud=f"{AUDIENCE}?x=1"),
    "audience at another port": lambda i: i.token(aud="https://mcp.example.org:8443/mcp"),
    "audience over http": lambda i: i.token(aud="http://mcp.example.org/mcp"),
    "audience below another path": lambda i: i.token(aud="https://mcp.example.org/x/s/y/mcp"),
    "audience longer": lambda i: i.token(aud=f"{AUDIENCE}x"),
    "audience missing": lambda i: i.token(aud=None),
    "audience empty": lambda i: i.token(aud=[]),
    "audience an object": lambda i: i.token(aud={AUDIENCE: True}),
    "exp missing": lambda i: i.token(exp=None),
    "exp past": lambda i: i.token(exp=NOW - 31),
    "exp text": lambda i: i.token(exp=str(NOW + 86_400)),
    "exp true": lambda i: i.token(exp=True),
    "exp infinite": lambda i: i.token(exp=float("inf")),
    "exp not a number": lambda i: i.token(exp=float("nan")),
    "exp huge": lambda i: i.token(exp=10**400),
    "sub missing": lambda i: i.token(sub=None),
    "sub empty": lambda i: i.token(sub=" "),
    "sub a number": lambda i: i.token(sub=1),
    "sub with a line": lambda i: i.token(sub="alice\nroot"),
    "sub long": lambda i: i.token(sub="a" * 256),
    "nbf in the future": lambda i: i.token(nbf=NOW + 86_400),
    "iat in the future": lambda i: i.token(iat=NOW + 86_400),
    "more than 8 KiB": lambda i: i.token(more="x" * 8192),
    "claims a list": lambda i: i.token(claims=[]),  # pyright: ignore[reportArgumentType]
    "claims nested": lambda i: i.token(claims={"iss": i.url, "x": json.loads("[" * 90 + "]" * 90)}),
    "four parts": lambda i: f"{i.token()}.x",
    "two parts": lambda i: i.token().rpartition(".")[0],
    "no base64": lambda i: f"{i.token()[:-1]}~",
    "EC signature of zeros": lambda i: (
        i.token(algorithm="ES256", key_id="ec").rpartition(".")[0]
        + "."
        + base64.urlsafe_b64encode(bytes(64)).rstrip(b"=").decode()
    ),
    "P-384 key for ES256": lambda i: i.token(
        algorithm="ES256", key_id="ec", key=ec.generate_private_key(ec.SECP256R1())
    ),
}


Endpoint = tuple[str, str]
Reply = tuple[int, str]


@pytest.fixture(scope="module")
async def routes(
    gateway: Gateway, mcp_server: Server[object], server: Running
) -> dict[Endpoint, Reply]:
    """The answer of each route to a request without a token."""
    replies: dict[Endpoint, Reply] = {}
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as raw:
        for method, path in sorted(filled_routes(gateway, mcp_server)):
            answer = await send(raw, method, path)
            replies[method, path] = answer.status_code, answer.text
            if not is_public(method, path) and not path.startswith("/api/v1"):
                assert answer.status_code == 401
                challenge = answer.headers["www-authenticate"]
                assert challenge.startswith('Bearer scope="statehold:use", resource_metadata="')
    return replies


async def send(
    raw: httpx2.AsyncClient, method: str, path: str, authorization: str | None = None
) -> httpx2.Response:
    headers = ACCEPT if authorization is None else {**ACCEPT, "authorization": authorization}
    body = PING if method == "POST" else None
    return await raw.request(method, path, headers=headers, json=body)


def is_public(method: str, path: str) -> bool:
    # The page of the login asks for the kinds of login.
    is_login = (method, path) == ("GET", "/api/v1/login")
    return is_login or path.startswith((*PUBLIC, "/console"))


@pytest.mark.parametrize("name", matrix(*ATTACKS, quick=24))
async def test_a_bad_token_gets_in_on_no_route(
    name: str, issuer: HostileIssuer, raw: httpx2.AsyncClient, routes: dict[Endpoint, Reply]
) -> None:
    """The requests run at once: the answers to guesses are delayed, each longer than the one before."""
    token = ATTACKS[name](issuer)
    assert len(routes) > 45
    challenges: set[str] = set()

    async def check(method: str, path: str) -> None:
        answer = await send(raw, method, path, f"Bearer {token}")
        if is_public(method, path):
            assert (answer.status_code, answer.text) == routes[method, path], path
        elif path.startswith("/api/v1"):
            assert answer.status_code in (400, 401, 403, 422), (method, path, answer.text)
        else:
            assert answer.status_code == 401, (method, path, answer.text)
            assert answer.json() == {"error": "invalid_token"}
            challenge = answer.headers["www-authenticate"]
            assert challenge.startswith('Bearer error="invalid_token", error_description="The ')
            challenges.add(re.sub(r'resource_metadata="[^"]*"', "", challenge))

    async with anyio.create_task_group() as tasks:
        for method, path in routes:
            tasks.start_soon(check, method, path)
    assert len(challenges) == 1
    login = await raw.post("/api/v1/login", json={"token": token[:8192]})
    assert login.status_code == 401


async def test_a_good_token_gets_in_on_each_route_of_mcp(
    issuer: HostileIssuer, raw: httpx2.AsyncClient
) -> None:
    tokens = [
        issuer.token(),
        issuer.token(algorithm="PS256"),
        issuer.token(key_id="ec", algorithm="ES256"),
        issuer.token(key_id="ed", algorithm="EdDSA"),
        issuer.token(header={"typ": "application/at+JWT"}),
        issuer.token(header={"x5t": "of no use"}),
        issuer.token(aud=["https://other.example.org", "HTTPS://MCP.example.org/mcp"]),
        issuer.token(aud="https://mcp.example.org/"),
        issuer.token(aud=f"{AUDIENCE}/"),
        issuer.token(aud="https://mcp.example.org:443/s/desk/mcp/"),
        issuer.token(exp=int(time.time()) - 20),
        issuer.token(nbf=int(time.time()) + 20, iat=int(time.time()) + 20),
        issuer.token(scope=None, scp=["statehold:read"]),
    ]
    for token in tokens:
        for path in ("/mcp", "/s/desk/mcp"):
            headers = {**ACCEPT, "authorization": f"Bearer {token}"}
            answer = await raw.post(path, json=_initialize(), headers=headers)
            assert answer.status_code == 200, answer.text


def _initialize() -> JSON:
    info = {"name": "tests", "version": "0"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


@pytest.mark.parametrize("path", ["/mcp", "/s/desk/mcp", "/sse", "/messages/x", "/nowhere"])
async def test_malformed_requests_are_told_so(
    path: str, issuer: HostileIssuer, raw: httpx2.AsyncClient
) -> None:
    token = issuer.token()
    two = [("authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    answers = [
        await raw.get(path, headers=two),
        await raw.get(path, headers=[("authorization", f"Bearer {token}"), ("authorization", "x")]),
        await raw.get(f"{path}?access_token={token}"),
        await raw.get(f"{path}?a=1&access_token=x", headers={"authorization": f"Bearer {token}"}),
        await raw.get(path, headers={"authorization": "Bearer"}),
        await raw.get(path, headers={"authorization": f"Bearer {token} {token}"}),
        await raw.get(path, headers={"authorization": f'Bearer "{token}"'}),
        await raw.get(path, headers=[(b"authorization", b"Bearer \xff\xfe")]),
    ]
    for answer in answers:
        assert answer.status_code == 400
        assert 'error="invalid_request"' in answer.headers["www-authenticate"]


async def test_opaque_tokens_that_are_not_active_get_in_nowhere(
    raw: httpx2.AsyncClient, asked_issuer: HostileIssuer, issuer: HostileIssuer
) -> None:
    good = asked_issuer.claims(active=True, token_type="Bearer")
    bad: dict[str, JSON] = {
        "inactive": {"active": False},
        "of-another": good | {"iss": issuer.url},
        "for-another": good | {"aud": "https://other.example.org"},
        "for-nobody": {name: value for name, value in good.items() if name != "aud"},
        "endless": {name: value for name, value in good.items() if name != "exp"},
        "expired": good | {"exp": int(time.time()) - 40},
        "nameless": {name: value for name, value in good.items() if name != "sub"},
        "bound": good | {"token_type": "DPoP", "cnf": {"jkt": "x"}},
        "a-refresh-token": good | {"token_type": "refresh_token"},
    }
    asked_issuer.opaque |= bad | {"good-opaque": good}
    statuses: dict[str, int] = {}

    async def send(token: str) -> None:
        headers = {**ACCEPT, "authorization": f"Bearer {token}"}
        answer = await raw.post("/mcp", json=_initialize(), headers=headers)
        statuses[token] = answer.status_code

    async with anyio.create_task_group() as tasks:
        for token in (*bad, "unheard-of", "good-opaque"):
            tasks.start_soon(send, token)
    assert statuses.pop("good-opaque") == 200
    assert set(statuses.values()) == {401}
    assert {caller.partition(" ")[0] for caller in asked_issuer.callers} == {"Basic"}


async def test_a_static_token_still_gets_in(server: Running) -> None:
    headers = {**ACCEPT, "authorization": "Bearer static-token-0123456789"}
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as raw:
        answer = await raw.post("/mcp", json=_initialize(), headers=headers)
    assert answer.status_code == 200
