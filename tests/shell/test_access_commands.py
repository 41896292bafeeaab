"""Commands of administrators say what they did, and warn of names that nobody has."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.holding import Run
from support.token_file import write_tokens

from statehold.server.exit_codes import FAILURE, NOT_FOUND, OK


@pytest.fixture
def config(tmp_path: Path) -> str:
    tokens = write_tokens(tmp_path / "tokens", "ada-0123456789-abcdefghijkl ada")
    path = tmp_path / "statehold.toml"
    path.write_text(f'audit = "on"\n[server]\ntokens = "{tokens}"\n')
    return str(path)


@pytest.mark.parametrize(("subject", "near"), [("adda", "near: ada"), ("xyz", "")])
def test_a_revocation_of_a_name_that_nobody_has_warns(
    statehold: Run, config: str, subject: str, near: str
) -> None:
    ran = statehold("principals", "revoke", subject, "--issuer", "", "--config", config)
    assert ran.code == OK
    assert "has never been seen" in ran.err
    assert near in ran.err


def test_a_revocation_of_a_known_caller_says_what_ends(statehold: Run, config: str) -> None:
    ran = statehold("principals", "revoke", "ada", "--config", config)
    assert (ran.code, ran.err) == (OK, "")
    assert "tokens are refused" in ran.out


def test_an_audit_log_that_is_off_is_no_clean_one(
    statehold: Run, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEHOLD_CONFIG", config)
    monkeypatch.setenv("STATEHOLD_AUDIT", "off")
    assert statehold("principals", "revoke", "ada").code == OK
    assert statehold("audit", "verify").code == FAILURE
    monkeypatch.setenv("STATEHOLD_AUDIT", "on")
    assert statehold("principals", "revoke", "ada").code == OK
    assert statehold("audit", "verify").code == OK


def test_a_restoration_of_a_caller_who_is_not_revoked_is_refused(
    statehold: Run, config: str
) -> None:
    ran = statehold("principals", "restore", "ada", "--config", config)
    assert ran.code == NOT_FOUND
