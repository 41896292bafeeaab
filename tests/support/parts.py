"""The parts that tests need beside Python: browsers, servers and programs of tests/peers/install.py.

A part that is missing and cannot be installed skips its tests, and one line at the end counts them and names the remedy.
With `--all-parts`, and with CI=true, its tests fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureManager

INSTALLER = Path(__file__).resolve().parents[1] / "peers" / "install.py"
INSTALLED_BY = {
    "npm_peers": "npm",
    "mermaid": "mermaid",
    "peers_python": "python",
    "chromium": "chromium",
    "headless_shell": "shell",
    "real_shell": "shell",
    "screen": "screen",
    "postgresql": "postgres",
    "mariadb": "mariadb",
    "nginx": "nginx",
    "haproxy": "haproxy",
    "promtool": "prometheus",
    "glewlwyd": "glewlwyd",
}
"""Fixture to the part that it needs."""
MISSING = "missing part: "
"""The beginning of the reason of a test that is skipped because a part is missing."""

_installed = pytest.StashKey[dict[str, str]]()


def require(config: pytest.Config, part: str) -> str:
    """Return the output of the installer of a part. Skip or fail the test when the part is missing."""
    output = install(config, part)
    if output.startswith("!"):
        problem = output.removeprefix("!")
        if config.getoption("--all-parts") or os.environ.get("CI") == "true":
            pytest.fail(problem, pytrace=False)
        pytest.skip(f"{MISSING}{part}: {problem}")
    return output


def install(config: pytest.Config, part: str) -> str:
    """Run the installer of one part once per process. Return its output, or `!` and the problem."""
    outputs = config.stash.setdefault(_installed, {})
    if part not in outputs:
        outputs[part] = _run_installer(part)
    return outputs[part]


def _run_installer(part: str) -> str:
    pipe = subprocess.PIPE
    command = [sys.executable, str(INSTALLER), part]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    ) as installer:
        assert installer.stdout is not None
        assert installer.stderr is not None
        lines: list[str] = []
        for line in installer.stderr:
            # A missing part is reported at the end.
            if line.endswith("...\n"):
                sys.stderr.write(line if lines else f"\n{line}")
                sys.stderr.flush()
            lines.append(line)
        output = installer.stdout.read().strip()
    return output if installer.returncode == 0 else "!" + _last(lines)


def _last(lines: list[str]) -> str:
    """Return the line of the installer that names the remedy."""
    return (lines[-1].removeprefix("tests/peers: ") if lines else "the installer failed").strip()


def install_parts(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Install what the selected tests need before the first one starts, outside of any test's time limit."""
    fixtures = {name for item in items for name in getattr(item, "fixturenames", ())}
    values = {value for item in items for value in _parameters(item)}
    with _visible(config):
        for fixture, part in INSTALLED_BY.items():
            if fixture in fixtures or fixture in values:
                install(config, part)


def _parameters(item: pytest.Item) -> list[str]:
    """Return the parameters that name a fixture, which the test asks for while it runs."""
    callspec: Any = getattr(item, "callspec", None)
    values: list[Any] = [] if callspec is None else list(callspec.params.values())
    return [value for value in values if isinstance(value, str)]


@contextmanager
def _visible(config: pytest.Config) -> Generator[None]:
    capture = config.pluginmanager.getplugin("capturemanager")
    if not isinstance(capture, CaptureManager):
        yield
        return
    with capture.global_and_fixture_disabled():
        yield


def missing_parts(reports: list[pytest.TestReport]) -> tuple[int, dict[str, str]]:
    """Return how many of the skipped tests miss a part, and the problem of each part."""
    problems: dict[str, str] = {}
    count = 0
    for report in reports:
        reason: Any = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else ""
        _, is_missing, rest = str(reason).partition(MISSING)
        if is_missing:
            part, _, problem = rest.partition(": ")
            problems[part] = problem
            count += 1
    return count, problems


__all__ = ["install_parts", "missing_parts", "require"]
