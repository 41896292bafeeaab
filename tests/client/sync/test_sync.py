"""The blocking client: the same methods as the async one, in any thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import UPSTREAMS, toml
from support.selection import matrix

from statehold.client import Question
from statehold.client.errors import (
    CallTimedOut,
    NoCurrentSession,
    OutcomeUnknown,
    SessionClosed,
    ToolFailed,
)
from statehold.client.sync import Client, connect


@pytest.fixture(scope="module", params=matrix("http", "embedded"))
def way(request: pytest.FixtureRequest, config_file: Path) -> Callable[..., Client]:
    """Two ways to connect, with and without HTTP, because the async client does the rest."""

    def connected(**options: Any) -> Client:
        if request.param == "http":
            return connect(request.getfixturevalue("server").url, **options)
        return connect(config=config_file, **options)

    return connected


@pytest.fixture(scope="module")
def client(way: Callable[..., Client]) -> Generator[Client]:
    with way() as connected:
        yield connected


def test_a_session_is_used_without_await(client: Client) -> None:
    with client.session("shop", services=["quick"], state={"n": 1}) as s:
        assert (s.name, s.attached, s.is_open, client.current_session) == ("shop", False, True, s)
        assert [s.call("inc").text, client.call("inc").text] == ["1", "2"]
        assert (s.state.get("/n"), s.state.update({"n": 2}), s.state.version) == (1, 1, 1)
        with client.session("shop") as again:
            assert (again.id, again.attached) == (s.id, True)
        left, right = s.fork(2)
        left.state.replace({"n": 5})
        assert s.merge([left, right]).version == 2
        with left.use():
            assert client.current_session == left
        assert s.pause().status == "paused"
        assert s.resume().status == "idle"
        assert {tool.name for tool in s.list_tools()} >= {"inc", "get"}
        with pytest.raises(ToolFailed):
            s.call("fail")
        with pytest.raises(CallTimedOut):
            s.call_tool("hang", read_timeout_seconds=0.1)
        assert s.note("user", "hello").content == "hello"
        assert [entry.tool for entry in s.history(kind="call", tool="fail").entries] == ["fail"]
    with pytest.raises(SessionClosed):
        s.call("inc")
    assert not left.is_open
    with pytest.raises(NoCurrentSession):
        client.call("inc")
    with client.auto_session() as auto:
        assert [client.call("inc").text for _ in range(2)] == ["1", "2"]
        assert auto.session().is_open


def test_a_task_is_used_without_await(client: Client) -> None:
    with client.session(services=["quick"]) as s:
        counted, hanging = s.start("inc"), s.start("hang")
        assert s.task(counted.id).result().text == "1"
        assert (counted.result().text, counted.status()) == ("1", "completed")
        assert hanging.status() == "working"
        hanging.cancel()
        with pytest.raises(OutcomeUnknown):
            hanging.result()


@pytest.mark.parametrize("threads", matrix(3, 8))
def test_threads_never_meet_in_one_session(config_file: Path, threads: int) -> None:
    def work(number: int) -> list[str]:
        with client.session(services=["quick"]):
            return [client.call("inc").text for _ in range(10)]

    with connect(config=config_file) as client, ThreadPoolExecutor(threads) as pool:
        counted = [str(number) for number in range(1, 11)]
        assert list(pool.map(work, range(threads))) == [counted] * threads


def test_callbacks_may_block(way: Callable[..., Client]) -> None:
    questions: list[Question] = []
    reports: list[float] = []

    def answer(question: Question) -> dict[str, Any]:
        questions.append(question)
        assert threading.current_thread() is not threading.main_thread()
        return {"answer": "42"}

    def progress(done: float, total: float | None, message: str | None) -> None:
        reports.append(done)

    with way(elicitation_callback=answer) as client, client.session(services=["quick"]) as s:
        assert "42" in s.call("ask").text
        assert "42" in s.start("ask").result().text
        s.call_tool("slow", {"seconds": 0.01}, progress_callback=progress)
    assert questions[0].message == "quick asks: What is the answer?"
    assert reports


LENDING = """
from quick import Quick, text, tool

class Lending(Quick):
    def tool_login_use(self, *_):
        return text("lent")

    def answer(self, message, params):
        if params.get("name") != "login_release":
            super().answer(message, params)

server = Lending()
server.tools = [tool("login_use"), tool("login_release")]
server.run()
"""
"""A server that does not answer when a login is given back."""


def test_a_block_with_a_login_ends_although_the_server_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.client.logins.RELEASE_SECONDS", 0.2)
    program, config = tmp_path / "lending.py", tmp_path / "statehold.toml"
    program.write_text(LENDING)
    lender = {
        "command": sys.executable,
        "args": [str(program)],
        "env": {"PYTHONPATH": str(UPSTREAMS)},
    }
    config.write_text(toml({"services": {"lender": lender}}))
    with connect(config=config) as client, client.session() as s:
        with s.login("shop"):
            pass
        assert s.last_error is None
        with pytest.raises(CallTimedOut):
            s.call_tool("login_release", {"login": "shop"}, read_timeout_seconds=0.1)
