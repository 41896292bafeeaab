"""The file of static tokens: digests, principals and expiry; its mistakes, and how a running server reads it again."""

from __future__ import annotations

# Imported here: the user of a test below may not read the files of Python.
import encodings.utf_8_sig  # noqa: F401  # pyright: ignore[reportUnusedImport]
import os
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.token_file import token_lines, write_tokens

from statehold.access.config.types import ConfigError
from statehold.access.tokens import StaticTokens
from statehold.sessions.records import Principal
from statehold.sessions.times import parse_expiry, parse_time

ALICE = "alice-0123456789abcdef"
BOB = "bob-0123456789abcdef=="
NOBODY = 65534
HASHED = token_lines(f"{ALICE} alice")


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_lines_give_a_principal_for_each_token(tmp_path: Path) -> None:
    text = token_lines(f'{ALICE} "a b" name=laptop\n{BOB} bob client_id=app issuer=https://i # b')
    tokens = StaticTokens.read(write(tmp_path, f"# who is who\n\n{text}"))
    assert len(tokens) == 2
    assert tokens.principal(ALICE) == Principal(subject="a b")
    assert tokens.principal(BOB) == Principal(subject="bob", client_id="app", issuer="https://i")


def test_a_digest_is_no_token(tmp_path: Path) -> None:
    tokens = StaticTokens.read(write(tmp_path, HASHED))
    digest = HASHED.split()[0]
    assert tokens.principal(digest) is None
    assert tokens.principal(digest.removeprefix("sha256:")) is None


@pytest.mark.parametrize(
    "token", ["", "x", ALICE[:-1], ALICE + "x", "\ud800", "ä" * 20, "x" * 100_000]
)
def test_any_other_token_has_no_principal(tmp_path: Path, token: str) -> None:
    tokens = StaticTokens.read(write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{BOB} bob\n"))
    assert tokens.principal(token) is None


def test_two_tokens_of_one_subject_are_valid_at_once(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{BOB} alice expires=2027-01-31\n")
    tokens = StaticTokens.read(path, clock=lambda: 0.0)
    assert tokens.principal(ALICE) == tokens.principal(BOB) == Principal(subject="alice")


def test_a_token_is_wrong_from_its_expiry_on_and_the_reason_says_so(tmp_path: Path) -> None:
    now = parse_time("2027-01-30T23:59:59Z")
    path = write_tokens(tmp_path / "tokens", f"{ALICE} alice issuer=i expires=2027-01-31\n")
    tokens = StaticTokens.read(path, clock=lambda: now)
    assert tokens.principal(ALICE) is not None
    now += 1
    assert tokens.principal(ALICE) is None
    assert tokens.refusal(ALICE) == ("expired token", "of i/alice")
    assert tokens.refusal(BOB) == ("wrong token", "")


def test_a_time_is_a_date_or_has_an_offset() -> None:
    assert parse_time("2027-01-31T02:00:00+02:00") == parse_time("2027-01-31")
    assert parse_time("2027-01-31t00:00:00z") == parse_time("2027-01-31")
    assert parse_expiry("90d", 1000.9) == 1000 + 90 * 86_400
    assert parse_expiry("2h", 1000.0) == 8200
    for text in ("", "tomorrow", "2027-01-31T00:00:00", "2027-13-01", "0d", "-1d", "20270131"):
        with pytest.raises(ValueError, match="2027-01-31"):
            parse_expiry(text, 0.0)
    with pytest.raises(ValueError, match="is over"):
        parse_expiry("2001-01-01", 1e9)


def test_a_changed_file_is_read_again_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n")
    tokens = StaticTokens.read(path)
    assert not tokens.refresh()
    write_tokens(path, f"{BOB} bob\n")
    assert tokens.refresh()
    assert (tokens.principal(ALICE), tokens.principal(BOB)) == (None, Principal(subject="bob"))
    for text in ("", f"{ALICE} alice\n", "sha256:x alice\n"):
        caplog.clear()
        write(tmp_path, text)
        assert [tokens.refresh(), tokens.refresh()] == [False, False]
        assert tokens.principal(BOB) is not None
        [record] = caplog.records
        assert record.levelname == "ERROR"
        assert ALICE not in record.getMessage()
    path.unlink()
    assert not tokens.refresh()
    assert tokens.principal(BOB) is not None
    write(tmp_path, "# nobody\n")
    assert tokens.refresh()
    assert len(tokens) == 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666, 0o610])
def test_file_that_others_may_touch_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, HASHED, mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        StaticTokens.read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file of root to another user")
@pytest.mark.parametrize(("mode", "is_accepted"), [(0o440, True), (0o444, False), (0o460, False)])
def test_a_file_of_root_may_be_readable_by_the_group_of_this_process(
    mode: int, is_accepted: bool
) -> None:
    with TemporaryDirectory() as name:
        path = write(Path(name), HASHED, mode)
        os.chown(path, 0, NOBODY)
        Path(name).chmod(0o755)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            with nullcontext() if is_accepted else pytest.raises(ConfigError, match="chmod 600"):
                assert StaticTokens.read(path).principal(ALICE) == Principal(subject="alice")
        finally:
            os.seteuid(0)
            os.setegid(0)


DIGEST = HASHED.split()[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "is empty"),
        ("# nothing\n", "holds no token"),
        (f"{DIGEST}\n", "line 1: should be sha256:HEX SUBJECT"),
        (f"{DIGEST} alice admin\n", "line 1: should be sha256:HEX SUBJECT"),
        (f"{DIGEST} alice issuer=\n", "line 1: should be sha256:HEX SUBJECT"),
        (f"{DIGEST} ''\n", "line 1: has no subject"),
        (f"{DIGEST} alice color=red\n", "line 1: has something twice, or besides"),
        (f"{DIGEST} alice role=boss\n", "line 1: role should be one of user, operator, admin"),
        (f"{DIGEST} alice name=a name=b\n", "line 1: has something twice, or besides"),
        (f"{DIGEST} 'alice\n", "line 1: a quote is not closed"),
        (f"\n{DIGEST} a\n{DIGEST} b\n", "line 3: the same token stands there twice"),
        (f"{ALICE} alice\n", "line 1: holds a token itself.*printf %s TOKEN | sha256sum"),
        (f'[[token]]\ntoken = "{ALICE}"\n', "line 1: holds a token itself"),
        ("sha256:secret alice\n", "line 1: sha256: should be followed by 64"),
        (f"{DIGEST} alice expires=soon\n", "line 1: expires should be a date or a time"),
        (f"{DIGEST} alice expires=2027-01-31T00:00:00\n", "line 1: expires should be a date"),
    ],
)
def test_mistake_is_one_line_without_the_token(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found) as error_info:
        StaticTokens.read(write(tmp_path, text))
    message = str(error_info.value)
    assert "\n" not in message
    assert ALICE not in message
    assert "secret" not in message
    assert error_info.value.__cause__ is None


def test_missing_file_folder_and_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        StaticTokens.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot be read"):
        StaticTokens.read(tmp_path)
    path = write(tmp_path, "")
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        StaticTokens.read(path)


def test_tokens_are_not_shown_by_repr(tmp_path: Path) -> None:
    assert ALICE not in repr(StaticTokens.read(write(tmp_path, HASHED)))
