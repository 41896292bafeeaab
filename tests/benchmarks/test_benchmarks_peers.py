"""The comparison with other gateways: each row is small and pinned, and says what a gateway keeps."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

# `benchmarks` is no part of the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.gateway import HERE, Gateway, Place
from benchmarks.peers.rows import PEERS

README = HERE.parent / "README.md"
OWN = ("direct", "fastmcp")
"""Programs of this environment."""


@pytest.mark.parametrize("gateway", PEERS, ids=lambda gateway: gateway.name)
def test_a_row_is_pinned_and_documented(gateway: Gateway, tmp_path: Path) -> None:
    assert gateway.name in OWN or f"`{gateway.name}`" in README.read_text(encoding="utf-8")
    place = Place(tmp_path, 1, "http://127.0.0.1:2/mcp")
    assert gateway.command("stdio", place) or gateway.command("http", place)
    if gateway.variable or gateway.name in OWN:
        return
    package, project = (gateway.folder / name for name in ("package.json", "pyproject.toml"))
    if package.exists():
        [version] = json.loads(package.read_text())["dependencies"].values()
        assert (gateway.folder / "package-lock.json").exists()
    else:
        [version] = re.findall(r'"[\w-]+==([\w.]+)"', project.read_text())[:1]
        assert (gateway.folder / "uv.lock").exists()
    assert re.fullmatch(r"[\w.]+", version)


def test_a_program_without_a_package_is_named_by_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [gateway, *_] = [gateway for gateway in PEERS if gateway.variable]
    monkeypatch.delenv(gateway.variable, raising=False)
    assert gateway.install() == f"{gateway.variable} has no program"
    monkeypatch.setenv(gateway.variable, sys.executable)
    assert gateway.install() is None
    assert gateway.version().startswith("Python")
