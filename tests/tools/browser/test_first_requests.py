"""The first request of a session may be of any kind, and no site can make its browser forget the egress proxy."""

from __future__ import annotations

import pytest
from support.browsing import Browse
from support.selection import matrix

pytestmark = pytest.mark.peer

TALK = """new Promise(told => {
  const socket = new WebSocket("%s/ws");
  socket.onopen = () => socket.send("hello");
  socket.onmessage = message => told("heard " + message.data);
  socket.onerror = () => told("failed");
})"""


def talk(lab: str) -> str:
    return TALK % lab.replace("http:", "ws:")


async def test_a_websocket_may_be_the_first_of_a_session(browse: Browse, lab: str) -> None:
    assert "heard hello" in await browse.text("evaluate", function=f"() => {talk(lab)}")
    assert "No requests" in await browse.text("network_requests", static=True)


@pytest.mark.thorough
async def test_a_site_that_has_the_browser_forget_everything_cuts_nothing_off(
    browse: Browse, lab: str
) -> None:
    for path in ("/counter", "/forget", "/counter"):
        assert f"- Page URL: {lab}{path}" in await browse.text("navigate", url=f"{lab}{path}")
        assert await browse.value("() => document.contentType") == "text/html"
    assert await browse.value("() => fetch('/counter').then(answer => answer.status)") == 200


@pytest.mark.thorough
async def test_a_websocket_may_be_the_first_of_a_page_from_nowhere(
    browse: Browse, lab: str
) -> None:
    show = "said => document.body.append(said)"
    await browse.text(
        "navigate", url=f"data:text/html,<body><script>{talk(lab)}.then({show})</script>"
    )
    await browse.text("wait_for", text="heard hello")


@pytest.mark.parametrize("pattern", matrix("http://nowhere.test/", "**/*"))
async def test_a_websocket_may_be_the_first_of_a_mocked_page(
    browse: Browse, lab: str, pattern: str
) -> None:
    await browse.text("route", pattern=pattern, body="<h1>mocked</h1>", contentType="text/html")
    await browse.text("navigate", url="http://nowhere.test/")
    assert await browse.value(f"() => {talk(lab)}") == "heard hello"
