"""Recording of actions in the browser as code that repeats them."""

from __future__ import annotations

from ...definition import NoArguments
from ..call import Call
from ..tool import BrowserTool, tool


@tool("browser_start_recording", title="Start recording user actions", cap="devtools")
async def start_recording(call: Call, arguments: NoArguments) -> None:
    """Begin to write down what is done in the pages, by a person or by tools, until browser_stop_recording."""
    tab = await call.tab()
    await call.session.recorder.start(tab.page)
    call.answer.result(
        "Recording started. Call browser_stop_recording to get what was done as Playwright code."
    )


@tool("browser_stop_recording", title="Stop recording user actions", cap="devtools")
async def stop_recording(call: Call, arguments: NoArguments) -> None:
    """End the recording and return what was done as Playwright code. Passwords are left out."""
    lines = await call.session.recorder.stop() or ["# nothing was done"]
    code = "\n".join(map(call.answer.translated, lines))
    language = "js" if call.config.codegen == "typescript" else "python"
    call.answer.result(f"Recording stopped. Recorded actions:\n\n```{language}\n{code}\n```")


TOOLS: list[BrowserTool] = [start_recording, stop_recording]
