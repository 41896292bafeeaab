"""Upstream processes that die: the time until a session notices, and the error that its caller gets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.rig import Rig, rig
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import OutcomeUnknown, SessionClosed
from statehold.sessions.records import LOCAL
from statehold.sessions.transitions.create import CreationOptions

pytestmark = pytest.mark.fault


async def opened(node: Rig) -> str:
    return (await node.registry.create(LOCAL, CreationOptions())).id


async def test_a_killed_upstream_fails_only_its_own_call_and_is_recovered(
    tmp_path: Path, leaks: Any
):
    async with rig(tmp_path) as node:
        session, other = await opened(node), await opened(node)
        pid = (await node.call(session, "inc"))["structuredContent"]["pid"]
        await node.call(other, "inc")
        has_failed = anyio.Event()

        async def hang() -> None:
            with pytest.raises(OutcomeUnknown):
                await node.call(session, "hang")
            has_failed.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await node.arrived("hang")
            os.kill(pid, signal.SIGKILL)
            tasks.start_soon(node.call, other, "inc")
            with anyio.fail_after(10):
                await has_failed.wait()
        after = await node.answer(session, "inc")
        assert after.payload["structuredContent"]["count"] == 1
        assert after.session.generation == 2
        assert after.notice is not None
        assert "SIGKILL" in after.notice
        assert "Lost: everything" in after.notice
        assert (await node.answer(session, "inc")).notice is None
        assert (await node.call(other, "inc"))["structuredContent"]["count"] == 3
    await leaks.check()


async def test_a_death_changes_the_status_of_its_session_without_any_call(tmp_path: Path):
    async with rig(tmp_path) as node:
        session = await opened(node)
        pid = (await node.call(session, "inc"))["structuredContent"]["pid"]
        os.kill(pid, signal.SIGKILL)

        async def info_with_error() -> dict[str, Any] | None:
            info = await node.registry.info(LOCAL, session)
            # A session in error may be recovered before this check; then only the generation of its connection shows the
            # error.
            has_error = info["status"] != "idle" or info["services"][0]["generation"] == 2
            return info if has_error else None

        info = await until(info_with_error)
        assert info is not None
        assert "SIGKILL" in info["services"][0]["last_error"]


@pytest.mark.parametrize("stopped", matrix(False, True))
async def test_a_hanging_call_and_its_process_are_ended_by_force(
    tmp_path: Path, leaks: Any, stopped: bool
):
    """The limits are those of production."""
    async with rig(tmp_path) as node:
        session = await opened(node)
        pid = (await node.call(session, "inc"))["structuredContent"]["pid"]
        has_failed = anyio.Event()

        async def hang() -> None:
            with pytest.raises(SessionClosed):
                await node.call(session, "hang")
            has_failed.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await node.arrived("hang")
            if stopped:
                os.kill(pid, signal.SIGSTOP)
            with anyio.fail_after(10):
                await node.registry.close(LOCAL, session, force=True)
                await has_failed.wait()
            assert (await node.registry.info(LOCAL, session))["status"] == "closed"
    await leaks.check()


async def test_a_call_that_may_be_repeated_is_sent_again_by_itself(tmp_path: Path):
    async with rig(tmp_path) as node:
        session = await opened(node)
        await node.services["quick"].tools()
        pid = (await node.call(session, "inc"))["structuredContent"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        answers: list[int] = []

        async def get() -> None:
            answers.append((await node.call(session, "get"))["structuredContent"]["count"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(get)
            await node.in_flight(1)
            os.kill(pid, signal.SIGKILL)
        assert answers == [0]
