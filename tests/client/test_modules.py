"""The states of an agent's own modules."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import pytest

from statehold.client import Client, StateModule
from statehold.client.errors import SessionNotFound


class Memory(StateModule):
    """A module without a call of `super().__init__()`, which is not needed."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.since: datetime.date | None = datetime.date(2026, 7, 28)
        self.register_state("pages")
        self.register_state("since", str, datetime.date.fromisoformat)


class Agent(StateModule):
    def __init__(self, name: str = "alice") -> None:
        super().__init__()
        self.name = name
        self.memory = Memory()
        self.plan: dict[str, Any] = {"steps": [1, None]}
        self.register_state("name")
        self.register_state("plan")


KEPT: dict[str, Any] = {
    "memory": {"pages": ["a"], "since": "2026-01-02"},
    "name": "bob",
    "plan": {"steps": []},
}


def test_modules_are_found_at_any_depth_and_come_first() -> None:
    agent = Agent()
    state = agent.state_dict()
    assert list(state) == ["memory", "name", "plan"]
    assert state["memory"] == {"pages": [], "since": "2026-07-28"}
    agent.memory.pages.append("later")
    state["plan"]["steps"].append(2)
    assert state["memory"]["pages"] == []
    assert agent.plan == {"steps": [1, None]}
    del agent.memory
    assert "memory" not in agent.state_dict()


def test_a_state_is_loaded_as_a_copy() -> None:
    agent = Agent()
    loaded = agent.load_state_dict({**KEPT, "more": 1, "memory": {**KEPT["memory"], "x": 1}})
    assert (loaded.missing, sorted(loaded.unknown)) == ([], ["memory.x", "more"])
    assert agent.state_dict() == KEPT
    assert agent.memory.since == datetime.date(2026, 1, 2)
    agent.plan["steps"].append(1)
    assert KEPT["plan"] == {"steps": []}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"plan": None, "memory": {"pages": ["x"]}}, KeyError),
        ({"memory": None}, TypeError),
        ({"memory": {"pages": ["x"], "since": "never"}}, ValueError),
    ],
)
def test_an_invalid_state_changes_nothing(changes: Any, kind: type[Exception]) -> None:
    agent = Agent()
    before = agent.state_dict()
    with pytest.raises(kind):
        agent.load_state_dict({**KEPT, **changes})
    assert agent.state_dict() == before


def test_an_attribute_that_cannot_be_set_undoes_the_others() -> None:
    class Stubborn(StateModule):
        def __init__(self) -> None:
            self.first = 1
            self.register_state("first")
            self.register_state("second")

        @property
        def second(self) -> int:
            return 2

    module = Stubborn()
    with pytest.raises(AttributeError):
        module.load_state_dict({"first": 5, "second": 6})
    assert module.first == 1


def test_missing_attributes_stay_if_that_is_allowed() -> None:
    agent = Agent()
    loaded = agent.load_state_dict({"name": "carol"}, strict=False)
    assert loaded.missing == ["memory", "plan"]
    assert (agent.name, agent.plan) == ("carol", {"steps": [1, None]})


def test_registered_attributes_are_checked() -> None:
    agent = Agent()
    agent.made = {1, 2}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match="made"):
        agent.register_state("made")
    with pytest.raises(AttributeError):
        agent.register_state("nothing")
    with pytest.raises(ValueError, match="memory"):
        agent.register_state("memory")
    with pytest.raises(ValueError, match="name"):
        agent.name = Memory()  # pyright: ignore[reportAttributeAccessIssue]
    agent.memory.pages = [object()]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match=r"memory\.pages"):
        agent.state_dict()


async def test_several_modules_are_kept_in_a_session_and_come_back(embedded: Client) -> None:
    client = embedded
    alice, bob, memory = Agent("alice"), Agent("bob"), Memory()
    memory.pages.append("one")
    await client.save_session_state("user_a", agent=alice, memory=memory)
    await client.save_session_state("user_b", agent=bob)
    session = await client.get("user_a")
    await session.state.update({"own": 1})
    memory.pages.append("two")
    await client.save_session_state(session, memory=memory)
    agent, fresh = Agent("nobody"), Memory()
    loaded = await client.load_session_state("user_a", agent=agent, memory=fresh)
    assert loaded is not None
    assert (agent.state_dict(), fresh.pages) == (alice.state_dict(), ["one", "two"])
    assert await session.state.get("/own") == 1
    assert agent.plan == {"steps": [1, None]}
    with pytest.raises(SessionNotFound, match="other"):
        await client.load_session_state("user_b", agent=agent, other=fresh)
    assert agent.name == "alice"
    some = await client.load_session_state("user_b", agent=agent, other=fresh, allow_not_exist=True)
    assert some is not None
    assert (agent.name, some.missing) == ("bob", ["other"])
    with pytest.raises(SessionNotFound):
        await client.load_session_state("user_c", agent=agent)
    assert await client.load_session_state("user_c", agent=agent, allow_not_exist=True) is None
    gone = await client.get("user_b")
    await gone.close()
    for view in ("user_b", gone, gone.id):
        agent = Agent("nobody")
        # It is closed, and what it kept is there: the program does not start afresh.
        kept = await client.load_session_state(view, agent=agent, allow_not_exist=True)
        assert kept is not None
        assert agent.name == "bob"
    before = await session.state.get()
    memory.pages.append(object())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"memory\.pages"):
        await client.save_session_state(session, agent=bob, memory=memory)
    assert await session.state.get() == before


def test_a_copy_of_a_module_and_the_module_keep_to_their_own_attributes() -> None:
    agent = Agent()
    agent.memory.pages.append("mine")
    other = copy.copy(agent)
    other.memory = Memory()
    other.more = 1  # pyright: ignore[reportAttributeAccessIssue]
    other.register_state("more")
    del other.plan
    assert agent.state_dict()["memory"]["pages"] == ["mine"]
    assert list(agent.state_dict()) == ["memory", "name", "plan"]
    assert list(other.state_dict()) == ["memory", "name", "more"]


@pytest.mark.parametrize("name", ["strict", "allow_not_exist"])
async def test_a_module_is_not_called_as_an_option_of_loading_is(
    embedded: Client, name: str
) -> None:
    with pytest.raises(TypeError, match=name):
        await embedded.save_session_state("of options", **{name: Memory()})
    with pytest.raises(SessionNotFound):
        await embedded.get("of options")
