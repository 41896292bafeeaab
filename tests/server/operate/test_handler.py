"""Operator requests over one registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.counting import Counting
from support.engine import engine
from support.selection import matrix
from support.waiting import until

from statehold.server.operate import change_log
from statehold.server.operate.handler import MAX_REQUESTS, OperateVerb, OperatorHandler
from statehold.server.operate.operator_tools import OperatorTools, operator_tools
from statehold.server.operate.person_tools import PersonTools
from statehold.server.operate.requests import OperatorRequest
from statehold.sessions.errors import InvalidArgument, SessionNotFound
from statehold.sessions.records import LOCAL, Principal


async def test_a_tool_is_called_for_the_owner_it_is_asked_for() -> None:
    async with engine() as running:
        session = await running.create(name="work")
        handler = OperatorHandler(running.registry, running.store)
        arguments = {"session_id": session.id, "values": {"n": 2**80}}
        request = OperatorRequest(tool="state_update", arguments=arguments)
        assert await handler(request) == {"version": 1}
        with pytest.raises(SessionNotFound):
            await handler(request.model_copy(update={"owner": ":bob"}))


@pytest.mark.parametrize("number", matrix(MAX_REQUESTS, 2 * MAX_REQUESTS, 500))
async def test_many_requests_of_one_owner_keep_no_other_owner_waiting(number: int) -> None:
    released = anyio.Event()
    began: list[str] = []

    async def run(request: OperatorRequest) -> dict[str, Any]:
        began.append(request.owner)
        if request.owner == ":bob":
            await released.wait()
        return {"owner": request.owner}

    verb = OperateVerb(run)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(verb.answer, {"tool": "session_info", "owner": ":bob"})
            await until(lambda: len(began) >= MAX_REQUESTS // 2)
            for owner in (":ada", ":eve"):
                answer = await verb.answer({"tool": "session_info", "owner": owner})
                assert answer == {"content": {"owner": owner}}
            released.set()
    assert began.count(":bob") == number


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("session_drop", {}),
        ("session_fork", {"count": "many"}),
        ("session_close", {"force": "yes, please"}),
        ("operator_screenshot", {"kind": "gif"}),
        ("session_pause", {"seconds": 1}),
    ],
)
async def test_the_models_of_the_tools_check_a_request(
    tool: str, arguments: dict[str, object]
) -> None:
    async with engine() as running:
        session = await running.create()
        named = {"session_id": session.id, **arguments}
        handler = OperatorHandler(running.registry, running.store)
        with pytest.raises(InvalidArgument):
            await handler(OperatorRequest(tool=tool, arguments=named))


async def test_a_command_leaves_notices_to_the_next_caller() -> None:
    async with engine(Counting("counter", pause="release")) as running:
        session = await running.create()
        assert await running.count(session.id) == 1
        handler = OperatorHandler(running.registry, running.store)
        for tool in ("session_pause", "session_resume", "session_rename"):
            await handler(OperatorRequest(tool=tool, arguments={"session_id": session.id}))
        answer = await running.call(session.id)
        assert answer.notice is not None
        assert (await running.call(session.id)).notice is None


LINK = {"event": "created", "link": "1", "by": "eve", "rights": "view", "guest": "link 1"}


async def test_each_operator_tool_answers() -> None:
    async with engine(Counting("counter")) as running:
        session = await running.create()
        await running.count(session.id)
        results = {
            "changes": {"changes", "number"},
            "files": {"files"},
            "give_back": {"session_id", "epoch"},
            "record_link": {"session_id"},
            "processes": {"processes"},
            "renew_control": {"session_id", "epoch"},
            "save": {"session_id"},
            "sessions": {"sessions"},
            "stderr": {"stderr"},
            "take_control": {"session_id", "epoch"},
        }
        tools = [
            *operator_tools(OperatorTools(running.registry, None)),
            *operator_tools(PersonTools(running.registry)),
        ]
        # The others need a browser or a file.
        others = {"operator_screenshot", "operator_file", "operator_input"}
        assert {tool.name for tool in tools} - others == {f"operator_{name}" for name in results}
        handler = OperatorHandler(running.registry, running.store)
        for tool in tools:
            if tool.name in others:
                continue
            arguments: dict[str, Any] = {"session_id": session.id} if tool.takes_session else {}
            arguments |= {"holder": "eve"} if tool.name == "operator_take_control" else {}
            arguments |= LINK if tool.name == "operator_record_link" else {}
            if "epoch" in tool.arguments.model_fields:
                arguments["epoch"] = 1
            content = await handler(OperatorRequest(tool=tool.name, arguments=arguments))
            assert content.keys() == results[tool.name.removeprefix("operator_")]


async def test_a_file_is_read_by_its_name_alone(tmp_path: Path) -> None:
    async with engine() as running:
        session = await running.create()
        folder = tmp_path / "browser" / "files" / session.id
        folder.mkdir(parents=True)
        (folder / "report.pdf").write_bytes(b"%PDF")
        (tmp_path / "secret").write_text("secret")
        (folder / "link").symlink_to(tmp_path / "secret")
        handler = OperatorHandler(running.registry, running.store, data=tmp_path)
        at = {"session_id": session.id}
        listed = await handler(OperatorRequest(tool="operator_files", arguments=at))
        assert [file["name"] for file in listed["files"]] == ["report.pdf"]
        arguments = {**at, "name": "report.pdf"}
        content = await handler(OperatorRequest(tool="operator_file", arguments=arguments))
        assert (content["mime"], content["data"]) == ("application/pdf", "JVBERg==")
        for name in ("link", "../secret", "/etc/passwd", "."):
            arguments = {**at, "name": name}
            with pytest.raises(InvalidArgument):
                await handler(OperatorRequest(tool="operator_file", arguments=arguments))


async def test_a_change_is_noted_with_the_cause_of_its_request() -> None:
    async with engine() as running:
        session = await running.create()
        at = {"session_id": session.id}
        handler = OperatorHandler(running.registry, running.store)
        await handler(OperatorRequest(tool="session_pause", arguments=at, cause="console"))
        entries = await running.store.journal(session.id)
        assert entries[-1].request["cause"] == "console"


async def test_the_sessions_that_changed_are_listed_with_their_owners() -> None:
    async with engine(Counting("counter")) as running:
        old, changed = await running.create(), await running.create(Principal(subject="bob"))
        handler = OperatorHandler(running.registry, running.store)

        async def ask(since: int | None) -> dict[str, Any]:
            request = OperatorRequest(tool="operator_changes", arguments={"since": since})
            return await handler(request)

        first = await ask(None)
        assert first["changes"] == []
        await running.count(changed.id, principal=Principal(subject="bob"))
        await running.store.flush()
        second = await ask(first["number"])
        assert second["changes"] == [{"session_id": changed.id, "owner": ":bob"}]
        await running.registry.close(LOCAL, old.id)
        third = await ask(second["number"])
        assert third["changes"] == [{"session_id": old.id, "owner": LOCAL.key}]
        assert len((await ask(first["number"]))["changes"]) == 2


@pytest.mark.parametrize("ann_first", matrix(True, False))
async def test_many_changes_of_one_owner_hide_none_of_another(
    ann_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "MAX_KEPT", 4)
    ann, bob = Principal(subject="ann"), Principal(subject="bob")
    async with engine(Counting("counter")) as running:
        handler = OperatorHandler(running.registry, running.store)

        async def changed_owners() -> list[str]:
            arguments = {"since": first["number"]}
            answer = await handler(OperatorRequest(tool="operator_changes", arguments=arguments))
            return [change["owner"] for change in answer["changes"]]

        request = OperatorRequest(tool="operator_changes", arguments={"since": None})
        first = await handler(request)
        for principal in (ann, *[bob] * 6) if ann_first else (*[bob] * 6, ann):
            await running.create(principal)
        assert sorted(await changed_owners()) == [ann.key, *[bob.key] * 3]
