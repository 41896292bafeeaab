"""The pages of a session without calls."""

from __future__ import annotations

import pytest
from support.browsing import Browse
from support.loop_clock import LoopClock
from support.waiting import until

from statehold.tools.browser.connection import COLLECT_SECONDS, WATCH_SECONDS

pytestmark = pytest.mark.peer

LEAVE_GARBAGE = """() => {
  globalThis.registry = new FinalizationRegistry(() => { globalThis.collected = true });
  registry.register({});
}"""
COLLECTED = "() => new Promise(done => setTimeout(() => done(globalThis.collected === true), 50))"


async def test_pages_collect_their_garbage_when_the_session_is_idle(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    for _ in range(2):
        await browse.text("evaluate", function=LEAVE_GARBAGE)
        await browse.value("() => { globalThis.collected = false }")
        loop_clock = LoopClock(monkeypatch)
        await loop_clock.by(WATCH_SECONDS)
        assert not await browse.value(COLLECTED)
        await loop_clock.by(COLLECT_SECONDS)
        await until(lambda: browse.value(COLLECTED))
        monkeypatch.undo()
    assert "Counter" in await browse.text("snapshot")
