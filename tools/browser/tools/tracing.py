"""Traces of a session for the trace viewer of Playwright."""

from __future__ import annotations

from ...definition import NoArguments
from ..call import Call
from ..tool import BrowserTool, tool


@tool("browser_start_tracing", title="Start tracing", cap="devtools")
async def start_tracing(call: Call, arguments: NoArguments) -> None:
    """Begin to record a trace of the session, with snapshots and requests of each action, until browser_stop_tracing."""
    await call.session.trace.start()
    call.answer.result("Trace recording started")
    call.answer.code("await page.context.tracing.start(screenshots=True, snapshots=True)")


@tool("browser_stop_tracing", title="Stop tracing", cap="devtools", limit="navigation")
async def stop_tracing(call: Call, arguments: NoArguments) -> None:
    """End the trace and give it as a file, which `playwright show-trace` opens. It may hold passwords."""
    name, size = await call.session.trace.stop()
    call.answer.result("Trace recording stopped.")
    await call.link_file(name, size, label="Trace")
    call.answer.code(f"await page.context.tracing.stop(path={name!r})")


TOOLS: list[BrowserTool] = [start_tracing, stop_tracing]
