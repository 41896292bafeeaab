"""Browser faults and attacks seen by real clients, and the eleven known failures of the peer, Playwright MCP.

The table `ROWS` names the test that covers each of the eleven.
"""

from __future__ import annotations

import ast
import json
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from lab import Lab
from support.agent import (
    NOTE,
    Agent,
    agent,
    find_process,
    is_browser,
    saved_text,
    text_of,
    tree_of,
)
from support.gateway_process import (
    JSON,
    Running,
    Way,
    opened_session,
    serving,
    structured,
    toml,
)
from support.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.fault]

MB = 1_000_000
DOWNLOAD_BYTES = 20 * MB
ALL_BYTES = 4 * DOWNLOAD_BYTES
ARRIVING = 80 * MB
"""Bytes that may arrive between two checks of the size of downloads, on a machine that is faster than any network."""
HERE = Path(__file__).resolve()

BROWSER = "test_browser.py"
FAULTS = "test_browser_faults.py"
SETTLING = "../../tools/browser/session/test_settle.py"
ROWS = {
    "an idle session comes back with its login": (
        BROWSER,
        "test_idle_session_comes_back_with_its_login",
    ),
    "after SIGKILL and restart of the server the same session works": (
        BROWSER,
        "test_all_logins_survive_kills_and_restarts",
    ),
    "after SIGKILL of Chromium the next call says so and restores": (
        BROWSER,
        "test_all_logins_survive_kills_and_restarts",
    ),
    "a client that never answers pings keeps its session": (
        FAULTS,
        "test_row_4_a_client_that_answers_nothing_and_goes_without_a_word_keeps_its_session",
    ),
    "two sessions in one connection work in parallel": (
        FAULTS,
        "test_row_5_two_sessions_of_one_connection_work_in_parallel",
    ),
    "two calls in one session run one after the other": (
        FAULTS,
        "test_row_6_two_calls_in_one_session_run_one_after_the_other",
    ),
    "the clipboard does not cross sessions": (
        FAULTS,
        "test_row_7_the_clipboard_does_not_cross_sessions",
    ),
    "view-source:file is refused": (FAULTS, "test_row_8_view_source_of_a_file_is_refused"),
    "a redirect to a blocked origin is refused": (
        FAULTS,
        "test_row_9_a_redirect_to_a_blocked_origin_is_refused",
    ),
    "evaluate waits for nothing at default settings": (
        SETTLING,
        "test_an_action_without_effects_costs_no_pause",
    ),
    "the snapshot is inline over HTTP": (FAULTS, "test_row_11_the_snapshot_is_inline_over_http"),
}


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {
        "executable": headless_shell,
        "checkpoint": 0.05,
        "caps": ["network", "devtools"],
        "block": ["127.0.0.2"],
        "download_bytes": DOWNLOAD_BYTES,
        "navigation_seconds": 4,
    }
    return {"recovery": {"backoff": [0.05, 1, 5]}, "services": {"browser": browser}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def server(config_file: Path, data: Path) -> Generator[Running]:
    with serving(config_file, data) as running:
        yield running


@pytest.fixture
def way(server: Running, data: Path) -> Way:
    return Way("http", "modern", Path(), data, url=server.url)


@pytest.fixture
async def two(way: Way) -> AsyncGenerator[tuple[Agent, Agent]]:
    """Two sessions of one connection."""
    async with agent(way) as ann:
        bob = Agent(ann.client, await opened_session(ann.client))
        yield ann, bob
        for one in (ann, bob):
            structured(await one.call("session_close", force=True))


def test_each_of_the_eleven_has_its_test() -> None:
    assert len(ROWS) == 11
    for file, name in ROWS.values():
        tree = ast.parse((HERE.parent / file).read_text("utf-8"))
        assert name in {n.name for n in tree.body if isinstance(n, ast.AsyncFunctionDef)}


LOG_IN = "() => { document.cookie = 'login=ann; max-age=3600'; localStorage.login = 'ann' }"
LOGINS = "() => document.cookie + ' ' + localStorage.login"
MANY = 200
"""Calls that take longer than the three seconds after which the peer asks for the first time."""


async def listen(stream: httpx2.Response, methods: list[str]) -> None:
    """Record the methods of all requests that arrive, and fail if the stream ends."""
    async for line in stream.aiter_lines():
        if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
            message: JSON = json.loads(data)
            if "id" in message and "method" in message:
                methods.append(message["method"])
    pytest.fail("the stream ended")


@pytest.mark.thorough
async def test_row_4_a_client_that_answers_nothing_and_goes_without_a_word_keeps_its_session(
    way: Way, lab_site: Lab
) -> None:
    async with agent(way) as ann:
        first: JSON = {"protocolVersion": "2025-11-25", "capabilities": {}}
        first["clientInfo"] = {"name": "silent", "version": "1"}
        headers = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(base_url=way.url, headers=headers, timeout=30) as silent:

            async def ask(number: int, method: str, **params: object) -> httpx2.Response:
                body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                return await silent.post("/mcp", json=body)

            answer = await ask(1, "initialize", **first)
            silent.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            for number, (tool, given) in enumerate(
                [
                    ("browser_navigate", {"url": f"{lab_site.url}/frame?name=silent"}),
                    ("browser_evaluate", {"function": LOG_IN}),
                ],
                2,
            ):
                arguments = {"session_id": ann.session, **given}
                answer = await ask(number, "tools/call", name=tool, arguments=arguments)
                assert '"isError":true' not in answer.text.replace(" ", "")
            async with silent.stream("GET", "/mcp") as stream:
                # The client answers no request on this stream, and none arrives.
                assert stream.status_code == 200
                methods: list[str] = []
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(listen, stream, methods)
                    for _ in range(MANY):
                        text = await ann.said("browser_evaluate", function=LOGINS)
                        assert "login=ann ann" in text
                    tasks.cancel_scope.cancel()
                assert methods == []
        result = await ann.call("browser_snapshot")
        assert NOTE not in text_of(result)
        assert "Frame silent" in text_of(result)
        structured(await ann.call("session_close"))


@pytest.mark.thorough
async def test_row_5_two_sessions_of_one_connection_work_in_parallel(
    two: tuple[Agent, Agent], lab_site: Lab
) -> None:
    ann, bob = two
    texts: list[str] = []

    async def wait() -> None:
        texts.append(await ann.said("browser_navigate", url=f"{lab_site.url}/frame?gate=both"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await lab_site.hits.wait_for("gate=both")
        # Only the call of the other session lets this one end.
        await bob.said("browser_navigate", url=f"{lab_site.url}/api/open/both")
    assert "Frame plain" in texts[0]


@pytest.mark.thorough
async def test_row_6_two_calls_in_one_session_run_one_after_the_other(
    two: tuple[Agent, Agent], lab_site: Lab
) -> None:
    ann, _ = two
    texts: dict[str, str] = {}

    async def go(name: str) -> None:
        texts[name] = await ann.said("browser_navigate", url=f"{lab_site.url}/frame?name={name}")

    async with anyio.create_task_group() as tasks:
        for name in ("one", "two", "three"):
            tasks.start_soon(go, name)
    for name, text in texts.items():
        assert f"Frame {name}" in text


@pytest.mark.thorough
async def test_row_7_the_clipboard_does_not_cross_sessions(
    two: tuple[Agent, Agent], lab_site: Lab
) -> None:
    ann, bob = two
    for one in two:
        await one.said("browser_navigate", url=f"{lab_site.url}/frame")
    await ann.said("browser_type", target="#word", text="the secret of ann")
    for key in ("Control+a", "Control+c"):
        await ann.said("browser_press_key", key=key)
    await bob.said("browser_click", target="#word")
    await bob.said("browser_press_key", key="Control+v")
    await bob.said("browser_click", target="#word", button="middle")
    field = "() => '<' + document.querySelector('#word').value + '>'"
    assert "<>" in await bob.said("browser_evaluate", function=field)
    await ann.said("browser_press_key", key="Control+v")
    assert "<the secret of ann>" in await ann.said("browser_evaluate", function=field)


@pytest.mark.thorough
async def test_row_8_view_source_of_a_file_is_refused(
    two: tuple[Agent, Agent], tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("nobody may read this")
    for url in (f"view-source:file://{secret}", f"file://{secret}"):
        text = await two[0].failed("browser_navigate", url=url)
        assert "URLs may not be opened" in text
        assert "nobody may read" not in text + await two[0].said("browser_snapshot")


@pytest.mark.thorough
async def test_row_9_a_redirect_to_a_blocked_origin_is_refused(
    two: tuple[Agent, Agent], lab_site: Lab
) -> None:
    if lab_site.other == lab_site.url:
        pytest.skip("there is only one loopback address")
    to = f"{lab_site.other}/frame?name=blocked"
    result = await two[0].call("browser_navigate", url=f"{lab_site.url}/redirect?to={to}")
    assert "127.0.0.2" in text_of(result)
    assert "is blocked" in text_of(result)
    assert "Frame blocked" not in text_of(result)
    assert not any("127.0.0.2/frame" in hit for hit in lab_site.hits)


@pytest.mark.thorough
async def test_row_11_the_snapshot_is_inline_over_http(
    two: tuple[Agent, Agent], lab_site: Lab
) -> None:
    await two[0].said("browser_navigate", url=f"{lab_site.url}/frame")
    await two[0].said("browser_type", target="#word", text="inline")
    text = await two[0].said("browser_click", target="text=Tell")
    assert "### Snapshot" in text
    assert "heard inline" in text


# Pages and downloads that are too large.


async def while_bob_works(bob: Agent, site: str, attack: Callable[[], Awaitable[None]]) -> None:
    """Run an attack, while another session has to be answered as usual."""
    await bob.said("browser_navigate", url=f"{site}/frame?name=bob")
    over = False

    async def work() -> None:
        while not over:
            text = text_of(await bob.call("browser_click", within=10, target="text=Tell"))
            assert "Frame bob" in text

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        try:
            await attack()
        finally:
            over = True


@pytest.mark.load
async def test_pages_of_500_mb_and_without_end_are_bounded_and_reported(
    two: tuple[Agent, Agent], lab_site: Lab
) -> None:
    ann, bob = two

    async def attack() -> None:
        # The first limit that it meets depends on the speed of the machine.
        text = text_of(await ann.call("browser_navigate", url=f"{lab_site.url}/huge"))
        assert (
            f"larger than the {ALL_BYTES} bytes allowed" in text
            or "could not be opened: Timeout 4000ms exceeded" in text
        )
        with anyio.fail_after(25):
            text = await ann.failed("browser_navigate", url=f"{lab_site.url}/huge?silent=yes")
        assert "could not be opened: Timeout 4000ms exceeded" in text
        grow = """() => { window.kept = []; for (let n = 0; n < 50; n++)
            window.kept.push(new Uint8Array(1e7).fill(n)); return window.kept.length }"""
        assert "50" in await ann.said("browser_evaluate", function=grow)
        assert "Frame after" in await ann.said(
            "browser_navigate", url=f"{lab_site.url}/frame?name=after"
        )

    await while_bob_works(bob, lab_site.url, attack)


BOMB = """async () => { for (let n = 0; n < 40; n++) {
  const link = document.createElement("a"); link.href = "/file/endless?" + n; link.download = ""; link.click();
  await new Promise(soon => setTimeout(soon, 20)); } }"""


@pytest.mark.thorough
async def test_a_bomb_of_downloads_stays_within_the_disk_of_its_session(
    two: tuple[Agent, Agent], lab_site: Lab, server: Running, data: Path
) -> None:
    ann, bob = two
    before = disk_of(server, data)
    most = 0

    async def attack() -> None:
        await ann.said("browser_navigate", url=f"{lab_site.url}/downloads")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            text = await ann.said("browser_evaluate", function=BOMB)
            while "larger than" not in text and "no room" not in text:
                text = await ann.said("browser_wait_for", time=0.1)
            tasks.cancel_scope.cancel()

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, await anyio.to_thread.run_sync(disk_of, server, data))
            await anyio.sleep(0.01)

    await while_bob_works(bob, lab_site.url, attack)
    assert most - before <= ALL_BYTES + ARRIVING
    await until(lambda: disk_of(server, data) - before < MB)


def disk_of(server: Running, data: Path) -> int:
    """Return the bytes of all files of a server except its database, and of its drivers, which use a separate folder."""
    folders = {data}
    for process in tree_of(server)[1:]:
        folder = next((word for word in environment(process.pid) if word.startswith("TMPDIR=")), "")
        folders |= (
            {Path(folder.removeprefix("TMPDIR="))} if "statehold-driver-" in folder else set()
        )
    paths = (path for folder in folders for path in folder.rglob("*"))
    return sum(size(path) for path in paths if not path.name.startswith("statehold.db"))


def environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text("utf-8", "replace").split("\0")
    except OSError:
        return []


def size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


# Mocked routes, recordings and the like.


async def turn_on(ann: Agent, site: str) -> None:
    await ann.said("browser_navigate", url=f"{site}/frame")
    await ann.said("browser_route", pattern="**/a", status=404)
    await ann.said("browser_route", pattern="**/b", status=404)
    await ann.said("browser_network_state_set", state="offline")
    await ann.said("browser_start_tracing")


UNSAVED = "Lost: what was done after it was last saved, "
LOST = "2 mocked routes, the offline state, a trace, "


@pytest.mark.thorough
async def test_a_notice_names_the_routes_and_traces_of_a_killed_browser_once(
    two: tuple[Agent, Agent], lab_site: Lab, server: Running
) -> None:
    ann, _ = two
    await turn_on(ann, lab_site.url)
    os.kill(find_process(server, is_browser).pid, signal.SIGKILL)
    await ann.said("browser_snapshot")
    assert "No active routes" in await ann.said("browser_route_list")
    [note] = [text for text in ann.heard if NOTE in text]
    assert LOST in note


@pytest.mark.thorough
async def test_a_notice_names_the_routes_and_traces_of_a_killed_server(
    settings: JSON, tmp_path: Path, lab_site: Lab
) -> None:
    mortal = {**settings["services"]["browser"], "outlive": False}
    config_file = tmp_path / "statehold.toml"
    config_file.write_text(toml({**settings, "services": {"browser": mortal}}))
    with serving(config_file, tmp_path) as running:
        way = Way("http", "legacy", config_file, tmp_path, url=running.url)
        async with agent(way) as ann:
            await turn_on(ann, lab_site.url)
            await until(lambda: "a trace" in saved_text(tmp_path, ann.session))
        running.process.kill()
        running.process.wait(10)
    with serving(config_file, tmp_path) as running:
        way.url = running.url
        async with agent(way, ann.session) as ann:
            assert LOST in await ann.said("browser_snapshot")


@pytest.mark.thorough
@pytest.mark.parametrize("killed", ["the browser", "the server"])
async def test_a_notice_reports_the_loss_of_input_after_the_last_checkpoint(
    settings: JSON, tmp_path: Path, lab_site: Lab, killed: str
) -> None:
    rarely = {**settings["services"]["browser"], "checkpoint": 600, "outlive": False}
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({**settings, "services": {"browser": rarely}}))
    with serving(config, data) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with agent(way) as ann:
            await ann.said("browser_navigate", url=f"{lab_site.url}/frame")
            await until(lambda: "/frame" in saved_text(data, ann.session))
            await ann.said("browser_type", target="#word", text="typed too late")
            if killed == "the browser":
                os.kill(find_process(running, is_browser).pid, signal.SIGKILL)
                assert UNSAVED in await ann.said("browser_snapshot")
                return
            # Reading the history makes the calls before it durable.
            await ann.said("session_history")
        running.process.kill()
        running.process.wait(10)
    with serving(config, data) as running:
        way.url = running.url
        async with agent(way, ann.session) as ann:
            text = await ann.said("browser_snapshot")
            assert "Restored: 1 tab." in text
            assert UNSAVED in text
            assert "typed too late" not in text
