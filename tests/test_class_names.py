"""One class name, one class: only the client's counterparts without `await` and of MCPStore's interface share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("keeper", "sessions", "tools", "access", "server", "console", "shell", "client")
SYNC, MCPSTORE = "client/sync", "client/integrations/mcpstore"

TWINS = {
    "AutoSession": {"client", SYNC},
    "CallOptions": {"client", SYNC},
    "Client": {"client", SYNC},
    "Run": {"client", SYNC},
    "Session": {"client", SYNC, MCPSTORE},
    "SessionBlock": {"client", SYNC, MCPSTORE},
    "State": {"client", SYNC},
    "Task": {"client", SYNC},
    "ToolSource": {"client/integrations", SYNC},
}
"""The names of several classes, with the folders of these."""


def test_no_two_classes_have_one_name_except_twins() -> None:
    folders: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    folders[node.name].append(path.parent.relative_to(ROOT).as_posix())
    assert {name: sorted(places) for name, places in folders.items() if len(places) > 1} == {
        name: sorted(places) for name, places in TWINS.items()
    }
