"""The import graph of the eight packages: its layers, its circles, and the libraries that a folder may import."""

from __future__ import annotations

import graphlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ["keeper", "sessions", "tools", "access", "server", "console", "shell"]
"""From the lowest to the highest; a module imports from its own layer and from those below."""
PACKAGES = [*LAYERS, "client"]
"""`client` stands beside `console`: above `server` and below `shell`."""

Graph: TypeAlias = dict[str, list[tuple[str, str]]]
"""Per module the modules it imports, each with the line that does so."""

# In a process of its own: there `statehold` is a folder with the packages, as in an installed wheel.
GRAPH = """
import json, sys
from pathlib import Path
root, folder = map(Path, sys.argv[1:3])
package = folder / "statehold"
package.mkdir()
(package / "__init__.py").touch()
for name in sys.argv[4:]:
    (package / name).symlink_to(root / name)
sys.path.insert(0, str(folder))
import grimp
graph = grimp.build_graph(
    "statehold",
    include_external_packages=True,
    exclude_type_checking_imports=sys.argv[3] == "runtime",
    cache_dir=None,
)
print(json.dumps({
    module: [
        (imported, detail["line_contents"])
        for imported in sorted(graph.find_modules_directly_imported_by(module))
        for detail in graph.get_import_details(importer=module, imported=imported)
    ]
    for module in sorted(graph.modules) if module.startswith("statehold.")
}))
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return read_graph(tmp_path_factory.mktemp("graph"), "all")


@pytest.fixture(scope="module")
def runtime_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The graph without the imports for annotations alone."""
    return read_graph(tmp_path_factory.mktemp("graph"), "runtime")


def read_graph(folder: Path, imports: str) -> Graph:
    command = [sys.executable, "-I", "-c", GRAPH, str(ROOT), str(folder), imports, *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    content: Graph = json.loads(done.stdout)
    assert "statehold.sessions.core" in dict(content["statehold.sessions.registry"])
    return content


def may_import(module: str, imported: str) -> bool:
    package, other = module.split(".")[1], imported.split(".")[1]
    if package == other:
        return True
    if (package, other) == ("shell", "client"):
        return True
    if package == "client":
        return other in LAYERS[: LAYERS.index("server") + 1]
    return other in LAYERS[: LAYERS.index(package)]


def folder_of(module: str) -> str:
    folder = ROOT.joinpath(*module.split(".")[1:])
    return module if folder.is_dir() else module.rpartition(".")[0]


@pytest.mark.parametrize("layer", PACKAGES)
def test_no_modules_import_each_other(graph: Graph, layer: str) -> None:
    inside = {module for module in graph if module.startswith(f"statehold.{layer}.")}
    order = graphlib.TopologicalSorter(
        {module: inside.intersection(dict(graph[module])) for module in inside}
    )
    order.prepare()  # raises CycleError with the circle


def test_no_two_folders_import_each_other(runtime_graph: Graph) -> None:
    """A folder and its own subfolders may."""
    arrows = {
        (folder_of(module), folder_of(imported))
        for module, imports in runtime_graph.items()
        for imported, _ in imports
        if imported in runtime_graph
    }
    both_ways = {
        (first, second)
        for first, second in arrows
        if (second, first) in arrows and first < second and not second.startswith(f"{first}.")
    }
    assert both_ways == set()


def test_imports_lead_from_a_layer_to_itself_and_those_below(graph: Graph) -> None:
    upward = [
        (module, imported)
        for module, imports in graph.items()
        for imported, _ in imports
        if imported in graph and not may_import(module, imported)
    ]
    assert upward == []


def test_sessions_import_no_protocol_web_or_browser_library(graph: Graph) -> None:
    forbidden = {"mcp", "mcp_types", "starlette", "uvicorn", "playwright", "httpx2"}
    result = [
        (module, imported)
        for module, imports in graph.items()
        for imported, _ in imports
        if module.startswith("statehold.sessions") and imported in forbidden
    ]
    assert result == []


def test_the_keeper_imports_the_standard_library_alone(graph: Graph) -> None:
    own = {"child", "confinement", "loop", "marks", "protocol"}
    result = [
        (module, imported)
        for module, imports in graph.items()
        for imported, _ in imports
        if module.startswith("statehold.keeper")
        and imported.split(".")[0] not in sys.stdlib_module_names | own
    ]
    assert result == []


def test_egress_imports_nothing_else_of_the_browser(graph: Graph) -> None:
    egress, browser = "statehold.tools.browser.egress", "statehold.tools.browser"
    result = [
        (module, imported)
        for module, imports in graph.items()
        for imported, _ in imports
        if module.startswith(egress)
        and imported.startswith(browser)
        and not imported.startswith(egress)
    ]
    assert result == []


def test_private_names_of_libraries_are_imported_in_the_sdk_modules_only(graph: Graph) -> None:
    sdk = ("statehold.server.sdk", "statehold.tools.upstream.sdk", "statehold.tools.browser.devtools.sdk")  # fmt: skip
    private = re.compile(r"from (mcp|mcp_types|playwright)[\w.]*( import .*\b|\.)_[a-z]")
    lines = [(module, line) for module, imports in graph.items() for _, line in imports]
    assert any(private.match(line) for module, line in lines if module.startswith(sdk))
    result = [each for each in lines if private.match(each[1]) and not each[0].startswith(sdk)]
    assert result == []
