"""The team of examples/team: three people with accounts, from a folder with nothing installed."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from statehold.server.config.load import load

ROOT = Path(__file__).resolve().parents[1]
TEAM = ROOT / "examples" / "team"


def test_the_settings_are_those_of_a_gateway_with_accounts() -> None:
    config = load(config=TEAM / "team.toml", environ={})
    assert config.audit == "required"
    assert [issuer.issuer for issuer in config.auth.issuers] == ["http://127.0.0.1:8930"]
    assert "--config examples/team/team.toml" in (TEAM / "README.md").read_text(encoding="utf-8")


def test_the_settings_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operate" / "team.md").read_text(encoding="utf-8")
    config = tmp_path / "statehold.toml"
    found = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found
    for settings in found:
        config.write_text(settings)
        load(config=config, environ={"SEALING_KEY": "k" * 32, "CONSOLE_SECRET": "s"})


def test_the_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "operate" / "team.md").read_text(encoding="utf-8")
    named = set(re.findall(r"test_\w+\.py", page))
    files = {file.name for file in (ROOT / "tests").glob("*/**/test_*.py")}
    assert len(named) > 10
    assert named - files == set()


@pytest.mark.thorough
@pytest.mark.timeout(300)
async def test_the_scene_plays_from_a_fresh_folder(
    npm_peers: Path, headless_shell: str, tmp_path: Path, leaks: Any
) -> None:
    folder = tmp_path / "team"
    shutil.copytree(TEAM, folder, ignore=shutil.ignore_patterns("node_modules", "data"))
    assert "uv run python examples/team/play.py" in (
        ROOT / "docs" / "operate" / "team.md"
    ).read_text("utf-8")
    with anyio.fail_after(280):
        command = [sys.executable, str(folder / "play.py")]
        done = await anyio.run_process(command, cwd=tmp_path, check=False)
    output = done.stdout.decode()
    assert done.returncode == 0, output + done.stderr.decode()
    steps = re.findall(r"^ *(\d+)  (.*)$", output.partition("\n\n")[0], re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert len(steps) >= 12
    assert "session_share" in output.partition("\n\n")[2]
    await leaks.check()
