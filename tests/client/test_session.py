"""Sessions, calls and states: over every kind of connection where that can make a difference, otherwise embedded."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from support.gateway_process import statehold

from statehold.client import Client, connect
from statehold.client.errors import (
    CallTimedOut,
    InvalidArgument,
    NameTaken,
    NoCurrentSession,
    OutcomeUnknown,
    RequestRefused,
    ServiceNotBound,
    ServiceUnavailable,
    SessionClosed,
    SessionNotFound,
    StateConflict,
    StateInvalid,
    ToolFailed,
    UnknownTool,
)


async def test_a_block_makes_a_session_keeps_what_it_holds_and_closes_it(client: Client) -> None:
    async with client.session("shop", services=["quick"], metadata={"a": 1}) as s:
        assert s.id.startswith("sh_")
        assert (s.name, s.status, s.attached, s.is_open) == ("shop", "idle", False, True)
        counts = [(await s.call("inc")).structured_content for _ in range(2)]
        counts.append((await client.call("inc")).structured_content)
        assert [each["count"] for each in counts if each] == [1, 2, 3]
        info = await s.info()
        assert (info.metadata, info.in_flight) == ({"a": 1}, 0)
        assert [(service.service, service.connected) for service in info.services] == [
            ("quick", True)
        ]
    assert not s.is_open
    with pytest.raises(SessionClosed) as caught:
        await s.call("inc")
    assert s.last_error is caught.value
    assert caught.value.session_id == s.id


async def test_the_answer_has_text_content_structure_and_session(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        result = await s.call("inc", {"n": 2}, mark="x")
        assert result.text == "2"
        assert result.content[0].type == "text"
        assert (result.notice, result.images, result.is_error) == (None, [], False)
        assert result.session is not None
        assert (result.session.id, result.session.generation) == (s.id, s.generation)


async def test_a_name_that_is_open_is_attached_to_and_left(client: Client) -> None:
    async with client.session("kept", services=["quick"]) as first:
        await first.call("inc")
        async with client.session("kept") as second:
            assert (second.id, second.attached) == (first.id, True)
            assert (await second.call("inc")).text == "2"
        assert (await first.call("inc")).text == "3"
        async with client.session("kept", keep=False) as third:
            assert third.attached
    assert (await client.list_sessions(name="kept")) == []


async def test_a_session_that_is_kept_is_found_again(client: Client) -> None:
    async with client.session("later", keep=True, services=["quick"]) as s:
        await s.call("inc")
    again = await client.get("later")
    assert (again.id, again.attached) == (s.id, True)
    assert (await again.call("inc")).text == "2"
    with pytest.raises(NameTaken):
        await client.create("later")
    assert [each.session_id for each in await client.list_sessions(name="late")] == [s.id]
    await again.delete()
    with pytest.raises(SessionNotFound):
        await client.get("later")


async def test_namespaces_keep_names_and_current_sessions_apart(embedded: Client) -> None:
    client = embedded
    left, right = client.namespace("left"), client.namespace("right")
    async with left.session("same") as a, right.session("same") as b:
        assert a.id != b.id
        assert (a.namespace, b.namespace) == ("left", "right")
        assert left.current_session is a
        assert right.current_session is b
        assert client.current_session is None
        assert (await left.get("same")).id == a.id
        with pytest.raises(SessionNotFound, match="Did you mean same"):
            await left.get("sane")
        assert [each.session_id for each in await right.list_sessions()] == [b.id]
        with pytest.raises(NoCurrentSession):
            await client.call("inc")
    with pytest.raises(SessionNotFound, match="is closed"):
        await left.get("same")


async def test_sessions_are_listed_in_pages_and_found(client: Client) -> None:
    view = client.namespace("pages")
    made = [await view.create(f"page {n}", user_id="ann", metadata={"n": n}) for n in range(5)]
    first = await view.list_sessions(limit=2)
    rest = await view.list_sessions(limit=10, cursor=first.next_cursor)
    assert (len(first), len(rest), rest.next_cursor) == (2, 3, None)
    everyone = [each.session_id for each in await view.list_sessions(user_id="ann")]
    assert everyone == [each.session_id for each in [*first, *rest]]
    with pytest.raises(InvalidArgument):
        await view.list_sessions(limit=0)
    for found in (await view.find("page 3"), await view.find(metadata={"n": 3})):
        assert found is not None
        assert (found.id, found.attached) == (made[3].id, True)
    with pytest.raises(TypeError, match="or filters"):
        await view.find("page 3", user_id="bob")
    await made[3].close()
    for missing in (
        view.find("page 3"),
        view.find(made[3].id),
        view.find(user_id="bob"),
        client.find("page 1"),
    ):
        assert await missing is None
    for each in made:
        await each.close()


async def test_blocks_nest_and_each_task_has_its_own(embedded: Client) -> None:
    client = embedded
    ids: dict[str, str] = {}

    async def other() -> None:
        async with client.session() as mine:
            ids["other"] = mine.id
            await anyio.lowlevel.checkpoint()
            assert client.current_session is mine

    async with client.session() as outer:
        async with client.session() as inner:
            assert client.current_session is inner
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                tasks.start_soon(other)
            assert client.current_session is inner
        assert client.current_session is outer
        with inner.use():
            assert client.current_session is inner
        assert client.current_session is outer
    assert client.current_session is None


async def test_calls_outside_of_blocks_share_a_session_when_asked_to(embedded: Client) -> None:
    client = embedded
    with pytest.raises(NoCurrentSession):
        await client.call("inc")
    async with client.auto_session():
        assert [(await client.call("inc")).text for _ in range(3)] == ["1", "2", "3"]
        async with client.session() as own:
            assert (await client.call("inc")).text == "1"
            assert (await own.call("inc")).text == "2"
        before = (await client.call("inc")).session
    assert before is not None
    with pytest.raises(NoCurrentSession):
        await client.call("inc")
    with pytest.raises(SessionClosed):
        await client.call("inc", session_id=before.id)
    client.auto_session("switch")
    await client.call("inc")
    await client.manual_session(close=False)
    session = await client.get("switch")
    assert (await session.call("inc")).text == "2"
    await session.close()


async def test_an_error_of_a_tool_is_raised_with_its_result(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        with pytest.raises(ToolFailed) as caught:
            await s.call("fail")
        assert (caught.value.code, caught.value.session_id) == ("tool_failed", s.id)
        assert caught.value.result.is_error
        assert (await s.call_tool("fail", check=False)).is_error
        with pytest.raises(RequestRefused) as refused:
            await s.call("refuse")
        assert (refused.value.rpc_code, refused.value.data) == (-32077, {"why": "it is late"})
        with pytest.raises(UnknownTool) as unknown:
            await s.call("incc")
        assert "inc" in unknown.value.near
        with pytest.raises(ServiceNotBound):
            await s.call("other_inc")
        for value in (object(), {"list": [1, {2}]}, [float("nan")], "\ud800"):
            with pytest.raises(InvalidArgument, match=r"^arguments\.value"):
                await s.call("echo", value=value)
        assert (await s.call("inc")).text == "1"
    with pytest.raises(InvalidArgument):
        await client.create(services=["nothing"])


async def test_a_call_that_takes_too_long_is_cancelled(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        with anyio.fail_after(20):
            with pytest.raises(CallTimedOut):
                await s.call_tool("hang", read_timeout_seconds=0.2)
            assert (await s.call("inc")).text == "1"


async def test_a_tool_with_a_session_id_of_its_own_gets_both(client: Client) -> None:
    async with client.session(services=["own"]) as s:
        assert (await s.call("own_session", session_id="theirs")).text == "theirs"
        arguments = {"session_id": "theirs too"}
        assert (
            await client.call_tool("own_session", {**arguments, "statehold_session_id": s.id})
        ).text
        assert (await s.call("own_session", arguments)).text == "theirs too"


async def test_an_operation_id_runs_a_call_once(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        results = [await s.call_tool("inc", operation_id="a", run_id="r") for _ in range(3)]
        assert {result.text for result in results} == {"1"}
        page = await s.history(kind="call", run="r")
        assert [(entry.tool, entry.operation_id) for entry in page.entries] == [("inc", "a")]


async def test_progress_is_reported(client: Client) -> None:
    await check_progress(client)


async def test_progress_is_reported_over_a_pipe(config_file: Path, tmp_path: Path) -> None:
    arguments = ["--config", str(config_file), "--data", str(tmp_path)]
    async with connect(stdio=[*statehold(), *arguments]) as client:
        await check_progress(client)


async def check_progress(client: Client) -> None:
    reports: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        reports.append((done, total))

    async with client.session(services=["quick"]) as s:
        # A call that waits for its server to start reports that, too.
        await s.call("inc")
        await s.call_tool("slow", {"seconds": 0.01}, progress_callback=progress)
    assert reports == [(float(step), 5.0) for step in range(1, 6)]


async def test_changes_by_a_function_are_applied_one_after_the_other(client: Client) -> None:
    def add(cart: list[int]) -> None:
        cart.append(len(cart))

    def increment(number: int) -> int:
        return number + 1

    async with client.session(state={"n": 0}) as s:
        other = await client.get(s.id)
        async with anyio.create_task_group() as tasks:
            for each in (s, other) * 5:
                tasks.start_soon(each.state.change, increment, "/n")
        empty: list[int] = []
        await s.state.change(add, "/cart", default=empty)
        changed = await s.state.change(add, "/cart", default=empty)
        assert (changed.value, empty) == ([0, 1], [])
        assert changed.version == s.state.version == 12
        assert await s.state.get() == {"n": 10, "cart": [0, 1]}
        assert (await s.state.change(lambda state: {"n": state["n"] / 2})).value == {"n": 5.0}
        with pytest.raises(ZeroDivisionError):
            await s.state.change(lambda n: n / 0, "/n")

        async def double(number: int) -> int:
            return number * 2

        with pytest.raises(TypeError, match="must not be async"):
            await s.state.change(double, "/n")
        assert await s.state.get("/n") == 5.0


async def test_changes_that_collide_do_not_try_again_at_once(client: Client) -> None:
    calls: list[int] = []

    def increment(number: int) -> int:
        calls.append(number)
        return number + 1

    async with client.session(state={"n": 0}) as s, anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(s.state.change, increment, "/n")
    # One that always tries again at once calls it 465 times.
    assert 30 <= len(calls) < 400


async def test_a_state_is_read_changed_and_compared(client: Client) -> None:
    async with client.session(state={"a": {"b": 1}, "big": 2**70}) as s:
        assert await s.state.get() == {"a": {"b": 1}, "big": 2**70}
        copy = await s.state.get("/a")
        copy["b"] = 5
        values = {"c": [1]}
        assert await s.state.update(values) == s.state.version == 1
        values["c"].append(2)
        assert await s.state.get("/a/b") == 1
        assert await s.state.get("/c") == [1]
        assert await s.state.get("/nothing", "instead") == "instead"
        with pytest.raises(StateConflict):
            await s.state.update({"c": 2}, if_version=0)
        assert await s.state.update(7, path="/a/b", if_version=1) == 2
        assert await s.state.replace({"new": True}) == 3
        assert (await s.state.read()).value == {"new": True}
        with pytest.raises(StateInvalid):
            await s.state.update({"x": "x" * 2_000_000})


async def test_children_start_with_a_copy_and_end_with_the_block(embedded: Client) -> None:
    client = embedded
    async with client.session("parent", state={"n": 1}) as s:
        left, right = await s.fork(2)
        (lasting,) = await s.fork(names=["child"], keep=True)
        await left.state.update({"left": 1, "n": 2})
        await right.state.update({"n": 3})
        merged = await s.merge([left, right.id])
        assert await s.state.get() == {"n": 3, "left": 1}
        assert merged.conflict_count == len(merged.conflicts) == 1
        (grandchild,) = await left.fork()
    for child in (left, right, grandchild):
        assert not child.is_open
        assert (await child.info()).status == "closed"
    assert (await lasting.info()).status == "idle"
    await lasting.close()


async def test_a_life_of_a_session(embedded: Client) -> None:
    client = embedded
    async with client.session(services=["quick"], lifetime_seconds=1000) as s:
        await s.call("inc")
        assert (await s.pause()).status == s.status == "paused"
        assert (await s.resume()).status == "idle"
        before = (await s.info()).expires_at
        assert (await s.extend(60)).expires_at != before
        generation = s.generation
        restarted = await s.restart()
        assert restarted.generation == generation + 1
        assert restarted.notice is not None
        assert f"generation {generation} to {generation + 1}" in restarted.notice
        assert (await s.info()).notice is None
        result = await client.call("session_restart", session_id=s.id)
        assert result.notice is not None
        assert result.notice not in result.text
        counted = await s.call("inc")
        assert counted.text == "1"
        assert counted.notice is None
        assert (await s.rename("other name", metadata={"x": 1})).name == s.name == "other name"
        assert {each.service for each in (await s.bind("other")).services} == {"quick", "other"}
        await s.unbind("quick")
        with pytest.raises(ServiceNotBound):
            await s.call("inc")


async def test_a_loss_is_reported_once_and_apart_from_the_answer(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        await s.call("inc")
        with pytest.raises(OutcomeUnknown):
            await s.call("crash")
        result = await s.call("inc")
        assert result.text == "1"
        assert result.notice is not None
        assert result.session is not None
        assert result.session.generation == 2
        assert (await s.call("inc")).notice is None


async def test_a_history_holds_calls_and_notes_and_a_summary(embedded: Client) -> None:
    client = embedded
    async with client.session(services=["quick"]) as s:
        await s.call("inc", mark="m")
        note = await s.note("user", "remember this")
        assert (note.role, note.content) == ("user", "remember this")
        page = await s.history(kind=["call", "message"])
        assert [entry.kind for entry in page.entries] == ["call", "message"]
        assert page.entries[0].arguments == {"mark": "m"}
        assert "inc" in (await s.summary()).text
        assert (await s.summary("all went well", topics=["counting"])).topics == ["counting"]


async def test_tools_and_services_are_listed(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    assert tools["inc"].service == "quick"
    assert tools["inc"].session_argument == "session_id"
    assert "session_id" not in tools["inc"].arguments["properties"]
    assert "session_id" in tools["own_session"].arguments["properties"]
    assert tools["session_create"].service is None
    async with client.session(services=["other"]) as s:
        names = {tool.name for tool in await s.list_tools()}
        assert "other_inc" in names
        assert all(name.startswith("other_") for name in names)
        await s.call("other_inc")
        (value,) = await s.read_resource("quick://value", service="other")
        assert value.text == (await s.read_resource(value.uri))[0].text == "1"
        assert (await s.read_resource("state"))[0].text
    assert (await client.wait_service("quick", 20)).status == "available"
    with pytest.raises(ServiceUnavailable):
        await client.wait_service("nothing")
    assert (await client.stats()).sessions["closed"] > 0


async def test_a_session_moves_as_a_document(embedded: Client) -> None:
    client = embedded
    async with client.session("moved", state={"n": 1}) as s:
        document = await s.export()
    moved = await client.import_session(document, name="here")
    assert moved.id != s.id
    assert await moved.state.get() == {"n": 1}
    await moved.close()


async def test_a_merge_with_a_session_that_is_not_there_leaves_the_parent_open(
    embedded: Client,
) -> None:
    async with embedded.session() as s:
        with pytest.raises(SessionNotFound):
            await s.merge(["sh_" + "a" * 26])
        assert s.is_open
        await s.state.update({"n": 1})
    assert s.status == "closed"
