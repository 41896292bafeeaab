"""A person at the console of a process: types into a page, and goes on where its session has moved to."""

from __future__ import annotations

from pathlib import Path

from .agent import agent
from .console_client import ConsoleClient
from .gateway_process import JSON, Running, Way
from .taking_over import press
from .waiting import until


def way_to(running: Running, config: Path) -> Way:
    return Way("http", "modern", config, running.data, url=running.url)


async def type_text(person: ConsoleClient, session: str, epoch: int, text: str) -> JSON:
    """Type into the first field of a page."""
    events = [event for key in ("Tab", *text) for event in press(key)]
    return await person.post(f"/sessions/{session}/input", epoch=epoch, events=events)


async def watch_again(person: ConsoleClient, session: str) -> JSON:
    """Connect until there is a picture, as the page of the console does, and return its description."""

    async def look() -> JSON:
        response = await person.send("GET", f"/sessions/{session}")
        assert response.json()["control"]["driver"] == "human"
        try:
            async with person.frames(session) as frames:
                about, _ = await frames.picture(state="live")
                return about
        except AssertionError:
            return {}

    return await until(look, within=60)


SPELLED = "() => [...document.querySelectorAll('input')].map(e => [...e.value].join('-'))"
"""Returns the letters in the fields of a page. The texts that a person typed are masked in results."""


async def type_again_and_hand_back(
    person: ConsoleClient, session: str, epoch: int, way: Way, url: str
) -> None:
    """Go on with the control of an epoch, and have the agent go on after that."""
    about = await watch_again(person, session)
    assert about["tabs"][0]["url"] == url
    assert (await person.act(session, "renew", epoch=epoch))["epoch"] == epoch
    await type_text(person, session, epoch, "Adam")
    await person.act(session, "give-back", epoch=epoch, reply="moved on")
    async with agent(way, session) as ada:
        assert "moved on" in await ada.said("browser_snapshot")
        assert "A-d-a-m" in await ada.said("browser_evaluate", function=SPELLED)


__all__ = ["SPELLED", "type_again_and_hand_back", "type_text", "way_to"]
