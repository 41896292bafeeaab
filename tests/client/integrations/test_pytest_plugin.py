"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.gateway_process import UPSTREAMS
from support.selection import matrix

pytest_plugins = ["pytester"]

OPTIONS = ("-p", "no:xdist", "-p", "no:langsmith_plugin", "-p", "no:hypothesispytest", "-q")

LEAKY = f"""
import sys
sys.path.insert(0, {str(UPSTREAMS)!r})
from quick import Quick, text, tool

class Leaky(Quick):
    def __init__(self):
        super().__init__()
        self.kept = []
        self.tools.append(tool("open"))

    def tool_open(self, *_):
        self.kept.append(open(__file__))
        return text("opened")

Leaky().run()
"""

TESTS = """
import os
import sys
from pathlib import Path

import pytest

from statehold import client
from statehold.client import sync

LEAKY = [sys.executable, Path(__file__).with_name("leaky.py")]
seen = {}

@pytest.fixture(scope="session")
def statehold_services():
    return {"mcpServers": {"leaky": {"command": sys.executable, "args": ["leaky.py"]}}}

@pytest.fixture
def counted(statehold_session):
    return statehold_session.call("inc").text

@pytest.fixture
async def counted_async(statehold_session):
    return (await statehold_session.call("inc")).text

class TestBlocking:
    def test_stdio(self, stdio_session):
        s = stdio_session(LEAKY)
        assert isinstance(s, sync.Session)
        assert [s.call("inc").text for _ in range(3)] == ["1", "2", "3"]
        other = stdio_session(LEAKY, prefix="other_", env={"A": "${B}"})
        assert [s.call("get").text, other.call("other_get").text] == ["3", "0"]
        for _ in range(3):
            s.call("open")  # few enough

    @pytest.mark.statehold(state={"step": 1}, metadata={"a": 1})
    def test_server(self, statehold_server, statehold_client, statehold_session, counted):
        assert isinstance(statehold_client, sync.Client)
        assert (counted, statehold_client.call("inc").text) == ("1", "2")
        assert statehold_session.state.get("/step") == 1
        assert statehold_session.info().metadata == {"a": 1}
        seen["session"] = statehold_session.id
        assert statehold_server.data.is_dir() and "listens on" in statehold_server.log

    def test_it_was_closed(self, statehold_client):
        assert statehold_client.get(seen["session"]).status == "closed"

@pytest.mark.anyio
async def test_anyio_stdio(stdio_session):
    s = await stdio_session(LEAKY)
    assert isinstance(s, client.Session)
    assert [(await s.call("inc")).text for _ in range(3)] == ["1", "2", "3"]

@pytest.mark.anyio
async def test_anyio_server(statehold_client, statehold_session, counted_async):
    assert isinstance(statehold_client, client.Client)
    assert (counted_async, (await statehold_client.call("inc")).text) == ("1", "2")
    assert "test_anyio_server" in (await statehold_session.info()).metadata["test"]

@pytest.mark.asyncio
async def test_asyncio_stdio(stdio_session):
    s = await stdio_session(LEAKY)
    assert [(await s.call("inc")).text for _ in range(3)] == ["1", "2", "3"]

@pytest.mark.asyncio
async def test_asyncio_server(statehold_client, statehold_session):
    assert [(await statehold_session.call("inc")).text for _ in range(2)] == ["1", "2"]

def test_that_fails(stdio_session):
    seen["pid"] = stdio_session(LEAKY).call("inc").structured_content["pid"]
    assert False, "as it should"

def test_its_server_is_gone():
    with pytest.raises(ProcessLookupError):
        os.kill(seen["pid"], 0)

def test_that_leaves_a_process(stdio_session):
    stdio_session(LEAKY).call("spawn")

@pytest.mark.asyncio
async def test_that_leaves_a_process_async(stdio_session):
    await (await stdio_session(LEAKY)).call("spawn")

def test_that_opens_files(stdio_session):
    s = stdio_session(LEAKY, fds=2)
    for _ in range(3):
        s.call("open")
"""


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    # These settings of the outer run are not meant for the inner one.
    for name in ("PYTEST_ADDOPTS", "CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    return pytester.path


@pytest.mark.timeout(600)  # a dozen servers and clients, one after the other
@pytest.mark.parametrize(
    ("chosen", "passed", "processes"),
    matrix(
        (
            "TestBlocking or anyio_stdio or fails or gone or opens or leaves_a_process and not async",
            *(7, ["test_that_leaves_a_process "]),
        ),
        ("test", *(11, ["test_that_leaves_a_process ", "test_that_leaves_a_process_async"])),
    ),
    ids=["some", "all"],
)
def test_each_kind_of_test_gets_its_client_and_leaks_are_errors(
    pytester: pytest.Pytester, folder: Path, chosen: str, passed: int, processes: list[str]
) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    (folder / "leaky.py").write_text(LEAKY)
    (folder / "test_inside.py").write_text(TESTS)
    ran = pytester.runpytest_inprocess(
        *OPTIONS, "-k", chosen, "--strict-markers", "-W", "error", "-rA"
    )
    errors = len(processes) + 1
    ran.assert_outcomes(passed=passed, failed=1, errors=errors, deselected=11 - passed)
    assert ran.stdout.str().count("the server left behind:\n  process ") == len(processes)
    ran.stdout.fnmatch_lines(
        ["*3 open descriptors more than at its start, where 2 are allowed: 3 x */leaky.py"]
    )
    ran.stdout.fnmatch_lines_random(
        [f"ERROR test_inside.py::{name}*" for name in (*processes, "test_that_opens_files")]
    )


@pytest.mark.thorough
def test_a_run_that_does_not_use_it_imports_nothing_for_it(
    pytester: pytest.Pytester, folder: Path
) -> None:
    pytester.makepyfile(
        """
        import sys

        HEAVY = {"mcp", "mcp_types", "pydantic", "starlette", "uvicorn", "sqlalchemy", "playwright", "httpx2"}

        def test_nothing_is_there(request):
            assert request.config.pluginmanager.hasplugin("statehold")
            assert not HEAVY & set(sys.modules)
            parts = {name.split(".")[1] for name in sys.modules if name.startswith("statehold.")}
            assert not parts & {"server", "access", "console", "shell"}
            ours = {name for name in sys.modules if name.startswith("statehold.tools")}
            assert ours <= {"statehold.tools", "statehold.tools.own", "statehold.tools.own.results"}

        async def test_of_no_plugin(stdio_session): ...
        """
    )
    ran = pytester.runpytest_subprocess(*OPTIONS, "-p", "no:asyncio")
    ran.assert_outcomes(passed=1, errors=1)
    ran.stdout.fnmatch_lines(["stdio_session needs anyio's pytest plugin*"])


@pytest.mark.thorough
def test_another_backend_than_asyncio_is_an_error_of_one_line(
    pytester: pytest.Pytester, folder: Path
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.fixture
        def anyio_backend_name():
            return "trio"

        @pytest.mark.anyio
        async def test_of_trio(stdio_session): ...
        """
    )
    ran = pytester.runpytest_subprocess(*OPTIONS, "-p", "no:asyncio")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["stdio_session needs asyncio: *anyio_backend*"])
    ran.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_an_error_of_a_call_is_shown_at_the_line_of_the_test(
    pytester: pytest.Pytester, folder: Path
) -> None:
    (folder / "leaky.py").write_text(LEAKY)
    pytester.makepyfile(
        """
        import sys

        def test_of_no_tool(stdio_session):
            s = stdio_session([sys.executable, "leaky.py"])
            s.call("nosuch")
        """
    )
    ran = pytester.runpytest_inprocess(*OPTIONS, "-p", "no:asyncio")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines([">*s.call(?nosuch?)", "E *UnknownTool: There is no tool 'nosuch'.*"])
    assert len(ran.outlines) < 20
