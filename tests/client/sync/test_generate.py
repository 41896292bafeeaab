"""The blocking client is what its generator makes of the async one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).resolve().parents[3] / ".ci" / "sync_client" / "generate.py"


def test_the_generated_modules_are_current() -> None:
    command = [sys.executable, str(GENERATOR), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (checked.returncode, checked.stdout.split(), checked.stderr) == (0, [], ""), (
        "run `uv run python .ci/sync_client/generate.py`"
    )
