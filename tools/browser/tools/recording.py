"""Recordings of a session: traces for the trace viewer of Playwright, and actions as code that repeats them."""

from __future__ import annotations

from ...definition import NoArguments
from ..call import BrowserCall
from ..tool import BrowserTool, tool


@tool("browser_start_tracing", title="Start tracing", cap="devtools")
async def start_tracing(call: BrowserCall, arguments: NoArguments) -> None:
    """Begin to record a trace of the session, with snapshots and requests of each action, until browser_stop_tracing."""
    await call.session.trace.start()
    call.answer.result("Trace recording started")
    call.answer.code("await page.context.tracing.start(screenshots=True, snapshots=True)")


@tool("browser_stop_tracing", title="Stop tracing", cap="devtools", limit="navigation")
async def stop_tracing(call: BrowserCall, arguments: NoArguments) -> None:
    """End the trace and give it as a file, which `playwright show-trace` opens. It may hold passwords."""
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


TOOLS: list[BrowserTool] = [start_tracing, stop_tracing, start_recording, stop_recording]
