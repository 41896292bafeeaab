"""The chaos benchmark finds faults in nodes that do without a safeguard; otherwise finding none would prove nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import ForkServer

ROOT = Path(__file__).resolve().parents[2]
MINUTES = "2"
"""It ends as soon as it has found something."""

pytestmark = [pytest.mark.control, pytest.mark.timeout(300)]


@pytest.mark.usefixtures("postgresql")
@pytest.mark.parametrize(
    ("without", "kind"),
    [
        ("guard", "interleaved owners"),
        ("fence", "stale writes"),
        ("two-clocks", "interleaved owners"),
    ],
)
def test_a_missing_safeguard_is_found(
    fork_server: ForkServer, tmp_path: Path, without: str, kind: str
) -> None:
    file = tmp_path / "results.json"
    options = ("--minutes", MINUTES, "--without", without, "--json", str(file))
    command = fork_server.command("-m", "benchmarks", "chaos", *options)
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    counts = {row["what"]: row["found"] for row in results["chaos"]["rows"]}
    assert counts[kind] > 0
