"""The console's page of approvals: a person reads the arguments to their end, and decides."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser, expect
from support.console_client import console_address, console_client
from support.console_page import console
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    Way,
    code_of,
    opened_session,
    service,
    serving,
    text_of,
    toml,
)
from support.selection import matrix
from support.token_file import write_tokens

ALICE, BOB = "alice-token-0123456789", "bob-token-0123456789"


def configured(folder: Path, **more: Any) -> Path:
    tool = {"name": "send", "inputSchema": {"type": "object"}}
    (folder / "offered.json").write_text(json.dumps({"tools": [tool]}))
    bank = service("changing", "--file", str(folder / "offered.json"), approve="all")
    config = folder / "statehold.toml"
    config.write_text(toml({"services": {"bank": bank}, **more}))
    return config


@pytest.mark.parametrize("width", matrix(1440, 390))
async def test_a_call_is_approved_once_its_arguments_were_read_to_the_end(
    tmp_path: Path, fork_server: ForkServer, browser: Browser, width: int
) -> None:
    config, data = configured(tmp_path), tmp_path / "data"
    arguments: JSON = {
        "note": "word " * 200,
        "lines": [f"line {number}" for number in range(100)],
        "to": "\u0430da@example.org",
        "zz": "the end",
    }
    with serving(config, data) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect() as client:
            session = await opened_session(client)

            async def call(**arguments: Any) -> Any:
                return await client.call_tool("send", {"session_id": session, **arguments})

            assert code_of(await call(**arguments)) == "approval_required"
            async with console(browser, console_address(data, running.url), width=width) as page:
                # Every page says that it waits.
                await expect(page).to_have_title("(1) A call waits for approval - Statehold")
                badge = page.get_by_role("status").get_by_role("link", name="1 waits")
                await expect(badge).to_have_attribute("href", re.compile("^#/approvals/apr_"))
                await page.goto(f"{page.url.partition('#')[0]}#/approvals")
                # The page goes on after an outage.
                await page.route("**/api/v1/approvals", lambda route: route.abort(), times=1)
                alert = page.get_by_role("alert")
                await alert.wait_for()
                await alert.wait_for(state="detached")
                approve = page.get_by_role("button", name="Approve once")
                await expect(approve).to_be_disabled()
                await expect(page.get_by_role("button", name="Always")).to_be_disabled()
                assert await page.evaluate("document.documentElement.scrollWidth") <= width
                shown = page.locator("pre[data-id]")
                assert "\\u0430da@example.org" in await shown.inner_text()
                await shown.evaluate("pre => pre.scrollTo(0, pre.scrollHeight / 2)")
                await expect(approve).to_be_disabled()
                await shown.evaluate("pre => pre.scrollTo(0, pre.scrollHeight)")
                await expect(approve).to_be_enabled()
                async with anyio.create_task_group() as tasks:

                    async def repeat() -> None:
                        assert json.loads(text_of(await call(**arguments))) == arguments

                    tasks.start_soon(repeat)
                    await approve.click()
                await page.get_by_text("No call waits for a person.").wait_for()
                assert code_of(await call(zz="short")) == "approval_required"
                # Nothing has to be scrolled.
                await page.get_by_role("button", name="Always in this session").click()
                await page.get_by_role("button", name="End").wait_for()
                assert not (await call(zz="other")).is_error
                await page.get_by_role("button", name="End").click()
                await page.get_by_role("button", name="End").wait_for(state="detached")
                assert code_of(await call(zz="another")) == "approval_required"


async def test_the_owner_decides_and_nobody_else(tmp_path: Path, fork_server: ForkServer) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{BOB} bob role=operator\n")
    config, data = configured(tmp_path, server={"tokens": str(tokens)}), tmp_path / "data"
    with serving(config, data) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect(headers={"authorization": f"Bearer {ALICE}"}) as client:
            session = await opened_session(client)
            wanted = await client.call_tool("send", {"session_id": session, "amount": 5})
            match = re.search(r"apr_[\w-]+", text_of(wanted))
            assert match is not None
            path, body = f"/approvals/{match[0]}", {"decision": "approve"}
            async with console_client(running.url) as bob, console_client(running.url) as alice:
                # The token of the agent opens no route of the console.
                bare = await alice.send("POST", path, body, authorization=f"Bearer {ALICE}")
                assert bare.status_code == 401
                await bob.log_in(token=BOB)
                assert (await bob.get("/approvals"))["approvals"] == []
                assert (await bob.send("GET", path)).status_code == 404
                assert (await bob.send("POST", path, body)).status_code == 404
                await alice.log_in(token=ALICE)
                [listed] = (await alice.get("/approvals"))["approvals"]
                assert "arguments" not in listed
                assert '"amount": 5' in (await alice.get(path))["arguments"]
                assert (await alice.send("POST", path, body)).status_code == 200
                assert (await alice.send("POST", path, body)).status_code == 409
            sent = await client.call_tool("send", {"session_id": session, "amount": 5})
            assert json.loads(text_of(sent)) == {"amount": 5}
