"""Waiting for the effects of an action: all of them within a limit, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from lab import Lab
from support.browsing import Browse, section
from support.selection import matrix

from statehold.tools.browser.session import settle
from statehold.tools.browser.tool import BrowserTool

pytestmark = pytest.mark.peer


_here: ContextVar[bool] = ContextVar("_here", default=False)


@pytest.fixture
async def fired(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[list[float]]:
    """Yield the delays of this test's timers that ran out. Those are the pauses; timers of limits are cancelled."""
    delays: list[float] = []
    # Timers of earlier tests, such as those that look for the files of a download, do not count.
    token = _here.set(True)
    loop = asyncio.get_running_loop()
    real = loop.call_at

    def call_at(
        when: float, callback: Callable[..., object], *arguments: Any, **options: Any
    ) -> Any:
        delay, here = when - loop.time(), _here.get()

        def run(*arguments: Any) -> None:
            if here:
                delays.append(delay)
            callback(*arguments)

        return real(when, run, *arguments, **options)

    monkeypatch.setattr(loop, "call_at", call_at)
    yield delays
    _here.reset(token)


async def test_an_answer_shows_the_data_that_a_click_fetched(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/slow")
    text = await browse.text("click", target="button >> text=/^Fetch$/")
    assert "loaded slowly" in section(text, "Snapshot")


@pytest.mark.thorough
async def test_a_fetch_after_a_fetch_is_waited_for_as_well(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/slow")
    text = await browse.text("click", target="text=Fetch twice")
    assert "loaded slowlyslowly" in section(text, "Snapshot")


async def test_a_click_that_navigates_answers_with_the_page_it_leads_to(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/slow")
    text = await browse.text("click", target="text=Go slowly")
    assert f"- Page URL: {lab}/slow-page?ms=200" in section(text, "Page")
    assert "The picture comes late." in section(text, "Snapshot")
    width = "() => document.images[0].complete && document.images[0].naturalWidth"
    assert await browse.value(width) == 1


async def test_a_link_that_waits_for_its_server_is_waited_for(
    browse: Browse, lab_site: Lab
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    await browse.value(
        "() => { document.body.innerHTML = '<a href=\"/frame?name=late&gate=late\">Go</a>'; }"
    )
    texts: list[str] = []

    async def click() -> None:
        texts.append(await browse.text("click", target="text=Go"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(click)
        await lab_site.hits.wait_for("gate=late")
        lab_site.open("late")
    assert "Frame late" in section(texts[0], "Snapshot")


async def add_foreign_frame(browse: Browse, lab: str, script: str) -> None:
    """Open a page with a button and a frame of another site, which runs a script first."""
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.page.evaluate(
        """address => new Promise(done => {
          document.body.innerHTML = '<button>Pay</button><output></output><iframe>';
          document.querySelector('button').onclick = () => frames[0].postMessage('pay', '*');
          onmessage = ({ data }) => { document.querySelector('output').textContent = data; };
          Object.assign(document.querySelector('iframe'), { onload: done, src: address }); })""",
        f"{lab.replace('127.0.0.1', 'localhost')}/counter",
    )
    await browse.page.frames[1].evaluate(f"() => {{ {script} }}")


ANSWERS = {
    "50 ms": "onmessage = () => setTimeout(() => parent.postMessage('paid', '*'), 50)",
    "400 ms": "onmessage = () => setTimeout(() => parent.postMessage('paid', '*'), 400)",
    "at once": "onmessage = () => parent.postMessage('paid', '*')",
    "fetch": "onmessage = () => fetch('/api/data').then(() => setTimeout(() => parent.postMessage('paid', '*'), 30))",
    "inside": "onmessage = () => setTimeout(() => { document.body.textContent = 'paid'; }, 200)",
}


@pytest.mark.parametrize(
    "name", matrix("showOpenFilePicker", "showSaveFilePicker", "showDirectoryPicker")
)
async def test_a_dialog_for_files_that_no_tool_answers_is_named(
    browse: Browse, lab: str, name: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(f"""() => {{ document.body.innerHTML = '<button>Open</button>';
      document.querySelector('button').onclick = () => {name}().catch(() => 0); }}""")
    assert f"{name}()" in section(await browse.text("click", target="text=Open"), "Events")


SHEETS = {
    "link": "<link rel=stylesheet href='/file/late?gate=sheet'>",
    "import": "<style>@import '/file/late?gate=sheet';</style>",
    "second": "<link rel=stylesheet href='/x.css'><link rel=stylesheet href='/file/late?gate=sheet'>",
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tool", "kind"), [("take_screenshot", "link"), ("click", "import"), ("click", "second")]
)
async def test_a_page_that_is_not_painted_says_what_it_waits_for(
    browse: Browse, lab_site: Lab, kind: str, tool: str
) -> None:
    body = f"<!doctype html>{SHEETS[kind]}<button>Go</button>"
    await browse.text("route", pattern="**/frame", body=body, contentType="text/html")
    config = browse.service.config.model_copy(update={"action_seconds": 2.0, "settle_seconds": 0.1})
    browse.connection.session.config = config
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    arguments = {"target": "button"} if tool == "click" else {}
    text = await browse.error(tool, **arguments)
    assert f"style sheet {lab_site.url}/file/late?gate=sheet" in section(text, "Error")
    assert "A font" not in text
    lab_site.open("sheet")


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["#box", "button >> nth=1"])
async def test_a_browser_that_confirms_no_input_does_not_outlast_the_limit_of_an_action(
    browse: Browse, lab: str, target: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value("""() => {
      document.body.innerHTML = '<button>Lock</button><button>b</button><input type=checkbox id=box><p>more</p>';
      document.querySelector('button').onclick = event => event.target.requestPointerLock(); }""")
    await browse.call("click", target="text=Lock")
    config = browse.service.config.model_copy(update={"action_seconds": 1.0, "settle_seconds": 0.5})
    browse.connection.session.config = config
    # The action, the hooks of the page, its title and its snapshot have limits of their own.
    with anyio.fail_after(8):
        await browse.call("click", target=target)


@pytest.mark.parametrize("way", matrix(*ANSWERS))
async def test_a_message_to_a_frame_of_another_site_is_waited_for(
    browse: Browse, lab: str, way: str
) -> None:
    await add_foreign_frame(browse, lab, ANSWERS[way])
    assert "paid" in section(await browse.text("click", target="text=Pay"), "Snapshot")


@pytest.mark.thorough
async def test_a_click_in_a_frame_of_another_site_is_waited_for(browse: Browse, lab: str) -> None:
    later = "setTimeout(() => { document.body.innerHTML = 'done'; }, 300)"
    script = f"document.body.innerHTML = '<button>In</button>'; onclick = () => {later}"
    await add_foreign_frame(browse, lab, script)
    text = await browse.text("click", target="frame_locator('iframe').get_by_text('In')")
    assert "done" in section(text, "Snapshot")


@pytest.mark.thorough
async def test_a_frame_of_another_site_that_is_busy_by_itself_delays_no_action(
    browse: Browse, lab: str
) -> None:
    await add_foreign_frame(browse, lab, "setInterval(() => { document.title += '.'; }, 20)")
    await browse.value("() => { document.querySelector('button').onclick = null; }")
    await browse.text("click", target="text=Pay")
    assert await browse.tab.frame_activity.rest(0.0) == []


LINKS = {
    "attached": "document.body.append(link); link.textContent = 'x'; link.click()",
    "detached": "link.click()",
    "event": "link.dispatchEvent(new MouseEvent('click'))",
}


@pytest.mark.parametrize("way", matrix("attached", "detached", "event"))
async def test_a_download_whose_server_answers_late_is_part_of_the_answer(
    browse: Browse, lab_site: Lab, way: str
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    await browse.value(f"""() => {{
      const button = document.createElement('button');
      button.textContent = 'Export';
      button.onclick = () => {{
        const link = Object.assign(document.createElement('a'), {{ href: '/file/late?gate=file', download: '' }});
        {LINKS[way]};
      }};
      document.body.replaceChildren(button);
    }}""")
    texts: list[str] = []

    async def click() -> None:
        texts.append(await browse.text("click", target="text=Export"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(click)
        await lab_site.hits.wait_for("gate=file")
        await browse.value("() => new Promise(done => setTimeout(done, 100))")
        lab_site.open("file")
    assert "Downloaded file late.txt" in section(texts[0], "Events")


@pytest.mark.thorough
@pytest.mark.parametrize("link", ["prevented", "other site"])
async def test_a_link_that_gives_no_download_is_not_waited_for(
    browse: Browse, lab_site: Lab, link: str, fired: list[float]
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    address = lab_site.url if link == "prevented" else "https://other.invalid"
    await browse.value(f"""() => {{
      document.body.innerHTML = '<a download href="{address}/file/small">Get</a>';
      document.links[0].onclick = event => event.preventDefault();
    }}""")
    await browse.text("click", target="text=Get")
    assert not [delay for delay in fired if delay >= 1]


async def test_routing_within_the_page_is_part_of_the_answer(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/routes")
    text = await browse.text("click", target="text=Detail")
    assert f"- Page URL: {lab}/routes/detail?id=7" in section(text, "Page")
    assert "Page Title: detail - Lab" in section(text, "Page")
    assert "View detail?id=7" in section(text, "Snapshot")


async def test_a_fetch_that_never_ends_is_waited_for_within_the_bound(
    browse: Browse, lab_site: Lab
) -> None:
    browse.connection.session.config = browse.service.config.model_copy(
        update={"settle_seconds": 0.1}
    )
    await browse.text("navigate", url=f"{lab_site.url}/slow")
    text = await browse.text("click", target="text=Fetch for ever")
    assert "status [ref=e11]: loading" in section(text, "Snapshot")
    lab_site.open("fetch")
    assert "through the gate" in await browse.text("wait_for", text="through the gate")


@pytest.mark.thorough
async def test_a_server_that_does_not_answer_a_click_is_reported(
    browse: Browse, lab_site: Lab
) -> None:
    browse.connection.session.config = browse.service.config.model_copy(
        update={"action_seconds": 0.3}
    )
    await browse.text("navigate", url=f"{lab_site.url}/downloads")
    text = await browse.text("click", target="text=Late file")
    gated = f"{lab_site.url}/file/late?gate=download"
    assert f"It was done, but {gated} did not answer yet." in section(text, "Events")
    assert f"({gated} did not answer yet; wait with" in await browse.error("snapshot")
    lab_site.open("download")


def patience(browse: Browse, seconds: float) -> None:
    browse.connection.session.config = browse.service.config.model_copy(
        update={"action_seconds": seconds, "settle_seconds": seconds}
    )


async def linked(browse: Browse, site: str, path: str) -> str:
    """Go to a page with one link, and return the ref of that."""
    await browse.text("navigate", url=f"{site}/frame")
    await browse.value(f"""() => {{ document.body.innerHTML = '<a href="{path}">Go</a>'; }}""")
    return await browse.ref("Go")


@pytest.mark.thorough
async def test_a_page_on_its_way_to_a_slow_server_is_kept(browse: Browse, lab_site: Lab) -> None:
    target = await linked(browse, lab_site.url, "/frame?name=late&gate=late")
    gated = f"{lab_site.url}/frame?name=late&gate=late"
    patience(browse, 1.0)
    assert f"{gated} did not answer yet." in await browse.text("click", target=target)
    patience(browse, 0.2)
    for tool, arguments in (
        ("hover", {"target": target}),
        ("click", {"target": "text=Go"}),
        ("press_key", {"key": "a"}),
        ("evaluate", {"function": "() => 1"}),
        ("resize", {"width": 500, "height": 400}),
        ("take_screenshot", {}),
        ("pdf_save", {}),
        ("localstorage_list", {}),
        ("verify_text_visible", {"text": "Go"}),
    ):
        with anyio.fail_after(10):
            text = section(await browse.error(tool, **arguments), "Error")
        reason = f"({gated} did not answer yet; wait with browser_wait_for, or open another page)"
        assert text == f"The page is on its way to another one {reason}.", tool
    patience(browse, 5.0)
    lab_site.open("late")
    assert "Frame late" in section(await browse.text("wait_for", text="Frame late"), "Snapshot")


def _half_a_second(*_: object) -> float:
    return 0.5


@pytest.mark.thorough
async def test_a_page_that_leaves_while_a_script_runs_is_kept(
    browse: Browse, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    monkeypatch.setattr(BrowserTool, "seconds", _half_a_second)
    script = "() => { location.href = '/frame?name=late&gate=late'; return new Promise(() => {}); }"
    text = section(await browse.error("evaluate", function=script), "Error")
    assert f"within 0.5 seconds ({lab_site.url}/frame?name=late&gate=late did not answer" in text
    monkeypatch.undo()
    lab_site.open("late")
    assert "Frame late" in await browse.text("wait_for", text="Frame late")


@pytest.mark.thorough
async def test_a_script_waits_for_a_page_on_its_way(browse: Browse, lab_site: Lab) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    async with browse.page.expect_request("**/frame?gate=late"):
        await browse.value("() => { location.href = '/frame?gate=late'; }")
    texts: list[str] = []

    async def evaluate() -> None:
        texts.append(await browse.text("evaluate", function="() => location.search"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(evaluate)
        await anyio.wait_all_tasks_blocked()
        lab_site.open("late")
    assert section(texts[0], "Result") == '"?gate=late"'


@pytest.mark.thorough
async def test_a_page_that_is_half_loaded_can_be_worked_with(
    browse: Browse, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "LOAD_SECONDS", 0.2)
    target = await linked(browse, lab_site.url, "/huge?kb=64&half=late")
    patience(browse, 1.0)
    text = await browse.text("click", target=target)
    assert "Page URL: " + lab_site.url + "/huge" in section(text, "Page")
    assert "work" in await browse.text("evaluate", function="() => document.body.innerText")
    lab_site.open("late")


@pytest.mark.thorough
async def test_a_page_that_never_rests_is_not_waited_for_longer_than_the_bound(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/endless")
    with anyio.fail_after(20):
        text = await browse.text("click", target="text=Tick for ever")
    assert "status" in section(text, "Snapshot")


async def test_an_action_without_effects_costs_no_pause(
    browse: Browse, lab: str, fired: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # When it runs out, something useful is begun beside the waiting, which does not grow by it.
    monkeypatch.setattr(settle, "SOON_SECONDS", settle.LOAD_SECONDS)
    await browse.text("navigate", url=f"{lab}/counter")
    target = await browse.ref("Increment")
    fired.clear()
    await browse.text("click", target=target)
    await browse.text("hover", target=target)
    await browse.text("evaluate", function="() => 1 + 1")
    await browse.text("press_key", key="Tab")
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.text("snapshot")
    assert fired == []


@pytest.mark.thorough
@pytest.mark.parametrize("milliseconds", [1, 6])
async def test_an_answer_shows_a_change_after_the_page_was_blocked(
    browse: Browse, lab: str, milliseconds: int
) -> None:
    """The first snapshot of a page keeps it from running for longer than it has to rest."""
    for number in range(3):
        await browse.text("navigate", url=f"{lab}/counter")
        script = f"""() => {{ document.querySelector("button").onclick = () => {{
            setTimeout(() => {{ document.querySelector("h1").textContent = "Later {number}"; }}, {milliseconds});
            setTimeout(() => {{ for (const end = Date.now() + 60; Date.now() < end;); }}, 0); }} }}"""
        await browse.text("evaluate", function=script)
        text = await browse.text("click", target="button >> nth=0")
        assert f"Later {number}" in section(text, "Snapshot")


@pytest.mark.thorough
@pytest.mark.parametrize("milliseconds", [1, 6])
async def test_an_answer_shows_a_change_in_a_shadow_tree(
    browse: Browse, lab: str, milliseconds: int
) -> None:
    for number in range(3):
        await browse.text("navigate", url=f"{lab}/frame")
        script = f"""() => {{
            const outer = document.body.attachShadow({{mode: "open"}});
            outer.innerHTML = "<div></div>";
            const tree = outer.firstChild.attachShadow({{mode: "open"}});
            tree.innerHTML = "<button>Press</button><p>Before</p>";
            tree.querySelector("button").onclick = () => {{
                setTimeout(() => {{ tree.querySelector("p").textContent = "Later {number}"; }}, {milliseconds});
                setTimeout(() => {{ for (const end = Date.now() + 60; Date.now() < end;); }}, 0);
            }};
        }}"""
        await browse.value(script)
        text = await browse.text("click", target="text=Press")
        assert f"Later {number}" in section(text, "Snapshot")


@pytest.mark.thorough
async def test_a_page_too_large_for_a_glimpse_is_not_shown_as_the_one_before(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    script = """() => { document.querySelector("button").onclick = () => {
        setTimeout(() => { location = "/many" }, 3); } }"""
    await browse.text("evaluate", function=script)
    text = await browse.text("click", target="button >> nth=0")
    assert "/many" in section(text, "Page")
    assert "Increment" not in section(text, "Snapshot")


@pytest.mark.thorough
async def test_a_large_page_that_changes_again_is_shown_as_it_is(browse: Browse, lab: str) -> None:
    browse.connection.session.config = browse.service.config.model_copy(update={"snapshot": "full"})
    for _ in range(2):
        text = await browse.text("navigate", url=f"{lab}/many?refs=400")
        assert "Buy 199" in section(text, "Snapshot")
    for number in range(3):
        script = f"""() => {{ document.querySelector("button").onclick = () => {{
            setTimeout(() => {{ document.querySelector("h1").textContent = "Later {number}"; }}, 3); }} }}"""
        await browse.text("evaluate", function=script)
        text = await browse.text("click", target="button >> nth=0")
        assert f"Later {number}" in section(text, "Snapshot")
        assert "Buy 199" in section(text, "Snapshot")
