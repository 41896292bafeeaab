"""Summaries that a command of the operator's writes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.gateway_process import service, toml
from support.selection import matrix
from support.waiting import until

from statehold.client import Client, Session, connect

COMMAND = """
import json, os, sys
session = json.load(sys.stdin)
with open({log!r}, "a") as log:
    print(json.dumps(session), file=log)
said = [entry["content"] for entry in session["entries"] if entry["kind"] == "message"]
print(json.dumps({{"summary": " ".join(said), "topics": ["tea"], "name": "about tea"}}))
"""
HANGS = """
import os, sys, time
child = os.fork()
with open({log!r}, "a") as log:
    print(os.getpid(), file=log, flush=True)
time.sleep(600)
"""
ROOT = Path(__file__).resolve().parents[3]


def read_log(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@asynccontextmanager
async def served(folder: Path, program: str, **summary: Any) -> AsyncGenerator[tuple[Client, Path]]:
    log, script, config = folder / "log", folder / "command.py", folder / "statehold.toml"
    script.write_text(program.format(log=str(log)))
    settings = {
        "summary": {"command": [sys.executable, str(script)], **summary},
        "services": {"quick": service("asking")},
    }
    config.write_text(toml(settings))
    async with connect(config=config) as client:
        yield client, log


async def written_summary(session: Session) -> dict[str, Any] | None:
    return (await session.summary()).client_summary


async def name_of(session: Session) -> str | None:
    return (await session.info()).name


async def test_a_command_sums_up_and_names_a_session(tmp_path: Path) -> None:
    async with served(tmp_path, COMMAND, every_messages=2) as (client, log):
        s = await client.create(state={"password": "hunter2", "n": 1})
        await s.note("user", "Is there tea?")
        await s.call("echo", text="hi", token="hunter2")
        assert read_log(log) == []
        await s.note("assistant", "Yes.")
        await until(lambda: bool(read_log(log)))
        written = await until(lambda: written_summary(s))
        assert written is not None
        assert (written["text"], written["topics"]) == ("Is there tea? Yes.", ["tea"])
        assert await until(lambda: name_of(s)) == "about tea"
        [given] = read_log(log)
        assert [entry["kind"] for entry in given["entries"]] == ["message", "call", "message"]
        assert given["state"] == {"password": "[redacted]", "n": 1}
        assert "hunter2" not in json.dumps(given)
        other = await client.create("mine")
        await other.note("user", "coffee")
        refreshed = await other.summary(refresh=True)
        assert (refreshed.text, refreshed.problem) == ("coffee", None)
        third = await client.create()
        await third.note("user", "more")
        await third.summary(refresh=True)
        assert {(await third.info()).name, (await other.info()).name} == {"about tea 2", "mine"}


async def test_a_pause_and_a_close_are_summed_up(tmp_path: Path) -> None:
    async with served(tmp_path, COMMAND, on_pause=True, on_close=True) as (client, log):
        s = await client.create("kept")
        await s.note("user", "one")
        await s.pause()
        await until(lambda: written_summary(s))
        assert (await s.summary()).text == "one"
        assert (await s.info()).status == "paused"
        await s.note("user", "two")
        await s.close()

        async def is_summed_up() -> bool:
            return (await s.summary()).text == "one two"

        await until(is_summed_up)
        assert (await s.info()).status == "closed"
        assert len(read_log(log)) == 2


@pytest.mark.parametrize(
    ("program", "problem"),
    matrix(
        ("raise SystemExit(3)", "exit code 3"),
        ("print('no JSON')", "not JSON"),
        ("print('[' * 100_000)", "not JSON"),
        ("print('{{}}')", "no text"),
        ("import sys; sys.stdin.read(); print('x' * 20_000_000)", "more than"),
    ),
)
async def test_a_failing_command_fails_no_call_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, program: str, problem: str
) -> None:
    async with (
        served(tmp_path, program, every_messages=1) as (client, _),
        client.session("work") as s,
    ):
        await s.note("user", "x" * 60_000)
        for _ in range(2):
            summary = await s.summary(refresh=True)
            assert summary.client_summary is None
            assert problem in (summary.problem or "")
            assert summary.text.startswith("The session 'work'")
        assert (await s.call("inc")).text == "1"
    assert len([r for r in caplog.records if "no summary of session" in r.message]) == 1


async def test_a_command_that_hangs_is_killed_with_its_processes(tmp_path: Path) -> None:
    async with served(tmp_path, HANGS, seconds=1) as (client, log), client.session() as s:
        assert "within 1 seconds" in ((await s.summary(refresh=True)).problem or "")
        started = [int(line) for line in log.read_text().splitlines()]
        assert len(started) == 2
        await until(lambda: not any(map(is_running, started)))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_without_a_command_there_is_the_digest() -> None:
    async with connect(services={}) as client, client.session() as s:
        summary = await s.summary(refresh=True)
        assert summary.client_summary is None
        assert "[summary]" in (summary.problem or "")


async def test_a_function_of_the_client_sums_up(tmp_path: Path) -> None:
    async with connect(services={}) as client:
        s = await client.create()
        await s.note("user", "tea?")

        async def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
            return {"summary": messages[0]["content"], "topics": ["t"], "name": "a talk"}

        summary = await s.summarize(ask)
        assert (summary.text, summary.topics, s.name) == ("tea?", ["t"], "a talk")


async def test_an_answer_of_a_model_is_used_as_far_as_it_can_be() -> None:
    async with connect(services={}) as client:
        answer: dict[str, Any] = {
            "summary": "s" * 30_000,
            "topics": ["tea", "", 5, "t" * 200],
            "name": " Login/checkout:\n\x00 half \ud83c ",
        }

        async def ask(messages: list[dict[str, Any]]) -> Any:
            return answer

        s = await client.create()
        summary = await s.summarize(ask)
        assert (len(summary.text), summary.topics) == (20_000, ["tea", "t" * 100])
        assert s.name == "Login checkout: half ?"
        answer = {"summary": "short", "topics": "a, b", "name": "sh_1"}
        other = await client.create()
        summary = await other.summarize(ask)
        assert (summary.text, summary.topics, other.name) == ("short", [], None)
        for wrong in (None, 5, {}, {"summary": " "}):
            answer = wrong  # pyright: ignore[reportAssignmentType]
            with pytest.raises(TypeError, match="summary"):
                await other.summarize(ask)


async def test_a_name_that_a_command_proposes_needs_no_form(tmp_path: Path) -> None:
    program = r"""print(r'{{"summary": "one", "name": "a/b \u0000 c \ud83c"}}')"""
    async with served(tmp_path, program) as (client, _):
        s = await client.create()
        assert (await s.summary(refresh=True)).text == "one"
        assert await name_of(s) == "a b c ?"


@pytest.fixture
def model() -> Generator[tuple[str, list[dict[str, Any]]]]:
    """A chat API that answers with a block of Markdown, and keeps what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, "key": self.headers["Authorization"], **body})
            text = '```json\n{"summary": "Tea.", "topics": ["tea"], "name": "On tea"}\n```'
            answer = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_example_asks_a_chat_api(
    model: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, asked = model
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_MODEL", "small")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    config = tmp_path / "statehold.toml"
    command = [sys.executable, str(ROOT / "examples" / "summary_command.py")]
    config.write_text(toml({"summary": {"command": command}, "services": {}}))
    async with connect(config=config) as client:
        s = await client.create()
        await s.note("user", "Is there tea?")
        summary = await s.summary(refresh=True)
        assert (summary.text, summary.problem) == ("Tea.", None)
        assert (await s.info()).name == "On tea"
    [request] = asked
    assert (request["path"], request["key"], request["model"]) == (
        "/v1/chat/completions",
        "Bearer sk-none",
        "small",
    )
    assert "Is there tea?" in request["messages"][1]["content"]
