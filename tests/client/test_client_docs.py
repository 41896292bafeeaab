"""The programs of the pages run as printed, and print the output that is shown below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from support.fork_server import ForkServer
from support.gateway_process import Running, serving
from support.selection import matrix

from statehold.client import Client, Session, errors
from statehold.client.sync import Client as BlockingClient

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "use" / "client.md").read_text(encoding="utf-8")
LANGCHAIN = (ROOT / "docs" / "use" / "langchain.md").read_text(encoding="utf-8")
SESSIONS = (ROOT / "docs" / "use" / "sessions.md").read_text(encoding="utf-8")
STATE = (ROOT / "docs" / "use" / "state-and-history.md").read_text(encoding="utf-8")
COMING_FROM = (
    (ROOT / "docs" / "use" / "coming-from.md").read_text("utf-8").partition("\n## Agno\n")[2]
)
"""The page without its part on MCPStore, whose program has a test of its own."""
TESTING = (ROOT / "docs" / "use" / "testing.md").read_text(encoding="utf-8")
PRINTED = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?"
PROGRAMS = [
    (program, printed)
    for program, printed in re.findall(
        PRINTED, PAGE + SESSIONS + STATE + LANGCHAIN + COMING_FROM, re.M | re.S
    )
    # That one is for an environment of its own: tests/acceptance/test_langchain.py.
    if "langchain_mcp_adapters" not in program
]
PATH = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    config = ROOT / "examples" / "notebook.toml"
    with serving(config, tmp_path_factory.mktemp("notebook"), env=PATH) as running:
        yield running


@pytest.mark.parametrize("number", matrix(*range(len(PROGRAMS)), quick=2))
def test_a_program_of_the_page_runs_as_printed(
    number: int, notebook: Running, fork_server: ForkServer, tmp_path: Path
) -> None:
    program, printed = PROGRAMS[number]
    file = tmp_path / "program.py"
    file.write_text(program.replace("http://127.0.0.1:8931", notebook.url))
    done = subprocess.run(
        fork_server.command(str(file)),
        cwd=tmp_path,
        env={**os.environ, **PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not printed or done.stdout == printed


def test_every_name_that_the_page_uses_exists() -> None:
    known = {
        "client": {*dir(Client), *dir(BlockingClient)},
        "s": {*dir(Session), *Session.__annotations__, "state"},
        "errors": set(errors.__all__),
    }
    for owner, name in re.findall(r"`[^`]*?(?<!statehold\.)\b(client|s|errors)\.(\w+)", PAGE):
        assert name in known[owner], f"{owner}.{name}"


@pytest.mark.thorough
def test_the_tests_of_the_page_of_testing_and_of_the_example_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = "examples/test_notebook.py"
    assert f"uv run pytest {example}" in (ROOT / example).read_text(encoding="utf-8")
    programs = re.findall(
        r"^```python\n# ((?:conftest|test_\w+)\.py)\n(.*?)^```\n", TESTING, re.M | re.S
    )
    assert len(programs) == TESTING.count("```python\n")
    for name, program in programs:
        (pytester.path / name).write_text(program)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    without = ["xdist", "asyncio", "langsmith_plugin", "hypothesispytest", "cacheprovider"]
    ran = pytester.runpytest_inprocess(
        *("-q", "--import-mode=importlib", f"--rootdir={pytester.path}"),
        *(f"-pno:{name}" for name in without),
        *(str(pytester.path), str(ROOT / example)),
    )
    ran.assert_outcomes(passed=9)
