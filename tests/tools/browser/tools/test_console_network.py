"""The console and the requests of a page."""

from __future__ import annotations

import pytest
from lab import Lab
from support.browsing import Browse, section, text_of

from statehold.sessions.errors import InvalidArgument
from statehold.tools.browser.session.tab import EVENT_LINES

pytestmark = pytest.mark.peer


async def test_new_errors_are_events_and_all_messages_can_be_had_by_level(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/console")
    text = await browse.text("click", target="text=All levels")
    assert "- Console: 1 errors, 2 warnings" in section(text, "Page")
    assert "New console error: [ERROR] an error" in section(text, "Events")
    assert "a warning" not in section(text, "Events")
    text = await browse.text("click", target="text=Throw")
    assert "New uncaught error: thrown in a handler" in section(text, "Events")
    assert "### Events" not in await browse.text("snapshot")
    errors = section(await browse.text("console_messages", level="error"), "Result")
    assert (
        'Total messages: 8 (Errors: 2, Warnings: 2)\nReturning 2 messages for level "error"'
        in errors
    )
    assert "Error: thrown in a handler\n    at" in errors
    assert "a warning" not in errors
    info = section(await browse.text("console_messages"), "Result")
    assert "[LOG] a log {a: 1}" in info
    assert "a debug" not in info
    assert "a debug" in await browse.text("console_messages", level="debug")
    with pytest.raises(InvalidArgument):
        await browse.call("console_messages", level="nonsense")


@pytest.mark.thorough
async def test_messages_of_the_pages_before_are_kept_apart(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/console")
    await browse.text("click", target="text=All levels")
    await browse.text("navigate", url=f"{lab}/counter")
    assert "Total messages: 0" in await browse.text("console_messages")
    assert "an error" in await browse.text("console_messages", all=True)


@pytest.mark.thorough
async def test_a_flood_of_messages_is_bounded(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/console")
    await browse.text("click", target="text=Flood")
    await browse.text("click", target="text=Flood")
    text = section(await browse.text("console_messages"), "Result")
    assert "line 999" in text
    assert text.count("[LOG]") == 1000
    result = await browse.call("console_messages", filename="console.txt")
    assert result.payload["content"][1]["uri"] == "files/console.txt"


async def test_a_flood_of_errors_is_kept_in_part_and_counted(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(
        f"() => {{ for (let n = 0; n < {EVENT_LINES} + 200; n++) console.error(`no ${{n}}`); }}"
    )
    lines = section(await browse.text("snapshot"), "Events").splitlines()
    assert lines[0].startswith("- New console error: [ERROR] no 0")
    assert lines[0].endswith(f"({EVENT_LINES} times, with other numbers)")
    assert lines[-1] == "- (200 more in browser_console_messages)"


async def test_requests_are_listed_by_number_and_static_ones_only_where_wanted(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/console")
    await browse.text("navigate", url=f"{lab}/slow")
    await browse.text("click", target="text=Fetch twice")
    text = section(await browse.text("network_requests"), "Result")
    assert f"2. [GET] {lab}/api/slow?ms=100 => [200] OK" in text
    assert "Note: 1 static request not shown" in text
    text = section(await browse.text("network_requests", static=True, filter="/slow$"), "Result")
    assert text == f"1. [GET] {lab}/slow => [200] OK"
    assert "No requests." in await browse.text("network_requests", filter="nothing")
    assert "no regular expression" in await browse.error("network_requests", filter="(")


@pytest.mark.thorough
async def test_the_redirects_that_led_to_a_page_are_listed_with_it(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/console")
    await browse.text("navigate", url=f"{lab}/redirect?times=1")
    lines = section(await browse.text("network_requests", static=True), "Result").splitlines()
    assert [line.partition("?")[0] for line in lines[:3]] == [
        f"1. [GET] {lab}/redirect",
        f"2. [GET] {lab}/redirect",
        f"3. [GET] {lab}/frame",
    ]
    assert not any("/console" in line for line in lines)


async def test_a_request_is_shown_whole_or_in_parts(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value("() => fetch('/echo', {method: 'POST', body: 'said'}).then(r => r.text())")
    whole = section(await browse.text("network_request", index=2), "Result")
    assert whole.startswith(f"#2 [POST] {lab}/echo")
    assert "\n\n  General\n    status:    [200] OK\n    duration:  " in whole
    assert (
        'Call browser_network_request with part="request-body" to read the request body.' in whole
    )
    parts = {
        "request-headers": "user-agent: ",
        "request-body": "said",
        "response-headers": "content-length: 4",
        "response-body": "said",
    }
    for part, words in parts.items():
        assert words in await browse.text("network_request", index=2, part=part)
    assert "has no body" in await browse.text("network_request", index=1, part="request-body")
    result = await browse.call(
        "network_request", index=2, part="response-body", filename="said.bin"
    )
    assert result.payload["content"][1]["size"] == 4
    assert "Request #99 not found" in await browse.error("network_request", index=99)


async def test_a_body_that_is_no_text_becomes_a_file(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    options = "headers: {'content-type': 'image/gif'}, body: new Uint8Array([255, 0])"
    send = f"fetch('/echo', {{method: 'POST', {options}}}).then(r => r.arrayBuffer())"
    await browse.value("() => fetch('/api/picture').then(r => r.arrayBuffer()).then(() => 0)")
    await browse.value(f"() => {send}.then(() => 0)")
    for index, part, name in (
        (2, "response-body", "picture.png"),
        (3, "request-body", "request-body-3.gif"),
    ):
        result = await browse.call("network_request", index=index, part=part)
        [_, link] = result.payload["content"]
        assert link["name"] == name
        assert f"/files/{name})" in section(text_of(result), "Result")
    data, _ = await browse.connection.session.files.read("files/request-body-3.gif")
    assert data == bytes([255, 0])


async def test_open_and_failed_requests_are_shown(browse: Browse, lab_site: Lab) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    async with browse.page.expect_request("**/api/gate/late"):
        await browse.value("() => { fetch('/api/gate/late').catch(() => 0); }")
    text = section(await browse.text("network_requests"), "Result")
    assert text.startswith(f"2. [GET] {lab_site.url}/api/gate/late\n")
    assert "no response yet" in await browse.error("network_request", index=2, part="response-body")
    await browse.value("() => fetch('/loop').catch(() => 0)")
    assert "=> [FAILED] net::ERR_TOO_MANY_REDIRECTS" in await browse.text("network_requests")
    lab_site.open("late")
