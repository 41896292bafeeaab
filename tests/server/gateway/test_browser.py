"""The built-in browser through real clients: a session stays logged in, whatever is paused or killed in between."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
import psutil
import pytest
from lab import Lab
from support.agent import (
    NOTE,
    Agent,
    agent,
    find_process,
    is_browser,
    is_driver,
    saved_text,
    text_of,
)
from support.gateway_process import (
    JSON,
    Running,
    Way,
    code_of,
    meta_of,
    opened_session,
    serving,
    structured,
    toml,
)
from support.process_exit import until_gone
from support.selection import matrix, matrix_of
from support.token_file import write_tokens
from support.waiting import until

PASSWORD = "open sesame"
ALL_KINDS = ("cookie", "local", "session", "indexed")
WAYS = matrix_of([("http", "modern"), ("stdio", "legacy")])


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    """A browser with frequent checkpoints."""
    browser = {"executable": headless_shell, "checkpoint": 0.05, "caps": ["devtools"]}
    toolsets = ["core", "lifecycle", "state", "history", "branch", "admin"]
    services = {"browser": browser}
    return {"toolsets": toolsets, "recovery": {"backoff": [0.05, 1, 5]}, "services": services}


async def log_in(one: Agent, site: str, name: str) -> None:
    await one.said("browser_navigate", url=f"{site}/login")
    fields = [
        {"target": "#name", "name": "Name", "type": "textbox", "value": name},
        {"target": "#password", "name": "Password", "type": "textbox", "value": PASSWORD},
    ]
    await one.said("browser_fill_form", fields=fields)
    assert f"Logged in as {name}" in await one.said("browser_click", target="button")


@pytest.fixture
def http(server: Running, config_file: Path, tmp_path: Path) -> Way:
    return Way("http", "modern", config_file, tmp_path, url=server.url)


# Over every way.


async def test_login_survives_a_pause_and_the_next_result_says_so_once(
    way: Way, login_site: str
) -> None:
    async with agent(way) as ada:
        await log_in(ada, login_site, "ada")
        paused = structured(await ada.call("session_pause"))
        assert paused["status"] == "paused"
        result = await ada.call("browser_snapshot")
        assert "generation 1 to 2; it was paused" in text_of(result)
        assert "Restored: 1 tab, 1 cookie, the storage of 1 site" in text_of(result)
        assert "Logged in as ada" in text_of(result)
        assert "note of ada" in text_of(result)
        assert meta_of(result)["statehold/session"]["generation"] == 2
        again = await ada.said("browser_snapshot")
        assert "Note from Statehold" not in again
        assert "[ref=g2" in again


async def test_a_wrong_argument_of_a_browser_tool_has_the_heading_of_the_peer(way: Way) -> None:
    async with agent(way) as ada:
        result = await ada.call("browser_click", selector="button")
        assert code_of(result) == "invalid_argument"
        assert text_of(result).startswith(
            '### Error\ninvalid_argument: Invalid arguments for tool "browser_click": browser_click has no argument'
        )
        own = await ada.call("state_get", selector="button")
        assert text_of(own).startswith("invalid_argument: ")


async def test_a_password_that_was_typed_is_in_no_history(way: Way, login_site: str) -> None:
    async with agent(way) as ada:
        await log_in(ada, login_site, "ada")
        await ada.said("browser_navigate", url=f"{login_site}/login")
        await ada.said("browser_type", target="#password", text=PASSWORD)
        assert PASSWORD not in await ada.said("browser_snapshot")
        text = await ada.said("browser_evaluate", function="() => password.value")
        assert PASSWORD in text
        await ada.failed("browser_type", target="#passwrod", text="another secret")
        operation = {"statehold/operation_id": "typing"}
        arguments = {"session_id": ada.session, "target": "#password", "text": "third secret"}
        await ada.client.call_tool("browser_type", arguments, meta=cast("Any", operation))
        history = json.dumps(structured(await ada.call("session_history")))
        for secret in (PASSWORD, "another secret", "third secret"):
            assert secret not in history
        assert history.count("browser_type") == 3
        assert '"value": "ada"' in history


async def test_files_of_a_session_are_resources_that_outlive_a_pause(
    way: Way, login_site: str
) -> None:
    async with agent(way) as ada:
        await ada.said("browser_navigate", url=f"{login_site}/login")
        result = await ada.call("browser_take_screenshot", filename="login.png")
        [link] = [b for b in result.content if isinstance(b, types.ResourceLink)]
        assert str(link.uri) == f"session://{ada.session}/browser/files/login.png"
        assert f"({link.uri})" in text_of(result)
        structured(await ada.call("session_pause"))
        [content] = (await ada.client.read_resource(str(link.uri))).contents
        assert isinstance(content, types.BlobResourceContents)
        assert content.blob.startswith("iVBOR")
        info = structured(await ada.call("session_info"))
        # Reading needs no browser.
        assert [s["connected"] for s in info["services"]] == [False]


# Over HTTP only, because the other transports make no difference here.


@pytest.mark.thorough
async def test_sessions_do_not_see_each_others_logins(http: Way, login_site: str) -> None:
    async with agent(http) as ada:
        bob = Agent(ada.client, await opened_session(ada.client))
        await log_in(ada, login_site, "ada")
        assert "Nobody is logged in" in await bob.said("browser_navigate", url=f"{login_site}/me")
        await log_in(bob, login_site, "bob")
        assert "Logged in as ada" in await ada.said("browser_navigate", url=f"{login_site}/me")


@pytest.mark.thorough
async def test_a_page_never_gets_to_the_server_that_shows_it(
    http: Way, server: Running, login_site: str
) -> None:
    """Otherwise a caller that is limited to one session could reach all others through its browser."""
    port = server.url.rpartition(":")[2]
    async with agent(http) as ada:
        await ada.said("browser_navigate", url=f"{login_site}/me")
        for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0"):
            result = await ada.call("browser_navigate", url=f"http://{host}:{port}/health")
            assert "is Statehold itself" in text_of(result)
            assert '"status"' not in text_of(result)
        script = f"() => fetch('{server.url}/mcp', {{method: 'POST', mode: 'no-cors'}}).then(r => r.type)"
        await ada.said("browser_navigate", url=f"{login_site}/me")
        result = await ada.call("browser_evaluate", function=script)
        assert "Not allowed to reach" in text_of(result)


@pytest.mark.thorough
async def test_children_of_a_session_are_logged_in_as_it_is(http: Way, login_site: str) -> None:
    """Log in once and fork several browsers, each of which is independent from then on."""
    async with agent(http) as ada:
        await log_in(ada, login_site, "ada")
        arguments = {"session_id": ada.session, "count": 2}
        forked = structured(await ada.client.call_tool("session_fork", arguments))
        (copied,) = forked["services"]
        assert (copied["service"], copied["copied"]) == ("browser", True)
        assert "one login for all" in copied["note"]
        children = [Agent(ada.client, child["session_id"]) for child in forked["children"]]
        me = f"{login_site}/me"
        for child in children:
            assert "Logged in as ada" in await child.said("browser_navigate", url=me)
        await log_in(children[0], login_site, "bob")
        for other in (ada, *children[1:]):
            assert "Logged in as ada" in await other.said("browser_navigate", url=me)


@pytest.mark.thorough
async def test_a_moved_session_is_logged_in_when_its_secrets_were_moved(
    http: Way, login_site: str
) -> None:
    """The document holds the current content of the open browser, or nothing of it."""
    async with agent(http) as ada:
        await log_in(ada, login_site, "ada")
        greetings: list[bool] = []
        for secrets in (True, False):
            wanted = {"session_id": ada.session, "secrets": secrets}
            document = structured(await ada.client.call_tool("session_export", wanted))["document"]
            arguments = {"document": document}
            imported = structured(await ada.client.call_tool("session_import", arguments))
            moved = Agent(ada.client, imported["session_id"])
            text = await moved.said("browser_navigate", url=f"{login_site}/me")
            greetings.append("Logged in as ada" in text)
        assert greetings == [True, False]
        assert "Logged in as ada" in await ada.said("browser_navigate", url=f"{login_site}/me")


@pytest.mark.thorough
async def test_a_pinned_session_lists_its_files(
    config_file: Path, tmp_path: Path, login_site: str
) -> None:
    way = Way("stdio", "modern", config_file, tmp_path, options=["--session", "desk"])
    async with way.connect() as client:
        [state] = (await client.list_resources()).resources
        assert state.name == "state"
        await client.call_tool("browser_navigate", {"url": f"{login_site}/login"})
        await client.call_tool("browser_take_screenshot", {"filename": "a b.png"})
        [_, file] = (await client.list_resources()).resources
        assert file.name == "a b.png"
        assert (await client.read_resource(str(file.uri))).contents
        assert (await client.list_resource_templates()).resource_templates == []


@pytest.mark.thorough
@pytest.mark.parametrize("era", matrix("modern", "legacy"))
async def test_files_in_the_roots_of_a_client_on_this_machine_are_uploaded(
    config_file: Path, tmp_path: Path, era: Any
) -> None:
    project = tmp_path / "my project"
    for folder in (project, tmp_path / "other"):
        folder.mkdir()
        (folder / "notes.txt").write_text("12345")

    async def roots(_: object) -> types.ListRootsResult:
        root = types.Root.model_validate({"uri": project.as_uri()})
        return types.ListRootsResult(roots=[root])

    way = Way("stdio", era, config_file, tmp_path, options=["--session", "desk"])
    async with way.connect(list_roots_callback=roots) as client:
        page = "<p></p><input type=file onchange='p.textContent = files[0].name + files[0].size'>"
        script = "<script>p = document.querySelector('p')</script>"
        await client.call_tool("browser_navigate", {"url": f"data:text/html,{page}{script}"})
        await client.call_tool("browser_click", {"target": "input"})
        with anyio.fail_after(20):
            other = {"paths": [str(tmp_path / "other" / "notes.txt")]}
            assert "no file of this session" in text_of(
                await client.call_tool("browser_file_upload", other)
            )
            own = {"paths": [str(project / "notes.txt")]}
            result = await client.call_tool("browser_file_upload", own)
        assert "notes.txt5" in text_of(result)


@pytest.mark.thorough
async def test_private_addresses_are_out_of_reach_for_callers_with_tokens(
    settings: JSON, tmp_path: Path, login_site: str
) -> None:
    tokens = tmp_path / "tokens"
    write_tokens(tokens, "a-token-of-the-tests-0123456789 ada\n")
    config = tmp_path / "statehold.toml"
    config.write_text(toml({**settings, "server": {"tokens": str(tokens)}}))
    with serving(config, tmp_path / "data") as running:
        way = Way("http", "modern", config, tmp_path, url=running.url)
        headers = {"Authorization": "Bearer a-token-of-the-tests-0123456789"}
        async with way.connect(headers=headers) as client:
            ada = Agent(client, await opened_session(client))
            result = await ada.call("browser_navigate", url=f"{login_site}/login")
            assert "Not allowed to reach 127.0.0.1" in text_of(result)
            assert "Harbour" not in text_of(result)


WAITING: dict[str, tuple[str, str, JSON]] = {
    "alert": ("/dialogs", "browser_handle_dialog", {"accept": True}),
    "download": ("/downloads", "browser_wait_for", {"text": "Slow file"}),
    "File chooser": ("/chooser", "browser_file_upload", {}),
}
"""The page where it is, and the call that ends it."""
BEGIN = {
    "alert": "button >> text=/^Alert$/",
    "download": "text=Slow file",
    "File chooser": "text=Choose a file",
}


@pytest.mark.thorough
@pytest.mark.parametrize("what", WAITING)
async def test_an_idle_session_is_paused_only_when_its_dialog_or_download_is_over(
    what: str, server: Running, lab_site: Lab
) -> None:
    way = Way("http", "modern", Path(), Path(), url=server.url)
    page, tool, arguments = WAITING[what]
    async with agent(way, idle_seconds=1) as ada:
        await ada.said("browser_navigate", url=f"{lab_site.url}{page}")
        await ada.call("browser_click", target=BEGIN[what])
        # Used later and idle as long: when this one is paused, the other one could be.
        bob = Agent(ada.client, await opened_session(ada.client, idle_seconds=1))
        await bob.said("browser_navigate", url=f"{lab_site.url}/frame")
        await paused(bob)
        info = structured(await ada.call("session_info"))
        assert (info["status"], info["generation"]) == ("idle", 1)
        refused = await ada.call("session_pause")
        assert code_of(refused) == "session_busy"
        assert what in text_of(refused)
        lab_site.open("download")
        await ada.call(tool, **arguments)
        await paused(ada)


async def paused(one: Agent) -> None:
    """Wait until the server has paused a session."""

    async def is_paused() -> bool:
        return structured(await one.call("session_info"))["status"] == "paused"

    await until(is_paused)


@pytest.mark.thorough
async def test_idle_session_comes_back_with_its_login(http: Way, login_site: str) -> None:
    async with agent(http, idle_seconds=1) as ada:
        await log_in(ada, login_site, "ada")
        await paused(ada)
        text = await ada.said("browser_snapshot")
        assert "it was paused" in text
        assert "Restored: 1 tab, 1 cookie, the storage of 1 site" in text
        # The site is asked anew, and knows the login.
        assert "Logged in as ada" in await ada.said("browser_navigate", url=f"{login_site}/me")


# Logins after a kill.


async def enter_everywhere(ada: Agent, site: str, lab: str) -> None:
    """Log in by HttpOnly cookie on one site, and in four ways on another, in three tabs."""
    await log_in(ada, site, "ada")
    await ada.said("browser_tabs", action="new", url=f"{lab}/logins")
    await ada.said("browser_type", target="input", text="ada")
    for button in ("By cookie", "By localStorage", "By sessionStorage", "By IndexedDB"):
        await ada.said("browser_click", target=f"text={button}")
    text = await ada.said("browser_snapshot")
    assert text.count("ada") >= len(ALL_KINDS)


async def check_everywhere(ada: Agent, generation: int, why: str) -> None:
    """Check that all logins are restored, that the loss was reported once, and that the session continues."""
    first = await ada.said("browser_snapshot")
    assert f"generation {generation - 1} to {generation}" in first
    assert why in first
    assert "Restored: 2 tabs" in first
    await ada.said("browser_tabs", action="select", index=1)
    shown = await ada.said("browser_evaluate", function=SHOWN)
    assert "Note from Statehold" not in shown
    for kind in ALL_KINDS:
        assert f'"{kind}": "ada"' in shown
    await ada.said("browser_tabs", action="select", index=0)
    assert "Logged in as ada" in await ada.said("browser_snapshot")


SHOWN = """() => Object.fromEntries(["cookie", "local", "session", "indexed"]
    .map(id => [id, document.getElementById(id).textContent]))"""


async def checkpointed(data: Path, session: str) -> None:
    """Wait until all logins are in the database."""
    logins = (
        "site_session",
        "lab_login",
        '\'items\': \'[{"name":"login"',
        "'sessions': {'http",
        "valueEncoded",
    )
    await until(lambda: all(login in saved_text(data, session) for login in logins))


@pytest.fixture
def mortal_config(settings: JSON, tmp_path: Path) -> Path:
    """A configuration with a browser that ends with its server."""
    browser = {**settings["services"]["browser"], "outlive": False}
    path = tmp_path / "statehold.toml"
    path.write_text(toml({**settings, "services": {"browser": browser}}))
    return path


@pytest.fixture
async def everywhere(
    mortal_config: Path, tmp_path: Path, login_site: str, lab_site: Any
) -> AsyncGenerator[tuple[Way, Running, str]]:
    """A server of the test's own with a session that is logged in everywhere and saved: the way to it, it, the session.

    Its browser ends with it.
    """
    with serving(mortal_config, tmp_path / "data") as running:
        way = Way("http", "modern", mortal_config, tmp_path / "data", url=running.url)
        async with agent(way, name="desk") as ada:
            await enter_everywhere(ada, login_site, lab_site.url)
            await checkpointed(tmp_path / "data", ada.session)
        yield way, running, ada.session


Everywhere = tuple[Way, Running, str]


async def kill(process: psutil.Process) -> None:
    """Kill a process and wait until it and its children are gone."""
    processes = [process, *process.children(recursive=True)]
    os.kill(process.pid, signal.SIGKILL)
    await until_gone(*(each.pid for each in processes))


@pytest.mark.fault
async def test_a_login_survives_a_kill_of_its_browser_and_of_the_server(
    mortal_config: Path, tmp_path: Path, login_site: str
) -> None:
    data = tmp_path / "data"
    with serving(mortal_config, data) as running:
        way = Way("http", "modern", mortal_config, data, url=running.url)
        async with agent(way) as ada:
            await log_in(ada, login_site, "ada")
            await until(lambda: "site_session" in saved_text(data, ada.session))
            await kill(find_process(running, is_browser))
            result = await ada.call("browser_snapshot")
            assert "generation 1 to 2; the browser ended" in text_of(result)
            assert "Logged in as ada" in text_of(result)
            assert NOTE not in await ada.said("browser_snapshot")
            session = ada.session
        children = psutil.Process(running.process.pid).children(recursive=True)
        running.process.kill()
        running.process.wait(10)
        await until_gone(*(child.pid for child in children))
    with serving(mortal_config, data) as again:
        way.url = again.url
        async with agent(way, session) as ada:
            first = await ada.said("browser_snapshot")
            assert "generation 2 to 3; the server was restarted" in first
            assert "Logged in as ada" in first


@pytest.mark.thorough
@pytest.mark.fault
async def test_all_logins_survive_kills_and_restarts(
    everywhere: Everywhere, mortal_config: Path
) -> None:
    """One session loses its browser, its driver and its server, and is paused, each time after a checkpoint."""
    way, running, session = everywhere
    for generation, victim, why in (
        (2, is_browser, "the browser ended"),
        (3, is_driver, "the Playwright driver ended"),
    ):
        await kill(find_process(running, victim))
        async with agent(way, session) as ada:
            await check_everywhere(ada, generation, why)
    children = psutil.Process(running.process.pid).children(recursive=True)
    running.process.kill()
    running.process.wait(10)
    await until_gone(*(child.pid for child in children))
    with serving(mortal_config, way.data) as again:
        way.url = again.url
        async with agent(way, session) as ada:
            await check_everywhere(ada, 4, "the server was restarted")
        assert again.stop() == 0
    with serving(mortal_config, way.data) as again:
        way.url = again.url
        async with agent(way, session) as ada:
            await check_everywhere(ada, 5, "Statehold was stopped")
            assert structured(await ada.call("session_close"))["status"] == "closed"
