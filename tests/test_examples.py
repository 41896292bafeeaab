"""The examples run as they are, by the one command that each of them names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.thorough
async def test_login_is_used_by_two_clients_of_two_eras(headless_shell: str, leaks: Any) -> None:
    example = "examples/browser_login.py"
    assert f"uv run python {example}" in (ROOT / example).read_text(encoding="utf-8")
    with anyio.fail_after(55):
        done = await anyio.run_process([sys.executable, example], cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    output = done.stdout.decode()
    # The first call after the pause reports the restored content.
    assert "generation 1 to 2; it was paused). Restored: 1 tab, 1 cookie." in " ".join(
        output.split()
    )
    lines = [re.split(r"  +", line) for line in output.splitlines() if line[0] != " "]
    assert lines == [
        ["2026-07-28", "session_create"],
        ["2026-07-28", "browser_navigate"],
        ["2026-07-28", "browser_type"],
        ["2026-07-28", "browser_type", 'heading "Hello Ada"'],
        ["2026-07-28", "session_pause"],
        ["2025-11-25", "browser_snapshot", 'heading "Hello Ada"'],
        ["2025-11-25", "session_close"],
    ]
    await leaks.check()


async def said_by(example: str, *arguments: str) -> list[str]:
    """Run an example by the command that it names, and return the lines it prints."""
    assert f"uv run python {example}" in (ROOT / example).read_text(encoding="utf-8")
    with anyio.fail_after(55):
        command = [sys.executable, example, *arguments]
        done = await anyio.run_process(command, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return done.stdout.decode().splitlines()


@pytest.mark.thorough
async def test_an_agent_takes_a_picture_of_the_page_it_opened(
    headless_shell: str, tmp_path: Path, leaks: Any
) -> None:
    """The example runs offline, with a scripted model and a local page, and ends with a real PNG."""
    picture = tmp_path / "cart.png"
    output = await said_by("examples/langgraph_agent.py", str(picture))
    assert output[-2:] == ['"Shop: 2"', "There are two in the cart."]
    assert [line.partition(": ")[2] for line in output[:-2]] == ["success"] * 4
    image = picture.read_bytes()
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(image) > 1000
    await leaks.check()


@pytest.mark.thorough
async def test_forked_browsers_have_the_login_and_bring_back_what_they_found(
    headless_shell: str, leaks: Any
) -> None:
    output = await said_by("examples/parallel_browsing.py")
    assert output == ["3 browsers, 0 conflicts", "{'tea': 3, 'milk': 1, 'honey': 7}"]
    await leaks.check()
