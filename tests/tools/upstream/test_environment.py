"""The environment of a server: the variables that every program needs, those of the configuration, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from callers import Caller, Serving, view
from pydantic import ValidationError

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService

NEEDED = [
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy", "LANG", "LC_ALL", "LC_TIME", "TZ"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
]


async def environment_of(service: UpstreamService) -> dict[str, str]:
    connection = await service.open(view(), None)
    try:
        environment = await connection.call("surroundings", {}, Caller())
        return environment.payload["structuredContent"]["env"]
    finally:
        await connection.aclose()


async def test_a_server_gets_what_every_program_needs(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NEEDED:
        monkeypatch.setenv(name, f"/of/{name}")
    monkeypatch.setenv("STATEHOLD_KEY", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    environment = await environment_of(serving("keeper", env={"TZ": "Europe/Berlin"}))
    expected = {name: f"/of/{name}" for name in NEEDED} | {"TZ": "Europe/Berlin"}
    assert {name: environment.get(name) for name in NEEDED} == expected
    assert "ours" not in environment.values()


async def test_inherit_env_adds_variables_by_name(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/java")
    monkeypatch.setenv("FOR_ALL", "all")
    monkeypatch.setenv("BOTH", "inherited")
    configured = serving(
        "keeper", inherit_env=["JAVA_HOME", "BOTH", "MISSING"], env={"BOTH": "own"}
    )
    service = UpstreamService("keeper", configured.config, inherit_env=["FOR_ALL"])
    environment = await environment_of(service)
    assert (environment["JAVA_HOME"], environment["FOR_ALL"], environment["BOTH"]) == (
        "/java",
        "all",
        "own",
    )
    assert "MISSING" not in environment


@pytest.mark.parametrize("names", [["A=b"], [""], ["a\0b"], "PATH"])
def test_inherit_env_is_a_list_of_names(names: Any) -> None:
    with pytest.raises(ValidationError, match="inherit_env"):
        UpstreamConfig.model_validate({"command": "x", "inherit_env": names})


async def test_inherited_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ada:proxy-pass@127.0.0.1:9")
    monkeypatch.setenv("SOME_TOKEN", "inherited-token")
    script = 'echo "via $HTTPS_PROXY with $SOME_TOKEN" >&2; exit 3'
    config = UpstreamConfig(command="sh", args=["-c", script], inherit_env=["SOME_TOKEN"])
    with pytest.raises(ServiceUnavailable) as unavailable:
        await UpstreamService("shell", config).open(view(), None)
    assert "via http" in unavailable.value.message
    assert "proxy-pass" not in unavailable.value.message
    assert "inherited-token" not in unavailable.value.message
