"""The alert rules and the scrape configuration, as Prometheus reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
@pytest.mark.parametrize(("kind", "name"), [("config", "prometheus.yml"), ("rules", "alerts.yml")])
def test_promtool_accepts_the_files(kind: str, name: str) -> None:
    command = ["promtool", "check", kind, str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
