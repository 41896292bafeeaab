"""Tasks as their receipts record them: calls that go on without the requests that began them, and those that have ended.

The id of a task is the address of its receipt, `SESSION.OPERATION`.
"""

from __future__ import annotations

from typing import Final

import anyio

from ..errors import (
    NodeUnavailable,
    OwnedByAnotherNode,
    SessionError,
    SessionNotFound,
    StillRunning,
)
from ..journal.entries import STARTED
from ..json_codec import JSON
from ..records import HistoryFilter, Principal, ReceiptRecord
from ..registry import Registry
from ..times import timestamp
from .open_work import OpenWork

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at a task whose end is waited for: it may ask, or end in another process."""
CANCEL_SECONDS: Final = 2.0
"""Seconds that cancel() waits for the end of the call."""


def task_id(session: str, operation_id: str) -> str:
    """Return the id of the task of an operation: its session says who may see it, and which node has it."""
    return f"{session}.{operation_id}"


class TaskRecords:
    """The tasks of one registry. It keeps nothing between calls.

    Every method that takes a task raises SessionNotFound for one that the principal does not have, and OwnedByAnotherNode
    or NodeUnavailable if another node has it.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._running = registry.running_operations
        self._store = registry.core.store

    async def find(self, principal: Principal, task: str) -> tuple[ReceiptRecord, JSON]:
        """Return the receipt of a task, and its session, which is claimed if its process died: the answer comes there."""
        session, _, operation_id = task.partition(".")
        try:
            info = await self._registry.info(principal, session)
        except (OwnedByAnotherNode, NodeUnavailable):
            raise
        except SessionError:
            raise _unknown() from None
        # A name is no address.
        if info["session_id"] != session:
            raise _unknown()
        receipt = await self._store.receipt(session, operation_id)
        is_running = self._running.get(session, operation_id) is not None
        if receipt is not None and receipt.status == STARTED and not is_running:
            try:
                await self._registry.ready(principal, session)
                await self._store.flush()
                receipt = await self._store.receipt(session, operation_id)
            except (OwnedByAnotherNode, NodeUnavailable):
                raise
            except SessionError:
                pass
        if receipt is None:
            raise _unknown()
        return receipt, info

    async def wait(
        self, principal: Principal, task: str, seconds: float
    ) -> tuple[ReceiptRecord, JSON]:
        """Wait for the end of a task, and return its receipt and its session. Being cancelled leaves the task alone.

        Raises:
            StillRunning: it did not end within `seconds`, or it asks.
        """
        now = self._registry.core.clock.now
        deadline = now() + seconds
        while True:
            receipt, info = await self.find(principal, task)
            if receipt.status != STARTED:
                return receipt, info
            rest = deadline - now()
            work = self._work(receipt.session_id, receipt.operation_id)
            question = None if work is None else work.question
            if question is not None or rest <= 0 or self._registry.draining:
                blocked = None if work is None else work.blocked
                raise StillRunning(task, question) if blocked is None else blocked()
            with anyio.move_on_after(min(LOOK_SECONDS, rest)):
                await self._ended(receipt)

    async def list(self, principal: Principal, session_id: str | None = None) -> list[JSON]:
        """Return the calls that go on in the sessions of a principal, or in one of them, the latest first."""
        calls: list[JSON] = []
        for session, name, operation_id, tool, began_at in await self._store.open_calls(
            principal.key, session_id
        ):
            work = self._work(session, operation_id)
            question = None if work is None else work.question
            calls.append(
                {
                    "task_id": task_id(session, operation_id),
                    "session_id": session,
                    "session_name": name,
                    "tool": tool,
                    "began_at": timestamp(began_at),
                    "status": "working" if question is None else "input_required",
                    "question": question,
                    "message": None if work is None else work.message,
                }
            )
        return calls

    async def cancel(self, principal: Principal, task: str) -> str:
        """Cancel a call that this process runs, and wait for its end for a moment. Return the status of its receipt."""
        receipt, _ = await self.find(principal, task)
        work = self._work(receipt.session_id, receipt.operation_id)
        if work is None:
            return receipt.status
        work.scope.cancel()
        with anyio.move_on_after(CANCEL_SECONDS):
            await self._ended(receipt)
        return (await self.find(principal, task))[0].status

    async def called(self, receipt: ReceiptRecord) -> tuple[str, str]:
        """Return service and tool of a task, from its journal entry; both are empty if that is gone."""
        newest = HistoryFilter(before=receipt.seq + 1, limit=1)
        entries = await self._store.history(receipt.session_id, newest)
        if not entries or entries[0].seq != receipt.seq:
            return "", ""
        return entries[0].service or "", entries[0].tool or ""

    def _work(self, session: str, operation_id: str) -> OpenWork | None:
        """Return the work of a call, if this process has it: its own, or that of the process before."""
        operation = self._running.get(session, operation_id)
        if operation is None:
            return None
        return operation.work or (operation.hand_over and operation.hand_over.work)

    async def _ended(self, receipt: ReceiptRecord) -> None:
        operation = self._running.get(receipt.session_id, receipt.operation_id)
        if operation is None:
            await anyio.sleep_forever()
        else:
            await operation.ended.wait()


def _unknown() -> SessionNotFound:
    return SessionNotFound(
        "There is no such task.", recovery="Use the id as the call or a list of open calls has it."
    )
