"""docs/use/browser.md, docs/reference/browser.md and the README's section on the browser agree with the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from served import Served
from support.gateway_process import serving

from statehold.server.config.load import load
from statehold.shell.commands import parse_command_line
from statehold.tools.browser.config import CAPABILITIES, BrowserConfig

ROOT = Path(__file__).resolve().parents[1]
PAGE = "\n".join(
    (ROOT / "docs" / folder / "browser.md").read_text(encoding="utf-8")
    for folder in ("use", "reference")
)
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("tools/browser", "sessions", "server", "access", "console", "shell")
    for path in sorted((ROOT / folder).rglob("*.py"))
)


def rows(head: str) -> list[list[str]]:
    lines = PAGE.split(f"\n{head}\n")[1].splitlines()[1:]
    table = lines[: next((n for n, line in enumerate(lines) if line[:1] != "|"), len(lines))]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table]


class Example(BaseHTTPRequestHandler):
    """The page of example.com."""

    def do_GET(self) -> None:
        page = b"<title>Example Domain</title><h1>Example Domain</h1>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None: ...


class ExampleSite(Served):
    handler = Example


@pytest.mark.thorough
def test_program_of_the_page_runs_as_printed(headless_shell: str, tmp_path: Path) -> None:
    [(program, printed)] = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.M | re.S
    )
    config, file = tmp_path / "statehold.toml", tmp_path / "program.py"
    config.write_text("[services.browser]\n")
    with ExampleSite() as site, serving(config, tmp_path / "data") as running:
        program = program.replace("http://127.0.0.1:8931", running.url)
        file.write_text(program.replace("https://example.com", site.at(1)))
        done = subprocess.run(
            [sys.executable, str(file)],
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == printed.split()


def test_groups_of_tools_are_those_of_the_configuration() -> None:
    reports = [re.findall(r"`(\w+)`", row[0])[0] for row in rows("| group, in `caps` | tools |")]
    assert sorted(reports) == sorted(CAPABILITIES)


def test_settings_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    path, secrets = tmp_path / "statehold.toml", tmp_path / "secrets.env"
    secrets.write_text("PASSWORD@https://shop.test=open sesame\n")
    secrets.chmod(0o600)
    (tmp_path / "logins.json").write_text('{"cookies": [], "origins": []}')
    for block in re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S):
        path.write_text(block.replace("~/Documents", str(tmp_path)))
        loaded = load(config=path, environ={"BROWSER_KEY": "a key of 32 characters for tests"})
        assert list(loaded.browsers()) == ["browser"]
    for line in re.findall(r"`(\w+ = [^`]+)`", PAGE):
        key, value = next(iter(tomllib.loads(line).items()))
        # A variable in an address has a value only when the configuration is read.
        assert BrowserConfig.model_validate({key: value})


def test_keys_that_the_page_names_exist() -> None:
    known = set(BrowserConfig.model_fields)
    for key in ("settle_seconds", "checkpoint", "key", "uploads", "private", "allow"):
        assert f"`{key}`" in PAGE
        assert key in known
    for key in ("download_bytes", "script_seconds", "tabs", "permissions", "user_agent"):
        assert f"`{key}`" in PAGE
        assert key in known


def test_commands_of_the_page_can_be_parsed() -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S)
    lines = [line.partition("#")[0].split() for block in blocks for line in block.splitlines()]
    assert {"serve", "doctor", "sessions"} <= {line[1] for line in lines}
    for line in lines:
        assert line[0] == "statehold"
        parse_command_line(line[1:])


@pytest.mark.parametrize("row", rows("| text | what to do |"), ids=lambda row: row[0][:40])
def test_text_of_an_error_is_in_the_sources(row: list[str]) -> None:
    text = re.findall(r"`([^`]+)`", row[0])[0]
    for variable in ("Ref e12 ", "browser_click ", "file:", "session_busy: ...", "..."):
        text = text.replace(variable, "").strip()
    assert text.removeprefix(": run").strip() in SOURCES


def test_readme_gives_the_file_for_clients_as_it_is() -> None:
    [arguments] = re.findall(r"^```json\n(.*?)^```", README, re.M | re.S)
    assert json.loads(arguments) == json.loads((ROOT / "mcp.json").read_text(encoding="utf-8"))
    assert list(load(environ={}).browsers()) == ["browser"]
