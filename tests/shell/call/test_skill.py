"""The lines of the skill run as they stand, with the address and the refs of a real page."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path

import pytest
from support.gateway_process import toml
from support.page_server import serve_pages
from support.shared_clients import SharedClients
from support.tool_commands import Commands

from statehold.server.exit_codes import OK

PAGE = b"""<h1>Log in</h1><button>Send</button>
<label>Password <input type=password></label><label>City <input></label>"""


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def address() -> Generator[str]:
    with serve_pages(Page) as address:
        yield f"{address}/"


@pytest.fixture
def browsing(tmp_path: Path) -> Generator[Commands]:
    secrets = tmp_path / "secrets.env"
    secrets.write_text("PASSWORD=correct horse\n")
    secrets.chmod(0o600)
    config = tmp_path / "statehold.toml"
    browser = {"type": "browser", "secrets": str(secrets)}
    config.write_text(toml({"services": {"browser": browser}}))
    shared = SharedClients(config, tmp_path / "data")
    yield Commands(shared, tmp_path / "log")
    shared.stop()


def run(commands: Commands, line: str) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(line, comments=True)
    assert program == "statehold"
    return commands(*words)


@pytest.mark.thorough
def test_the_lines_of_the_skill_run(browsing: Commands, address: str) -> None:
    text = files("statehold.server.gateway").joinpath("SKILL.md").read_text(encoding="utf-8")
    block = text.partition("```sh\n")[2].partition("```")[0]
    lines = block.splitlines()
    assert len(lines) == 7
    opened = run(browsing, lines[0].replace("https://example.com", address))
    assert opened.returncode == OK, opened.stderr
    refs = {
        name: re.search(rf'{role} "{name}" \[ref=(\w+)\]', opened.stdout)
        for role, name in (("button", "Send"), ("textbox", "Password"), ("textbox", "City"))
    }
    names = {"e12": "Send", "e7": "Password", "e5": "City"}
    for line in [*lines[1:-1], "statehold call work browser_fill_form fields:='FIELDS'", lines[-1]]:
        field = re.search(r"`fields:='(.*?)'`", text)
        assert field is not None
        for ref, name in names.items():
            match = refs[name]
            assert match is not None
            line = line.replace("FIELDS", field[1]).replace(f"={ref}", f"={match[1]}")
            line = line.replace(f'"{ref}"', f'"{match[1]}"')
        ran = run(browsing, line)
        assert ran.returncode == OK, (line, ran.stderr)
        assert "correct horse" not in ran.stdout + ran.stderr
