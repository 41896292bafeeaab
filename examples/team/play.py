"""Play the whole scene of the team by itself: three people log in, share a browser, and one ends it.

    uv run python examples/team/play.py

It starts the identity provider and Statehold on free ports, with everything in a temporary folder, and prints a line for
each step. It ends with 1 at the first step that is not as expected.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

from mcp import Client
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from team_client import connect

from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.process.choice import NoBrowser, find_browser, launch_options

HERE = Path(__file__).resolve().parent
STATEHOLD = (sys.executable, "-m", "statehold")
PAGE = "data:text/html,<title>Trip</title><button onclick='document.title = `Booked`'>Book the trip</button>"


class Unexpected(Exception):
    """Raised when a step did not go as it should."""


class Scene:
    """The steps that were played so far."""

    def __init__(self) -> None:
        self._count = 0

    def step(self, line: str, expected: object, found: object) -> None:
        self._count += 1
        print(f"{self._count:2}  {line}", flush=True)
        if expected != found:
            raise Unexpected(f"step {self._count}: expected {expected!r}, found {found!r}")


class Person:
    """One person with a browser of their own. `logins` counts how often they chose their name."""

    def __init__(self, name: str, context: BrowserContext) -> None:
        self._name = name
        self._context = context
        self.logins = 0

    async def log_in(self, page: Page) -> None:
        await page.get_by_role("link", name=self._name).click()
        self.logins += 1

    async def visit(self, url: str) -> None:
        page = await self._context.new_page()
        await page.goto(url)
        await self.log_in(page)
        await page.get_by_text("You are logged in").wait_for()
        await page.close()

    async def open_console(self, address: str) -> Page:
        """Log in at the console of Statehold."""
        page = await self._context.new_page()
        await page.goto(f"{address}/console/")
        await page.get_by_role("link", name="Log in with Example").click()
        await self.log_in(page)
        await page.get_by_role("button", name="Log out").wait_for()
        return page


class Agent:
    """The client of a person."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> tuple[str, str]:
        """Call a tool; return `ok`, `error` or the code of an error of Statehold, and the text of the answer."""
        result = await self._client.call_tool(tool, arguments)
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        if not result.is_error:
            return "ok", text
        error: dict[str, Any] = (result.meta or {}).get("statehold/error", {})
        return str(error.get("code", "error")), text


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def program(*command: str, until: str) -> Generator[None]:
    """Run a program until the block ends; the block begins when the program has printed `until`."""
    with subprocess.Popen(
        command, cwd=HERE, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        try:
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if until in line:
                    break
            else:
                raise Unexpected(f"{Path(command[0]).name} ended:\n{''.join(lines[-5:])}")
            yield
        finally:
            process.terminate()
            process.stdout.read()


def check_programs() -> None:
    """Install the provider, and end the program if a part is missing."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not there: install Node.js 20 or newer with npm")
    if subprocess.run([npm, "run", "--silent", "prestart"], cwd=HERE, check=False).returncode:
        sys.exit("npm cannot install the identity provider")
    try:
        find_browser(BrowserConfig())
    except NoBrowser as problem:
        sys.exit(problem.message)


def write_settings(folder: Path, provider: str, statehold: str) -> Path:
    """Write team.toml with other addresses, and return the file."""
    text = (HERE / "team.toml").read_text(encoding="utf-8")
    text = text.replace("http://127.0.0.1:8930", provider).replace(
        "http://127.0.0.1:8931", statehold
    )
    file = folder / "team.toml"
    file.write_text(text, encoding="utf-8")
    return file


def statehold(config: Path, *arguments: str) -> str:
    """Run a command of Statehold, and return its output."""
    command = [*STATEHOLD, *arguments, "--config", str(config)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@asynccontextmanager
async def open_chromium() -> AsyncGenerator[Browser]:
    settings = BrowserConfig()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            **launch_options(find_browser(settings), settings)
        )
        yield browser
        await browser.close()


async def play(scene: Scene, address: str, config: Path) -> None:
    async with AsyncExitStack() as stack:
        chromium = await stack.enter_async_context(open_chromium())

        async def enter(name: str) -> Person:
            return Person(name, await chromium.new_context())

        async def agent_of(person: Person, title: str) -> Agent:
            return Agent(await stack.enter_async_context(connect(address, title, person.visit)))

        ada, ben, olga = await enter("Ada"), await enter("Ben"), await enter("Olga")
        agent = await agent_of(ada, "the agent of Ada")
        scene.step("Ada's agent logs in: Ada chooses her name at the provider", 1, ada.logins)
        end, text = await agent.call("session_create", name="trip")
        session = {"session_id": json.loads(text)["session_id"]}
        end, text = await agent.call("browser_navigate", **session, url=PAGE)
        scene.step("It creates a session and opens a page in its browser", "ok", end)

        other = await agent_of(ben, "the agent of Ben")
        end, _ = await other.call("session_info", **session)
        scene.step("Ben's agent does not find the session of Ada", "session_not_found", end)
        end, _ = await agent.call("session_share", **session, subject="ben", rights="view")
        scene.step("Ada's agent shares it with Ben, to view", "ok", end)
        scene.step(
            "For that Ada logged in again, since sharing needs a further scope", 2, ada.logins
        )
        end, _ = await other.call("session_info", **session)
        scene.step("Ben's agent finds it now", "ok", end)
        end, _ = await other.call("browser_click", **session, target="text=Book the trip")
        scene.step("It may not click in its page", "session_not_found", end)
        end, _ = await agent.call("session_share", **session, subject="ben", rights="use")
        scene.step("Ada's agent shares it with Ben, to use", "ok", end)
        end, text = await other.call("browser_click", **session, target="text=Book the trip")
        scene.step("Ben's agent clicks in the page of Ada", "ok", end)
        scene.step("The page shows it", True, "Booked" in text)
        end, _ = await other.call("session_close", **session)
        scene.step("It may not close the session of Ada", "session_not_found", end)
        page = await ada.open_console(address)
        await page.get_by_role("link", name="trip").wait_for()
        found = await page.get_by_role("link", name="trip").count()
        scene.step("Ada logs in at the console, and finds the session of her agent", 1, found)

        page = await ben.open_console(address)
        await page.get_by_role("row").filter(has_text="trip").get_by_role("link").click()
        await page.get_by_role("heading", name="trip").wait_for()
        await page.get_by_text("Shared with you").wait_for()
        found = await page.get_by_role("heading", name="trip").count()
        scene.step("Ben logs in at the console, and sees the shared session", 1, found)

        page = await olga.open_console(address)
        await page.get_by_role("link", name="All owners").click()
        row = page.get_by_role("row").filter(has_text=session["session_id"])
        await row.wait_for()
        shown = await page.locator("body").inner_text()
        scene.step(
            "Olga, an operator, finds the session of Ada, without its name and its page",
            (True, False, False),
            tuple(word in shown for word in ("ada", "trip", "Booked")),
        )
        timeline = f"{address}/api/v1/sessions/{session['session_id']}/timeline"
        status = await page.evaluate("url => fetch(url).then(answer => answer.status)", timeline)
        scene.step("Its calls do not exist for her", 404, status)
        await row.get_by_role("button", name="Close").click()
        await page.get_by_role("button", name="Close it").click()
        await row.wait_for(state="detached")
        end, _ = await agent.call("browser_snapshot", **session)
        scene.step("She ends it: the next call of Ada's agent fails", "session_closed", end)


def check_audit(scene: Scene, config: Path) -> None:
    lines = statehold(config, "audit", "export").splitlines()
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    refused = [
        entry.get("tool")
        for entry in entries
        if entry.get("subject") == "ben" and entry["decision"] == "deny"
    ]
    scene.step(
        "The audit log has what Ben was refused",
        ["session_info", "browser_click", "session_close"],
        refused,
    )
    ended = {"event": "result", "subject": "olga", "operation": "console/operator_close"}
    found = [entry["outcome"] for entry in entries if ended.items() <= entry.items()]
    scene.step("It has that Olga ended the session", ["ok"], found)
    verified = statehold(config, "audit", "verify").splitlines()[0]
    scene.step(f"Its chain is whole: {verified}", True, "none changed" in verified)
    print(f"\n{statehold(config, 'audit', 'tail', '--last', '100')}", end="")


def main() -> None:
    check_programs()
    with tempfile.TemporaryDirectory(prefix="statehold-team-") as temporary:
        ports = free_port(), free_port()
        provider, address = (f"http://127.0.0.1:{port}" for port in ports)
        config = write_settings(Path(temporary), provider, address)
        identity = ("node", "provider.mjs", str(ports[0]), address)
        server = (*STATEHOLD, "serve", "--config", str(config), "--port", str(ports[1]))
        scene = Scene()
        with (
            program(*identity, until="The identity provider is at"),
            program(*server, until="listens on"),
        ):
            asyncio.run(play(scene, address, config))
            check_audit(scene, config)


def first_of(problem: BaseException) -> BaseException:
    """Return the first exception of a group; the clients of the scene wrap an error in groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem


if __name__ == "__main__":
    try:
        main()
    except (Unexpected, ExceptionGroup) as problem:
        first = first_of(problem)
        if not isinstance(first, Unexpected):
            raise
        sys.exit(str(first))
    except KeyboardInterrupt:
        sys.exit(130)
