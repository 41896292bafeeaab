"""The keys of an issuer: how often they are fetched, and what holds while the issuer does not answer."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import anyio
import pytest
from support.hostile_issuer import AUDIENCE, HostileIssuer, hostile_issuer

from statehold.access.config.auth import AuthSettings, IssuerSettings
from statehold.access.refusals import TokenInvalid, VerifierUnavailable
from statehold.access.verifier import Verifier
from statehold.sessions.records import Principal

JWKS = "/jwks"
METADATA = "/.well-known/openid-configuration"


class Time:
    """The clocks of a verifier, which only a test advances."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return time.time() + self.passed

    def clock(self) -> float:
        return 1000.0 + self.passed


@pytest.fixture
def issuer() -> Generator[HostileIssuer]:
    with hostile_issuer() as running:
        yield running


@pytest.fixture
def time_of_test() -> Time:
    return Time()


def settings_of(issuer: HostileIssuer, **more: Any) -> AuthSettings:
    roles: Any = {"staff": "operator", "root": "admin"}
    return AuthSettings(
        issuers=[IssuerSettings(issuer=issuer.url, **more)],
        audience=[AUDIENCE],
        roles=roles,
    )


@pytest.fixture
def verifier(issuer: HostileIssuer, time_of_test: Time) -> Verifier:
    settings = settings_of(issuer)
    return Verifier(None, settings, now=time_of_test.now, clock=time_of_test.clock)


async def outcome(verifier: Verifier, token: str) -> type[Exception] | None:
    """Return None for an accepted token, else the kind of its refusal."""
    try:
        await verifier.verify(token)
    except (TokenInvalid, VerifierUnavailable) as error:
        return type(error)
    return None


async def test_a_token_names_its_caller(issuer: HostileIssuer, verifier: Verifier) -> None:
    token = issuer.token(groups=["staff", "others", 7], scope="openid statehold:use")
    caller = await verifier.verify(token)
    assert caller.principal == Principal(issuer=issuer.url, subject="alice", client_id="laptop")
    assert caller.scopes == ["statehold:read", "statehold:use"]
    assert caller.role == "operator"
    assert caller.groups == ("staff", "others")
    assert token not in repr(vars(caller))
    again = issuer.token(client_id="phone")
    other = (await verifier.verify(again)).principal
    assert other.key == caller.principal.key


async def test_ten_thousand_unknown_keys_cause_one_fetch_in_thirty_seconds(
    issuer: HostileIssuer, verifier: Verifier, time_of_test: Time
) -> None:
    parts = issuer.token().split(".")

    def unknown(number: int) -> str:
        from support.hostile_issuer import encoded

        head = encoded({"typ": "at+jwt", "alg": "RS256", "kid": f"random-{number}"})
        return ".".join((head, *parts[1:]))

    assert await outcome(verifier, issuer.token()) is None
    time_of_test.passed += 31
    issuer.requests.clear()
    for number in range(10_000):
        assert await outcome(verifier, unknown(number)) is TokenInvalid
    assert issuer.requests[JWKS] == 1
    assert issuer.requests.total() == 1
    for number in range(10_000, 10_010):
        time_of_test.passed += 31
        assert await outcome(verifier, unknown(number)) is TokenInvalid
    assert issuer.requests[JWKS] == 11
    time_of_test.passed += 31
    # The last one is not looked for again so soon.
    assert await outcome(verifier, unknown(10_009)) is TokenInvalid
    assert issuer.requests[JWKS] == 11


async def test_callers_at_once_cause_one_fetch(issuer: HostileIssuer, verifier: Verifier) -> None:
    outcomes: list[type[Exception] | None] = []

    async def verify(subject: str) -> None:
        outcomes.append(await outcome(verifier, issuer.token(sub=subject)))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(verify, f"user-{number}")
    assert outcomes == [None] * 50
    assert issuer.requests == {METADATA: 1, JWKS: 1}


async def test_known_keys_go_on_while_the_issuer_is_down(
    issuer: HostileIssuer, verifier: Verifier, time_of_test: Time
) -> None:
    assert await outcome(verifier, issuer.token()) is None
    issuer.answers[JWKS] = 503, {}, b""
    issuer.answers[METADATA] = 503, {}, b""
    issuer.keys["new"] = issuer.keys["rsa"]
    for seconds in (1, 31, 700, 86_400):
        time_of_test.passed += seconds
        claims = issuer.claims(exp=int(time_of_test.now()) + 300)
        assert await outcome(verifier, issuer.token(claims)) is None
        assert await outcome(verifier, issuer.token(claims, key_id="new")) in (
            VerifierUnavailable,
            TokenInvalid,
        )
    del issuer.answers[JWKS], issuer.answers[METADATA]
    time_of_test.passed += 31
    claims = issuer.claims(exp=int(time_of_test.now()) + 300)
    assert await outcome(verifier, issuer.token(claims, key_id="new")) is None


async def test_a_verifier_that_starts_without_its_issuer_recovers(
    issuer: HostileIssuer, verifier: Verifier, time_of_test: Time
) -> None:
    issuer.answers[METADATA] = 500, {}, b""
    for _ in range(20):
        assert await outcome(verifier, issuer.token()) is VerifierUnavailable
    assert issuer.requests[METADATA] == 1
    del issuer.answers[METADATA]
    time_of_test.passed += 3
    assert await outcome(verifier, issuer.token()) is None


async def test_keys_rotate_under_load(
    issuer: HostileIssuer, verifier: Verifier, time_of_test: Time
) -> None:
    assert await outcome(verifier, issuer.token()) is None
    time_of_test.passed += 31
    issuer.add_key("ec")
    outcomes: list[type[Exception] | None] = []

    async def verify(number: int) -> None:
        key_id, algorithm = (("rsa", "RS256"), ("ec", "ES256"))[number % 2]
        token = issuer.token(sub=f"user-{number}", key_id=key_id, algorithm=algorithm)
        outcomes.append(await outcome(verifier, token))

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(verify, number)
    assert outcomes == [None] * 100
    assert issuer.requests[JWKS] == 2
    old = issuer.keys.pop("rsa")
    time_of_test.passed += 700
    claims = issuer.claims(exp=int(time_of_test.now()) + 300)
    withdrawn = issuer.token(claims, key=old)
    assert await outcome(verifier, withdrawn) is TokenInvalid


BAD_ANSWERS: list[tuple[str, tuple[int, dict[str, str], bytes]]] = [
    (METADATA, (302, {"location": "/other"}, b"")),
    (JWKS, (302, {"location": "/other"}, b"")),
    (JWKS, (200, {}, b"[" * 100_000_000)),
    (JWKS, (200, {"content-encoding": "gzip"}, b"\x1f\x8b" + bytes(1000))),
    (JWKS, (200, {}, b"[]")),
    (JWKS, (200, {}, b'{"keys": {}}')),
    (JWKS, (200, {}, b'{"keys": [' + b"[" * 5000)),
    (METADATA, (200, {}, b'{"issuer": "https://evil.example", "jwks_uri": "x"}')),
    (METADATA, (200, {}, b"{}")),
]


@pytest.mark.parametrize(("path", "answer"), BAD_ANSWERS)
async def test_an_issuer_that_answers_badly_makes_the_check_unavailable(
    path: str, answer: Any, issuer: HostileIssuer, verifier: Verifier
) -> None:
    issuer.answers[path] = answer
    issuer.answers["/other"] = 200, {}, b'{"keys": []}'
    with anyio.fail_after(10):
        assert await outcome(verifier, issuer.token()) is VerifierUnavailable
    assert issuer.requests["/other"] == 0


async def test_keys_that_may_not_verify_are_not_used(
    issuer: HostileIssuer, verifier: Verifier, time_of_test: Time
) -> None:
    import json

    [jwk] = issuer.jwks()["keys"]
    wrong: list[Any] = [
        {**jwk, "use": "enc"},
        {**jwk, "alg": "RS512"},
        {**jwk, "key_ops": ["encrypt"]},
        {**jwk, "d": "AQAB"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa"},
        "a text",
    ]
    for key in wrong:
        issuer.answers[JWKS] = 200, {}, json.dumps({"keys": [key]}).encode()
        time_of_test.passed += 200
        claims = issuer.claims(exp=int(time_of_test.now()) + 300)
        assert await outcome(verifier, issuer.token(claims)) is TokenInvalid, key


async def test_a_discovery_of_rfc_8414_is_enough(issuer: HostileIssuer, verifier: Verifier) -> None:
    import json

    document = json.dumps({"issuer": issuer.url, "jwks_uri": f"{issuer.url}{JWKS}"}).encode()
    issuer.answers[METADATA] = 404, {}, b""
    issuer.answers["/.well-known/oauth-authorization-server"] = 200, {}, document
    assert await outcome(verifier, issuer.token()) is None


async def test_jwt_of_older_issuers_are_accepted_where_set(issuer: HostileIssuer) -> None:
    verifier = Verifier(None, settings_of(issuer, typ="JWT", jwks_uri=f"{issuer.url}{JWKS}"))
    assert await outcome(verifier, issuer.token(header={"typ": "JWT"})) is None
    assert await outcome(verifier, issuer.token(header={"typ": None, "kid": None})) is None
    for typ in ("oauth-id-jag+jwt", "logout+jwt", "dpop+jwt", 7):
        assert await outcome(verifier, issuer.token(header={"typ": typ})) is TokenInvalid
    assert await outcome(verifier, issuer.token(header={"typ": "JWT"}, nonce="n")) is TokenInvalid
    assert issuer.requests[METADATA] == 0


async def test_an_opaque_token_is_asked_about_once_a_minute(
    issuer: HostileIssuer, time_of_test: Time
) -> None:
    settings = settings_of(
        issuer,
        introspection_endpoint=f"{issuer.url}/introspect",
        client_id="statehold",
        client_secret="secret-0123456789",
    )
    verifier = Verifier(None, settings, now=time_of_test.now, clock=time_of_test.clock)
    issuer.opaque["one"] = issuer.claims(active=True)
    for _ in range(5):
        assert await outcome(verifier, "one") is None
        assert await outcome(verifier, "two") is TokenInvalid
    assert issuer.requests["/introspect"] == 2
    issuer.opaque["one"] = {"active": False}
    time_of_test.passed += 61
    assert await outcome(verifier, "one") is TokenInvalid
    issuer.opaque["short"] = issuer.claims(active=True, exp=int(time_of_test.now()) + 5)
    assert await outcome(verifier, "short") is None
    time_of_test.passed += 6
    issuer.opaque["short"] = {"active": False}
    assert await outcome(verifier, "short") is TokenInvalid
    issuer.answers["/introspect"] = 500, {}, b""
    assert await outcome(verifier, "three") is VerifierUnavailable
    issuer.answers["/introspect"] = 200, {}, b'{"active": "true"}'
    assert await outcome(verifier, "three") is VerifierUnavailable


async def test_the_cache_is_bounded_and_ends_with_the_token(
    issuer: HostileIssuer, time_of_test: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statehold.access import verifier as module

    monkeypatch.setattr(module, "MAX_CACHED_TOKENS", 10)
    verifier = Verifier(None, settings_of(issuer), now=time_of_test.now, clock=time_of_test.clock)
    tokens = [issuer.token(sub=f"user-{number // 2}", jti=f"{number}") for number in range(6)]
    floods = [issuer.token(sub="bob", jti=f"{number}") for number in range(30)]
    for token in tokens + floods:
        await verifier.verify(token)
    # The many tokens of one person take the places of their own.
    assert all(verifier.known(token) for token in tokens + floods[-4:])
    assert verifier.known(floods[-5]) is None
    short = issuer.token(exp=int(time_of_test.now()) + 10)
    await verifier.verify(short)
    time_of_test.passed += 11
    assert verifier.known(short) is None
    time_of_test.passed += 50
    assert verifier.known(tokens[-1]) is None
