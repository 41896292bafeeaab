"""The `statehold` command, in this process and as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import front
import pytest
from nursery import Born, Nursery

from statehold.server.cli.commands import parse_command_line as parse
from statehold.server.cli.exit_codes import BUSY, FAILURE, NOT_FOUND, OK, USAGE
from statehold.server.cli.main import main
from statehold.server.cli.output import ago, pairs, plain, span, table, until
from statehold.sessions.core import Core
from statehold.sessions.node import Node
from statehold.sessions.records import Principal
from statehold.sessions.registry import Registry
from statehold.sessions.store import SQLStore
from statehold.sessions.transitions.create import SessionOptions

HOLDER = Path(__file__).parent / "holder.py"


@dataclass
class Told:
    """The output of one run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Told]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def statehold(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run the command in this process, on a data folder of the test's own."""
    for variable in [name for name in os.environ if name.startswith("STATEHOLD_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("STATEHOLD_DATA", str(data))

    def run(*words: str) -> Told:
        capsys.readouterr()
        code = main(words)
        told = capsys.readouterr()
        return Told(code, told.out, told.err)

    return run


@dataclass
class Held:
    """A running process that holds sessions."""

    process: Born
    node: str
    sessions: dict[str, str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@contextmanager
def holding(data: Path, *names: str) -> Generator[Held]:
    assert Nursery.current is not None
    process = Nursery.current.start(str(HOLDER), str(data), *names, piped=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            found = json.loads(process.stdout.readline())
            yield Held(process, found["node"], found["sessions"])
            process.stdin.close()
            process.wait(20)
        finally:
            process.kill()
            process.wait(10)


def left_behind(data: Path, *names: str) -> dict[str, str]:
    """Make sessions that no process holds: the one that made them was killed."""
    with holding(data, *names) as held:
        held.kill()
    return held.sessions


def paused(data: Path, *names: str) -> dict[str, str]:
    """Make sessions that no process holds: the one that made them has ended in order."""

    async def make() -> dict[str, str]:
        async with (
            SQLStore.sqlite(data) as store,
            Node.start(store, data, address="", clock=time.time) as node,
            Registry(Core.create(store, node, {})) as registry,
        ):
            made: dict[str, str] = {}
            for name in names:
                owner, _, short = name.rpartition("/")
                principal = Principal(subject=owner or "local")
                made[short] = (await registry.create(principal, SessionOptions(name=short))).id
            return made

    return anyio.run(make)


def one_line(told: Told) -> str:
    assert told.err.count("\n") == 1
    assert told.err.startswith("statehold: ")
    return told.err


# The command itself.


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["sessions", "close", "--help"]])
def test_version_and_help_import_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys; from statehold.server.cli.main import main; code = main(sys.argv[1:]);"
        "heavy = {'mcp', 'sqlalchemy', 'uvicorn', 'starlette', 'pydantic', 'anyio', 'httpx2'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "statehold" in told.stdout


def test_module_is_the_command() -> None:
    told = subprocess.run(
        [*front.STATEHOLD, "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("statehold 0.")


def test_flags_count_before_and_after_the_command() -> None:
    before = parse(["--data", "d", "--session", "s", "--ephemeral", "sessions", "show", "x"])
    after = parse(["sessions", "show", "x", "--data", "d", "--session", "s", "--ephemeral"])
    assert before == after
    assert (before.data, before.session, before.wanted) == ("d", "s", "x")
    assert parse(["--port", "1", "serve", "--port", "2"]).port == "2"
    assert not hasattr(parse(["serve"]), "port")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--prot", "1"], "there is no option --prot, did you mean --port?; see statehold --help"),
        (["--bogus"], "there is no option --bogus; see statehold --help"),
        (["serve", "--verbose"], "there is no option --verbose"),
        (["seve"], "there is no 'seve', did you mean serve?"),
        (["sessions"], "required: ACTION; see statehold sessions --help"),
        (["sessions", "lst"], "there is no 'lst', did you mean list?"),
        (["sessions", "list", "--status", "idel"], "there is no 'idel', did you mean idle?"),
        (["sessions", "list", "--force"], "there is no --force here"),
        (["sessions", "list", "extra"], "there is no extra here"),
        (["sessions", "list", "--limit", "0"], "should be a number from 1 on, found '0'"),
        (["sessions", "show"], "required: SESSION"),
        (["sessions", "purge"], "purge needs either sessions or --closed"),
        (["sessions", "purge", "x", "--closed"], "purge needs either sessions or --closed"),
        (["sessions", "list", "--ephemeral"], "nothing is kept"),
        (["serve", "--port", "99999"], "--port: should be less than or equal to 65535"),
        (["serve", "--host", "0.0.0.0"], "--host: listening on 0.0.0.0 without authentication"),
        (["--config", "/none.toml"], "/none.toml: there is no such file; correct --config"),
        (
            ["--session", "a", "--auto-session"],
            "a pinned session and auto_session exclude each other",
        ),
        (["services", "check", "none"], "none: is not an enabled service"),
    ],
)
def test_mistake_is_one_line_and_exit_code_2(statehold: Run, words: list[str], found: str) -> None:
    """The message names the missing file and the option that named it (SC-36)."""
    told = statehold(*words)
    assert told.code == USAGE
    assert found in told.err.splitlines()[-1]
    assert told.out == ""


def test_mistake_of_a_real_process_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[timeouts]\nidel = 3\n")
    told = subprocess.run(
        [*front.STATEHOLD, "serve", "--config", "c.toml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert told.returncode == USAGE
    assert told.stderr == (
        "statehold: c.toml: timeouts.idel: is not a setting; did you mean timeouts.idle?\n"
    )


def test_reader_that_has_seen_enough_is_no_error(data: Path) -> None:
    with subprocess.Popen(
        [*front.statehold(), "sessions", "list", "--data", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == OK


def test_serve_listens_and_stops_on_sigterm(data: Path) -> None:
    with subprocess.Popen(
        [*front.STATEHOLD, "serve", "--port", "0", "--data", str(data)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        try:
            line = next(line for line in process.stderr if "listens on http://127.0.0.1:" in line)
            port = int(line.split("127.0.0.1:")[1].split("/")[0])
            with socket.create_connection(("127.0.0.1", port), 10) as client:
                client.sendall(
                    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                )
                assert client.recv(100).startswith(b"HTTP/1.1 ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == OK
            assert process.stdout.read() == ""
        finally:
            process.kill()


def test_stdio_ends_with_its_client_and_writes_nothing_else(data: Path) -> None:
    told = subprocess.run(
        [*front.statehold(), "--data", str(data)],
        input="",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert told.returncode == OK
    assert told.stdout == ""


# Seeing sessions.


def test_folder_without_sessions_is_not_made_by_looking(statehold: Run, data: Path) -> None:
    assert statehold("sessions", "list").out == f"no sessions in {data}\n"
    assert statehold("sessions", "list", "--json").json == {"sessions": [], "more": False}
    assert statehold("sessions", "show", "x").code == NOT_FOUND
    assert statehold("sessions", "close", "x").code == NOT_FOUND
    assert statehold("sessions", "purge", "--closed").code == OK
    assert not data.exists()


def test_list_shows_what_the_holder_knows(statehold: Run, data: Path) -> None:
    with holding(data, "work", "busy", "bob/other") as held:
        told = statehold("sessions", "list")
        assert told.code == OK
        head, *rows = told.out.splitlines()
        assert head.split() == ["ID", "NAME", "STATUS", "USED", "ENDS", "OPEN", "IN", "OWNER"]
        shown = {row.split()[1]: row for row in rows}
        assert held.sessions["work"] in shown["work"]
        assert "idle for" in shown["work"]
        assert "active for" in shown["busy"]
        assert shown["other"].endswith("bob")
        assert f"holder, pid {held.process.pid}" in shown["work"]

        listed = statehold("sessions", "list", "--json").json["sessions"]
        assert {s["name"]: s["status"] for s in listed} == {
            "work": "idle",
            "busy": "active",
            "other": "idle",
        }
        only = statehold("sessions", "list", "--status", "active", "--json").json["sessions"]
        assert [s["name"] for s in only] == ["busy"]
        bob = statehold("sessions", "list", "--owner", "bob", "--json").json["sessions"]
        assert [s["owner"] for s in bob] == ["bob"]


def test_a_session_is_idle_since_it_was_last_used(statehold: Run, data: Path) -> None:
    with holding(data, "work"):
        with closing(sqlite3.connect(data / "statehold.db")) as db, db:
            db.execute("UPDATE session SET status_at = status_at - 7200")
        for told in (statehold("sessions", "list"), statehold("sessions", "show", "work")):
            assert "idle for" in told.out
            assert "idle for 2 h" not in told.out


def test_list_and_show_ask_the_process_that_holds_a_session(statehold: Run, data: Path) -> None:
    with holding(data, "work"):
        with closing(sqlite3.connect(data / "statehold.db")) as db, db:
            # The last use is written down at most once a minute.
            db.execute("UPDATE session SET used_at = used_at - 7200, status_at = status_at - 7200")
        listed = statehold("sessions", "list", "--json").json["sessions"][0]
        shown = statehold("sessions", "show", "work", "--json").json
        for found in (listed, shown):
            assert time.time() - datetime.fromisoformat(found["used_at"]).timestamp() < 3600


def test_list_is_cut_at_its_limit_and_says_so(statehold: Run, data: Path) -> None:
    paused(data, "a", "b", "c")
    told = statehold("sessions", "list", "--limit", "2")
    assert len(told.out.splitlines()) == 4
    assert told.out.splitlines()[-1] == "... and more: --limit 20 shows them"
    assert statehold("sessions", "list", "--limit", "2", "--json").json["more"] is True
    assert len(statehold("sessions", "list", "--limit", "3", "--json").json["sessions"]) == 3


def test_show_tells_the_clocks_and_the_journal(statehold: Run, data: Path) -> None:
    with holding(data, "work") as held:
        assert statehold("sessions", "pause", "work").code == OK
        told = statehold("sessions", "show", "work").out
        assert "status   paused for" in told
        assert "idle 15 min, paused 24 h, lifetime 7 d" in told
        assert "pause requested (cli)" in told
        assert "T08" not in told
        shown = statehold("sessions", "show", held.sessions["work"], "--json").json
        assert shown["session_id"] == held.sessions["work"]
        assert [e["request"]["code"] for e in shown["journal"]][-1] == "T08"
        times = [
            shown["used_at"],
            *(e[key] for e in shown["journal"] for key in ("started_at", "ended_at")),
        ]
        assert all(datetime.fromisoformat(found).tzinfo is UTC for found in times)
        last = statehold("sessions", "show", "work", "--last", "1", "--json").json
        assert len(last["journal"]) == 1


def test_name_means_the_local_session_and_is_ambiguous_otherwise(
    statehold: Run, data: Path
) -> None:
    sessions = paused(data, "alice/same", "bob/same", "alice/ours", "ours")
    told = statehold("sessions", "show", "same")
    assert told.code == USAGE
    assert "same is the name of 2 sessions; give the id: sh_" in one_line(told)
    shown = statehold("sessions", "show", "ours", "--json").json
    assert (shown["session_id"], shown["owner"]) == (sessions["ours"], "local")
    told = statehold("sessions", "show", "sam", "--json")
    assert told.code == NOT_FOUND
    assert told.json["error"]["code"] == "session_not_found"


# Changing sessions that a running process holds.


def test_holder_pauses_resumes_and_closes(statehold: Run, data: Path) -> None:
    with holding(data, "work") as held:
        ref = held.sessions["work"]
        assert statehold("sessions", "pause", "work").out == f"{ref} (work) is paused\n"
        assert statehold("sessions", "pause", "work").out == f"{ref} (work) is paused already\n"
        assert statehold("sessions", "resume", "work").out == f"{ref} (work) is idle\n"
        assert statehold("sessions", "resume", "work").out == f"{ref} (work) is idle already\n"
        told = statehold("sessions", "close", "work", "--json")
        assert told.json == {
            "sessions": [{"session_id": ref, "name": "work", "status": "closed", "changed": True}],
            "errors": [],
        }
        assert statehold("sessions", "close", ref).out == f"{ref} (work) is closed already\n"
        assert statehold("sessions", "resume", ref).code == FAILURE


def test_session_with_calls_in_flight_is_busy_until_it_is_forced(
    statehold: Run, data: Path
) -> None:
    with holding(data, "busy") as held:
        told = statehold("sessions", "pause", "busy")
        assert told.code == BUSY
        assert "1 call in flight" in one_line(told)
        told = statehold("sessions", "close", "busy", "--force")
        assert (told.code, told.out) == (OK, f"{held.sessions['busy']} (busy) is closed\n")


def test_session_of_a_process_that_does_not_answer_stays_with_it(
    statehold: Run, data: Path
) -> None:
    with holding(data, "work", "--silent") as held:
        told = statehold("sessions", "close", "work")
        assert told.code == BUSY
        message = one_line(told)
        assert f"holder, pid {held.process.pid}" in message
        assert "does not answer" in message
        assert "does not answer" in statehold("sessions", "list").out
        assert statehold("sessions", "purge", "work").code == FAILURE


# Changes to sessions that no process holds.


def test_session_of_a_killed_process_can_be_paused_closed_and_purged(
    statehold: Run, data: Path
) -> None:
    sessions = left_behind(data, "one", "two")
    assert "does not answer" in statehold("sessions", "list").out
    assert (
        statehold("sessions", "pause", "one").out == f"{sessions['one']} (one) is paused already\n"
    )
    told = statehold("sessions", "close", "one", "two")
    assert (told.code, told.out.count("is closed")) == (OK, 2)
    shown = statehold("sessions", "show", "one", "--json").json
    assert (shown["status"], shown["reason"], shown["open_in"]) == ("closed", "cli", None)
    steps = [(e["request"]["code"], e["request"]["cause"]) for e in shown["journal"]]
    assert steps[-2:] == [("T12", "cli"), ("T18", "cli")]
    assert [e["seq"] for e in shown["journal"]] == list(range(1, len(steps) + 1))
    assert shown["closed_at"] is not None

    assert statehold("sessions", "list", "--json").json["sessions"] == []
    assert len(statehold("sessions", "list", "--all", "--json").json["sessions"]) == 2
    work = data / "work" / sessions["one"] / "memory"
    files = data / "browser" / "files" / sessions["one"]
    for folder in (work, files):
        folder.mkdir(parents=True)
    assert statehold("sessions", "purge", "one").out == "1 session purged\n"
    assert not work.parent.exists()
    assert not files.exists()
    assert statehold("sessions", "show", sessions["one"]).code == NOT_FOUND
    assert statehold("sessions", "purge", "--closed").out == "1 session purged\n"
    assert statehold("sessions", "list", "--all", "--json").json["sessions"] == []


def test_command_line_leaves_no_node_behind(statehold: Run, data: Path) -> None:
    paused(data, "one")
    assert statehold("sessions", "close", "one").code == OK
    assert [path.name for path in (data / "nodes").iterdir() if path.suffix == ".lock"] == []


def test_open_session_is_not_purged(statehold: Run, data: Path) -> None:
    paused(data, "one")
    told = statehold("sessions", "purge", "one")
    assert told.code == FAILURE
    assert "is paused; close it first" in one_line(told)


def test_paused_session_is_resumed_by_a_running_process_or_not_at_all(
    statehold: Run, data: Path
) -> None:
    paused(data, "one")
    told = statehold("sessions", "resume", "one")
    assert told.code == FAILURE
    assert "it resumes by itself when called" in one_line(told)
    with holding(data) as held:
        assert statehold("sessions", "resume", "one").out.endswith("(one) is idle\n")
        shown = statehold("sessions", "show", "one", "--json").json
        assert shown["open_in"] == f"holder, pid {held.process.pid}"


def test_what_can_be_done_is_done_and_the_rest_is_told(statehold: Run, data: Path) -> None:
    sessions = paused(data, "one")
    told = statehold("sessions", "close", "none", "one", "--json")
    assert told.code == NOT_FOUND
    assert [s["session_id"] for s in told.json["sessions"]] == [sessions["one"]]
    assert [e["code"] for e in told.json["errors"]] == ["session_not_found"]


def test_store_that_cannot_be_read_is_one_line(statehold: Run, data: Path) -> None:
    data.mkdir(mode=0o700)
    (data / "statehold.db").write_bytes(b"no database at all, but long enough to be looked at" * 99)
    told = statehold("sessions", "list", "--json")
    assert told.code == FAILURE
    assert told.json["error"]["code"] == "store_unavailable"
    assert "statehold.db" in one_line(told)


# Services.


@pytest.fixture
def services(tmp_path: Path, counter_command: list[str]) -> Path:
    command, *args = counter_command
    entries: dict[str, Any] = {
        "counter": {"command": command, "args": args, "env": {"KEY": "s3cret-v4lue"}},
        "broken": {
            "command": command,
            "args": ["-c", "raise SystemExit(3)", "--token", "s3cret-v4lue"],
        },
        "site": {"url": "https://u:s3cret-v4lue@x.example/mcp?key=s3cret-v4lue", "disabled": True},
        "shell": {
            "command": "sh",
            "args": ["postgres://u:s3cret-v4lue@db/x", "sk-s3cret0123456"],
            "disabled": True,
        },
    }
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


def test_services_are_listed_without_their_secrets(statehold: Run, services: Path) -> None:
    for flag in ([], ["--json"]):
        told = statehold("services", "list", "--services", str(services), *flag)
        assert told.code == OK
        assert "s3cret" not in told.out
        assert "counter.py" in told.out
    found = {s["name"]: s for s in json.loads(told.out)["services"]}
    assert found["counter"]["transport"] == "stdio"
    assert found["counter"]["env"] == ["KEY"]
    assert found["site"]["transport"] == "http"
    assert found["site"]["disabled"]


def test_services_are_checked_by_starting_them(
    statehold: Run, services: Path, process_leaks: Any
) -> None:
    told = statehold("services", "check", "--services", str(services), "--json")
    assert told.code == FAILURE
    counter, broken = told.json["services"]
    assert counter["ok"]
    assert counter["tools"] > 0
    assert not broken["ok"]
    assert "code 3" in broken["error"]
    assert "s3cret" not in told.out
    told = statehold("services", "check", "counter", "--services", str(services))
    assert told.code == OK
    assert told.out.splitlines()[1].split()[:3] == ["counter", "ok", "stdio"]
    process_leaks.check_now()


def test_no_services_is_said(statehold: Run, tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    path.write_text("[services]\n")
    told = statehold("services", "list", "--config", str(path))
    assert told.code == OK
    assert "no services are configured" in one_line(told)
    assert statehold("services", "list", "--config", str(path), "--json").json == {"services": []}


def test_browser_is_listed_without_the_keys_in_its_address(statehold: Run, tmp_path: Path) -> None:
    [found] = statehold("services", "list", "--json").json["services"]
    assert (found["name"], found["transport"], found["pause"]) == ("browser", "browser", "snapshot")
    path = tmp_path / "farm.toml"
    path.write_text(
        "[services.browser]\ncdp_endpoint = 'wss://farm.example/chromium?token=s3cret-v4lue'\n"
        "cdp_headers = { Authorization = 's3cret-v4lue' }\n"
    )
    told = statehold("services", "list", "--config", str(path), "--json")
    assert told.json["services"][0]["target"] == "wss://farm.example"
    assert told.json["services"][0]["headers"] == ["Authorization"]
    assert "s3cret" not in told.out


def test_browser_is_checked_by_starting_one(
    statehold: Run, tmp_path: Path, headless_shell: str, process_leaks: Any
) -> None:
    path = tmp_path / "browser.toml"
    path.write_text(f"[services.browser]\nexecutable = {json.dumps(headless_shell)}\n")
    told = statehold("services", "check", "--config", str(path), "--json")
    [found] = told.json["services"]
    assert (told.code, found["ok"], found["error"]) == (OK, True, None)
    assert found["server"]["name"] == "Chromium"
    assert found["tools"] > 0
    path.write_text("[services.browser]\nexecutable = '/bin/false'\n")
    told = statehold("services", "check", "--config", str(path), "--json")
    assert told.code == FAILURE
    assert told.json["services"][0]["error"]
    process_leaks.check_now()


# Output.


def test_table_is_aligned_without_its_empty_columns() -> None:
    assert table(("A", "B", "C"), [("x", None, "1"), ("long", "", "22")]) == (
        "A     C\nx     1\nlong  22"
    )
    assert pairs([("a", 1), ("long", "x"), ("none", None)]) == "a     1\nlong  x"


def test_text_of_a_session_cannot_steer_the_terminal() -> None:
    assert plain("\x1b[2Jhé\n\u202e") == "?[2Jhé??"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (59, "59 s"), (61, "1 min"), (3600, "1 h"), (100_000, "28 h"), (604_800, "7 d")],
)
def test_times_have_one_unit(seconds: float, text: str) -> None:
    now = time.time()
    assert span(seconds) == text
    assert ago(now - seconds, now) == f"{text} ago"
    assert until(now + seconds, now) == ("now" if seconds <= 0 else f"in {text}")
    assert ago(None, now) == until(None, now) == ""
