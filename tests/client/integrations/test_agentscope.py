"""agentscope's session API: modules of agents are kept in a Statehold, from one program to the next."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import ForkServer
from support.gateway_process import Running

from statehold.client.errors import SessionNotFound, StateInvalid
from statehold.client.integrations.agentscope import (
    JSONSession,
    SessionBase,
    SqliteSession,
    StateModule,
)


class ForeignMemory:
    """A module with the methods of agentscope's, of no base class of ours; it hands out its own list, as theirs do."""

    def __init__(self) -> None:
        self.content: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        return {"content": self.content}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        if strict and "content" not in state_dict:
            raise KeyError("content")
        self.content = state_dict.get("content", [])
        if "broken" in self.content:
            raise ValueError("broken")


class Plan(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.due: datetime.date | None = None
        self.steps: list[str] = []
        self.register_state("steps")
        self.register_state(
            "due",
            custom_to_json=lambda due: due and due.isoformat(),
            custom_from_json=lambda text: text and datetime.date.fromisoformat(text),
        )


class Agent(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.plan = Plan()
        self.memory = ForeignMemory()
        self.name = "friday"
        self.register_state("name")


@pytest.fixture
def session(tmp_path: Path) -> Generator[JSONSession]:
    session = JSONSession(save_dir=tmp_path)
    yield session
    session.close()


def used_agent() -> Agent:
    agent = Agent()
    agent.name = "alice's"
    agent.plan.due = datetime.date(2026, 12, 24)
    agent.plan.steps.append("greet")
    agent.memory.content.append(["hello", []])
    return agent


async def test_modules_at_any_depth_come_back_after_the_program_ended(
    session: JSONSession, tmp_path: Path
) -> None:
    agent, notes = used_agent(), ForeignMemory()
    await session.save_session_state(session_id="alice", agent=agent, notes=notes)
    await session.save_session_state(session_id="alice", user_id="bob", agent=Agent())
    session.close()

    later, memory = Agent(), ForeignMemory()
    again = JSONSession(session_id="alice", save_dir=tmp_path)
    result = await again.load_session_state(agent=later, notes=memory)
    assert result is not None
    assert (result.missing, later.state_dict()) == ([], agent.state_dict())
    await again.load_session_state(session_id="alice", user_id="bob", agent=later)
    assert (later.name, later.memory.content) == ("friday", [])
    # It has the same Statehold as the other object with this folder.
    assert again.client is session.client
    info = session.client.get("alice").info()
    assert (info.status, info.expires_at, info.services) == ("paused", None, [])


async def test_an_unknown_session_and_a_missing_module_are_named(session: JSONSession) -> None:
    agent, other = used_agent(), ForeignMemory()
    with pytest.raises(SessionNotFound, match="agent"):
        await session.load_session_state(session_id="nobody", allow_not_exist=False, agent=agent)
    with pytest.raises(TypeError, match="session_id"):
        await session.load_session_state(agent=agent)
    allowed = await session.load_session_state(session_id="nobody", agent=agent)
    assert allowed is None
    await session.save_session_state(session_id="alice", agent=Agent())
    with pytest.raises(SessionNotFound, match=r"other.*alice"):
        await session.load_session_state(
            session_id="alice", allow_not_exist=False, agent=agent, other=other
        )
    assert agent.name == "alice's"
    partly = await session.load_session_state(session_id="alice", agent=agent, other=other)
    assert partly is not None
    assert (partly.missing, agent.name) == (["other"], "friday")


async def test_a_load_that_fails_changes_no_module(session: JSONSession) -> None:
    agent, notes = used_agent(), ForeignMemory()
    notes.content = ["broken"]
    await session.save_session_state("alice", agent=Agent(), notes=notes)
    notes.content = ["mine"]
    before = agent.state_dict()
    with pytest.raises(ValueError, match="broken"):
        await session.load_session_state("alice", agent=agent, notes=notes)
    assert (agent.state_dict(), notes.content) == (before, ["mine"])


async def test_a_save_that_fails_changes_no_session(session: JSONSession) -> None:
    agent = used_agent()
    await session.save_session_state("alice", agent=agent)
    agent.memory.content = ["x" * (64 << 20)]
    with pytest.raises(StateInvalid):
        await session.save_session_state("alice", agent=agent)
    agent.memory.content = [object()]
    with pytest.raises(TypeError, match=r"agent\.memory"):
        await session.save_session_state("alice", agent=agent)
    with pytest.raises(TypeError, match="number"):
        await session.save_session_state("other", number=1)  # pyright: ignore[reportArgumentType]
    later = Agent()
    await session.load_session_state("alice", agent=later)
    assert later.memory.content == [["hello", []]]
    assert [each.name for each in session.client.list_sessions()] == ["alice"]


async def test_a_database_of_agentscope_beside_it_stays(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    file.write_bytes(b"theirs")
    session = SqliteSession(sqlite_path=file)
    try:
        await session.save_session_state("alice", agent=used_agent())
        later = Agent()
        await session.load_session_state("alice", agent=later)
        assert later.name == "alice's"
    finally:
        session.close()
    assert file.read_bytes() == b"theirs"


async def test_the_states_can_be_on_a_server(server: Running) -> None:
    session = JSONSession(session_id="on a server", url=server.url)
    try:
        await session.save_session_state(agent=used_agent())
        later = Agent()
        await session.load_session_state(agent=later)
        assert later.name == "alice's"
        session.client.get("on a server").close()
    finally:
        session.close()


async def test_a_program_has_a_store_of_its_own() -> None:
    class Own(SessionBase):
        async def save_session_state(
            self, session_id: str, user_id: str = "", **state_modules_mapping: Any
        ) -> None: ...

    with pytest.raises(TypeError, match="load_session_state"):
        Own()  # pyright: ignore[reportAbstractUsage]


@pytest.mark.thorough
def test_two_programs_use_one_folder_in_turn(tmp_path: Path, fork_server: ForkServer) -> None:
    """A session that one of them saved is free for the other at once."""
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\n"
        "from statehold.client.integrations.agentscope import JSONSession, StateModule\n"
        "class Notes(StateModule):\n"
        "    def __init__(self):\n"
        "        self.pages = []\n"
        "        self.register_state('pages')\n"
        "async def main():\n"
        "    session, notes = JSONSession(save_dir='sessions'), Notes()\n"
        "    for line in sys.stdin:\n"
        "        await session.load_session_state('a', allow_not_exist=True, notes=notes)\n"
        "        notes.pages.append(line.strip())\n"
        "        await session.save_session_state('a', notes=notes)\n"
        "        print(*notes.pages, flush=True)\n"
        "asyncio.run(main())\n"
    )
    programs = [
        subprocess.Popen(
            fork_server.command(str(program)),
            cwd=tmp_path,
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for number in range(4):
        one = programs[number % 2]
        assert one.stdin is not None
        assert one.stdout is not None
        one.stdin.write(f"{number}\n")
        one.stdin.flush()
        assert one.stdout.readline().split() == [str(n) for n in range(number + 1)]
    for one in programs:
        one.communicate(timeout=60)
        assert one.returncode == 0
