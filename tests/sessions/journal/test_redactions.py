"""Redaction that takes long delays its own caller only."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
import pytest
from support.counting import Nobody
from support.engine import Build, Engine

from statehold.sessions.calls.request import Request
from statehold.sessions.journal import entries
from statehold.sessions.journal.entries import CallEntry, excerpt
from statehold.sessions.journal.redaction import Redactor
from statehold.sessions.records import LOCAL, HistoryFilter, JournalKind, JournalRecord, Principal
from statehold.sessions.services import ToolResult

BOB = Principal(issuer="token", subject="bob")


class _Pausable(Redactor):
    """A redactor that waits, at a text with `slow`, until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def text(self, text: str, limit: int | None = None) -> str:
        if "slow" in text:
            self.reached.set()
            assert self.go_on.wait(30)
        return super().text(text, limit)


async def _call(home: Engine, session: str, principal: Principal = LOCAL, **more: Any) -> None:
    arguments = {"text": "slow " * 700 if principal is LOCAL else "x" * 5000}
    request = Request(principal, session, "counter", "inc", arguments, **more)
    await home.router.call(request, Nobody())


async def _calls_in_journal(home: Engine, session: str) -> list[JournalRecord]:
    await home.store.flush()
    return await home.store.history(session, HistoryFilter(kinds=[JournalKind.CALL]))


@pytest.mark.parametrize("operation", [None, "op"])
async def test_the_writes_of_others_go_on_while_one_call_is_redacted(
    build: Build, monkeypatch: pytest.MonkeyPatch, operation: str | None
) -> None:
    slow = _Pausable()
    async with build() as home:
        monkeypatch.setattr(home.registry.core.redactions, "_redactor", slow)
        object.__setattr__(home.registry.core, "redactor", slow)
        mine, other = (await home.create()).id, (await home.create(BOB)).id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: _call(home, mine, operation_id=operation))
            await anyio.to_thread.run_sync(slow.reached.wait, 20)
            with anyio.fail_after(20):
                await _call(home, other, BOB)
                assert len(await _calls_in_journal(home, other)) == 1
            slow.go_on.set()
        [entry] = await _calls_in_journal(home, mine)
        assert entry.request == {"text": "slow " * 700}


async def test_the_texts_of_a_call_that_waits_too_long_are_left_out(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "SECONDS", 0.2)
    slow = _Pausable()
    async with build() as home:
        monkeypatch.setattr(home.registry.core.redactions, "_redactor", slow)
        object.__setattr__(home.registry.core, "redactor", slow)
        mine = (await home.create()).id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_call, home, mine)
            await anyio.to_thread.run_sync(slow.reached.wait, 20)
            await _call(home, mine)
            slow.go_on.set()
        requests = [entry.request for entry in await _calls_in_journal(home, mine)]
        assert {"withheld": True} in requests
        assert len(requests) == 2


async def test_a_call_whose_redaction_takes_too_long_is_answered_meanwhile(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "SECONDS", 0.2)
    slow = _Pausable()
    async with build() as home:
        monkeypatch.setattr(home.registry.core.redactions, "_redactor", slow)
        object.__setattr__(home.registry.core, "redactor", slow)
        session = (await home.create()).id
        try:
            with anyio.fail_after(20):
                await _call(home, session)
                await _call(home, session)
        finally:
            slow.go_on.set()
        requests = [entry.request for entry in await _calls_in_journal(home, session)]
        assert requests == [{"withheld": True}] * 2


def test_a_late_redaction_does_not_replace_texts_that_were_withheld() -> None:
    slow = _Pausable()
    entry = _entry({"text": "slow"}, ToolResult({"content": []}), slow)
    thread = threading.Thread(target=entry.redact)
    thread.start()
    assert slow.reached.wait(20)
    entry.withhold()
    slow.go_on.set()
    thread.join()
    assert entry.record().request == {"withheld": True}


@pytest.mark.parametrize(
    "secrets",
    [
        ["%" * 255 + str(n) for n in range(5000)],
        [f"{n:04}" for n in range(5000)],
        ["+" * 200 + "\u00e9\\\"'" * 20 + str(n) for n in range(5000)],
        {f"{'%20' * 100}{n}": [f"%{n}"] for n in range(5000)},
        [[[["%41" * n]]] for n in range(800)],
    ],
)
def test_thousands_of_secrets_are_bounded_and_none_is_kept(secrets: Any) -> None:
    text = "%" * 255 + "4999 0042 " + "%41" * 200
    outcome = ToolResult({"content": [{"type": "text", "text": text}] * 20})
    started = time.process_time()
    record = _entry({"password": secrets, "other": text}, outcome).record()
    assert time.process_time() - started < 2.0
    assert record.result is not None
    assert record.result["content"] == ["[redacted]"] * 20


def test_hundreds_of_secrets_are_replaced_one_by_one() -> None:
    secrets = [f"secret {n}%" for n in range(400)]
    text = "a secret 7%, b secret%20399%25, c secret+8%25 d secret nine"
    outcome = ToolResult({"content": [{"type": "text", "text": text}]})
    record = _entry({"password": secrets}, outcome).record()
    assert record.result is not None
    assert record.result["content"] == ["a [redacted], b [redacted], c [redacted] d secret nine"]


def test_a_text_too_long_to_search_is_left_out() -> None:
    redacted = Redactor().value({"state": "x" * 300_000, "y" * 300_000: "z"})
    assert redacted == {
        "state": "[redacted] (300000 characters)",
        "[redacted] (300000 characters)": "z",
    }


def _entry(
    arguments: dict[str, Any], outcome: ToolResult, redactor: Redactor | None = None
) -> CallEntry:
    head = ("s", "n", 1, 1, "counter", "inc", arguments, 1.0, 2.0, 1, excerpt(outcome))
    return CallEntry(*head, None, None, 4096, redactor or Redactor())
