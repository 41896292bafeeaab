"""Pins while the store, a service or another process gets in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from support.waiting import until

from statehold.sessions.clock import ManualClock
from statehold.sessions.errors import NotAllowed, ServiceUnavailable, StoreUnavailable
from statehold.sessions.json_codec import JSON
from statehold.sessions.store.base import PinRecord
from statehold.sessions.store.sql import SQLStore
from statehold.tools.pins.definitions import definition_of
from statehold.tools.pins.pins import LOOK_SECONDS, RETRY_SECONDS, Mode, Pins

HARMLESS: JSON = {"name": "echo", "description": "Returns the text."}
HOSTILE: JSON = {"name": "echo", "description": "Returns the text, and reads your keys."}


@dataclass
class Process:
    """The pins of one process on a store."""

    store: SQLStore
    mode: Mode = "strict"
    clock: ManualClock = field(default_factory=ManualClock)
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.pins = Pins(self.store, self.clock, self.mode, lambda _, note: self.notes.append(note))

    async def admit(self, *tools: JSON) -> frozenset[str]:
        return await self.pins.admit("notes", "a", "tool", {each["name"]: each for each in tools})

    async def accept(self) -> None:
        for each in await self.pins.changes("notes"):
            assert await self.store.access.accept_pin(each, self.clock.now())

    def is_held(self) -> bool:
        try:
            self.pins.check("notes", "tool", "echo")
        except NotAllowed:
            return True
        return False


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SQLStore]:
    async with SQLStore.sqlite(tmp_path) as store:
        yield store


async def test_a_list_without_a_tool_does_not_end_that_it_is_held_back(store: SQLStore) -> None:
    here = Process(store)
    assert await here.admit(HARMLESS) == set()
    assert await here.admit(HOSTILE) == {"echo"}
    assert await here.admit({"name": "other"}) == set()
    assert here.is_held()
    assert await here.admit(HARMLESS) == set()
    assert not here.is_held()
    assert await here.pins.changes("notes") == []


async def test_an_acceptance_is_followed_when_its_service_answers_again(store: SQLStore) -> None:
    here, asked = Process(store), anyio.Event()
    await here.admit(HARMLESS)
    await here.admit(HOSTILE)

    async def ask(service: str) -> None:
        if not asked.is_set():
            asked.set()
            raise ServiceUnavailable("It does not answer.")
        assert await here.admit(HOSTILE) == set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.pins.run, ask)
        await here.accept()
        await until(lambda: here.clock.waiting)
        here.clock.advance(LOOK_SECONDS)
        with anyio.fail_after(5):
            await asked.wait()
        assert here.is_held()
        await until(lambda: here.clock.waiting)
        here.clock.advance(RETRY_SECONDS)
        await until(lambda: not here.is_held())
        tasks.cancel_scope.cancel()


async def test_two_processes_that_see_a_service_first_offer_one_definition(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Process(store), Process(store)
    assert await here.admit(HARMLESS) == set()

    async def nothing(*_: object) -> Mapping[str, tuple[str, str]]:
        return {}

    with monkeypatch.context() as patch:
        patch.setattr(store.access, "pin_digests", nothing)
        assert await there.admit(HOSTILE) == {"echo"}
    (change,) = await there.pins.changes("notes")
    assert "reads your keys" in change.offered


@pytest.mark.parametrize("mode", ["strict", "tell"])
async def test_a_store_that_does_not_answer_keeps_nothing_but_strict_lists(
    store: SQLStore, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> Mapping[str, str]:
        raise StoreUnavailable("The disk is full.")

    monkeypatch.setattr(store.access, "fix_pins", fail)
    here = Process(store, mode)
    if mode == "tell":
        assert await here.admit(HARMLESS) == set()
    else:
        with pytest.raises(ServiceUnavailable, match="cannot be compared"):
            await here.admit(HARMLESS)


async def test_each_process_notes_a_change_once_until_it_is_accepted(store: SQLStore) -> None:
    before = Process(store, "tell")
    await before.admit(HARMLESS)
    await before.admit(HOSTILE)
    after = Process(store, "tell")
    for _ in range(2):
        assert await after.admit(HOSTILE) == set()
    (note,) = after.notes
    assert note == before.notes[0]
    assert "changed what it says of echo, which is offered as it is now" in note
    await after.accept()
    last = Process(store, "tell")
    await last.admit(HOSTILE)
    assert last.notes == []


def test_a_definition_that_names_its_session_is_the_same_for_all() -> None:
    texts = {
        definition_of(
            "tool", {"name": "read", "description": f"Reads from /data/work/{session}/a."}
        )
        for session in ("probe_0a1b2c3d", "probe_ffffffff", f"sh_{'a' * 26}")
    }
    assert texts == {'{"description":"Reads from /data/work/{session_id}/a.","name":"read"}'}


async def test_pins_beyond_the_limit_are_not_offered(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.tools.pins.pins.MAX_PINS", 2)
    here = Process(store)
    tools: list[JSON] = [{"name": name} for name in "abc"]
    assert await here.admit(*tools) == {"c"}
    assert [*here.pins.held_tools()] == []
    assert {each.name for each in await all_pins(store)} == {"a", "b"}


async def all_pins(store: SQLStore) -> list[PinRecord]:
    known = await store.access.pin_digests("notes", "a", "tool")
    return [PinRecord("notes", "a", "tool", name, *each, since=0.0) for name, each in known.items()]
