"""The tools that a page offers by WebMCP."""

from __future__ import annotations

import json
from pathlib import Path

from support.browsing import opened, running, section

REGISTER = """host => document.modelContext.registerTool({
  name: `add_${host}`, description: "Adds two numbers",
  inputSchema: {type: "object", properties: {a: {type: "number"}, b: {type: "number"}}},
  execute: async ({a, b}) => {
    document.title = "added";
    return {content: [{type: "text", text: String(a + b)}], isError: !b};
  },
})"""


ASK = """() => document.modelContext.registerTool({
  name: "ask", description: "Asks", execute: async () => confirm("Sure?"),
})"""


async def test_tools_of_a_page_and_its_frames_are_listed_and_called(
    tmp_path: Path, shell: str, lab: str
) -> None:
    async with running(tmp_path, shell, caps=["webmcp"]) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/iframes")
        assert "The page offers no tools." in await browse.text("webmcp_list")
        await browse.page.evaluate(REGISTER, "page")
        await browse.page.frames[1].evaluate(REGISTER, "frame")
        offered = json.loads(section(await browse.text("webmcp_list"), "Result"))
        assert [one["name"] for one in offered] == ["add_page", "add_frame"]
        assert offered[0]["inputSchema"]["properties"]["a"] == {"type": "number"}
        for name in ("add_page", "add_frame"):
            text = await browse.text("webmcp_call", name=name, arguments={"a": 40, "b": 2})
            assert json.loads(section(text, "Result"))["content"][0]["text"] == "42"
            assert f"webmcp.call_tool({name!r}" in section(text, "Ran Playwright code")
        assert "Page Title: added" in text
        await browse.page.evaluate(ASK)
        text = await browse.text("webmcp_call", name="ask")
        assert "### Result" not in text
        assert "The tool has not returned yet" in section(text, "Events")
        text = await browse.text("handle_dialog", accept=True)
        assert "The tool that had waited returned true" in section(text, "Events")
        failed = await browse.error("webmcp_call", name="add_page", arguments={"a": 1, "b": 0})
        assert '"isError": true' in section(failed, "Error")
        assert "offers no tool 'sub'" in await browse.error("webmcp_call", name="sub")
