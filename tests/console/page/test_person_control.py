"""Control of a session over the page of the console: two viewers, two takers, the race with the agent, and what ends it."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser
from support.agent import Agent, agent
from support.console_client import console_client
from support.console_page import BLUE, RED, ConsolePage, browser_of, opened_console, page_of
from support.gateway_process import Way
from support.waiting import until

from statehold.console.app import Console
from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.live import control_lease
from statehold.sessions.records import LOCAL
from statehold.tools.browser.devtools.world import send_command

PASSWORD = "correct horse battery"
COLORED = "<!doctype html><body style='margin:0;background:{}'><input id=field autofocus><script>log = []</script>"


@pytest.fixture
async def bob(gateway: Gateway, mcp_server: StateholdServer) -> AsyncGenerator[Agent]:
    """An agent in a session of its own, with an open page."""
    way = Way("memory", "modern", gateway.config.data, gateway.config.data, mcp_server)
    async with agent(way) as opened:
        await opened.said("browser_navigate", url="about:blank")
        yield opened
        await opened.client.call_tool(
            "session_close", {"session_id": opened.session, "force": True}
        )


@pytest.fixture
async def window(
    browser: Browser, url: str, console: Console, bob: Agent
) -> AsyncGenerator[ConsolePage]:
    """A person who looks at the session of that agent."""
    async with opened_console(browser, url, console, bob.session) as opened:
        yield opened


async def has_control(window: ConsolePage) -> bool:
    return await window.page.get_by_text("You have control.").count() == 1


async def refusal_of(bob: Agent) -> str:
    return await bob.failed("browser_snapshot")


@pytest.mark.thorough
async def test_two_viewers_see_the_same_and_a_slow_one_slows_nobody(
    window: ConsolePage, browser: Browser, url: str, console: Console, bob: Agent, gateway: Gateway
) -> None:
    watched = page_of(gateway, bob.session)
    async with (
        console_client(url) as client,
        opened_console(browser, url, console, bob.session) as second,
    ):
        await client.log_in(code=await console.logins.mint_code())
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as slow:
            # It asks for pictures, and reads none.
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(
                f"GET /api/v1/sessions/{bob.session}/frames HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Cookie: __Host-statehold={client.cookie}\r\n\r\n".encode()
            )
            for color, name in ((RED, "red"), (BLUE, "blue")) * 4:
                await watched.set_content(COLORED.format(name))
                await window.find(color)
                await second.find(color)


@pytest.mark.thorough
async def test_without_viewers_nothing_is_captured(
    window: ConsolePage, bob: Agent, gateway: Gateway
) -> None:
    screencast = browser_of(gateway, bob.session).screencast
    await page_of(gateway, bob.session).set_content(COLORED.format("red"))
    await window.find()
    assert repr(screencast) == "<Screencast captures=1>"
    # A picture that is not on the screen needs none either.
    await window.page.evaluate("location.hash = '#/services'")
    await until(lambda: repr(screencast) == "<Screencast captures=0>")
    await window.open_session(bob.session)
    await window.find()
    await window.page.close()
    await until(lambda: repr(screencast) == "<Screencast captures=0>")


@pytest.mark.thorough
async def test_one_of_two_people_gets_control_and_the_other_is_told_who_has_it(
    window: ConsolePage, browser: Browser, url: str, console: Console, bob: Agent, gateway: Gateway
) -> None:
    async with opened_console(browser, url, console, bob.session) as second:
        windows = [window, second]
        async with anyio.create_task_group() as tasks:
            for each in windows:
                tasks.start_soon(each.page.get_by_role("button", name="Take over").click)

        async def is_decided() -> bool:
            return [await has_control(each) for each in windows].count(True) == 1

        await until(is_decided)
        winner, loser = windows if await has_control(window) else windows[::-1]
        # The message of the refusal, and the state of the session that takes its place.
        await loser.page.get_by_text("has control").first.wait_for()
        await loser.page.get_by_role("button", name="Take over").wait_for(state="detached")
        await page_of(gateway, bob.session).set_content(COLORED.format("red"))
        await loser.click_color()
        await loser.page.keyboard.type("no")
        await page_of(gateway, bob.session).evaluate("field.focus()")
        await winner.page.keyboard.type("yes")
        await page_of(gateway, bob.session).wait_for_function("field.value === 'yes'")


@pytest.mark.thorough
async def test_a_session_without_a_page_asks_for_no_picture_and_a_person_opens_one(
    browser: Browser, url: str, console: Console, gateway: Gateway, mcp_server: StateholdServer
) -> None:
    way = Way("memory", "modern", gateway.config.data, gateway.config.data, mcp_server)
    async with agent(way, name="fresh") as bob, opened_console(browser, url, console) as window:
        page, asked = window.page, list[str]()
        page.on("request", lambda request: asked.append(request.url))
        await page.get_by_role("row").get_by_role("link", name="fresh").click()
        await page.get_by_text("No page is open.").wait_for()
        assert not [address for address in asked if f"{bob.session}/frames" in address]
        await page.get_by_role("button", name="Open one").click()
        await page.get_by_text("You have control.").wait_for()
        await page.locator(".address input:focus").wait_for()
        await page.keyboard.type("data:text/html,<body bgcolor=red>")
        await page.keyboard.press("Enter")
        await window.find(RED)
        await window.give_back()
        assert "data:text/html" in await bob.said("browser_tabs", action="list")
        await bob.said("browser_tabs", action="close")
        await page.get_by_text("No page is open.").wait_for()
        await page.get_by_role("button", name="Take over").click()
        await window.find((255, 255, 255))
        await window.give_back()
        await bob.client.call_tool("session_close", {"session_id": bob.session, "force": True})
        assert window.errors == []


@pytest.mark.thorough
async def test_a_person_takes_control_from_a_browser_of_their_own_elsewhere(
    window: ConsolePage, browser: Browser, url: str, console: Console, bob: Agent, gateway: Gateway
) -> None:
    await page_of(gateway, bob.session).set_content(COLORED.format("red"))
    await window.take()
    async with opened_console(browser, url, console, bob.session) as second:
        for here, there in ((second, window), (window, second)):
            await here.page.get_by_text("in another window").wait_for()
            await here.page.get_by_role("button", name="Control it here").click()
            await here.page.get_by_text("You have control.").wait_for()
            await here.page.keyboard.type("x")
            await there.page.get_by_role("button", name="Control it here").wait_for(timeout=40_000)
        watched = page_of(gateway, bob.session)
        await watched.wait_for_function("field.value === 'xx'")
        await window.give_back()


@pytest.mark.thorough
async def test_calls_of_the_agent_that_race_with_the_take_never_act_after_it(
    window: ConsolePage, bob: Agent, gateway: Gateway
) -> None:
    watched = page_of(gateway, bob.session)
    await watched.set_content(COLORED.format("red"))
    for _ in range(4):
        texts: list[str] = []
        stopped = anyio.Event()

        async def act(texts: list[str] = texts, stopped: anyio.Event = stopped) -> None:
            while not stopped.is_set():
                result = await bob.call("browser_evaluate", function="() => { log.push('agent') }")
                texts.append("" if not result.is_error else str(result.content))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act)
            await until(lambda texts=texts: texts)
            await window.take()
            count = await watched.evaluate("log.length")
            refused = len(texts)
            await until(lambda texts=texts, refused=refused: len(texts) > refused + 2)
            assert await watched.evaluate("log.length") == count
            stopped.set()
        assert "human_in_control" in texts[-1] or "control" in texts[-1]
        await window.give_back()


@pytest.mark.thorough
async def test_a_person_who_could_not_is_asked_why_and_may_go_on(
    window: ConsolePage, bob: Agent
) -> None:
    await window.take()
    await window.page.get_by_role("button", name="Could not").click()
    await window.page.get_by_role("button", name="Back", exact=True).click()
    assert await has_control(window)
    await window.page.get_by_role("button", name="Could not").click()
    await window.page.get_by_label("Why not, for the agent").fill("no <phone> here")
    await window.page.keyboard.press("Enter")
    await window.page.locator("button:enabled", has_text="Take over").wait_for()
    answer = await bob.said("browser_snapshot")
    assert 'could not do it with the words "no <phone> here"' in answer


@pytest.mark.thorough
async def test_impatient_clicks_do_no_harm(window: ConsolePage, bob: Agent) -> None:
    page = window.page
    button = page.get_by_role("button", name="Take over")
    box = await button.bounding_box()
    assert box is not None
    for _ in range(3):
        await page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.locator("button:enabled", has_text="Could not").wait_for()
    # Typed before the person has looked at anything, and Escape with it.
    await page.keyboard.type("abc")
    await page.keyboard.press("Escape")
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Done").focus()
    await page.keyboard.press("Escape")
    await until(lambda: has_control(window))
    assert "/s/" in page.url
    done = await page.get_by_role("button", name="Done").bounding_box()
    assert done is not None
    for _ in range(2):
        await page.mouse.dblclick(done["x"] + 10, done["y"] + 10)
    await page.locator("button:enabled", has_text="Take over").wait_for()
    assert window.errors == []
    answer = await bob.said("browser_snapshot")
    assert answer.count("handed it back: done") == 1


@pytest.mark.thorough
async def test_control_outlives_a_reload_the_way_back_and_a_lost_network(
    window: ConsolePage, bob: Agent, gateway: Gateway
) -> None:
    page = window.page
    watched = page_of(gateway, bob.session)
    await watched.set_content(COLORED.format("red"))
    await window.take()
    await page.keyboard.type("a")
    await page.reload()
    await until(lambda: has_control(window))
    await watched.evaluate("field.focus()")
    await page.keyboard.type("b")
    await watched.wait_for_function("field.value === 'ab'")
    await page.evaluate("location.hash = '#/'")
    await page.get_by_role("heading", name="Sessions").wait_for()
    await page.go_back()
    await until(lambda: has_control(window))
    await page.keyboard.type("c")
    await watched.wait_for_function("field.value === 'abc'")

    await page.context.set_offline(True)
    await page.keyboard.type("d")
    await page.get_by_text("No connection: nothing that you do arrives.").wait_for()
    await page.keyboard.type("lost")
    await page.context.set_offline(False)
    await page.get_by_text("The agent waits.").wait_for()
    # The letter of that moment arrives at most once, and those that the page refused never.
    await page.keyboard.type("e")
    await watched.wait_for_function("field.value.endsWith('e')")
    assert await watched.evaluate("field.value") in ("abcde", "abce")
    assert "person" in await refusal_of(bob)
    await window.give_back()
    assert "handed it back: done" in await bob.said("browser_snapshot")


@pytest.mark.thorough
async def test_a_batch_whose_answer_is_lost_is_done_once(
    window: ConsolePage, bob: Agent, gateway: Gateway
) -> None:
    watched = page_of(gateway, bob.session)
    await watched.set_content(COLORED.format("red"))
    await window.take()
    await watched.evaluate("field.focus()")
    lost: list[str] = []

    async def lose(route: Any) -> None:
        if not lost:
            lost.append((await route.fetch()).url)
            await route.abort()
        else:
            await route.continue_()

    await window.page.route("**/input", lose)
    await window.page.keyboard.press("x")
    await window.page.get_by_text("The agent waits.").wait_for()
    await until(lambda: lost)

    async def is_reached() -> bool:
        return await window.page.get_by_text("No connection").count() == 0

    await until(is_reached)
    await window.page.keyboard.press("y")
    await watched.wait_for_function("field.value.endsWith('y')")
    assert await watched.evaluate("field.value") == "xy"


@pytest.mark.thorough
async def test_a_person_who_leaves_loses_control_and_the_agent_is_told(
    window: ConsolePage, bob: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_lease, "LEASE_SECONDS", 2.0)
    await window.take()
    await window.page.close()
    assert "person" in await refusal_of(bob)

    async def answer() -> str:
        result = await bob.call("browser_snapshot")
        return "" if result.is_error else str(result.content)

    text = await until(answer)
    assert "left without handing it back" in text


@pytest.mark.thorough
async def test_control_that_ended_meanwhile_says_so(
    window: ConsolePage, bob: Agent, gateway: Gateway
) -> None:
    await window.take()
    live = next(s for s in gateway.registry.owned_sessions() if s.id == bob.session)
    await gateway.registry.controls.give_back(
        LOCAL, bob.session, live.record.control.epoch, by_operator=True
    )
    await window.page.keyboard.press("a")
    await (
        window.page.get_by_role("alert")
        .get_by_text("This control of the session has ended")
        .wait_for()
    )
    await window.page.get_by_role("button", name="Take over").wait_for()


@pytest.mark.thorough
async def test_a_guest_who_may_view_sees_no_controls_and_the_server_refuses_input(
    browser: Browser, url: str, console: Console, bob: Agent, gateway: Gateway
) -> None:
    watched = page_of(gateway, bob.session)
    await watched.set_content(COLORED.format("red"))
    async with console_client(url) as client:
        await client.log_in(code=await console.logins.mint_code())
        link = await client.post(f"/sessions/{bob.session}/shares", link=True, rights="view")
        taken = await client.act(bob.session, "take")
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{url}{link['path']}")
        guest = ConsolePage(page)
        await page.locator("sh-screen canvas").wait_for()
        await guest.click_color()
        await page.keyboard.type("x")
        for name in ("Take over", "Done", "Pause", "Close", "Restart", "New tab"):
            assert await page.get_by_role("button", name=name).count() == 0, name
        assert await page.get_by_label("Address").get_attribute("readonly") is not None
        status = await page.evaluate(
            """async ([id, epoch]) => {
              const {csrf} = await (await fetch("/api/v1/me")).json();
              const headers = {"content-type": "application/json", "x-csrf-token": csrf};
              const send = async (path, body) => (await fetch(`/api/v1/sessions/${id}/${path}`,
                {method: "POST", body: JSON.stringify(body), headers})).status;
              const events = [{type: "text", text: "hit"}];
              return [await send("input", {epoch, events}), await send("actions/take", {}),
                await send("actions/renew", {epoch}), await send("actions/give-back", {epoch})];
            }""",
            [bob.session, taken["epoch"]],
        )
        assert status == [403, 403, 403, 403]
        assert await watched.evaluate("field.value") == ""
        # Its picture ends at once when the link is revoked.
        revoked = await client.send("DELETE", f"/sessions/{bob.session}/shares/{link['id']}")
        assert revoked.status_code == 200
        with anyio.fail_after(3):
            await page.get_by_text("logs you in").wait_for()
        await context.close()


@pytest.mark.thorough
async def test_a_person_who_drives_is_told_of_scripts_of_the_agent_and_of_others_who_watch(
    window: ConsolePage, browser: Browser, url: str, console: Console, bob: Agent, gateway: Gateway
) -> None:
    await bob.said("browser_evaluate", function="() => { globalThis.listens = true; }")
    warning = window.page.get_by_text("The agent changed pages of this session")
    # Before the takeover, too.
    await warning.wait_for()
    async with console_client(url) as client:
        await client.log_in(code=await console.logins.mint_code())
        link = await client.post(f"/sessions/{bob.session}/shares", link=True, rights="view")
    await window.take()
    assert await window.page.get_by_text("watch").count() == 0
    picture = window.page.locator("sh-screen canvas")
    place = await picture.bounding_box()
    context = await browser.new_context()
    guest = await context.new_page()
    await guest.goto(f"{url}{link['path']}")
    await window.page.get_by_text("1 other person watches this page").wait_for()
    # The next click lands where it was meant to.
    assert await picture.bounding_box() == place
    assert await guest.get_by_text("watches this page").count() == 0
    await window.page.get_by_role("button", name="Load anew").click()
    await warning.wait_for(state="hidden")
    assert await page_of(gateway, bob.session).evaluate("() => globalThis.listens") is None
    await context.close()
    await window.page.get_by_text("1 other person watches").wait_for(state="hidden")
    await window.give_back()


async def test_a_password_that_is_typed_over_the_page_is_written_nowhere(
    window: ConsolePage, bob: Agent, gateway: Gateway
) -> None:
    watched = page_of(gateway, bob.session)
    await watched.set_content(
        "<!doctype html><body style='margin:0;background:red'><form><input id=field type=password autofocus></form>"
    )
    await window.take()
    await watched.evaluate("field.focus()")
    await window.page.keyboard.type(PASSWORD)
    await watched.wait_for_function(f"field.value === '{PASSWORD}'")
    await watched.evaluate("field.value = ''")
    devtools = await window.devtools()
    await send_command(devtools, "Input.insertText", {"text": PASSWORD})
    await watched.wait_for_function(f"field.value === '{PASSWORD}'")
    await window.give_back()
    answer = await bob.said("browser_snapshot")
    assert PASSWORD not in answer
    await bob.client.call_tool("session_pause", {"session_id": bob.session})
    for path in gateway.config.data.rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path
