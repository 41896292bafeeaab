"""The examples run as they are, by the one command that each of them names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parents[1]


async def test_login_is_used_by_two_clients_of_two_eras(headless_shell: str, leaks: Any) -> None:
    example = "examples/browser_login.py"
    assert f"uv run python {example}" in (ROOT / example).read_text(encoding="utf-8")
    with anyio.fail_after(55):
        done = await anyio.run_process([sys.executable, example], cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode()
    # What came back is told with the first call after the pause.
    assert "generation 1 to 2; it was paused). Restored: 1 tab, 1 cookie." in " ".join(said.split())
    lines = [re.split(r"  +", line) for line in said.splitlines() if line[0] != " "]
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
