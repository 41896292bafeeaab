"""`statehold sessions test`: tests of recorded flows, and runs of these tests on a site that works and on broken ones."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from flow_site import PASSWORD, PIN, FlowSite
from support.gateway_process import Running, service, serving, toml
from support.recorded_flows import EMAIL, FLOWS, Agent, Flow

from statehold.client import connect
from statehold.shell.main import main

ROOT = Path(__file__).resolve().parents[3]
PASSES = int(os.environ.get("RECORDING_PASSES", "2"))
SECONDS = 20.0
"""Seconds that a page may take on a busy machine."""
PAGE = (ROOT / "docs" / "use" / "testing.md").read_text(encoding="utf-8")
SHOP = "http://shop.test"
WITHOUT = ("langsmith_plugin", "hypothesispytest", "asyncio", "cacheprovider", "timeout")

CONFTEST = """
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from statehold.client.integrations import assertions

FOLDER = Path(__file__).parent
SETTINGS = json.loads((FOLDER / "settings.json").read_text())
outcomes = []

assertions.PAGE_SECONDS = SETTINGS["seconds"]

if SETTINGS["url"]:
    @pytest.fixture(scope="session")
    def statehold_server():
        return SimpleNamespace(url=SETTINGS["url"])

@pytest.fixture(scope="session")
def statehold_config():
    return SETTINGS["config"]

@pytest.fixture
def anyio_backend():
    return "asyncio"

def pytest_generate_tests(metafunc):
    if SETTINGS["passes"]:
        metafunc.fixturenames.append("number")
        metafunc.parametrize("number", range(SETTINGS["passes"]))

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" or not report.passed:
        frames = [] if call.excinfo is None else call.excinfo.traceback
        lines = [frame.lineno + 1 for frame in frames if Path(frame.path) == item.path]
        text = str(report.longrepr or "")[:6000]
        outcomes.append([item.path.stem, report.outcome, lines[-1] if lines else 0, text])
    return report

def pytest_sessionfinish():
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    (FOLDER / f"outcomes-{worker}.json").write_text(json.dumps(outcomes))
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run of a test."""

    outcome: str
    line: int
    """The line of the test that failed."""
    text: str


class Recordings:
    """A site, a server with a browser, a shell and a database, and the tests of the flows that are recorded."""

    def __init__(self, folder: Path, site: FlowSite, running: Running, config: Path) -> None:
        self.folder = folder
        self.site = site
        self.running = running
        self.config = config
        self.messages = ""
        """The lines on stderr of the commands that wrote tests."""
        self._sources: dict[str, str] = {}

    def sources(self, flows: Iterable[Flow]) -> dict[str, str]:
        """Return the source of the test of each flow, which is recorded when it is first asked for."""
        flows = list(flows)
        new = [flow for flow in flows if flow.name not in self._sources]
        anyio.run(self._take, new)
        for flow in new:
            file = self.folder / f"recorded_{flow.name}.py"
            parameters = {"site": self.site.url(), "email": EMAIL}
            words = [f"--param={name}={parameters[name]}" for name in flow.parameters]
            self.command("test", flow.name, *words, "-o", str(file))
            self._sources[flow.name] = file.read_text(encoding="utf-8")
        return {flow.name: self._sources[flow.name] for flow in flows}

    async def _take(self, flows: Iterable[Flow]) -> None:
        async with connect(self.running.url) as client:
            for flow in flows:
                async with client.session(flow.name, keep=True) as session:
                    with anyio.fail_after(60):
                        await flow.run(Agent(session, self.site.url(), self.site.database().name))
                        # The server answers once the journal is written.
                        await session.history(1)

    def command(self, *words: str) -> str:
        """Run `statehold sessions` and return its output."""
        out, err = io.StringIO(), io.StringIO()
        options = ["--config", str(self.config), "--data", str(self.running.data)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["sessions", *words, *options])
        self.messages += err.getvalue()
        assert code == 0, err.getvalue()
        return out.getvalue()

    def broken(self, source: str, mutation: str) -> str:
        """Return a test of the site with a mutation."""
        source = source.replace(self.site.url(), self.site.url(mutation))
        stem, other = self.site.database().stem, self.site.database(mutation).stem
        return source.replace(f"{stem}.", f"{other}.")

    def run(
        self,
        name: str,
        sources: Mapping[str, str],
        *,
        passes: int = 0,
        seconds: float = SECONDS,
        workers: int = 1,
        environment: Mapping[str, str],
    ) -> dict[str, list[Outcome]]:
        """Run tests in one run of pytest and return the outcomes of each.

        The workers use the server of the recording; without one, the fixture starts a server.
        """
        folder = self.folder / name
        folder.mkdir()
        url = self.running.url if workers else ""
        settings = {"config": str(self.config), "url": url, "passes": passes, "seconds": seconds}
        (folder / "settings.json").write_text(json.dumps(settings))
        (folder / "conftest.py").write_text(CONFTEST)
        for test, source in sources.items():
            (folder / f"test_{test}.py").write_text(source, encoding="utf-8")
        options = [f"-pno:{each}" for each in (*WITHOUT, *(() if workers > 1 else ("xdist",)))]
        options += ["-n", str(workers), "--dist=worksteal"] if workers > 1 else []
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TEST_"))}
        command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder)]
        done = subprocess.run(
            [*command, "--import-mode=importlib", *options, str(folder)],
            cwd=folder,
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        outcomes: dict[str, list[Outcome]] = {}
        for file in folder.glob("outcomes-*.json"):
            for test, *outcome in json.loads(file.read_text()):
                outcomes.setdefault(test.removeprefix("test_"), []).append(Outcome(*outcome))
        assert outcomes.keys() == sources.keys(), done.stdout + done.stderr
        return outcomes


@pytest.fixture(scope="module")
def recordings(
    headless_shell: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Recordings]:
    folder = tmp_path_factory.mktemp("recordings")
    secrets = folder / "secrets.env"
    secrets.write_text(f"DOOR_PIN={PIN}\n")
    services = {
        # A busy machine takes long for a click.
        "browser": {
            "executable": headless_shell,
            "secrets": str(secrets),
            "action_seconds": SECONDS,
        },
        "shell": service("shell", cwd=str(folder)),
        "database": service("database", cwd=str(folder)),
    }
    config = folder / "statehold.toml"
    config.write_text(toml({"services": services}))
    mutations = [mutation for flow in FLOWS for mutation in flow.mutations]
    with FlowSite(folder, mutations) as site, serving(config, folder / "data") as running:
        yield Recordings(folder, site, running, config)
        assert running.stop() == 0


LOGIN = {"TEST_PASSWORD": PASSWORD}


def check_failures(
    flows: Iterable[Flow], outcomes: Mapping[str, list[Outcome]], sources: Mapping[str, str]
) -> None:
    """Check that the test of each mutation failed, in the statement about it."""
    problems: list[str] = []
    expected = {mutation: line for flow in flows for mutation, line in flow.mutations.items()}
    for mutation, pattern in expected.items():
        for outcome in outcomes.get(mutation, ()):
            statement = statement_at(sources[mutation], outcome.line) if outcome.line else ""
            if outcome.outcome != "failed" or not re.search(pattern, statement):
                problems.append(f"{mutation}: {outcome.outcome} at {statement!r}\n{outcome.text}")
    assert not problems, "\n\n".join(problems)


def statement_at(source: str, line: int) -> str:
    """Return the statement that has a line."""
    statements = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    innermost = max(statements, key=lambda node: node.lineno)
    return ast.get_source_segment(source, innermost) or ""


def check_passes(outcomes: Mapping[str, list[Outcome]], tests: Iterable[str], passes: int) -> None:
    """Check that each test passed each time."""
    for test in tests:
        problems = [
            f"{test}: {each.outcome} at line {each.line}\n{each.text}"
            for each in outcomes[test]
            if each.outcome != "passed"
        ]
        assert not problems, "\n\n".join(problems)
        assert len(outcomes[test]) == passes


def check_style(folder: Path, sources: Mapping[str, str], *programs: str) -> None:
    """Check tests as `ruff check`, `ruff format --check` and `pyright` do, with the options of this project."""
    folder.mkdir()
    for test, source in sources.items():
        (folder / f"test_{test}.py").write_text(source, encoding="utf-8")
    paths = {"venvPath": str(ROOT), "venv": ".venv", "extraPaths": [str(ROOT / ".namespace")]}
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", **paths}))
    ruff = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    commands = {
        # Only our own code imports `statehold` relatively.
        "check": ["ruff", "check", *ruff, "--ignore=TID251", str(folder)],
        "format": ["ruff", "format", "--check", *ruff, str(folder)],
        "pyright": ["pyright", "--project", str(folder)],
    }
    for name in programs:
        program, *arguments = commands[name]
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def documented(source: str, url: str) -> str:
    """Return a test as the documentation shows it, with an address, a day and a session of its own."""
    source = re.sub(r"recorded on [\d-]+", "recorded on 2026-11-28", source.replace(url, SHOP))
    return f"```python recorded\n{re.sub(r'sh_[a-z0-9]+', 'sh_2w6y', source)}```\n"


@pytest.mark.thorough
def test_no_secret_is_in_a_test_that_needs_some(recordings: Recordings) -> None:
    flows = [flow for flow in FLOWS if flow.name in ("login", "pin")]
    sources = recordings.sources(flows)
    outcomes = recordings.run("secrets", sources, environment={})
    [skipped], [passed] = outcomes["login"], outcomes["pin"]
    assert (skipped.outcome, passed.outcome) == ("skipped", "passed")
    assert "set TEST_PASSWORD" in skipped.text
    assert "needs the environment variable TEST_PASSWORD" in recordings.messages
    assert "    TEST_PASSWORD (entry " in sources["login"]
    assert 'text="%DOOR_PIN%"' in sources["pin"]
    assert "The server has to know these secrets: DOOR_PIN." in sources["pin"]
    for text in (*sources.values(), recordings.messages):
        assert PASSWORD not in text
        assert PIN not in text


@pytest.mark.thorough
@pytest.mark.timeout(590)
def test_twelve_tests_pass_again_and_again_and_find_each_mutation(recordings: Recordings) -> None:
    """Half of the passes begin shortly before midnight, by the clock of the pages."""
    sources = recordings.sources(FLOWS)
    assert len(sources) == 12
    assert not any(secret in source for secret in (PASSWORD, PIN) for source in sources.values())
    assert documented(sources["shop"], recordings.site.url()) in PAGE
    check_style(recordings.folder / "all", sources, "check", "format", "pyright")
    outcomes = recordings.run("passes", sources, passes=PASSES, workers=2, environment=LOGIN)
    check_passes(outcomes, sources, PASSES)
    broken = {
        mutation: recordings.broken(sources[flow.name], mutation)
        for flow in FLOWS
        for mutation in flow.mutations
    }
    assert len(broken) >= 30
    # Most of these wait for the end of the seconds.
    outcomes = recordings.run("broken", broken, seconds=2, workers=4, environment=LOGIN)
    check_failures(FLOWS, outcomes, broken)
