"""The settings of `[auth]`: no start with one that would let a token of somebody else in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load
from statehold.server.config.model import Config

ISSUER = "https://login.example.org"
GOOD: dict[str, Any] = {
    "issuers": [{"issuer": ISSUER}],
    "audience": ["https://mcp.example.org/mcp"],
}
SERVER = {"public_url": "https://mcp.example.org/"}


def loaded(server: Any = SERVER, **changes: Any) -> Config:
    return load(flags={"server": server, "auth": {**GOOD, **changes}}, environ={})


def test_an_issuer_an_audience_and_a_url_are_enough() -> None:
    config = loaded()
    assert config.needs_token
    assert config.policy().shared
    assert not load(environ={}).needs_token


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"audience": []}, "auth.audience"),
        ({"server": {}}, "server.public_url"),
        ({"server": {"public_url": "http://mcp.example.org"}}, "https"),
        ({"issuers": []}, "auth.issuers"),
        ({"issuers": [{"issuer": "http://login.example.org"}]}, "https"),
        ({"issuers": [{"issuer": ISSUER}, {"issuer": ISSUER}]}, "once"),
        ({"issuers": [{"issuer": ISSUER, "jwks_uri": "file:///keys"}]}, "https"),
        ({"issuers": [{"issuer": ISSUER, "algorithms": ["HS256"]}]}, "algorithms"),
        ({"issuers": [{"issuer": ISSUER, "algorithms": ["none"]}]}, "algorithms"),
        ({"issuers": [{"issuer": ISSUER, "introspection_endpoint": ISSUER}]}, "client_id"),
        ({"roles": {"staff": "root"}}, "roles"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(**changes)
    assert part in str(caught.value)


def test_loopback_needs_no_https() -> None:
    local = "http://127.0.0.1:3000"
    config = loaded({"public_url": "http://localhost:8931"}, issuers=[{"issuer": local}])
    assert config.auth.issuers[0].issuer == local


def test_a_secret_comes_from_a_variable_and_is_hidden(tmp_path: Path) -> None:
    secret = "introspection-secret-4711"
    issuer = {
        "issuer": ISSUER,
        "introspection_endpoint": f"{ISSUER}/introspect",
        "client_id": "statehold",
        "client_secret": "${SECRET}",
    }
    auth = {**GOOD, "issuers": [issuer]}
    flags = {"server": SERVER, "auth": auth}
    config = load(flags=flags, environ={"SECRET": secret})
    held = config.auth.issuers[0].client_secret
    assert held is not None
    assert held.get_secret_value() == secret
    assert secret in config.secrets
    assert secret not in repr(config)
    with pytest.raises(ConfigError, match="SECRET is not set"):
        load(flags=flags, environ={})
    file = tmp_path / "secret"
    file.write_text(f"{secret}\n")
    named = {**auth, "issuers": [{**issuer, "client_secret": f"${{file:{file}}}"}]}
    config = load(flags={"server": SERVER}, environ={"STATEHOLD_AUTH": json.dumps(named)})
    assert secret in config.secrets


def test_a_mistake_beside_a_secret_does_not_show_it() -> None:
    issuer = {"issuer": ISSUER, "client_secret": "secret-4711", "client_idd": "x"}
    with pytest.raises(ConfigError) as caught:
        loaded(issuers=[issuer])
    assert "client_idd" in str(caught.value)
    assert "secret-4711" not in str(caught.value)


FACADE: dict[str, Any] = {
    "issuer": ISSUER,
    "client_id": "statehold",
    "client_secret": "${SECRET}",
    "clients": [{"client_id": "assistant", "client_secret": "${SECRET}-of-the-assistant"}],
}


def test_an_authorization_server_needs_no_other_issuer() -> None:
    secret = "facade-secret-0123456789"
    auth = {"audience": GOOD["audience"], "facade": FACADE}
    config = load(flags={"server": SERVER, "auth": auth}, environ={"SECRET": secret})
    assert config.needs_token
    assert {secret, f"{secret}-of-the-assistant"} <= set(config.secrets)
    assert secret not in repr(config)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"issuer": ""}, "issuer is missing"),
        ({"issuer": "http://login.example.org"}, "https"),
        ({"client_id": ""}, "client_id"),
        ({"client_secret": None}, "client_secret"),
        ({"client_secret": "short"}, "client_secret"),
        ({"scopes": ["groups"]}, "openid"),
        ({"clients": [{"client_id": "assistant", "client_secret": "short"}]}, "client_secret"),
        ({"access_token_seconds": 86_400}, "access_token_seconds"),
    ],
)
def test_a_mistake_of_the_authorization_server_is_named(changes: dict[str, Any], part: str) -> None:
    facade: dict[str, Any] = {**FACADE, "client_secret": "x" * 16, "clients": [], **changes}
    auth = {"audience": GOOD["audience"], "facade": facade}
    with pytest.raises(ConfigError) as caught:
        load(flags={"server": SERVER, "auth": auth}, environ={})
    assert part in str(caught.value)
