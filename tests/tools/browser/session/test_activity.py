"""The measures of waiting: effects that come some time after the action, and pages that never rest."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest
from lab import Lab
from support.browsing import Browse, section
from support.selection import matrix

from statehold.tools.browser.secrets.named import NamedSecret, NamedSecrets
from statehold.tools.browser.session.page_activity import Activity, Rest

pytestmark = pytest.mark.peer

NATIVE = "() => [setTimeout, clearTimeout, setInterval, requestAnimationFrame].map(String)"


def use(browse: Browse, settle: Literal["fast", "balanced", "patient"]) -> None:
    session = browse.connection.session
    session.config = session.config.model_copy(update={"settle": settle, "snapshot": "full"})


@pytest.fixture
async def effects(browse: Browse, lab: str) -> Browse:
    """A session on the page of late effects that waits for them as by default."""
    use(browse, "balanced")
    await browse.text("navigate", url=f"{lab}/effects")
    return browse


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[Rest]:
    """The results of all waits for a page to rest."""
    rests: list[Rest] = []
    rest = Activity.rest

    async def note(activity: Activity, *arguments: Any, **options: Any) -> Rest:
        rests.append(await rest(activity, *arguments, **options))
        return rests[-1]

    monkeypatch.setattr(Activity, "rest", note)
    return rests


async def press(browse: Browse, name: str) -> str:
    return await browse.text("click", target=f"button >> text=/^{name}$/")


@pytest.mark.parametrize(
    "name",
    matrix(
        "Timer of 150",
        "Fetch",
        "Frames",
        "Timer of 400",
        "Text",
        "Chain",
        "Interval",
        "Transition",
        "Frame",
        "Worker",
        "Socket",
        quick=2,
    ),
)
async def test_an_answer_shows_effects_that_come_later(effects: Browse, name: str) -> None:
    text = await press(effects, name)
    assert "The effect" in section(text, "Snapshot")
    assert "still" not in text


@pytest.mark.thorough
async def test_an_answer_shows_the_page_that_a_timer_opens(effects: Browse) -> None:
    text = await press(effects, "Go")
    assert "/frame?name=arrived" in section(text, "Page")
    assert "Frame arrived" in section(text, "Snapshot")


@pytest.mark.thorough
async def test_an_answer_shows_the_dialog_that_a_timer_opens(effects: Browse) -> None:
    text = await press(effects, "Alert")
    assert '["alert" dialog with message "The effect"]' in section(text, "Modal state")
    await effects.text("handle_dialog", accept=True)
    assert "The effect" in section(await press(effects, "Timer of 150"), "Snapshot")


@pytest.mark.thorough
async def test_a_search_that_waits_for_more_keys_is_waited_for(effects: Browse) -> None:
    text = await effects.text("type", target="#words", text="boat", slowly=True)
    assert "The effect" in section(text, "Snapshot")


@pytest.mark.thorough
async def test_a_script_s_own_timer_is_waited_for(effects: Browse) -> None:
    await effects.text("evaluate", function="() => void setTimeout(show, 150)")
    assert await effects.value("() => document.getElementById('said').textContent") == "The effect"


async def test_a_message_that_is_gone_again_is_reported(effects: Browse) -> None:
    assert "Shown for a moment: The effect" in section(await press(effects, "Toast"), "Events")


async def test_only_the_balanced_measure_counts_timers(effects: Browse) -> None:
    await effects.value(
        "() => { document.querySelector('button').onclick = () => say(String(setTimeout)); }"
    )
    assert "setTimeout" not in section(await press(effects, "Nothing"), "Snapshot")
    use(effects, "fast")
    assert "setTimeout" in section(await press(effects, "Nothing"), "Snapshot")


@pytest.mark.thorough
async def test_the_patient_measure_waits_for_half_a_second(effects: Browse) -> None:
    use(effects, "patient")
    assert "The effect" in section(await press(effects, "Timer of 400"), "Snapshot")


@pytest.mark.parametrize("name", matrix("Timer of 50", "Nothing", "Alert", "Go"))
async def test_a_page_has_its_own_functions_after_an_action(effects: Browse, name: str) -> None:
    before = await effects.value(NATIVE)
    await press(effects, name)
    if name == "Alert":
        await effects.text("handle_dialog", accept=True)
    assert await effects.value(NATIVE) == before


@pytest.mark.thorough
async def test_a_page_has_its_own_functions_after_an_action_that_failed(effects: Browse) -> None:
    before = await effects.value(NATIVE)
    session = effects.connection.session
    session.config = session.config.model_copy(update={"action_seconds": 0.3})
    await effects.value("() => { document.querySelector('button').style.visibility = 'hidden'; }")
    await effects.error("click", target="button >> nth=0")
    assert await effects.value(NATIVE) == before
    named = NamedSecrets([NamedSecret("TOKEN", "tok-4711-live", "https://shop.test")])
    session.secrets.named = named
    await effects.error("type", target="#words", text="%TOKEN%")
    assert await effects.value(NATIVE) == before


@pytest.mark.thorough
async def test_timers_work_as_always_while_they_are_counted(effects: Browse) -> None:
    script = """() => {
        const old = setTimeout(() => results.push("old"), 20000), results = window.results = [];
        document.querySelector("button").onclick = () => {
            setTimeout(function (...words) { results.push(this === window, ...words); }, 20, "a", "b");
            clearTimeout(old);
            clearTimeout(setTimeout(() => results.push("cleared"), 20));
            try { setTimeout(); } catch (error) { results.push(error.name); }
            setTimeout(show, 100);
        };
    }"""
    await effects.value(script)
    assert "The effect" in section(await press(effects, "Nothing"), "Snapshot")
    assert await effects.value("() => results") == ["TypeError", True, "a", "b"]


@pytest.mark.thorough
async def test_a_page_that_protects_its_functions_works(effects: Browse) -> None:
    protect = (
        "() => Object.defineProperty(window, 'setTimeout', {writable: false, configurable: false})"
    )
    await effects.value(protect)
    assert "The effect" in section(await press(effects, "Fetch"), "Snapshot")
    assert "Error" not in await press(effects, "Timer of 400")


@pytest.mark.thorough
async def test_a_page_whose_policy_forbids_scripts_is_waited_for(effects: Browse) -> None:
    script = """() => {
        document.querySelector("button").onclick = () => setTimeout(show, 150);
        const policy = document.createElement("meta");
        Object.assign(policy, {httpEquiv: "Content-Security-Policy", content: "script-src 'none'"});
        document.head.append(policy);
    }"""
    await effects.value(script)
    assert "The effect" in section(await press(effects, "Nothing"), "Snapshot")


async def test_a_page_that_polls_is_waited_for_once(effects: Browse, slices: list[Rest]) -> None:
    assert "The page was still busy" in section(await press(effects, "Poll"), "Events")
    slices.clear()
    assert "still" not in await press(effects, "Nothing")
    assert [rest.has_ended for rest in slices] == [True]


@pytest.mark.thorough
async def test_a_page_that_moves_for_ever_is_reported_once(effects: Browse) -> None:
    text = await press(effects, "Turn for ever")
    assert "The page was still busy; wait with browser_wait_for." in section(text, "Events")
    assert "still" not in await press(effects, "Nothing")
    assert "The effect" in section(await press(effects, "Timer of 150"), "Snapshot")


@pytest.mark.thorough
async def test_an_open_request_is_reported_once(browse: Browse, lab_site: Lab) -> None:
    use(browse, "balanced")
    session = browse.connection.session
    session.config = session.config.model_copy(update={"settle_seconds": 0.3})
    await browse.text("navigate", url=f"{lab_site.url}/effects")
    line = "1 request was still open (GET /api/gate/fetch); wait with browser_wait_for."
    assert line in section(await press(browse, "Fetch for ever"), "Events")
    session.config = session.config.model_copy(update={"settle_seconds": 60.0})
    with anyio.fail_after(20):
        assert "still" not in await press(browse, "Fetch for ever")
    lab_site.open("fetch")
