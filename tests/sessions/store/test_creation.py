"""New sessions: names, limits, and ids that are used once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from store_making import NODE, Sessions

from statehold.sessions.errors import (
    NameTaken,
    SessionLimit,
)
from statehold.sessions.lifecycle import Status
from statehold.sessions.store import Write
from statehold.sessions.store.sql import SQLStore


def write(session_id: str, epoch: int = 1, node: str = NODE, **parts: Any) -> Write:
    return Write(session_id, node, epoch, **parts)


async def test_a_name_is_taken_per_owner_and_namespace(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a", name="login")
    await sessions.make("sh_b", name="login", owner="somebody")
    await sessions.make("sh_c", name="login", namespace="team")
    with pytest.raises(NameTaken):
        await sessions.make("sh_d", name="login")
    record = await store.find("local", "team", "login")
    assert record is not None
    assert record.id == "sh_c"
    assert await store.find("local", "", "other") is None
    assert await store.get("sh_d") is None


@pytest.mark.parametrize("status", [Status.CLOSING, Status.CLOSED])
async def test_a_session_gives_its_name_up_when_it_closes(
    store: SQLStore, sessions: Sessions, status: Status
) -> None:
    await sessions.make("sh_a", name="login")
    await store.write(write("sh_a", session={"status": status}))
    assert await store.find("local", "", "login") is None
    await sessions.make("sh_b", name="login")
    record = await store.find("local", "", "login")
    assert record is not None
    assert record.id == "sh_b"
    old = await store.get("sh_a")
    assert old is not None
    assert old.name == "login"


async def test_a_limit_holds_for_creates_that_come_together(
    store: SQLStore, sessions: Sessions
) -> None:
    refused: list[str] = []

    async def make(number: int) -> None:
        try:
            await sessions.make(f"sh_{number}", per_owner=5)
        except SessionLimit as error:
            refused.append(error.code)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(make, number)
    assert len(refused) == 15
    assert await store.counts() == {"idle": 5}


async def test_of_creates_of_one_name_that_come_together_one_wins(
    store: SQLStore, sessions: Sessions
) -> None:
    won: list[int] = []

    async def make(number: int) -> None:
        try:
            await sessions.make(f"sh_{number}", name="same")
        except NameTaken:
            return
        won.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(make, number)
    assert len(won) == 1
