"""The types of the Python client, as a user's type checker sees them. Nothing here is ever run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from statehold.client import (
    Answer,
    AutoSession,
    CallResult,
    Client,
    History,
    HistoryEntry,
    Image,
    LoadResult,
    MergeResult,
    Question,
    ResourceContent,
    ServiceStatus,
    Session,
    SessionBlock,
    SessionBrief,
    SessionInfo,
    SessionList,
    State,
    StateModule,
    StateValue,
    Stats,
    Summary,
    Task,
    Tool,
    connect,
    errors,
)


class Notes(StateModule):
    def __init__(self) -> None:
        self.pages: list[str] = []
        self.register_state(
            "pages", custom_to_json=lambda pages: sorted(pages), custom_from_json=list
        )


async def answer(question: Question) -> Mapping[str, Any] | Answer | None:
    assert_type(question.message, str)
    assert_type(question.schema, dict[str, Any] | None)
    return {"answer": 42} if question.url is None else Answer("cancel")


async def progress(done: float, total: float | None, message: str | None) -> None: ...


async def clients() -> None:
    assert_type(connect(), Client)
    connect("http://127.0.0.1:8931", token="x", headers={"a": "b"}, namespace="n", retry_seconds=5)
    connect(stdio=["statehold", "--ephemeral"], env={}, cwd=".", elicitation_callback=answer)
    connect(config="statehold.toml", services={"a": {"command": "a"}}, data="kept")
    async with connect() as client:
        assert_type(client, Client)
        assert_type(client.namespace("team"), Client)
        assert_type(client.scope, str)
        assert_type(client.session("x", services=["a"], keep=True, state={"a": 1}), SessionBlock)
        assert_type(await client.create("x", metadata={}, idle_seconds=5), Session)
        assert_type(await client.get("x"), Session)
        assert_type(await client.list_sessions(statuses=["idle"], user_id="u"), SessionList)
        assert_type(await client.find("x", user_id="u"), Session | None)
        assert_type(await client.call("inc", n=1), CallResult)
        assert_type(client.current_session, Session | None)
        assert_type(client.auto_session(), AutoSession)
        assert_type(await client.list_tools(), list[Tool])
        assert_type(await client.list_services(), list[ServiceStatus])
        assert_type(await client.wait_service("a", 5), ServiceStatus)
        assert_type(await client.add_service("a", {"command": "a"}), ServiceStatus)
        assert_type(await client.stats(), Stats)
        assert_type(await client.import_session({}), Session)
        assert_type(await client.load_session_state("x", notes=Notes()), LoadResult | None)
        await client.save_session_state("x", notes=Notes())
        await client.save_session_state("x", notes=1)  # pyright: ignore[reportArgumentType]


async def sessions(client: Client) -> None:
    async with client.session() as s:
        assert_type(s, Session)
        assert_type((s.id, s.name, s.status, s.generation), tuple[str, str | None, str, int])
        assert_type((s.expires_at, s.attached, s.is_open), tuple[str | None, bool, bool])
        assert_type(s.last_error, errors.SessionError | None)
        assert_type(await s.call("inc"), CallResult)
        assert_type(await s.call("inc", {"tool": 1}, given=2, arguments=3), CallResult)
        await s.call_tool(
            "inc", {"n": 1}, read_timeout_seconds=1, progress_callback=progress, check=False
        )
        assert_type(await s.start("inc", {"tool": 1}, run_id="r", given=2), Task)
        assert_type(await s.task("id"), CallResult)
        assert_type(await s.task("id").result(), CallResult)
        await s.task("id").cancel()
        if await s.task("id").status() == "other":  # pyright: ignore[reportUnnecessaryComparison]
            pass
        assert_type(await s.info(), SessionInfo)
        assert_type(await s.list_tools(), list[Tool])
        assert_type(await s.history(5, kind="call", tool=["a", "b"]), History)
        assert_type((await s.history()).entries, list[HistoryEntry])
        assert_type(await s.note("user", "text"), HistoryEntry)
        assert_type(await s.summary("text", topics=["a"]), Summary)
        assert_type(await s.fork(2, names=["a", "b"]), list[Session])
        assert_type(await s.merge([s, "x"], policy="first_wins"), MergeResult)
        await s.merge([s], policy="other")  # pyright: ignore[reportArgumentType]
        assert_type(await s.read_resource("state"), list[ResourceContent])
        assert_type(await s.export(), dict[str, Any])
        with s.use() as same:
            assert_type(same, Session)


async def states(state: State) -> None:
    assert_type(await state.get("/a"), Any)
    assert_type(await state.read(), StateValue)
    assert_type(await state.update({"a": None}, if_version=1), int)
    assert_type(await state.replace([1], path="/a"), int)
    assert_type(state.version, int)


def results(found: CallResult) -> None:
    assert_type((found.text, found.notice, found.is_error), tuple[str, str | None, bool])
    assert_type(found.structured_content, dict[str, Any] | None)
    assert_type(found.images, list[Image])
    assert_type(found.session, SessionBrief | None)
    for block in found.content:
        if block.type == "text":
            assert_type(block.text, str)


def failures(error: errors.ToolFailed) -> None:
    assert_type(error.result, CallResult)
    assert_type((error.code, error.retryable, error.recovery), tuple[str, bool, str])
