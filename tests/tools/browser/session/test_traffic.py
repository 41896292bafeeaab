"""Pages that always talk to their server do not hold an action."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import anyio
import pytest
from lab import Lab
from support.browsing import Browse, section
from support.selection import matrix
from support.waiting import until

from statehold.tools.browser.session import traffic

pytestmark = pytest.mark.peer


def wait_long(browse: Browse) -> None:
    """Let actions take so long for their effects that a wait for all of the time fails the test."""
    session = browse.connection.session
    session.config = session.config.model_copy(
        update={"settle_seconds": 1000.0, "snapshot": "full"}
    )


@pytest.mark.parametrize(
    "way", matrix("open", "often", "xhr", "again", "cursor", "shown", "socket", quick=2)
)
async def test_a_page_that_always_talks_holds_no_action(
    browse: Browse, lab_site: Lab, way: str
) -> None:
    wait_long(browse)
    with anyio.fail_after(25):
        text = await browse.text("navigate", url=f"{lab_site.url}/talk?{way}")
        assert 'button "Press"' in section(text, "Snapshot")
        assert ("open (GET /api/gate/talk)" in text) == (way in ("open", "xhr"))
        text = await browse.text("click", target=await browse.ref("Press"))
        assert "pressed" in section(text, "Snapshot")
        assert "/api/gate" not in text


async def test_an_endless_request_is_waited_for_once_and_reported_for_each_page(
    browse: Browse, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(browse)
    for _ in range(2):
        with anyio.fail_after(25):
            text = await browse.text("navigate", url=f"{lab_site.url}/talk?open")
        assert "1 request was still open (GET /api/gate/talk); wait" in section(text, "Events")
        monkeypatch.setattr(traffic, "DATA_SECONDS", 1000.0)


@pytest.mark.thorough
async def test_a_request_that_is_only_slow_is_waited_for_on_the_next_page(
    browse: Browse, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "DATA_SECONDS", 0.1)
    monkeypatch.setattr(traffic, "SLOW_SECONDS", 1000.0)
    wait_long(browse)
    await browse.text("navigate", url=f"{lab_site.url}/talk?open")
    async with browse.page.expect_event("requestfinished"):
        lab_site.open("talk")
    monkeypatch.setattr(traffic, "DATA_SECONDS", 1000.0)
    assert "still open" not in await browse.text("navigate", url=f"{lab_site.url}/talk?open")


@pytest.mark.thorough
async def test_a_click_waits_for_its_own_request_on_a_page_that_talks(
    browse: Browse, lab_site: Lab
) -> None:
    wait_long(browse)
    await browse.text("navigate", url=f"{lab_site.url}/talk?often")
    await browse.value(
        "() => { document.querySelector('button').onclick = async () => {"
        " say('loading'); say(await ask('/api/gate/click')); }; }"
    )
    texts: list[str] = []

    async def click() -> None:
        texts.append(await browse.text("click", target="text=Press"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(click)
        await lab_site.hits.wait_for("/api/gate/click")
        await lab_site.hits.wait_for("/api/slow", count=len(lab_site.hits) + 40)
        lab_site.open("click")
    assert "through the gate" in section(texts[0], "Snapshot")


async def test_parallel_requests_to_an_endpoint_are_all_waited_for(
    browse: Browse, lab_site: Lab
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/counter")
    page_traffic = browse.tab.traffic
    requests = page_traffic.begin_action()
    await browse.page.evaluate("""async () => {
      const ask = () => fetch("/frame?name=quick").then(answer => answer.text());
      for (let n = 0; n < 2; n++) void fetch("/frame?gate=late");
      await Promise.all([ask(), ask(), ask()]);
    }""")
    await until(lambda: len(page_traffic.pending) == 2)
    assert page_traffic.seconds_to_wait(requests, loads=False) == inf
    async with browse.page.expect_request("**/frame?gate=late&again"):
        await browse.page.evaluate("() => void fetch('/frame?gate=late&again')")
    assert len(page_traffic.pending) == 3
    assert page_traffic.seconds_to_wait([requests[-1]], loads=False) == 0
    lab_site.open("late")


async def test_an_endpoint_that_was_slow_once_is_waited_for_again(
    browse: Browse, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/counter")
    page_traffic = browse.tab.traffic

    seconds = 0.0
    monkeypatch.setattr(traffic, "time", SimpleNamespace(monotonic=lambda: seconds))

    async def ask(gate: str) -> float:
        """Send a request and return the seconds for which an action waits for it."""
        requests = page_traffic.begin_action()
        async with browse.page.expect_request(f"**/frame?gate={gate}"):
            await browse.page.evaluate(
                f"() => void fetch('/frame?gate={gate}').then(a => a.text())"
            )
        assert len(page_traffic.pending) == 1
        return page_traffic.seconds_to_wait(requests, loads=False)

    async def answer(gate: str) -> None:
        lab_site.open(gate)
        await until(lambda: not page_traffic.pending)

    assert await ask("slow") == inf
    assert len(page_traffic.take_open(page_traffic.recent)) == 1
    seconds = 10.0
    await answer("slow")
    assert await ask("quick") == 0
    seconds = 11.0
    await answer("quick")
    assert await ask("next") == inf
    lab_site.open("next")
