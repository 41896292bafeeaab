"""Commands of administrators say what they did, and warn of names that nobody has."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.holding import Run
from support.token_file import write_tokens

from statehold.server.exit_codes import FAILURE, NOT_FOUND, OK, USAGE


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
    for words in (("verify",), ("tail",), ("tail", "--follow"), ("export",)):
        assert statehold("audit", *words).code == FAILURE
    monkeypatch.setenv("STATEHOLD_AUDIT", "on")
    assert statehold("principals", "revoke", "ada").code == OK
    assert statehold("audit", "verify").code == OK


def test_a_restoration_of_a_caller_who_is_not_revoked_is_refused(
    statehold: Run, config: str
) -> None:
    ran = statehold("principals", "restore", "ada", "--config", config)
    assert ran.code == NOT_FOUND


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("revoke", "adda"), USAGE),
        pytest.param(("restore", "adda"), NOT_FOUND, marks=pytest.mark.thorough),
        pytest.param(("show", "adda"), NOT_FOUND, marks=pytest.mark.thorough),
        pytest.param(("revoke", "--token", "laptp"), NOT_FOUND, marks=pytest.mark.thorough),
    ],
)
def test_a_caller_whom_nobody_knows_is_answered_with_near_names(
    statehold: Run, config: str, words: tuple[str, ...], code: int
) -> None:
    secret = "sht_0123456789abcdefghijklmnopqrstuvwxyz"
    write_tokens(Path(config).parent / "tokens", f"{secret} ada name=laptop")
    assert statehold("principals", "revoke", "ada", "--config", config).code == OK
    ran = statehold("principals", *words, "--config", config)
    assert ran.code == code
    assert "laptop" in ran.err or "ada" in ran.err.replace("adda", "")
