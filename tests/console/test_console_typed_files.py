"""Files with texts that a person typed, read after a restart while no browser of the session is open."""

from __future__ import annotations

from pathlib import Path

import mcp_types as types
import pytest
from changing import Changing
from mcp import Client
from support.agent import agent, saved_text
from support.console_client import operator
from support.gateway_process import JSON, kill, serving, structured, toml
from support.selection import matrix
from support.taking_over import press
from support.waiting import until
from support.watching import way_to

TEXT = "Ear1ierText!"
FORM = "<input id=text autofocus>"
DOWNLOAD = """() => {
    const link = document.createElement("a");
    const text = document.getElementById("text").value;
    link.href = URL.createObjectURL(new Blob([`It is ${text}, ${encodeURIComponent(text)}.`]));
    link.download = "kept.txt";
    link.click();
}"""


@pytest.mark.parametrize(
    ("ending", "outlive"),
    matrix(("pause", True), ("stop", False), ("stop", True), ("kill", False), ("kill", True)),
)
async def test_a_file_read_after_a_restart_has_no_text_that_a_person_typed(
    headless_shell: str, tmp_path: Path, ending: str, outlive: bool
) -> None:
    browser = {"executable": headless_shell, "private": True, "outlive": outlive}
    settings: JSON = {"services": {"browser": browser | {"checkpoint": 0.05}}}
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml(settings))
    with Changing() as site, serving(config, data) as first:
        site.pages["/"] = FORM
        async with agent(way_to(first, config)) as ada, operator(data, first.url) as eve:
            await ada.said("browser_navigate", url=f"{site.url}/")
            epoch = (await eve.act(ada.session, "take"))["epoch"]
            events = [event for key in TEXT for event in press(key)]
            await eve.post(f"/sessions/{ada.session}/input", epoch=epoch, events=events)
            await eve.act(ada.session, "give-back", epoch=epoch)
            await ada.said("browser_evaluate", function=DOWNLOAD)
            uri = f"session://{ada.session}/browser/files/kept.txt"
            await until(lambda: [each for each in data.rglob("kept.txt") if each.stat().st_size])
            if ending == "pause":
                assert not (await ada.call("session_pause")).is_error
            elif ending == "kill":
                if not outlive:
                    await until(lambda: "digests" in saved_text(data, ada.session))
                kill(first)
    with serving(config, data) as second:
        async with agent(way_to(second, config), ada.session) as bob:
            shown = await content(bob.client, uri)
            assert shown == "It is ••••••, ••••••."
            [service] = structured(await bob.call("session_info"))["services"]
            assert service["connected"] == (ending == "kill" and outlive)


async def content(client: Client, uri: str) -> str:
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return content.text
