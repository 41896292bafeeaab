"""The console of one machine, for a session of another machine: the picture, input, and the end of the owner."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab
from support.agent import agent
from support.cluster_nodes import Start
from support.console_client import operator
from support.gateway_process import JSON, kill
from support.watching import type_again_and_hand_back, type_text, way_to

pytestmark = pytest.mark.thorough


@pytest.fixture
def browsers(headless_shell: str) -> JSON:
    """Settings of a node with a browser."""
    browser = {"executable": headless_shell, "private": True, "checkpoint": 0.05}
    return {"services": {"browser": browser}}


async def test_a_person_keeps_control_when_the_machine_of_a_session_ends(
    start: Start, browsers: JSON, tmp_path: Path, lab_site: Lab
) -> None:
    url = f"{lab_site.url}/keys"
    with start("a", more=browsers) as owner, start("b", more=browsers) as other:
        async with (
            agent(way_to(owner, tmp_path / "a.toml")) as ada,
            operator(other.data, other.url) as eve,
        ):
            await ada.said("browser_navigate", url=url)
            epoch = (await eve.act(ada.session, "take"))["epoch"]
            async with eve.frames(ada.session) as frames:
                about, _ = await frames.picture(state="live")
                await type_text(eve, ada.session, epoch, "Eve")
                newer, _ = await frames.picture(state="live")
                assert newer["number"] > about["number"]
                kill(owner)
                assert (await frames.last())["state"] == "moved"
            way = way_to(other, tmp_path / "b.toml")
            await type_again_and_hand_back(eve, ada.session, epoch, way, url)
