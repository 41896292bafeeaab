"""The console's page of logins: keys and logins at services, of each person, and never their values."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from mcp import Client
from playwright.async_api import Browser, Page
from support.console_client import ConsoleClient, console_address, console_client, operator
from support.console_page import console
from support.fork_server import ForkServer
from support.gateway_process import JSON, UPSTREAMS, Running, Way, opened_session, serving, toml
from support.listening import run_listening
from support.token_file import write_tokens
from support.waiting import until

from statehold.sessions.records import LOCAL
from statehold.sessions.store.base import LoginRecord
from statehold.sessions.store.sql import SQLStore

CANARY = "canary-7f3a-kd83-Q9x2"
ALICE, OLGA = "alice-token-0123456789", "olga-token-0123456789a"


@pytest.fixture
def notes(tmp_path: Path, fork_server: ForkServer) -> Generator[JSON]:
    """A service that asks for the key `notes/key`."""
    (tmp_path / "valid").write_text(CANARY)
    program = fork_server.command(str(UPSTREAMS / "keyed.py"), str(tmp_path / "valid"))
    with run_listening(program) as port:
        headers = {"X-Api-Key": "Key ${login:notes/key}"}
        yield {"url": f"http://127.0.0.1:{port}/mcp", "headers": headers}


@pytest.fixture
def tracker(tmp_path: Path, fork_server: ForkServer) -> Generator[JSON]:
    """A service that asks for OAuth."""
    program = [str(UPSTREAMS / "guarded.py"), "--log", str(tmp_path / "log")]
    with run_listening(fork_server.command(*program)) as port:
        yield {"url": f"http://127.0.0.1:{port}/mcp"}


def served(folder: Path, document: JSON) -> tuple[Path, Path]:
    config = folder / "statehold.toml"
    config.write_text(toml(document))
    return config, folder / "data"


async def logins_of(client: ConsoleClient) -> dict[str, JSON]:
    return {each["name"]: each for each in (await client.get("/logins"))["logins"]}


async def digits(agent: Client) -> bool:
    session = await opened_session(agent)
    return not (await agent.call_tool("digits", {"session_id": session})).is_error


async def test_a_person_has_keys_of_its_own_and_an_operator_sees_them_without_values(
    tmp_path: Path, notes: JSON
) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{OLGA} olga role=operator\n")
    config, data = served(
        tmp_path, {"services": {"notes": notes}, "server": {"tokens": str(tokens)}}
    )
    with serving(config, data) as running:
        async with (
            operator(data) as root,
            console_client(running.url) as alice,
            console_client(running.url) as olga,
        ):
            await alice.log_in(token=ALICE)
            await olga.log_in(token=OLGA)
            absent = (await logins_of(alice))["notes/key"]
            assert (absent["state"], absent["services"]) == ("absent", ["notes"])
            assert absent["actions"] == ["add_key"]
            assert absent["command"] == "statehold logins add notes/key --key --subject alice"
            key = {"name": "notes/key", "value": CANARY}
            for client in (root, alice):
                assert await client.post("/logins/keys", **key) == {}
            way = Way("http", "modern", config, data, url=running.url)
            async with way.connect(headers={"authorization": f"Bearer {ALICE}"}) as agent:

                async def is_used() -> bool:
                    return await digits(agent)

                await until(is_used)
            stored = (await logins_of(alice))["notes/key"]
            assert (stored["state"], stored["owner"]) == ("ok", None)
            assert stored["used_at"] is not None
            # An operator sees the logins of others, and forgets none of them.
            [seen] = [
                each
                for each in (await olga.get("/logins"))["logins"]
                if each["owner"] is not None and "alice" in each["owner"]
            ]
            assert (seen["id"], seen["actions"]) == (stored["id"], [])
            refused = await olga.refused("DELETE", f"/logins/{stored['id']}")
            assert refused["status"] == 404
            assert CANARY not in json.dumps(await olga.get("/logins"))
            for body in ({"name": "a b", "value": CANARY}, {**key, "value": ""}, {"name": CANARY}):
                refused = await alice.refused("POST", "/logins/keys", body)
                assert (refused["status"], CANARY in json.dumps(refused)) == (400, False)
            refused = await alice.refused("POST", "/logins/keys", key, x_csrf_token="wrong")
            assert refused["code"] == "csrf"
            response = await alice.send("DELETE", f"/logins/{stored['id']}")
            assert response.status_code == 200
            assert (await logins_of(alice))["notes/key"]["state"] == "absent"
            assert (await logins_of(root))["notes/key"]["state"] == "ok"
    assert CANARY not in running.log


@pytest.fixture
async def page(
    tmp_path: Path, browser: Browser, notes: JSON, tracker: JSON
) -> AsyncGenerator[tuple[Page, Running]]:
    config, data = served(tmp_path, {"services": {"notes": notes, "tracker": tracker}})
    with serving(config, data) as running:
        async with console(browser, console_address(data, running.url)) as page:
            yield page, running


async def test_the_services_lead_to_the_login_that_they_need_and_its_person_adds_it(
    page: tuple[Page, Running],
) -> None:
    shown, running = page
    await shown.get_by_role("link", name="Services").click()
    await shown.get_by_role("link", name="It needs the login notes/key").click()
    await shown.locator("tr[aria-current=true]", has_text="notes/key").wait_for()
    await shown.get_by_role("button", name="Add the key notes/key").press("Enter")
    # The field has the focus.
    await shown.keyboard.type(CANARY)
    assert await shown.get_by_label("Key", exact=True).get_attribute("type") == "password"
    await shown.keyboard.press("Enter")
    await shown.locator("tr", has_text="notes/key").get_by_text("ready").wait_for()
    assert CANARY not in await shown.content()
    await shown.get_by_role("link", name="Services").click()
    await shown.locator("tr", has_text="notes").get_by_text("available", exact=True).wait_for()
    await shown.get_by_role("link", name="Logins").click()
    async with shown.expect_popup() as opened:
        await shown.get_by_role("button", name="Log in at tracker").click()
    await (await opened.value).get_by_text("Logged in at tracker").wait_for()
    await shown.locator("tr", has_text="tracker").get_by_text("ready").wait_for()
    await shown.get_by_role("button", name="Forget notes/key").click()
    await shown.get_by_role("button", name="Forget it").click()
    await shown.locator("tr", has_text="notes/key").get_by_text("not there").wait_for()
    assert CANARY not in running.log


async def test_a_person_takes_a_login_back_from_its_session(
    tmp_path: Path, browser: Browser
) -> None:
    config, data = served(tmp_path, {"services": {}})
    login = LoginRecord(
        owner=LOCAL.key,
        name="shop",
        kind="browser",
        site="https://shop.test",
        issuer="",
        state="ok",
        since=1.0,
        sealed=b"",
        session="s_gone",
    )
    with serving(config, data) as running:
        async with SQLStore.sqlite(data) as store:
            await store.logins.put(login)
            async with console(browser, console_address(data, running.url)) as page:
                await page.goto(f"{page.url.partition('#')[0]}#/logins")
                await page.locator("tr", has_text="s_gone").wait_for()
                await page.get_by_role("button", name="Take back shop").click()
                await page.locator("td", has_text="s_gone").wait_for(state="detached")
            [row] = await store.logins.page()
    assert row.session == ""


async def test_a_principal_begins_its_own_logins_and_not_those_that_the_operator_lends(
    tmp_path: Path,
) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{OLGA} olga\n")
    rule = {"principals": ["alice"]}
    login = {"kind": "browser", "sites": ["https://shop.test"], "lend": [rule]}
    document = {"services": {}, "server": {"tokens": str(tokens)}, "logins": {"shop": login}}
    config, data = served(tmp_path, document)
    with serving(config, data) as running:
        async with (
            operator(data) as root,
            console_client(running.url) as alice,
            console_client(running.url) as olga,
        ):
            await alice.log_in(token=ALICE)
            await olga.log_in(token=OLGA)
            assert await logins_of(alice) == {}
            refused = await alice.refused("POST", "/logins/sessions", {"login": "shop"})
            assert (refused["status"], "operator" in refused["message"]) == (400, True)
            shop = (await logins_of(olga))["shop"]
            assert (shop["state"], shop["site"]) == ("new", "https://shop.test")
            assert shop["actions"] == ["log_in"]
            assert shop["command"] == "statehold logins add shop --subject olga"
            assert (await logins_of(root))["shop"]["command"] == "statehold logins add shop"
            refused = await olga.refused("POST", "/logins/sessions", {"login": "shops"})
            assert (refused["status"], "'shops'" in refused["message"]) == (400, True)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_the_logins(page: tuple[Page, Running], scheme: str) -> None:
    shown, _ = page
    await shown.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await shown.set_viewport_size({"width": 390, "height": 800})
    await shown.goto(f"{shown.url.partition('#')[0]}#/logins")
    await shown.get_by_role("button", name="Add the key notes/key").wait_for()
    assert await shown.evaluate("document.documentElement.scrollWidth") <= 390
