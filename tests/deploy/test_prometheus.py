"""The alert rules, the scrape configuration and the queries of the dashboard, as Prometheus reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.parts import require

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


@pytest.fixture
def promtool(pytestconfig: pytest.Config) -> Callable[..., None]:
    """`promtool("rules", path)` checks a file."""
    require(pytestconfig, "prometheus")

    def check(kind: str, path: Path) -> None:
        program = shutil.which("promtool")
        assert program is not None
        command = [program, "check", kind, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    return check


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "name"), [("config", "prometheus.yml"), ("rules", "alerts.yml")])
def test_promtool_accepts_the_files(promtool: Callable[..., None], kind: str, name: str) -> None:
    promtool(kind, DEPLOY / "prometheus" / name)


@pytest.mark.thorough
def test_promtool_accepts_the_queries_of_the_dashboard(
    promtool: Callable[..., None], tmp_path: Path
) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "statehold.json").read_text(encoding="utf-8"))
    queries = [
        target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    assert len(queries) > 10
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(queries)]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("rules", path)
