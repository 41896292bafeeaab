"""The types of the blocking client."""

from __future__ import annotations

from typing import Any, assert_type

from statehold.client import CallResult, Loaded, Merged, Question, SessionInfo, StateModule, Tool
from statehold.client.sync import AutoSession, Hub, Session, SessionBlock, State, connect


def answer(question: Question) -> dict[str, Any]:
    return {"answer": question.message}


def progress(done: float, total: float | None, message: str | None) -> None: ...


def hubs() -> None:
    with connect(services="mcp.json", elicitation=answer) as hub:
        assert_type(hub, Hub)
        assert_type(hub.namespace("team"), Hub)
        assert_type(hub.session("x"), SessionBlock)
        assert_type(hub.create("x"), Session)
        assert_type(hub.sessions(), list[SessionInfo])
        assert_type(hub.call("inc", n=1), CallResult)
        assert_type(hub.auto_session(), AutoSession)
        assert_type(hub.tools(), list[Tool])
        assert_type(hub.load_session_state("x", notes=StateModule()), Loaded | None)


def sessions(hub: Hub) -> None:
    with hub.session() as s:
        assert_type(s, Session)
        assert_type(s.state, State)
        assert_type(s.call("inc", {"n": 1}), CallResult)
        s.call_tool("inc", progress=progress, operation_id="a")
        assert_type(s.info(), SessionInfo)
        assert_type(s.fork(2), list[Session])
        assert_type(s.merge([s]), Merged)
        assert_type(s.state.get(), Any)
        assert_type(s.state.update({}), int)
