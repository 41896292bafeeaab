"""Static bearer tokens."""

from __future__ import annotations

import hashlib
import os
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from statehold.server.auth.tokens import StaticTokens
from statehold.server.config.model import ConfigError
from statehold.sessions.records import Principal

ALICE = "alice-0123456789abcdef"
BOB = "bob-0123456789abcdef=="
NOBODY = 65534


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_lines_give_a_principal_for_each_token(tmp_path: Path) -> None:
    tokens = StaticTokens.read(
        write(
            tmp_path,
            f"# who is who\n{ALICE} alice\n\n{BOB} bob client_id=app issuer=https://i # b\n",
        )
    )
    assert len(tokens) == 2
    assert tokens.principal(ALICE) == Principal(subject="alice")
    assert tokens.principal(BOB) == Principal(subject="bob", client_id="app", issuer="https://i")


def test_toml_gives_a_principal_for_each_token(tmp_path: Path) -> None:
    text = f'[[token]]\ntoken = "{ALICE}"\nsubject = "alice"\n[[token]]\ntoken="{BOB}"\nsubject="b b"\nclient_id="c"\n'
    tokens = StaticTokens.read(write(tmp_path, text))
    assert tokens.principal(ALICE) == Principal(subject="alice")
    assert tokens.principal(BOB) == Principal(subject="b b", client_id="c")


def test_hashed_token_is_known_by_the_token_and_not_by_its_hash(tmp_path: Path) -> None:
    hashed = f"sha256:{hashlib.sha256(ALICE.encode()).hexdigest()}"
    tokens = StaticTokens.read(write(tmp_path, f"{hashed} alice\n"))
    assert tokens.principal(ALICE) == Principal(subject="alice")
    assert tokens.principal(hashed) is None


@pytest.mark.parametrize(
    "token", ["", "x", ALICE[:-1], ALICE + "x", "\ud800", "ä" * 20, "x" * 100_000]
)
def test_any_other_token_has_no_principal(tmp_path: Path, token: str) -> None:
    tokens = StaticTokens.read(write(tmp_path, f"{ALICE} alice\n{BOB} bob\n"))
    assert tokens.principal(token) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666, 0o610])
def test_file_that_others_may_touch_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, f"{ALICE} alice\n", mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        StaticTokens.read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file of root to another user")
@pytest.mark.parametrize(("mode", "is_accepted"), [(0o440, True), (0o444, False), (0o460, False)])
def test_a_file_of_root_may_be_readable_by_the_group_of_this_process(
    mode: int, is_accepted: bool
) -> None:
    with TemporaryDirectory() as name:
        path = write(Path(name), f"{ALICE} alice\n", mode)
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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "holds no token"),
        ("# nothing\n", "holds no token"),
        (f"{ALICE}\n", "line 1: should be TOKEN SUBJECT"),
        (f"{ALICE} alice admin\n", "line 1: should be TOKEN SUBJECT"),
        (f"{ALICE} alice role=admin\n", "line 1: has something besides"),
        (f"\n{ALICE} a\n{ALICE} b\n", "line 3: the same token stands there twice"),
        ("secret alice\n", "line 1: a token needs at least 16"),
        ("sécret-0123456789abcdef alice\n", "line 1: a token needs at least 16"),
        (f"{'a' * 40} alice\n", "line 1: this token can be guessed"),
        (f"{ALICE} alice\n{'Ab-1' * 8} bob\n", "line 2: this token can be guessed"),
        ("0000000000000000000-1 alice\n", "line 1: this token can be guessed"),
        ("sha256:secret alice\n", "line 1: sha256: should be followed by 64"),
        (f'[[token]]\ntoken = "{ALICE}"\n', "token 1: has no subject"),
        (f'[[token]]\ntoken = "{ALICE}"\nsubject = 5\n', "token 1: .* should be strings"),
        ('[[token]]\nsubject = "a"\n', "token 1: a token needs at least 16"),
        (f'[[token]]\ntoken = "{ALICE}\n', "line 2: is not TOML"),
        (f'[token]\ntoken = "{ALICE}"\n', r"should hold \[\[token\]\] tables only"),
        (f'token = "{ALICE}"\n', r"should hold \[\[token\]\] tables only"),
        (f'token = ["{ALICE}"]\n', r"should hold \[\[token\]\] tables only"),
        (f'[[tokens]]\ntoken = "{ALICE}"\n', r"should hold \[\[token\]\] tables only"),
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
    assert ALICE not in repr(StaticTokens.read(write(tmp_path, f"{ALICE} alice\n")))
