"""The checks of issuers by `statehold doctor`."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import toml
from support.hostile_issuer import AUDIENCE, INTROSPECTOR, HostileIssuer, hostile_issuer

from statehold.shell.main import main

Check = Callable[..., dict[str, str]]


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the doctor with one issuer and return the finding about it."""

    def run(**issuer: Any) -> dict[str, str]:
        config = tmp_path / "statehold.toml"
        settings = {
            "server": {"public_url": "https://mcp.example.org"},
            "auth": {"issuers": [issuer], "audience": [AUDIENCE]},
        }
        config.write_text(f"{toml(settings)}\n[services]\n")
        capsys.readouterr()
        main(["doctor", "--config", str(config), "--ephemeral", "--json"])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        [finding] = [each for each in document["checks"] if each["name"].startswith("issuer ")]
        return finding

    return run


def test_an_issuer_that_can_be_used_is_ok(check: Check) -> None:
    with hostile_issuer() as issuer:
        finding = check(issuer=issuer.url)
        assert finding["name"] == f"issuer {issuer.url}"
        assert (finding["status"], finding["detail"]) == ("ok", f"1 key at {issuer.url}/jwks")
        client_id, client_secret = INTROSPECTOR
        endpoint = f"{issuer.url}/introspect"
        secrets = {"client_id": client_id, "client_secret": client_secret}
        finding = check(issuer=issuer.url, introspection_endpoint=endpoint, **secrets)
        assert (finding["status"], finding["detail"]) == ("ok", "answers about tokens")


def test_the_issuer_of_the_authorization_server_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hostile_issuer() as issuer:
        facade = {"issuer": issuer.url, "client_id": "one", "client_secret": "x" * 16}
        config = tmp_path / "statehold.toml"
        settings = {
            "server": {"public_url": "https://mcp.example.org"},
            "auth": {"audience": [AUDIENCE], "facade": facade},
        }
        config.write_text(f"{toml(settings)}\n[services]\n")
        main(["doctor", "--config", str(config), "--ephemeral", "--json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        found = {each["name"]: each["status"] for each in checks}
        assert found[f"issuer {issuer.url}"] == "ok"


def answer(document: object, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return 200, headers, json.dumps(document).encode()


def no_answer(issuer: HostileIssuer) -> None:
    issuer.answers["/.well-known/openid-configuration"] = 503, {}, b""


def other_issuer(issuer: HostileIssuer) -> None:
    document = {"issuer": f"{issuer.url}/", "jwks_uri": f"{issuer.url}/jwks"}
    issuer.answers["/.well-known/openid-configuration"] = answer(document)


def no_keys(issuer: HostileIssuer) -> None:
    issuer.answers["/jwks"] = answer({"keys": [{"kty": "oct", "k": "c2VjcmV0"}, 7]})


def slow_clock(issuer: HostileIssuer) -> None:
    issuer.now = lambda: formatdate(1_000_000_000, usegmt=True)


@pytest.mark.parametrize(
    ("fault", "detail", "remedy"),
    [
        (no_answer, "answers 503", "look whether this machine reaches the issuer"),
        (other_issuer, "is not about the issuer", "set `issuer` to the `issuer` of its metadata"),
        (no_keys, "has no key for RS256, PS256, ES256, EdDSA", "add the algorithm"),
        (slow_clock, "its clock differs by", "set the clock of this machine by NTP"),
    ],
)
def test_an_issuer_that_cannot_be_used_is_a_failure_with_a_remedy(
    check: Check, fault: Callable[[HostileIssuer], None], detail: str, remedy: str
) -> None:
    with hostile_issuer() as issuer:
        fault(issuer)
        finding = check(issuer=issuer.url)
    assert finding["status"] == "fail"
    assert detail in finding["detail"]
    assert finding["remedy"].startswith(remedy)


def test_an_issuer_that_accepts_every_token_is_a_failure(check: Check) -> None:
    with hostile_issuer() as issuer:
        issuer.answers["/introspect"] = answer({**issuer.claims(), "active": True})
        client_id, client_secret = INTROSPECTOR
        finding = check(
            issuer=issuer.url,
            introspection_endpoint=f"{issuer.url}/introspect",
            client_id=client_id,
            client_secret=client_secret,
        )
    assert (finding["status"], finding["detail"]) == ("fail", "accepts any token")
