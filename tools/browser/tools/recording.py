"""Files of what happens in a session: traces, videos, code that repeats it, and PDFs of pages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ...definition import NoArguments
from .. import errors
from ..call import BrowserCall
from ..errors import BrowserToolFailed, describe_error
from ..session.files import file_name
from ..tool import BrowserArguments, BrowserTool, Filename, Whole, tool


@tool("browser_start_tracing", title="Start tracing", cap="devtools")
async def start_tracing(call: BrowserCall, arguments: NoArguments) -> None:
    """Begin to record a trace of the session, with snapshots and requests of each action, until browser_stop_tracing."""
    await call.session.trace.start()
    call.answer.result("Trace recording started")
    call.answer.code("await page.context.tracing.start(screenshots=True, snapshots=True)")


@tool("browser_stop_tracing", title="Stop tracing", cap="devtools", limit="navigation")
async def stop_tracing(call: BrowserCall, arguments: NoArguments) -> None:
    """End the trace and give it as a file, which `playwright show-trace` opens. It may hold passwords."""
    if call.logins is not None:
        # It masks the values that are known.
        await call.logins.save(with_storage=True)
    name, size = await call.session.trace.stop()
    call.answer.result("Trace recording stopped.")
    await call.link_file(name, size, label="Trace")
    call.answer.code(f"await page.context.tracing.stop(path={name!r})")


@tool("browser_start_recording", title="Start recording user actions", cap="devtools")
async def start_recording(call: BrowserCall, arguments: NoArguments) -> None:
    """Begin to collect the code of the calls that follow, until browser_stop_recording. It has no steps of a person."""
    call.session.recorded_code.begin()
    call.answer.result(
        "Recording started. Call browser_stop_recording to get what was done as Playwright code."
    )


@tool("browser_stop_recording", title="Stop recording user actions", cap="devtools")
async def stop_recording(call: BrowserCall, arguments: NoArguments) -> None:
    """End the recording and return the Playwright code of the calls since its beginning that did not fail."""
    code = "\n".join(call.session.recorded_code.end() or ["# nothing was done"])
    language = "js" if call.config.codegen == "typescript" else "python"
    call.answer.result(f"Recording stopped. Recorded actions:\n\n```{language}\n{code}\n```")


Side = Annotated[Whole, Field(ge=16, le=4096)]


class Size(BrowserArguments):
    width: Side
    height: Side


class StartVideo(BrowserArguments):
    filename: Filename = None
    size: Annotated[Size | None, Field(description="Fits into 800x800 when left out")] = None
    fps: Annotated[Whole | None, Field(ge=1, le=60, description="Frames per second, or 25")] = None
    cursor: Annotated[
        bool | None,
        Field(description="Show a mouse that travels to each action, which takes 800 ms of each"),
    ] = None


@tool("browser_start_video", title="Start video", cap="devtools")
async def start_video(call: BrowserCall, arguments: StartVideo) -> None:
    """Begin to record a video of each page, until browser_stop_video."""
    await call.tab()
    options: dict[str, Any] = arguments.model_dump(include={"size", "fps"}, exclude_none=True)
    name = file_name(arguments.filename, "video.webm")
    await call.session.videos.start(
        name, is_chosen=bool(arguments.filename), cursor=bool(arguments.cursor), **options
    )
    call.answer.result("Video recording started.")
    more = "".join(f", {key}={value!r}" for key, value in options.items())
    call.answer.code(f"await page.screencast.start(path={name!r}{more})")


@tool("browser_stop_video", title="Stop video", cap="devtools", limit="navigation")
async def stop_video(call: BrowserCall, arguments: NoArguments) -> None:
    """End the videos and give them as files, one for each page."""
    videos = await call.session.videos.stop()
    if not videos:
        call.answer.result("No videos were recorded.")
        return
    for name, size in videos:
        await call.link_file(name, size, label="Video")
    call.answer.code("await page.screencast.stop()")


class Chapter(BrowserArguments):
    title: Annotated[str, Field(max_length=500)]
    description: Annotated[str | None, Field(max_length=2000)] = None
    duration: Annotated[
        float | None,
        Field(ge=0, le=30_000, description="Milliseconds that it is shown; 2000 when left out"),
    ] = None


@tool("browser_video_chapter", title="Video chapter", cap="devtools", limit="wait")
async def video_chapter(call: BrowserCall, arguments: Chapter) -> None:
    """Show a chapter card over the page for a while, so that the video has a chapter; returns when it is gone."""
    tab = await call.tab()
    more = arguments.model_dump(exclude={"title"}, exclude_none=True)
    await tab.page.screencast.show_chapter(arguments.title, **more)
    call.answer.result(f"Chapter '{arguments.title}' added.")


class Decoration(BrowserArguments):
    point: Annotated[str | None, Field(description="CSS of a mark at the point of action")] = None
    highlight: Annotated[str | None, Field(description="CSS of a box over the element")] = None
    title: Annotated[str | None, Field(description="CSS of the words")] = None


class ShowActions(BrowserArguments):
    duration: Annotated[
        float | None,
        Field(ge=0, le=3000, description="Milliseconds of each; 500 when left out"),
    ] = None
    position: (
        Literal["top-left", "top", "top-right", "bottom-left", "bottom", "bottom-right"] | None
    ) = None
    cursor: Literal["none", "pointer"] | None = None
    style: Decoration | None = None


@tool("browser_video_show_actions", title="Show action overlays", cap="devtools")
async def video_show_actions(call: BrowserCall, arguments: ShowActions) -> None:
    """Name each following action on the page while it happens, for a video."""
    tab = await call.tab()
    await tab.page.screencast.show_actions(**arguments.model_dump(exclude_none=True))
    call.answer.result("Action annotations enabled.")


@tool("browser_video_hide_actions", title="Hide action overlays", cap="devtools")
async def video_hide_actions(call: BrowserCall, arguments: NoArguments) -> None:
    """Name the actions on the page no longer."""
    tab = await call.tab()
    await tab.page.screencast.hide_actions()
    call.answer.result("Action annotations disabled.")


class SavePdf(BrowserArguments):
    filename: Filename = None


@tool("browser_pdf_save", title="Save as PDF", cap="pdf", read_only=True, limit="navigation")
async def pdf_save(call: BrowserCall, arguments: SavePdf) -> None:
    """Print the page into a PDF, a file of the session."""
    tab = await call.ready_tab()
    try:
        data = await tab.page.pdf()
    except errors.Error as error:
        raise BrowserToolFailed(f"The page cannot be printed: {describe_error(error)}") from None
    name, is_chosen = file_name(arguments.filename, "page.pdf"), bool(arguments.filename)
    await call.add_file(name, data, label="Page as pdf", is_chosen=is_chosen)
    call.answer.code("await page.pdf()")


TOOLS: list[BrowserTool] = [
    pdf_save,
    *(start_tracing, stop_tracing, start_recording, stop_recording),
    *(start_video, stop_video, video_chapter, video_show_actions, video_hide_actions),
]
