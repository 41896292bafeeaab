"""The live picture of a session: what viewers get, and when pages are captured."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from playwright.async_api import CDPSession
from support.browsing import Browse, opened, process_of, running
from support.ffmpeg import about, put_ffmpeg
from support.pixels import COUNTER, Pixels
from support.selection import matrix
from support.waiting import until

from statehold.tools.browser.devtools.world import send_command
from statehold.tools.browser.screencast import page_capture
from statehold.tools.browser.screencast.frames import PageCondition, ScreenFrame, ScreenUpdate
from statehold.tools.browser.screencast.screencast import ScreenViewer
from statehold.tools.browser.service import BrowserService

LIVE, DIALOG, CLOSED = PageCondition.LIVE, PageCondition.DIALOG, PageCondition.CLOSED


async def show(browse: Browse, html: str) -> None:
    """Show a page in the current tab; a session starts without one."""
    tab = await browse.connection.session.current()
    await tab.page.set_content(html)


async def next_update(viewer: ScreenViewer, condition: PageCondition) -> ScreenUpdate:
    """Return the next update with a condition."""
    with anyio.fail_after(10):
        async for update in viewer:
            if update.condition is condition:
                return update
    raise AssertionError("the updates ended")


async def next_frame(viewer: ScreenViewer) -> ScreenFrame:
    with anyio.fail_after(10):
        async for update in viewer:
            if update.frame is not None:
                return update.frame
    raise AssertionError("the updates ended")


async def frame_with(viewer: ScreenViewer, number: int, pixels: Pixels) -> ScreenFrame:
    """Return the next frame that shows a number."""
    with anyio.fail_after(10):
        while True:
            frame = await next_frame(viewer)
            if await pixels.count(frame.jpeg, frame.width, frame.height) == number:
                return frame


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The DevTools commands about screencasts that are sent meanwhile."""
    sent: list[str] = []
    send: Any = cast("Any", CDPSession).send

    async def note(self: CDPSession, method: str, params: Any = None) -> Any:
        if "creencast" in method:
            sent.append(method.removeprefix("Page."))
        return await send(self, method, params)

    monkeypatch.setattr(CDPSession, "send", note)
    return sent


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of the frames that browsers send meanwhile."""
    times: list[float] = []
    on: Any = cast("Any", CDPSession).on

    def note_time(_: object) -> None:
        times.append(time.monotonic())

    def note(self: CDPSession, event: str, receive: Any) -> Any:
        if event == "Page.screencastFrame":
            on(self, event, note_time)
        return on(self, event, receive)

    monkeypatch.setattr(CDPSession, "on", note)
    return times


async def test_a_frame_shows_what_the_page_painted_last(browse: Browse, pixels: Pixels) -> None:
    await browse.text("resize", width=900, height=500)
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch() as viewer:
        first = await frame_with(viewer, 0, pixels)
        assert (first.width, first.height, first.page_scale) == (900, 500, 1)
        assert first.tab == browse.tab.number
        assert abs(time.time() - first.captured_at) < 30
        for number in (1, 682, 341):
            await browse.value(f"paint({number})")
            frame = await frame_with(viewer, number, pixels)
            assert frame.number > first.number


async def test_the_last_of_many_paints_is_shown(browse: Browse, pixels: Pixels) -> None:
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch() as viewer:
        await next_frame(viewer)
        await browse.value(
            """() => { let number = 0; const next = () => { paint(++number);
                 if (number < 30) requestAnimationFrame(next); }; next(); }"""
        )
        await frame_with(viewer, 30, pixels)


async def test_a_frame_tells_scroll_offset_and_scales(service: BrowserService) -> None:
    async with opened(service) as browse:
        await show(browse, "<body style='margin:0;height:3000px;width:3000px'>")
        devtools = await browse.page.context.new_cdp_session(browse.page)
        async with browse.connection.screencast.watch() as viewer:
            first = await next_frame(viewer)
            await browse.value("scrollTo(40, 700)")
            with anyio.fail_after(10):
                while (frame := await next_frame(viewer)).scroll_y != 700:
                    pass
            assert frame.scroll_x == 40
            await send_command(devtools, "Emulation.setPageScaleFactor", {"pageScaleFactor": 2})
            with anyio.fail_after(10):
                while (frame := await next_frame(viewer)).page_scale != 2:
                    pass
            assert (frame.width, frame.height) == (first.width / 2, first.height / 2)


async def test_pages_are_captured_from_the_first_viewer_to_the_last(
    browse: Browse, commands: list[str]
) -> None:
    await show(browse, COUNTER)
    screencast = browse.connection.screencast
    assert commands == []
    async with screencast.watch() as first:
        await next_frame(first)
        async with screencast.watch() as second:
            await next_frame(second)
        assert commands.count("startScreencast") == 1
        assert "stopScreencast" not in commands
        await browse.value("paint(1)")
        await next_frame(first)
    assert commands[-1] == "stopScreencast"
    commands.clear()
    await browse.value("paint(2)")
    await browse.value("() => new Promise(requestAnimationFrame)")
    assert commands == []
    async with screencast.watch() as viewer:
        await next_frame(viewer)
    assert commands.count("startScreencast") == 1


async def test_frames_are_limited_and_each_is_acknowledged(
    browse: Browse, commands: list[str]
) -> None:
    await show(
        browse, COUNTER + "<script>let n = 0; setInterval(() => paint(n++ % 1000), 10)</script>"
    )
    times: list[float] = []
    async with browse.connection.screencast.watch() as viewer:
        with anyio.fail_after(20):
            async for update in viewer:
                if update.frame is not None:
                    times.append(time.monotonic())
                if len(times) == 15:
                    break
    seconds = times[-1] - times[0]
    assert seconds / page_capture.FRAME_SECONDS + 2 >= 15
    assert commands.count("screencastFrameAck") >= 13


async def test_a_slow_viewer_skips_frames_and_delays_nobody(browse: Browse, pixels: Pixels) -> None:
    await show(browse, COUNTER)
    screencast = browse.connection.screencast
    async with screencast.watch() as slow, screencast.watch() as fast:
        await next_frame(slow)
        for number in range(1, 8):
            await browse.value(f"paint({number})")
            await frame_with(fast, number, pixels)
        frame = await next_frame(slow)
        assert await pixels.count(frame.jpeg, frame.width, frame.height) == 7


async def test_a_still_page_sends_no_frames_but_is_known_to_be_live(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_capture, "HEARTBEAT_SECONDS", 0.1)
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch() as viewer:
        frame = await next_frame(viewer)
        with anyio.fail_after(10):
            while (update := await anext(viewer)).frame is not None:
                frame = update.frame
            for _ in range(3):
                update = await next_update(viewer, LIVE)
                assert update.frame is None
        assert update.current_at is not None
        assert update.current_at > frame.captured_at
        age = update.age(update.current_at + 3)
        assert age == pytest.approx(3)


async def test_a_dialog_is_told_with_its_question_and_its_end(browse: Browse) -> None:
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch() as viewer:
        await next_update(viewer, LIVE)
        await browse.value("setTimeout(() => prompt('Name?', 'Ada'))")
        update = await next_update(viewer, DIALOG)
        assert update.question is not None
        question = update.question
        assert (question.kind, question.message, question.default) == ("prompt", "Name?", "Ada")
        async with browse.connection.screencast.watch() as late:
            await next_update(late, DIALOG)
        await browse.text("handle_dialog", accept=False)
        assert (await next_update(viewer, LIVE)).question is None


async def test_a_crash_is_told_and_the_empty_tab_after_it_is_shown(browse: Browse) -> None:
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch() as viewer:
        frame = await next_frame(viewer)
        devtools = await browse.page.context.new_cdp_session(browse.page)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_command, devtools, "Page.crash")
            await next_update(viewer, PageCondition.CRASHED)
            tasks.cancel_scope.cancel()
        await browse.text("snapshot")
        after = await next_frame(viewer)
        assert after.tab != frame.tab


async def test_a_viewer_follows_the_current_tab_or_stays_with_its_own(browse: Browse) -> None:
    await show(browse, COUNTER)
    first = browse.tab.number
    screencast = browse.connection.screencast
    async with screencast.watch() as following, screencast.watch(first) as staying:
        assert (await next_frame(following)).tab == first
        assert (await next_frame(staying)).tab == first
        await browse.text("tabs", action="new")
        second = browse.tab.number
        with anyio.fail_after(10):
            while (await next_frame(following)).tab != second:
                pass
        await browse.text("tabs", action="close", index=0)
        assert (await next_update(staying, CLOSED)).tab == first
        with pytest.raises(StopAsyncIteration):
            await anext(staying)
        await browse.text("close")
        await next_update(following, PageCondition.NO_PAGE)
        await browse.text("tabs", action="list")
        assert (await next_frame(following)).tab not in (first, second)


async def test_a_viewer_of_a_tab_that_does_not_exist_is_told_so(browse: Browse) -> None:
    async with browse.connection.screencast.watch(99) as viewer:
        assert (await anext(viewer)).condition is CLOSED
        with pytest.raises(StopAsyncIteration):
            await anext(viewer)
    async with browse.connection.screencast.watch() as viewer:
        assert (await anext(viewer)).condition is PageCondition.NO_PAGE
        await show(browse, COUNTER)
        await next_update(viewer, LIVE)


async def test_frames_go_on_after_navigations_to_other_sites(browse: Browse, lab: str) -> None:
    async with browse.connection.screencast.watch() as viewer:
        await browse.text("navigate", url=f"{lab}/counter")
        first = await next_frame(viewer)
        await browse.text("navigate", url="data:text/html,<body bgcolor=red>")
        await browse.text("navigate", url=f"{lab.replace('127.0.0.1', 'localhost')}/counter")
        await browse.text("resize", width=700, height=400)
        with anyio.fail_after(10):
            while (frame := await next_frame(viewer)).width != 700:
                pass
        assert frame.number > first.number


@pytest.mark.parametrize("way", matrix("close", "death"))
async def test_updates_end_with_the_session(way: str, data: Path, shell: str) -> None:
    async with running(data, shell) as service, opened(service) as browse:
        await show(browse, COUNTER)
        async with browse.connection.screencast.watch() as viewer:
            await next_frame(viewer)
            if way == "close":
                await browse.connection.aclose()
            else:
                process = process_of(browse)
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
            await next_update(viewer, CLOSED)
            with pytest.raises(StopAsyncIteration):
                await anext(viewer)


@pytest.mark.thorough
async def test_a_video_and_viewers_do_not_disturb_each_other(
    data: Path, shell: str, tmp_path: Path, pixels: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_ffmpeg(tmp_path)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    async with running(data, shell, caps=["devtools"]) as service, opened(service) as browse:
        await show(browse, COUNTER)
        screencast = browse.connection.screencast
        async with screencast.watch() as first:
            await next_frame(first)
            await browse.text(
                "start_video", filename="both.webm", size={"width": 640, "height": 400}
            )
            for number in range(1, 11):
                async with screencast.watch() as second:
                    await browse.value(f"paint({number})")
                    await frame_with(first, number, pixels)
                    await frame_with(second, number, pixels)
            await browse.text("stop_video")
            await browse.value("paint(11)")
            frame = await frame_with(first, 11, pixels)
            assert (await pixels.size(frame.jpeg))[0] != 640
        video = browse.connection.session.files.folder / "both.webm"
        assert about(video)["source_size"] == (640, 400)


RUNNING = (
    COUNTER
    + """<script>
  let number = 0;
  const next = () => { paint(number++ % 1000); requestAnimationFrame(next); };
  next();
</script>"""
)
"""A page that paints as often as the browser lets it."""


@pytest.mark.thorough
async def test_a_viewer_at_a_low_rate_causes_few_captures_of_a_busy_page(
    browse: Browse, commands: list[str], captured: list[float]
) -> None:
    await show(browse, RUNNING)
    async with browse.connection.screencast.watch(fps=2) as viewer:
        started_at = time.monotonic()
        while time.monotonic() < started_at + 2.5:
            await next_frame(viewer)
        assert len(captured) <= 4 * (time.monotonic() - started_at) + 2
        assert commands.count("stopScreencast") >= 3


async def test_a_viewer_at_a_low_rate_causes_no_captures_of_a_still_page(
    browse: Browse,
    commands: list[str],
    captured: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_capture, "HEARTBEAT_SECONDS", 0.1)
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch(fps=2) as viewer:
        await next_frame(viewer)
        with anyio.fail_after(10):
            while (await anext(viewer)).frame is not None:
                pass
        commands.clear()
        captured.clear()
        for _ in range(5):
            assert (await next_update(viewer, LIVE)).frame is None
        assert (commands, captured) == ([], [])


async def test_the_last_paint_reaches_a_viewer_at_a_low_rate(
    browse: Browse, pixels: Pixels
) -> None:
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch(fps=2) as viewer:
        await next_frame(viewer)
        for last in (30, 60, 61):
            await browse.value(
                f"""() => {{ let number = {last - 30}; const next = () => {{ paint(++number);
                     if (number < {last}) requestAnimationFrame(next); }}; next(); }}"""
            )
            await frame_with(viewer, last, pixels)


@pytest.mark.thorough
async def test_a_capture_works_at_the_highest_rate_of_its_viewers(
    browse: Browse, commands: list[str], pixels: Pixels
) -> None:
    await show(browse, RUNNING)
    screencast = browse.connection.screencast
    async with screencast.watch(fps=1) as slow:
        await next_frame(slow)
        await until(lambda: "stopScreencast" in commands)
        async with screencast.watch() as fast:
            await until(lambda: commands.count("startScreencast") == 2)
            commands.clear()
            for _ in range(15):
                await next_frame(fast)
            assert "stopScreencast" not in commands
            await next_frame(slow)
        await until(lambda: "stopScreencast" in commands)
    await until(lambda: commands[-1] == "stopScreencast")


@pytest.mark.thorough
async def test_each_paint_that_waits_for_the_last_one_reaches_a_viewer_at_the_full_rate(
    browse: Browse, commands: list[str], pixels: Pixels
) -> None:
    await show(browse, COUNTER)
    async with browse.connection.screencast.watch() as viewer:
        await frame_with(viewer, 0, pixels)
        for number in range(1, 21):
            await browse.value(f"paint({number})")
            await frame_with(viewer, number, pixels)
    assert commands.count("startScreencast") == 1
