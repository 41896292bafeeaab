"""The types of the blocking client."""

from __future__ import annotations

from typing import Any, assert_type

from statehold.client import (
    CallResult,
    LoadResult,
    MergeResult,
    Question,
    SessionInfo,
    SessionList,
    StateModule,
    Tool,
)
from statehold.client.sync import AutoSession, Client, Session, SessionBlock, State, Task, connect


def answer(question: Question) -> dict[str, Any]:
    return {"answer": question.message}


def progress(done: float, total: float | None, message: str | None) -> None: ...


def clients() -> None:
    with connect(services="mcp.json", elicitation_callback=answer) as client:
        assert_type(client, Client)
        assert_type(client.namespace("team"), Client)
        assert_type(client.session("x"), SessionBlock)
        assert_type(client.create("x"), Session)
        assert_type(client.list_sessions(limit=2), SessionList)
        assert_type(client.find(name="x"), Session | None)
        assert_type(client.call("inc", n=1), CallResult)
        assert_type(client.auto_session(), AutoSession)
        assert_type(client.list_tools(), list[Tool])
        assert_type(client.load_session_state("x", notes=StateModule()), LoadResult | None)


def sessions(client: Client) -> None:
    with client.session() as s:
        assert_type(s, Session)
        assert_type(s.state, State)
        assert_type(s.call("inc", {"n": 1}), CallResult)
        s.call_tool("inc", progress_callback=progress, operation_id="a")
        assert_type(s.start("inc", n=1), Task)
        assert_type(s.task("id").result(), CallResult)
        assert_type(s.info(), SessionInfo)
        assert_type(s.fork(2), list[Session])
        assert_type(s.merge([s]), MergeResult)
        assert_type(s.state.get(), Any)
        assert_type(s.state.update({}), int)
