"""The pytest plugin: fixtures for tests of MCP servers and of programs that use Statehold. pytest loads it by itself.

    def test_the_count_is_kept(stdio_session):
        s = stdio_session([sys.executable, "server.py"])
        assert [s.call("count").text for _ in range(2)] == ["1", "2"]

A test gets the client of its own kind: the blocking one, or in an `async def` test, under anyio's plugin or pytest-asyncio,
the async one. Nothing is imported before a fixture is used.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .testing import ServerProcess

MARK = "statehold(**options): options of client.session() for the fixture statehold_session"
NO_PLUGIN = "needs anyio's pytest plugin (mark the test with `pytest.mark.anyio`) or pytest-asyncio in an `async def` test"

NO_ASYNCIO = 'needs asyncio: let the fixture `anyio_backend` return "asyncio"'

FIXTURES: Final = {"stdio_session", "statehold_server", "statehold_client", "statehold_session"}
FOLDER: Final = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)
    fixtures: dict[str, Any] = {
        _name(f, "anyio"): pytest.fixture(f, name=_name(f, "anyio")) for f in _ASYNC
    }
    if config.pluginmanager.hasplugin("asyncio"):
        # In strict mode pytest-asyncio runs only fixtures that its own decorator made.
        fixture: Callable[..., Any] = getattr(__import__("pytest_asyncio"), "fixture")  # noqa: B009 it may be missing
        fixtures |= {_name(f, "asyncio"): fixture(f, name=_name(f, "asyncio")) for f in _ASYNC}
    plugin = ModuleType("statehold-async")
    vars(plugin).update(fixtures)
    config.pluginmanager.register(plugin, plugin.__name__)


def _name(function: Callable[..., Any], kind: str) -> str:
    return f"{function.__name__}_{kind}"


def _is_async(request: pytest.FixtureRequest) -> bool:
    test: Any = getattr(request.node, "obj", None)
    test = getattr(getattr(test, "hypothesis", None), "inner_test", test)
    return inspect.iscoroutinefunction(test)


def _async_fixture_value(request: pytest.FixtureRequest, name: str) -> Any:
    """Return what the async fixture of this name yields, from the plugin that runs the test."""
    if "anyio_backend" in request.fixturenames:
        if request.getfixturevalue("anyio_backend_name") != "asyncio":
            pytest.fail(f"{request.fixturename} {NO_ASYNCIO}", pytrace=False)
        return request.getfixturevalue(f"{name}_anyio")
    if not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail(f"{request.fixturename} {NO_PLUGIN}", pytrace=False)
    return request.getfixturevalue(f"{name}_asyncio")


def _report(whose: str, problems: list[str]) -> None:
    if problems:
        pytest.fail(f"{whose} left behind:\n  " + "\n  ".join(problems), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Cut the traceback of a Statehold error at the line of the test, unless a full traceback or a debugger is requested."""
    errors = sys.modules.get("statehold.sessions.errors")
    failure, fixtures = call.excinfo, getattr(item, "fixturenames", ())
    if errors is None or failure is None or call.when != "call" or FIXTURES.isdisjoint(fixtures):
        return
    wants_full = item.config.getoption("fulltrace") or item.config.getoption("usepdb", False)
    if isinstance(failure.value, errors.SessionError) and not wants_full:
        _cut_at_client(failure.tb)


def _cut_at_client(frame: TracebackType) -> None:
    while frame.tb_next is not None:
        if FOLDER in Path(frame.tb_next.tb_frame.f_code.co_filename).parents:
            frame.tb_next = None
            return
        frame = frame.tb_next


@pytest.fixture(scope="session")
def statehold_config() -> Any:
    """Override it to give statehold_server a configuration: the path of a TOML file."""
    return None


@pytest.fixture(scope="session")
def statehold_services() -> Any:
    """Override it to give statehold_server services: an `mcpServers` table, or the path of a client's file of them.

    Without services and configuration it serves the built-in browser.
    """
    return {}


@pytest.fixture(scope="session")
def statehold_server(
    statehold_config: Any,
    statehold_services: Any,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Generator[ServerProcess]:
    """A `statehold serve` for the whole run, on a free port and in a temporary folder. Has `url`, `pid`, `data`, `log`."""
    from .testing import ServerProcess, options_of

    folder: Path = tmp_path_factory.mktemp("statehold")
    options = options_of(statehold_config, statehold_services, folder, pytestconfig.rootpath)
    server = ServerProcess(folder, *options)
    try:
        yield server
    finally:
        problems = server.stop()
    _report("statehold serve", problems)


@pytest.fixture
def statehold_client(
    request: pytest.FixtureRequest, statehold_server: ServerProcess
) -> Generator[Any]:
    """A connection to statehold_server: a Client of statehold.client.sync, in an async test one of statehold.client."""
    if _is_async(request):
        yield _async_fixture_value(request, "_statehold_client")
        return
    from ..sync import connect

    with connect(statehold_server.url) as client:
        yield client


async def _statehold_client(statehold_server: ServerProcess) -> AsyncGenerator[Any]:
    from ..connect import connect

    async with connect(statehold_server.url) as client:
        yield client


@pytest.fixture
def statehold_session(request: pytest.FixtureRequest, statehold_client: Any) -> Generator[Any]:
    """A new session of statehold_client, closed after the test, of the same kind as the client.

    `@pytest.mark.statehold(services=["shop"], state={"step": 1})` gives it the options of client.session().
    """
    if _is_async(request):
        yield _async_fixture_value(request, "_statehold_session")
        return
    with statehold_client.session(**_options(request)) as session:
        yield session


async def _statehold_session(
    request: pytest.FixtureRequest, statehold_client: Any
) -> AsyncGenerator[Any]:
    async with statehold_client.session(**_options(request)) as session:
        yield session


def _options(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    options: dict[str, Any] = {"metadata": {"test": request.node.nodeid}, "keep": False}
    for mark in reversed(list(request.node.iter_markers("statehold"))):
        options |= mark.kwargs
    return options


@pytest.fixture
def stdio_session(request: pytest.FixtureRequest) -> Generator[Any]:
    """`stdio_session(command)` is one session of any MCP server on stdio; in an async test `await` it.

    The server is one process until the test ends. Then it is closed, and processes that it leaves running, and descriptors
    that it opened and kept (more than `fds`), are an error of the test.
    """
    if _is_async(request):
        yield _async_fixture_value(request, "_stdio_session")
        return
    from .testing import BlockingStdioSessions

    sessions = BlockingStdioSessions()
    try:
        yield sessions
    finally:
        problems = sessions.close()
    _report("the server", problems)


async def _stdio_session() -> AsyncGenerator[Any]:
    from .testing import StdioSessions

    sessions = StdioSessions()
    try:
        yield sessions
    finally:
        problems = await sessions.aclose()
    _report("the server", problems)


_ASYNC = (_statehold_client, _statehold_session, _stdio_session)
