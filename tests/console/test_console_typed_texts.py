"""Texts that a person types while the process that holds the session is killed, and its browser lives on."""

from __future__ import annotations

from pathlib import Path

import pytest
from changing import Changing
from support.agent import agent
from support.console_client import operator
from support.gateway_process import JSON, kill, serving, toml
from support.taking_over import press
from support.watching import watch_again, way_to

FORM = "<input id=text autofocus><input id=other><p id=out>"
LISTENER = "() => { addEventListener('keydown', () => { out.textContent = text.value; }); }"
FIRST, SECOND = "Ear1ierText!", "Un3ndedText"


@pytest.mark.thorough
async def test_texts_typed_before_a_kill_are_masked_and_the_script_is_told(
    headless_shell: str, tmp_path: Path
) -> None:
    browser = {"executable": headless_shell, "private": True, "checkpoint": 0.05}
    settings: JSON = {"services": {"browser": browser}, "timeouts": {"close_grace": 0.5}}
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml(settings))
    with Changing() as site, serving(config, data) as other:
        site.pages["/"] = FORM
        with serving(config, data) as owner:
            async with agent(way_to(owner, config)) as ada:
                await ada.said("browser_navigate", url=f"{site.url}/")
                await ada.said("browser_evaluate", function=LISTENER)
                session = ada.session
                async with operator(data, owner.url) as eve:
                    first = (await eve.act(session, "take"))["epoch"]
                    await eve.post(
                        f"/sessions/{session}/input", epoch=first, events=keys("Tab", *FIRST)
                    )
                    await eve.act(session, "give-back", epoch=first)
                async with operator(data, other.url) as eve:
                    epoch = (await eve.act(session, "take"))["epoch"]
                    events = keys(*SECOND)
                    await eve.post(f"/sessions/{session}/input", epoch=epoch, events=events)
                    kill(owner)
                    about = await watch_again(eve, session)
                    assert about["agent_scripts"] == "pages"
                    await eve.act(session, "renew", epoch=epoch)
                    await eve.act(session, "give-back", epoch=epoch)
                async with agent(way_to(other, config), session) as bob:
                    values = "() => ['text', 'other', 'out'].map(id => window[id].value ?? out.textContent)"
                    for shown in (
                        await bob.said("browser_snapshot"),
                        await bob.said("browser_evaluate", function=values),
                    ):
                        assert "••••••" in shown
                        assert FIRST[:-1] not in shown
                        assert SECOND[:-1] not in shown
                    # The pages are those that the killed process had.
                    spelled = "() => [...text.value + other.value].join(' ')"
                    letters = await bob.said("browser_evaluate", function=spelled)
                    assert " ".join(FIRST) in letters
                    assert " ".join(SECOND) in letters


def keys(*names: str) -> list[JSON]:
    return [event for name in names for event in press(name)]
