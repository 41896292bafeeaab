"""The parts of a service's configuration that are removed from every text shown."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.known_secrets import Secrets

S = "s3cret-v4lue"


@pytest.mark.parametrize(
    "settings",
    [
        {"env": {"ANYTHING": S}},
        {"args": ["--api-key", S]},
        {"args": [f"--token={S}"]},
        {"args": ["--header", f"Authorization: Bearer {S}"]},
        {"args": ["--header", f"X-Api-Key:{S}"]},
        {"args": [f"PASSWORD={S}"]},
        {"args": [f"postgres://user:{S}@db.example/x"]},
        {"args": ["--db", f"postgres://user:{S}@db.example/x"]},
        {"args": [f"--db=postgres://user:{S}@[db.example/x"]},
        {"args": [f"https://site.example/mcp?k={S}"]},
        {"args": [f"https://site.example/mcp#{S}"]},
        {"args": [f"see https://site.example/s/{S}-123456/mcp"]},
        {"url": f"https://site.example/s/{S}-123456/mcp"},
        {"url": f"https://{S}@site.example/mcp"},
        {"url": f"https://site.example/mcp?k=a%20{S}"},
        {"url": "https://site.example/mcp", "headers": {"Authorization": f"Bearer {S}"}},
    ],
)
def test_a_secret_of_the_configuration_is_not_shown(settings: dict[str, Any]) -> None:
    config = UpstreamConfig.model_validate(
        settings if "url" in settings else {"command": "serve", **settings}
    )
    secrets = Secrets.of(config)
    for text in (*config.args, config.url or "", *config.env.values(), *config.headers.values()):
        assert S not in secrets.redact(f"it said: {text}")
    assert S not in repr(secrets)


@pytest.mark.parametrize("secret", ['pass"word\\1', "päss wörd", "a&b=c/d", "line\nbreak"])
def test_a_secret_is_not_shown_as_code_json_or_urls_spell_it(secret: str) -> None:
    secrets = Secrets.of(UpstreamConfig(command="serve", env={"PASSWORD": secret}))
    for spelling in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe="")):
        assert secrets.redact(f"<{spelling}>") == "<***>"


@pytest.mark.parametrize(
    "argument",
    [
        "sk-proj-0123456789abcdef",
        "ghp_0123456789abcdefghij",
        "github_pat_0123456789abcdef",
        "xoxb-0123456789-abcdef",
        "AKIA0123456789ABCDEF",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
@pytest.mark.parametrize("form", ["{}", "--with={}", "a,{},b"])
def test_an_argument_that_looks_like_a_key_is_not_shown(argument: str, form: str) -> None:
    argument_text = form.format(argument)
    secrets = Secrets.of(UpstreamConfig(command="serve", args=["run", argument_text]))
    assert secrets.redact(f"run {argument_text}") == f"run {form.format('***')}"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"args": [f"postgres://postgres:{S}@db.example/x"]}, "postgres is not available"),
        ({"url": f"https://git-hub:{S}@site.example/mcp"}, "git-hub lists no tools"),
        ({"env": {"OPENAI_MODEL": "gpt-4o-2024-08-06"}}, "unknown model gpt-4o-2024-08-06"),
        (
            {"env": {"MODEL_NAME": "claude-sonnet-4-5-20250929"}},
            "claude-sonnet-4-5-20250929 failed",
        ),
        ({"env": {"USE_CACHE": "true", "PORT": "8931"}}, "cache: true, port 8931"),
        (
            {"url": "https://site.example/mcp", "headers": {"Accept": "application/json"}},
            "expected application/json",
        ),
    ],
)
def test_a_setting_is_shown(settings: dict[str, Any], line: str) -> None:
    config = UpstreamConfig.model_validate(
        settings if "url" in settings else {"command": "serve", **settings}
    )
    secrets = Secrets.of(config)
    assert secrets.redact(line) == line
    assert S not in secrets.redact(f"it said: {S}") or S not in str(settings)


def test_a_user_name_that_may_be_a_token_is_not_shown() -> None:
    secrets = Secrets.of(UpstreamConfig(url=f"https://{S}:x-oauth@site.example/mcp"))
    assert S not in secrets.redact(f"it said: {S}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEBHOOK_PATH", "T000/B000/XXXXsecret"),
        ("SIGNING_VERSION", "topsecretvalue123"),
        ("DB_URL_FORMAT", "s3cr3tvalue"),
        ("DEPLOY_MODE", S),
        ("UNLOCK_CODE", "48213"),
    ],
)
def test_a_secret_under_the_name_of_a_setting_is_not_shown(name: str, value: str) -> None:
    secrets = Secrets.of(UpstreamConfig(command="serve", env={name: value}))
    assert value not in secrets.redact(f"it said: {value}")


def test_a_user_name_without_a_password_may_be_a_token() -> None:
    secrets = Secrets.of(UpstreamConfig(url="https://deploytokenabcdefgh@site.example/mcp"))
    assert "deploytoken" not in secrets.redact("it said: deploytokenabcdefgh")


def test_an_argument_that_is_no_secret_is_shown() -> None:
    args = ["-y", "@scope/server-name", "--port", "8931", "--root=/srv/data", "task-runner"]
    line = " ".join(["npx", *args])
    assert Secrets.of(UpstreamConfig(command="npx", args=args)).redact(line) == line
    url = "http://127.0.0.1:8000/v1/servers/memory/mcp"
    assert Secrets.of(UpstreamConfig(url=url)).redact(url) == url
