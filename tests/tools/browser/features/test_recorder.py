"""The code of calls, recorded between two tools."""

from __future__ import annotations

import pytest
from support.browsing import Browse, section

from statehold.tools.browser.session.recording.markdown_log import MAX_LINES

pytestmark = pytest.mark.peer


async def recorded(browse: Browse) -> list[str]:
    text = section(await browse.text("stop_recording"), "Result")
    return text.partition("```python\n")[2].removesuffix("\n```").splitlines()


async def test_a_recording_is_the_code_of_the_calls_that_did_not_fail(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    assert "Recording started" in await browse.text("start_recording")
    await browse.text("navigate", url=f"{lab}/form")
    await browse.error("click", target="text=Nowhere")
    await browse.text("type", target="[name=first]", text="it's")
    await browse.text("snapshot")
    await browse.text("press_key", key="Escape")
    lines = await recorded(browse)
    assert lines[0] == f"await page.goto('{lab}/form')"
    assert lines[1].endswith(""".fill("it's")""")
    assert lines[2:] == ["await page.keyboard.press('Escape')"]


@pytest.mark.thorough
async def test_there_is_one_recording_at_a_time_and_another_after_it(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    assert "begins one" in await browse.error("stop_recording")
    await browse.text("start_recording")
    assert "browser_stop_recording ends it" in await browse.error("start_recording")
    assert await recorded(browse) == ["# nothing was done"]
    await browse.text("click", target="text=Increment")
    await browse.text("start_recording")
    await browse.text("click", target="text=Redraw")
    (line,) = await recorded(browse)
    assert "Redraw" in line


@pytest.mark.thorough
async def test_a_recording_counts_the_lines_that_have_no_room(browse: Browse) -> None:
    await browse.text("start_recording")
    browse.connection.session.recorded_code.add(["await page.reload()"] * (MAX_LINES - 1))
    await browse.text("press_key", key="a")
    await browse.text("press_key", key="b")
    assert (await recorded(browse))[-2:] == [
        "await page.keyboard.press('a')",
        "# 1 more lines were left out",
    ]
