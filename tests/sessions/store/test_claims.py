"""Receipts that need no fence, over every database: the first claimant wins, and only it can end the claim."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from store_making import Sessions, session_record

from statehold.sessions.calls.receipts import Operation, creation_id
from statehold.sessions.errors import NameTaken, OperationBusy, SessionNotFound
from statehold.sessions.records import ReceiptRecord, StateRecord
from statehold.sessions.store.sql import SQLStore


def begun(operation: str = "op", digest: str = "d", session: str = "sh_a") -> ReceiptRecord:
    return Operation(session, operation, digest).start(session, 2.0)


def ended(receipt: ReceiptRecord, result: Any = None) -> ReceiptRecord:
    return receipt.model_copy(update={"status": "ok", "ended_at": 3.0, "result": result})


async def test_one_of_an_id_is_claimed(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a")
    claims: list[ReceiptRecord | None] = []

    async def claim(number: int) -> None:
        claims.append(await store.start_receipt(begun(digest=str(number))))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(claim, number)
    assert claims.count(None) == 1
    assert [each.digest for each in claims if each is not None] == ["0"] * 9
    with pytest.raises(SessionNotFound):
        await store.start_receipt(begun(session="sh_b"))


@pytest.mark.parametrize("behind", [False, True])
async def test_an_operation_ends_once_under_any_owner(
    store: SQLStore, sessions: Sessions, *, behind: bool
) -> None:
    await sessions.make("sh_a", status="paused", node=None)
    receipt = begun()
    assert await store.start_receipt(receipt) is None

    async def settle(record: ReceiptRecord, *, forget: bool = False) -> None:
        if behind:
            store.append_receipt(record, "ann", forget=forget)
            await store.flush()
        else:
            await store.end_receipt(record, forget=forget)

    for result in ({"n": 2**80}, {"n": 1}):
        await settle(ended(receipt, result))
        assert await store.receipt("sh_a", "op") == ended(receipt, {"n": 2**80})
    await settle(receipt, forget=True)
    assert await store.receipt("sh_a", "op") is not None
    assert await store.start_receipt(begun("other")) is None
    await settle(begun("other", digest="another call"), forget=True)
    assert await store.receipt("sh_a", "other") is not None
    await settle(begun("other"), forget=True)
    assert await store.receipt("sh_a", "other") is None


async def test_a_session_is_made_once_for_an_id_of_its_owner(
    store: SQLStore, sessions: Sessions
) -> None:
    async def make(session: str, owner: str = "me", operation: str = "op", **values: Any) -> None:
        await store.create(
            session_record(session, owner=owner, **values),
            StateRecord(session_id=session),
            [],
            per_owner=1,
            receipt=begun(creation_id(operation), session=session),
        )

    await make("sh_a", name="n")
    # The receipt is checked before the name, which is taken by now, and before the limit.
    with pytest.raises(OperationBusy) as caught:
        await make("sh_b", name="n")
    assert caught.value.session_id == "sh_a"
    assert await store.get("sh_b") is None
    with pytest.raises(NameTaken):
        await make("sh_b", operation="other", name="n")
    assert await store.receipts("sh_b") == (0, 0)
    await make("sh_c", owner="other")
    assert await store.receipt("sh_c", "op") is None
