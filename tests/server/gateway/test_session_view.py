"""A still of a session for the user of a chat, and the page by which hosts of MCP Apps show it, in a real browser."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from playwright.async_api import Browser, Page, async_playwright
from support.agent import Agent, agent
from support.gateway_process import JSON, Way, code_of, opened_session, structured
from support.selection import matrix_of
from support.waiting import until

from statehold.server.gateway.gateway import Gateway
from statehold.sessions.records import LOCAL

WAYS = matrix_of([("memory", "modern"), ("memory", "legacy")])
PAGE_URI = "ui://statehold/session-view"
TITLE = "<img src=x onerror=document.title='run'>"
SITE = f"data:text/html,<title>{TITLE}</title><body style='background:rgb(0,128,0)'>"
NOISE = """() => {
    const canvas = document.body.appendChild(document.createElement("canvas"));
    [canvas.width, canvas.height] = [1280, 720];
    const context = canvas.getContext("2d"), image = context.createImageData(1280, 720);
    for (let at = 0; at < image.data.length; at += 65536) crypto.getRandomValues(image.data.subarray(at, at + 65536));
    context.putImageData(image, 0, 0);
}"""
HOST = """([page, result]) => new Promise(done => {
    window.log = [];
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts";
    frame.style = "width:100%;height:600px;border:0";
    const policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";
    frame.srcdoc = page.replace("<meta", `<meta http-equiv="content-security-policy" content="${policy}"><meta`);
    const send = message => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
    window.addEventListener("message", ({ data, source }) => {
        if (source !== frame.contentWindow) return;
        window.log.push(data);
        if (data.method === "ui/initialize") send({ id: data.id, result: { hostContext: {} } });
        if (data.method === "ui/open-link") send({ id: data.id, error: { code: -32000, message: "denied" } });
        if (data.method === "ui/notifications/initialized") {
            send({ method: "ui/notifications/tool-input", params: { arguments: {} } });
            send({ method: "ui/notifications/tool-result", params: result });
            send({ id: 7, method: "ui/resource-teardown", params: { reason: "" } });
            done();
        }
    });
    document.body.append(frame);
})"""


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    return {
        "toolsets": ["core", "lifecycle", "view"],
        "services": {"browser": {"executable": headless_shell, "checkpoint": 0.05}},
        "server": {"public_url": "https://statehold.example.org/"},
    }


@pytest.fixture
async def browser(headless_shell: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=headless_shell)
        yield started
        await started.close()


async def view(client: Client, session: str) -> tuple[JSON, list[types.ImageContent]]:
    result = await client.call_tool("session_view", {"session_id": session})
    pictures = [block for block in result.content if isinstance(block, types.ImageContent)]
    return structured(result), pictures


async def test_the_view_has_the_page_its_picture_and_the_address_in_the_console(way: Way) -> None:
    async with agent(way) as ada:
        await ada.said("browser_navigate", url=SITE)
        still, [picture] = await view(ada.client, ada.session)
        assert base64.b64decode(picture.data).startswith(b"\xff\xd8\xff")
        assert picture.mime_type == "image/jpeg"
        assert still["address"] == f"https://statehold.example.org/console#/s/{ada.session}"
        assert (still["status"], still["driver"], still["title"]) == ("idle", "agent", TITLE)
        assert still["tabs"] == [still["url"]]
        await ada.evaluate(f"({NOISE})()")
        _, [large] = await view(ada.client, ada.session)
        assert 10_000 < len(base64.b64decode(large.data)) <= 100_000


async def test_a_session_without_an_open_page_has_no_picture(way: Way) -> None:
    async with agent(way) as ada:
        still, pictures = await view(ada.client, ada.session)
        assert (still["problem"], pictures) == ("No page is open.", [])
        await ada.said("browser_navigate", url=SITE)
        await ada.call("session_pause")
        still, pictures = await view(ada.client, ada.session)
        assert (still["status"], still["problem"], pictures) == ("paused", "No page is open.", [])


async def test_nobody_sees_what_a_person_types(way: Way, gateway: Gateway) -> None:
    async with agent(way) as ada:
        await ada.said("browser_navigate", url=SITE)
        lease = (await gateway.registry.controls.take(LOCAL, ada.session, "eve")).record.control
        assert code_of(await ada.call("session_view")) == "human_in_control"
        await gateway.registry.controls.give_back(LOCAL, ada.session, lease.epoch)
        _, pictures = await view(ada.client, ada.session)
        assert len(pictures) == 1


async def test_hosts_find_the_page_by_the_tool(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["session_view"].meta == {"ui": {"resourceUri": PAGE_URI}}
    hints = tools["session_view"].annotations
    assert hints is not None
    assert hints.read_only_hint
    with pytest.raises(MCPError, match="Unknown resource"):
        await client.read_resource("ui://statehold/other")


async def shown(page: Page, ada: Agent) -> Any:
    """Have a host show the view of a session, and return its frame."""
    [content] = (await ada.client.read_resource(PAGE_URI)).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.mime_type == "text/html;profile=mcp-app"
    result = await ada.client.call_tool("session_view", {"session_id": ada.session})
    wire = result.model_dump(by_alias=True, exclude_none=True, mode="json")
    await page.evaluate(HOST, [content.text, json.loads(json.dumps(wire))])
    return page.frame_locator("iframe")


async def test_a_host_of_apps_shows_the_still_and_opens_the_console(
    way: Way, browser: Browser
) -> None:
    async with agent(way) as ada:
        await ada.said("browser_navigate", url=SITE)
        page = await browser.new_page()
        errors: list[str] = []
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        frame = await shown(page, ada)
        await frame.get_by_text("idle, the agent drives").wait_for()
        assert TITLE in await frame.locator("#url").inner_text()

        async def width() -> int:
            return await frame.locator("img").evaluate("image => image.naturalWidth")

        await until(lambda: width())
        assert await width() == 1280
        await frame.get_by_role("button", name="Open").click()
        address = f"https://statehold.example.org/console#/s/{ada.session}"
        await frame.get_by_text(f"Open {address}").wait_for()
        log: list[JSON] = await page.evaluate("window.log")
        asked = {each.get("method"): each for each in log}
        assert asked["ui/open-link"]["params"] == {"url": address}
        assert asked["ui/notifications/size-changed"]["params"]["height"] > 100
        assert {"jsonrpc": "2.0", "id": 7, "result": {}} in log
        assert errors == []
        session = await opened_session(ada.client)
        other = await browser.new_page()
        empty = await shown(other, Agent(ada.client, session))
        await empty.get_by_text("No page is open.").wait_for()
