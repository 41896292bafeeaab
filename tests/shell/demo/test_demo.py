"""`statehold demo` as a user starts it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator
from pathlib import Path

import anyio
import psutil
import pytest
from support.console_client import console_client
from support.fork_server import ForkServer
from support.gateway_process import JSON, STATEHOLD
from support.selection import matrix

from statehold.shell.demo.process import CONFIG
from statehold.shell.demo.server import VERSIONS

ROOT = Path(__file__).resolve().parents[3]
DEMO = [*STATEHOLD, "demo"]
WITHOUT_BROWSER = (
    "from statehold.shell.demo import process; from statehold.shell.main import main; "
    "process._has_browser = lambda: False; raise SystemExit(main(['demo']))"
)


@pytest.fixture
def folder() -> Generator[Path]:
    """The temporary folder of the demo. A socket must fit below it, and pytest's own folder is too deep."""
    with tempfile.TemporaryDirectory(prefix="demo-") as path:
        yield Path(path)


@pytest.fixture
def environ(folder: Path) -> dict[str, str]:
    """An environment of its own, with a setting that the demo must not take over."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")}
    return {**variables, "TMPDIR": str(folder), "STATEHOLD_TIMEOUTS__IDLE": "nonsense"}


def left(folder: Path) -> list[str]:
    """Return the files in this folder and the processes of a demo that uses it."""
    remains = [str(path) for path in folder.iterdir()]
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                remains.append(" ".join(process.cmdline()))
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return remains


@pytest.mark.fault
@pytest.mark.parametrize("how", matrix("without a browser", "as installed"))
def test_the_demo_keeps_its_promises_and_leaves_nothing(
    environ: dict[str, str],
    folder: Path,
    fork_server: ForkServer,
    forked_servers: str,
    how: str,
) -> None:
    command, login = DEMO, 'ada browser_type("open sesame") Logged in as ada $ kill -9'
    if how == "without a browser":
        command, login = fork_server.command("-c", WITHOUT_BROWSER), "The login is left out"
        environ["PYTHONPATH"] = forked_servers
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    shown = " ".join(done.stdout.split())
    steps = re.findall(r"^(\d)\. ", done.stdout, re.MULTILINE)
    assert steps == ["1", "2", "3", "4", "5", "6"]
    counts = re.findall(r"^ {3}(ada|bob) +count\(\) +count = (\d)$", done.stdout, re.MULTILINE)
    assert counts[:5] == [("ada", "1"), ("ada", "2"), ("bob", "1"), ("ada", "3"), ("ada", "4")]
    for sentence in (
        login,
        'ada shell(line="echo $animal") output = "otter"',
        "The browser, the notebook and its shell ran on without Statehold.",
        "outcome_unknown: The connection to notebook was lost during the call",
        'ada read_notes() notes = ["ada was here"]',
        "generation 1 to 2; it was paused). Restored: the notes. Lost: the counter.",
        "exit code 0, no process left",
    ):
        assert sentence in shown, done.stdout
    # Whether its notes were saved after the last count is a matter of time.
    why, lost = (
        "to 2; the process was killed by SIGKILL",
        r"Lost: (what was done after it was last saved, )?the counter\.",
    )
    assert re.search(re.escape(f"{why}). Restored: the notes. ") + lost, shown), done.stdout
    assert "to 3;" not in shown, done.stdout
    assert "/console" not in shown, "a link whose server is gone"
    assert "\x1b" not in done.stdout
    assert left(folder) == []


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["Enter", "Ctrl-C"])
def test_the_demo_ends_in_a_terminal_at_a_console_that_answers(
    environ: dict[str, str], folder: Path, end: str
) -> None:
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        DEMO, stdin=terminal, stdout=terminal, stderr=terminal, env=environ, start_new_session=True
    ) as process:
        os.close(terminal)
        try:
            # Enter during the tour does not end it.
            os.write(controller, b"\n")
            shown = read_until(controller, "Ctrl-C ends the demo")
            address = r"(http://127\.0\.0\.1:\d+)/console#code=([\w-]{20,})&at=s/(sh_\w+)"
            [(server, code, session)] = re.findall(address, shown)
            assert anyio.run(take_over, server, code, session) == "ada"
            if end == "Enter":
                os.write(controller, b"\n")
            else:
                process.send_signal(signal.SIGINT)
            rest = read_until(controller, None)
            assert process.wait(30) == 0, rest
        finally:
            process.terminate()
            os.close(controller)
    assert ("no process left" in rest) == (end == "Enter")
    assert left(folder) == []


async def take_over(server: str, code: str, session: str) -> str:
    """Take control of a session at the console, and return its name."""
    async with console_client(server) as person:
        await person.log_in(code=code)
        await person.act(session, "take")
        return (await person.get(f"/sessions/{session}"))["name"]


def read_until(terminal: int, wanted: str | None) -> str:
    """Return what a terminal shows until a text is in it, or until its program ends."""
    shown = ""
    while wanted is None or wanted not in shown:
        assert select.select([terminal], [], [], 60)[0], shown
        try:
            part = os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # Linux reports the end of the other side so
            part = ""
        if not part:
            assert wanted is None, shown
            break
        shown += part
    return shown


def lines_until(process: subprocess.Popen[str], wanted: str) -> Generator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line
        if wanted in line:
            return
    raise AssertionError(f"the demo ended without {wanted!r}")


@pytest.mark.thorough
@pytest.mark.fault
def test_an_interrupted_demo_leaves_nothing(environ: dict[str, str], folder: Path) -> None:
    environ["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(
        DEMO, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        list(lines_until(process, "count = 1"))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "\ninterrupted; cleaning up\n"
    assert left(folder) == []


@pytest.mark.thorough
def test_a_step_that_fails_is_named(environ: dict[str, str], folder: Path) -> None:
    """A module that every Python loads keeps Statehold from starting."""
    broken = folder / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import os, sys\nif 'serve' in sys.orig_argv: os.write(2, b'no Statehold today'), os._exit(9)\n"
    )
    done = subprocess.run(
        DEMO,
        env={**environ, "PYTHONPATH": str(broken)},
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 1
    head, *log = done.stderr.splitlines()
    assert head.startswith("statehold: demo: step 1 (Start Statehold) failed: ")
    assert "no Statehold today" in "\n".join(log)
    assert "Traceback" not in done.stderr
    assert left(folder) == [str(broken)]


def test_the_example_configuration_is_that_of_the_demo() -> None:
    example = tomllib.loads((ROOT / "examples" / "notebook.toml").read_text())
    assert example["services"]["notebook"]["command"] == "{python}"
    example["services"]["notebook"]["command"] = sys.executable
    assert example == tomllib.loads(CONFIG.format(python=json.dumps(sys.executable)))


def test_the_notebook_refuses_unknown_requests() -> None:
    requests: list[JSON] = [
        {"method": "initialize", "params": {"protocolVersion": "1999-01-01"}},
        {"method": "ping"},
        {"method": "resources/list"},
        {"method": "tools/call", "params": {"name": "nonsense"}},
        {"method": "tools/call", "params": {"name": "write_note", "arguments": {}}},
        {"method": "tools/call", "params": {"name": "think", "arguments": {"seconds": 0}}},
    ]
    lines = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, **message}) + "\n"
        for number, message in enumerate(requests)
    )
    with subprocess.Popen(
        [sys.executable, "-m", "statehold.shell.demo.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 10)[0]
        answers = {
            answer["id"]: answer
            for answer in (json.loads(process.stdout.readline()) for _ in range(len(requests)))
        }
        process.stdin.close()
        assert process.wait(10) == 0
    assert answers[0]["result"]["protocolVersion"] == VERSIONS[0]
    assert answers[1]["result"] == {}
    assert [answers[n]["error"]["code"] for n in (2, 3)] == [-32601, -32602]
    assert answers[4]["result"]["isError"]
    assert answers[5]["result"]["structuredContent"]["thought"] == "42"


def test_the_demo_server_survives_wrong_arguments() -> None:
    calls: list[JSON] = [
        {"name": "think", "arguments": {"seconds": "long"}},
        {"name": "think", "arguments": {"seconds": None}},
        {"name": "think", "arguments": {"seconds": 10**400}},
        {"name": "set_notes", "arguments": {"notes": 5}},
        {"name": "write_note", "arguments": [1]},
    ]
    lines = [b"no JSON", b"[1]"]
    lines += [
        json.dumps({"id": number, "method": "tools/call", "params": params}).encode()
        for number, params in enumerate(calls)
    ]
    lines.append(b'{"id": "last", "method": "ping", "params": []}')
    done = subprocess.run(
        [sys.executable, "-m", "statehold.shell.demo.server"],
        input=b"\n".join([*lines, b""]),
        capture_output=True,
        timeout=30,
        check=True,
    )
    *answers, last = [json.loads(line) for line in done.stdout.splitlines()]
    texts = [answer["result"]["content"][0]["text"] for answer in answers]
    assert all(answer["result"]["isError"] for answer in answers)
    assert texts[0] == texts[1] == texts[2] == "seconds should be a number."
    assert texts[3:] == ["notes should be a list of texts.", "text is missing."]
    assert last["result"] == {}
