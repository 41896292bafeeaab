"""Actions in pages, recorded as code."""

from __future__ import annotations

import anyio
import pytest
from support.browsing import Browse, section

pytestmark = pytest.mark.peer


async def recorded(browse: Browse) -> list[str]:
    text = section(await browse.text("stop_recording"), "Result")
    return text.partition("```python\n")[2].removesuffix("\n```").splitlines()


async def test_the_steps_of_a_form_are_recorded(browse: Browse, lab: str) -> None:
    assert "Recording started" in await browse.text("start_recording")
    await browse.text("navigate", url=f"{lab}/form")
    assert browse.connection.busy == "a recording is on"
    await browse.text("type", target="[name=email]", text="a@b.c")
    await browse.text("type", target="[name=first]", text="it's", slowly=True)
    await browse.text("click", target="[name=news]")
    await browse.text("select_option", target="[name=country]", values=["Japan"])
    await browse.text("press_key", key="Escape")
    assert await recorded(browse) == [
        f"await page.goto('{lab}/form')",
        """await page.get_by_role("textbox", name="Email").fill('a@b.c')""",
        """await page.get_by_role("textbox", name="First name").fill("it's")""",
        """await page.get_by_role("checkbox", name="Send me news").check()""",
        """await page.get_by_label("Country").select_option(label='Japan')""",
        """await page.get_by_role("checkbox", name="Send me news").press('Escape')""",
    ]
    assert browse.connection.busy is None


@pytest.mark.thorough
async def test_a_click_into_a_field_is_recorded(browse: Browse, lab: str) -> None:
    """A click on a field may make the page show more, such as a calendar."""
    await browse.text("navigate", url=f"{lab}/form")
    await browse.value("() => { document.querySelector('[type=range]').value = 1; }")
    await browse.text("start_recording")
    await browse.text("click", target="[name=email]")
    await browse.text("type", target="[name=email]", text="a@b.c")
    await browse.text("click", target="[name=country]")
    await browse.text("click", target="[type=range]")
    assert await recorded(browse) == [
        """await page.get_by_role("textbox", name="Email").click()""",
        """await page.get_by_role("textbox", name="Email").fill('a@b.c')""",
        """await page.get_by_role("slider", name="Level").fill('50')""",
    ]


async def test_a_password_is_not_recorded(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    await browse.text("start_recording")
    await browse.text("type", target="[type=password]", text="open sesame")
    (line,) = await recorded(browse)
    assert line.endswith('.fill("")  # the password is left out')


@pytest.mark.thorough
async def test_kinds_of_clicks_are_recorded(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("start_recording")
    await browse.text("click", target="text=Increment", doubleClick=True)
    await browse.text("click", target="text=Increment", button="right")
    assert await recorded(browse) == [
        'await page.get_by_role("button", name="Increment").dblclick()',
        'await page.get_by_role("button", name="Increment").click(button=\'right\')',
    ]


@pytest.mark.thorough
async def test_an_element_that_its_click_removes_has_its_own_name(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("start_recording")
    await browse.text("click", target="text=Vanish")
    (line,) = await recorded(browse)
    assert line.replace("'", '"') == 'await page.get_by_role("button", name="Vanish").click()'


@pytest.mark.thorough
async def test_navigations_are_recorded_and_followed_links_are_not(
    browse: Browse, lab: str
) -> None:
    await browse.text("start_recording")
    await browse.text("navigate", url=f"{lab}/")
    await browse.text("click", target="a[href='/form']")
    await browse.text("navigate", url=f"{lab}/iframes")
    await browse.text("click", target=await browse.ref('button "Tell"'))
    lines = await recorded(browse)
    assert [lines[0], lines[2]] == [
        f"await page.goto('{lab}/')",
        f"await page.goto('{lab}/iframes')",
    ]
    assert lines[1].replace("'", '"') == 'await page.get_by_role("link", name="/form").click()'
    assert lines[3] == (
        'await page.locator("iframe[title=\\"near\\"]").content_frame'
        '.get_by_role("button", name="Tell").click()'
    )


@pytest.mark.thorough
async def test_a_new_tab_has_a_name_of_its_own(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/popup")
    await browse.text("start_recording")
    tab = browse.tab
    with anyio.fail_after(10):
        async with tab.page.expect_popup() as popup:
            await browse.text("click", target="text=New tab")
        await (await popup.value).locator("button").click()
    lines = await recorded(browse)
    assert lines[1:] == [
        "page1 = page.context.pages[1]",
        'await page1.get_by_role("button", name="Tell").click()',
    ]


async def test_a_page_cannot_write_code(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("start_recording")
    name = await browse.value(
        "() => Object.getOwnPropertyNames(window).find(n => n.startsWith('__tell_'))"
    )
    evil = "x')\\nimport os\\nos.system('rm"
    await browse.value(
        f"""async () => {{
          const tell = window["{name}"];
          await tell("nonsense"); await tell(5); await tell({{kind: "press"}}); await tell("[]");
          await tell(JSON.stringify({{kind: "exec", path: ["html"]}}));
          await tell(JSON.stringify({{kind: "press", path: []}}));
          await tell(JSON.stringify({{kind: "press", path: ["{evil}"], value: "{evil}",
                                      guess: {{role: "{evil}", name: "{evil}"}}}}));
        }}"""
    )
    lines = await recorded(browse)
    assert len(lines) == 1
    compile(f"async def done(page):\n    {lines[0]}", "recorded", "exec")
    assert "\\nimport os\\n" in lines[0]


@pytest.mark.thorough
async def test_there_is_one_recording_at_a_time_and_another_after_it(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    assert "begins one" in await browse.error("stop_recording")
    await browse.text("start_recording")
    assert "browser_stop_recording ends it" in await browse.error("start_recording")
    assert await recorded(browse) == ["# nothing was done"]
    await browse.text("click", target="text=Increment")
    await browse.text("start_recording")
    await browse.text("click", target="text=Redraw")
    assert await recorded(browse) == ['await page.get_by_role("button", name="Redraw").click()']
