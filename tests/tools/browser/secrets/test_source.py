"""The file and the command that secrets come from."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from support.browsing import new_view
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.errors import BrowserToolFailed
from statehold.tools.browser.secrets.source import load_secrets, parse_secrets
from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.anyio


def test_values_are_quoted_as_in_dotenv_files() -> None:
    text = "A=one two # a comment\nexport B='it is $A #1'\nC=\"a\\nb c\"\n\nD@http://a.test:80=word\nD@https://b.test=other"
    secrets = parse_secrets(text)
    names = {"A": "one two", "B": "it is $A #1", "C": "a\nb c", "D": "other"}
    for name, value in names.items():
        assert secrets.insert(f"%{name}%", "https://b.test/x", is_typed=True) == value
    assert secrets.insert("%D%", "http://a.test/x", is_typed=True) == "word"
    assert str(secrets) == "%A%, %B%, %C%, %D% (http://a.test, https://b.test)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A", "line 1 is not NAME=value"),
        ("A='open", "line 1 is not NAME=value"),
        ("A-B=long enough", "line 1: a name has letters"),
        ("A@shop.test=long enough", "line 1: behind A@ stands no origin"),
        ("A@https://shop.test/login=long enough", "line 1: behind A@ stands no origin"),
        ("A=long enough\nA=long enough", "line 2: A is there twice"),
        ("A=long enough\nA@https://a.test=longer", "A is there with and without an origin"),
    ],
)
def test_a_wrong_line_is_named_without_its_value(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_secrets(text)
    assert "enough" not in str(caught.value)
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("value", matrix("", "abc", "''"))
async def test_a_value_that_is_too_short_leaves_its_name_out(
    value: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secrets.env").write_text(f"A=long enough\nB={value}\n")
    secrets = await load_secrets(BrowserConfig(secrets=str(tmp_path / "secrets.env")))
    assert str(secrets) == "%A%"
    [line] = caplog.messages
    assert "line 2: the value of B has fewer than 4 characters; %B% is left out" in line
    with pytest.raises(BrowserToolFailed, match="%B% was left out"):
        secrets.insert("%B%", "https://a.test/", is_typed=True)
    (tmp_path / "secrets.env").write_text(f"B={value}\n")
    assert not await load_secrets(BrowserConfig(secrets=str(tmp_path / "secrets.env")))


def command(code: str, seconds: float = 10.0) -> BrowserConfig:
    return BrowserConfig(secrets_command=[sys.executable, "-c", code], connect_seconds=seconds)


async def test_a_command_prints_the_secrets_once_per_start(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print('TOKEN=tok-4711')"
    service = BrowserService("browser", command(code))
    for _ in range(2):
        tools = {tool.name: tool.definition for tool in await service.tools()}
        assert tools["browser_type"]["description"].endswith("Secrets to type: %TOKEN%")
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import sys; sys.exit('tok-4711')", "it ended with exit code 1"),
        ("print('TOKEN')", "line 1 is not NAME=value"),
        ("import sys; sys.stdout.buffer.write(b'A=\\xff\\xff\\xff\\xff')", "no text in UTF-8"),
    ],
)
async def test_a_command_that_fails_is_an_error_without_its_output(code: str, problem: str) -> None:
    with pytest.raises(ServiceUnavailable, match=problem) as caught:
        await load_secrets(command(code))
    assert "4711" not in caught.value.message
    assert "`secrets_command` gives no secrets" in caught.value.message
    assert not caught.value.retryable


async def test_no_browser_starts_without_the_secrets(tmp_path: Path) -> None:
    secrets = str(tmp_path / "missing.env")
    config = BrowserConfig(secrets=secrets, executable=str(tmp_path / "missing"))
    async with BrowserService("browser", config) as service:
        with pytest.raises(ServiceUnavailable, match="`secrets` gives no secrets"):
            await service.open(new_view(), None)


async def test_a_command_that_does_not_end_is_killed() -> None:
    with anyio.fail_after(10), pytest.raises(ServiceUnavailable, match="did not end within"):
        await load_secrets(command("import time; time.sleep(600)", seconds=0.5))
