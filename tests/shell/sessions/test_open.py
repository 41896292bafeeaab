"""`statehold sessions open`: the address that takes control of a session in the console, and its refusals."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from playwright.async_api import Browser, async_playwright
from support.commands import DataFolder
from support.gateway_process import service, toml
from support.selection import matrix
from support.shared_clients import SharedClients
from support.tool_commands import Commands

from statehold.server.exit_codes import NOT_FOUND, OK, USAGE


@pytest.fixture
def commands(tmp_path: Path, headless_shell: str) -> Generator[Commands]:
    """Commands of a server with a browser, whose session `shop` has a page; the server ended."""
    config = tmp_path / "statehold.toml"
    browser = {"executable": headless_shell, "private": True}
    config.write_text(toml({"services": {"browser": browser, "quick": service("quick")}}))
    shared = SharedClients(config, tmp_path / "data")
    commands = Commands(shared, tmp_path / "log")
    commands.output("call", "shop", "browser_navigate", "url=about:blank")
    shared.stop()
    yield commands
    shared.stop()


@pytest.fixture
async def browser(headless_shell: str) -> AsyncGenerator[Browser]:
    """The browser of the person."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=headless_shell)
        yield started
        await started.close()


async def address_of(commands: Commands) -> str:
    words = ("sessions", "open", "shop", "--url-only")
    return (await anyio.to_thread.run_sync(commands.output, *words)).strip()


@pytest.mark.thorough
async def test_the_address_takes_control_of_a_session_whose_server_had_ended(
    commands: Commands, browser: Browser
) -> None:
    with anyio.fail_after(60):
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(await address_of(commands))
        await page.get_by_text("You have control.").wait_for()
        assert "code=" not in page.url
        refused = await anyio.to_thread.run_sync(commands, "call", "shop", "browser_snapshot")
        assert "A person has control of the session" in refused.stderr
        # A second address moves control to its page, in the same browser or not.
        second = await context.new_page()
        await second.goto(await address_of(commands))
        await second.get_by_text("You have control.").wait_for()
        await page.get_by_role("button", name="Control it here").wait_for()
        await second.get_by_role("button", name="Done").click()
        await second.get_by_role("button", name="Take over").wait_for()
        # The page does not take control again when it is loaded again.
        await second.reload()
        await second.locator("button:enabled", has_text="Take over").wait_for()
        answer = await anyio.to_thread.run_sync(commands.output, "call", "shop", "browser_snapshot")
        assert "and handed it back: done" in answer


@pytest.mark.thorough
async def test_an_address_without_a_valid_code_takes_nothing(
    commands: Commands, browser: Browser
) -> None:
    with anyio.fail_after(60):
        page = await browser.new_page()
        address = await address_of(commands)
        await page.goto(address)
        await page.get_by_role("button", name="Done").click()
        await page.locator("button:enabled", has_text="Take over").wait_for()
        session = page.url.partition("#/s/")[2]
        console = address.partition("#")[0]
        # The code was used, or is none: the person is logged in, and any site can lead here.
        for fragment in (address.partition("#")[2], f"code=x&at=s/{session}&take"):
            await page.goto("about:blank")
            await page.goto(f"{console}#{fragment}")
            await page.get_by_text("The link does not work").wait_for()
            await page.get_by_role("button", name="Back").click()
            await page.locator("button:enabled", has_text="Take over").wait_for()
        await page.goto("about:blank")
        await page.goto(f"{console}#/s/{session}?take")
        await page.locator("button:enabled", has_text="Take over").wait_for()
        assert await page.get_by_text("You have control.").count() == 0


@pytest.fixture
def folder_cli(
    tmp_path: Path, headless_shell: str, capsys: pytest.CaptureFixture[str]
) -> DataFolder:
    """A folder without a server, whose sessions are `work` with a browser, `done`, which is closed, and `plain`."""
    browser = {"executable": headless_shell, "private": True}
    return DataFolder(tmp_path, capsys, {"browser": browser, "quick": service("quick")})


async def create(folder_cli: DataFolder) -> None:
    with folder_cli.serving() as way:
        async with way.connect() as client:
            for arguments in (
                {"name": "work"},
                {"name": "done"},
                {"name": "plain", "services": ["quick"]},
            ):
                await client.call_tool("session_create", arguments)


async def test_a_session_that_cannot_be_opened_is_refused_in_one_line_and_starts_no_server(
    folder_cli: DataFolder,
) -> None:
    await create(folder_cli)

    def run(name: str) -> tuple[int, str, str]:
        return folder_cli.run("open", name, "--url-only")

    assert (await anyio.to_thread.run_sync(folder_cli.run, "close", "done"))[0] == OK
    shared = SharedClients(folder_cli.config, folder_cli.data)
    await anyio.to_thread.run_sync(shared.stop)
    for name, code, words in (
        ("none", NOT_FOUND, "there is no session none"),
        ("done", NOT_FOUND, "is closed"),
        ("plain", USAGE, "uses no browser of this configuration"),
    ):
        ran = await anyio.to_thread.run_sync(run, name)
        assert (ran[0], ran[1], ran[2].count("\n")) == (code, "", 1), name
        assert words in ran[2]
    assert shared.status() is None


@pytest.mark.thorough
@pytest.mark.parametrize("shows", matrix(True, False))
async def test_the_browser_of_the_user_gets_the_address_in_a_file(
    commands: Commands, tmp_path: Path, shows: bool
) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "browse"
    program.write_text(f'#!/bin/sh\necho "$@" > "{seen}"\nexit {0 if shows else 1}\n')
    program.chmod(0o700)
    environ = {**os.environ, "BROWSER": f"{program} %s"}
    async with await anyio.open_process(
        commands.line("sessions", "open", "shop"), env=environ, stderr=None
    ) as process:
        assert process.stdout is not None
        out = b"".join([part async for part in process.stdout]).decode()
        assert await process.wait() == OK
    page = commands.shared.data / "console.html"
    assert seen.read_text().strip() == page.as_uri()
    assert page.stat().st_mode & 0o777 == 0o600
    if shows:
        assert "&amp;take" in page.read_text()
        assert out.startswith("opened http://127.0.0.1:")
        assert "code" not in out
    else:
        assert "#code=" in out
