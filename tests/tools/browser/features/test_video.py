"""Traces and videos."""

from __future__ import annotations

import io
import os
import signal
import zipfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from playwright.async_api import Page
from playwright.async_api._generated import Screencast, Tracing
from support.browsing import Browse, opened, pid_of, process_of, running, section, text_of
from support.ffmpeg import about, put_ffmpeg
from support.waiting import until

from statehold.tools.browser.process.executables import Machine, ffmpeg_path
from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Playwright's downloads with its ffmpeg."""
    folder = tmp_path_factory.mktemp("playwright")
    put_ffmpeg(folder)
    return folder


@pytest.fixture(scope="module")
async def filming(
    service: BrowserService, shell: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[BrowserService]:
    """The service of all tests that film; its driver starts with the first session."""
    async with running(tmp_path_factory.mktemp("data"), shell, caps=["devtools"]) as filming:
        yield filming


@pytest.fixture
async def filmed(
    filming: BrowserService, downloads: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Browse]:
    """A session whose browser can be filmed."""
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(downloads))
    async with opened(filming) as browse:
        yield browse


async def test_a_trace_becomes_a_file_of_the_session(browse: Browse, lab: str) -> None:
    assert "Trace recording started" in await browse.text("start_tracing")
    assert browse.connection.busy == "a trace is on"
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("click", target="text=Increment")
    result = await browse.call("stop_tracing")
    uri = f"session://{browse.view.id}/browser/files/trace.zip"
    assert f"Trace recording stopped.\n- [Trace]({uri})" in text_of(result)
    assert result.payload["content"][1]["uri"] == "files/trace.zip"
    assert browse.connection.busy is None

    files = browse.connection.session.files
    data, _ = await files.read("files/trace.zip")
    assert "trace.trace" in zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert (files.folder / "trace.zip").stat().st_mode & 0o077 == 0


async def test_stopping_a_trace_removes_its_raw_files(browse: Browse, lab: str) -> None:
    folder = process_of(browse).folder
    assert folder is not None

    def holding(text: str) -> list[Path]:
        files = [path for path in folder.glob("playwright-artifacts-*/**/*") if path.is_file()]
        return [path for path in files if text.encode() in path.read_bytes()]

    await browse.text("start_tracing")
    await browse.text("navigate", url=f"{lab}/form")
    await browse.text("type", target="[name=secret]", text="hunter2-secret")
    assert holding("hunter2-secret")
    await browse.text("stop_tracing")
    assert not holding("hunter2-secret")
    await browse.text("start_tracing")
    await browse.text("type", target="[name=secret]", text="hunter3-secret")
    assert "files/trace-2.zip)" in await browse.text("stop_tracing")
    assert not holding("hunter3-secret")


async def test_there_is_one_trace_at_a_time(browse: Browse) -> None:
    assert "Tracing is not started" in await browse.error("stop_tracing")
    await browse.text("start_tracing")
    assert "browser_stop_tracing ends it" in await browse.error("start_tracing")
    await browse.text("stop_tracing")
    await browse.text("start_tracing")
    assert "/browser/files/trace-2.zip)" in await browse.text("stop_tracing")


@pytest.mark.parametrize("method", ["start", "stop"])
async def test_a_cancelled_trace_is_not_on(
    browse: Browse, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    whole = getattr(Tracing, method)

    async def late(self: Tracing, **options: Any) -> None:
        if method == "stop":
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        await whole(self, **options)
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    if method == "stop":
        await browse.text("start_tracing")
    with monkeypatch.context() as patch, anyio.CancelScope() as scope:
        patch.setattr(Tracing, method, late)
        await browse.call(f"{method}_tracing")
    assert browse.connection.busy is None
    text = await browse.text("start_tracing")
    assert ("The trace is lost" in text) == (method == "stop")
    assert "files/trace.zip" in await browse.text("stop_tracing")


async def let_expire(browse: Browse) -> str:
    """Start a trace whose time is over at once, and return the message about it."""
    over = anyio.Event()
    trace = browse.connection.session.trace

    async def waiting(_: float) -> None:
        await over.wait()

    trace.pause_hold._sleep = waiting  # pyright: ignore[reportPrivateUsage]
    await browse.text("start_tracing")
    over.set()
    # News wait for the next call.
    await until(lambda: browse.connection.session.event_lines)
    return section(await browse.text("snapshot"), "Events")


async def test_a_trace_ends_by_itself_and_is_reported(browse: Browse) -> None:
    events = await let_expire(browse)
    uri = f"session://{browse.view.id}/browser/files/trace.zip"
    assert f"The trace ended by itself after 1800 seconds: {uri}" in events
    assert browse.connection.busy is None


async def test_a_trace_without_room_is_reported_as_lost(browse: Browse) -> None:
    folder = browse.connection.session.files.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()
    try:
        await browse.text("start_tracing")
        assert "The trace is lost: " in await browse.error("stop_tracing")
        assert "The trace is lost: " in await let_expire(browse)
    finally:
        folder.unlink()
    await browse.text("start_tracing")
    assert "files/trace.zip" in await browse.text("stop_tracing")


async def test_a_session_that_closes_holds_nothing(service: BrowserService) -> None:
    async with opened(service) as browse:
        await browse.text("start_tracing")
        await browse.text("start_recording")
        session = browse.connection.session
    assert session.holds == set()


@pytest.mark.skipif(ffmpeg_path(Machine()).exists(), reason="Playwright's ffmpeg is installed")
async def test_without_ffmpeg_a_video_says_what_is_missing(browse: Browse) -> None:
    for _ in range(2):
        text = await browse.error("start_video")
        assert "`playwright install ffmpeg` installs it" in section(text, "Error")
    assert browse.connection.busy is None
    assert await browse.connection.session.files.names() == []


async def test_a_video_becomes_a_file_for_each_page(filmed: Browse, lab: str) -> None:
    await filmed.text("navigate", url=f"{lab}/counter")
    size = {"width": 320, "height": 200}
    await filmed.text("start_video", filename="mine", size=size, fps=10, cursor=True)
    assert filmed.connection.busy == "a video is on"
    assert "browser_stop_video ends it" in await filmed.error("start_video")
    await filmed.text("click", target="text=Increment")
    await filmed.text("tabs", action="new", url=f"{lab}/form")
    # A page that is closed by a tool has its video too.
    await filmed.text("tabs", action="close")
    result = await filmed.call("stop_video")
    names = sorted(block["name"] for block in result.payload["content"][1:])
    assert names == ["mine-2.webm", "mine.webm"]
    files = filmed.connection.session.files
    data, mime = await files.read("files/mine.webm")
    assert data.startswith(b"\x1aE\xdf\xa3")
    assert mime == "video/webm"
    for name in names:
        facts = await anyio.to_thread.run_sync(about, files.folder / name)
        assert facts["size"] == (320, 200)
        assert facts["duration"] > 0
    assert filmed.connection.busy is None


@pytest.mark.thorough
async def test_the_video_of_a_page_that_closes_itself_is_reported_as_lost(
    filmed: Browse, lab: str
) -> None:
    await filmed.text("start_video")
    await filmed.text("navigate", url=f"{lab}/popup")
    await filmed.text("tabs", action="new")
    await filmed.text("stop_video")
    await filmed.text("start_video")
    await filmed.page.close()
    result = await filmed.call("stop_video")
    assert "is lost" in section(text_of(result), "Events")


@pytest.mark.thorough
async def test_a_video_that_is_about_to_begin_when_all_are_ended_does_not_go_on(
    filmed: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    films = filmed.connection.session.videos
    whole, begun, let_go = films._begin, anyio.Event(), anyio.Event()  # pyright: ignore[reportPrivateUsage]

    async def begin(page: Page) -> None:
        begun.set()
        await let_go.wait()
        await whole(page)

    await filmed.text("start_video")
    monkeypatch.setattr(films, "_begin", begin)
    await filmed.text("tabs", action="new")
    with anyio.fail_after(20):
        await begun.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(filmed.text, "stop_video")
            await anyio.wait_all_tasks_blocked()
            let_go.set()
    await filmed.text("start_video")
    await filmed.text("stop_video")


@pytest.mark.thorough
async def test_a_video_ends_though_its_last_call_is_cancelled(
    filmed: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Screencast.stop

    async def stop(self: Screencast) -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        await whole(self)

    await filmed.text("start_video", filename="made.webm")
    with monkeypatch.context() as patch, anyio.CancelScope() as scope:
        patch.setattr(Screencast, "stop", stop)
        await filmed.call("stop_video")
    assert scope.cancel_called
    files = filmed.connection.session.files
    facts = await anyio.to_thread.run_sync(about, files.folder / "made.webm")
    assert facts["duration"] > 0
    await filmed.text("start_video")
    await filmed.text("stop_video")


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_an_unfinished_video_is_removed_with_its_session(
    filmed: Browse, lab: str, how: str
) -> None:
    await filmed.text("navigate", url=f"{lab}/counter")
    await filmed.text("start_video", filename="made.webm")
    files = filmed.connection.session.files
    assert await files.names() == ["made.webm"]
    if how == "killed":
        os.kill(pid_of(process_of(filmed), "browser"), signal.SIGKILL)
        with anyio.fail_after(5):
            await filmed.connection.lost.wait()
    await filmed.connection.aclose()
    assert await files.names() == []


@pytest.mark.thorough
async def test_a_chosen_name_is_that_of_the_first_video(filmed: Browse) -> None:
    await filmed.text("start_video", filename="made")
    await filmed.text("stop_video")
    await filmed.text("start_video", filename="made")
    text = await filmed.text("stop_video")
    assert "The video made.webm replaced the file of that name." in section(text, "Events")
    assert await filmed.connection.session.files.names() == ["made.webm"]


async def test_nothing_filmed_is_no_error(browse: Browse) -> None:
    assert "No videos were recorded." in await browse.text("stop_video")


@pytest.mark.thorough
async def test_chapters_and_names_of_actions_are_shown(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    assert "Chapter 'One' added." in await browse.text(
        "video_chapter", title="One", description="The first", duration=20
    )
    style = {"title": "font-size: 12px"}
    text = await browse.text("video_show_actions", duration=10, position="top", style=style)
    assert "Action annotations enabled." in text
    assert '"1"' in await browse.text("click", target="text=Increment")
    assert "Action annotations disabled." in await browse.text("video_hide_actions")
