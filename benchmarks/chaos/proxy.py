"""HAProxy in front of the nodes, with the file that is shipped in deploy/ and other ports."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..plan import ROOT

SHIPPED: Final = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
_SERVER: Final = re.compile(r"^    server .*\n?", re.MULTILINE)


def find_program() -> str | None:
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")


def proxy_command(program: str, folder: Path, port: int, nodes: Sequence[int]) -> list[str]:
    """Write the file for these ports of nodes, and return the command that listens on `port`."""
    text = _SERVER.sub("", SHIPPED.read_text(encoding="utf-8"))
    assert "bind :8080" in text
    text = text.replace("bind :8080", f"bind 127.0.0.1:{port}")
    lines = [f"    server node{i} 127.0.0.1:{node}\n" for i, node in enumerate(nodes, 1)]
    path = folder / "haproxy.cfg"
    path.write_text(text + "".join(lines), encoding="utf-8")
    return [program, "-db", "-f", str(path)]
