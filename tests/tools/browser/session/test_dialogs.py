"""Dialogs of other tabs than the current one, which hold up every page of their process."""

from __future__ import annotations

import anyio
import pytest
from support.browsing import Browse, section
from support.selection import matrix

from statehold.tools.browser.session.tab import Tab

pytestmark = pytest.mark.peer

ASKS = "window.open(location.href).onload = e => e.target.defaultView.confirm('Stay?')"


async def held(browse: Browse, lab: str) -> Tab:
    """Return the tab of a page with something typed into it, which the dialog of another tab holds up."""
    await browse.text("navigate", url=f"{lab}/form")
    await browse.text("type", target="[name=first]", text="precious")
    session = browse.connection.session
    tab = session.tabs.current
    assert tab is not None
    async with session.context.expect_event("dialog"):
        await browse.value(f"() => {{ setTimeout(() => {{ {ASKS} }}); }}")
    return tab


@pytest.mark.thorough
async def test_the_dialog_of_a_new_window_is_reported_with_the_click(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(
        """() => {
            const page = new Blob(["<script>alert('At once')</script>"], {type: "text/html"});
            document.body.innerHTML = "<button>Open</button>";
            document.querySelector("button").onclick = () => { window.open(URL.createObjectURL(page)); };
        }"""
    )
    with anyio.fail_after(60):
        text = await browse.text("click", target="text=Open")
    assert 'Tab 1 asks something (["alert" dialog with message "At once"])' in text
    assert "A new tab opened (1)." in section(text, "Events")
    await browse.text("tabs", action="select", index=1)
    await browse.text("handle_dialog", accept=True)


@pytest.mark.thorough
async def test_a_dialog_does_not_block_pages_of_other_processes(browse: Browse, lab: str) -> None:
    await held(browse, lab)
    await browse.text("tabs", action="new")
    text = await browse.text("navigate", url=lab.replace("127.0.0.1", "localhost") + "/counter")
    assert "Increment" in section(text, "Snapshot")
    text = await browse.text("click", target="text=Increment")
    assert '"1"' in section(text, "Snapshot")
    assert "Tab 1 asks something" in section(text, "Modal state")


@pytest.mark.parametrize("host", matrix("127.0.0.1", "localhost"))
async def test_a_dialog_can_be_answered_while_another_tab_has_one_open(
    browse: Browse, lab: str, host: str
) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    async with browse.connection.session.context.expect_event("dialog"):
        await browse.value("() => { setTimeout(() => confirm('First')); }")
    await browse.text("tabs", action="new", url=lab.replace("127.0.0.1", host) + "/dialogs")
    for accept in (True, False):
        text = await browse.text("click", target="button >> text=Confirm")
        assert '"Really?"]: can be handled by browser_handle_dialog' in text
        text = await browse.text("handle_dialog", accept=accept)
        assert section(text, "Modal state").startswith("- Tab 0 asks something")
        assert f"confirm: {str(accept).lower()}" in await browse.text("snapshot")
    await browse.text("tabs", action="select", index=0)
    assert "### Modal state" not in await browse.text("handle_dialog", accept=True)


async def test_a_dialog_of_a_page_that_is_no_tab_is_dismissed(browse: Browse, lab: str) -> None:
    session = browse.connection.session
    await browse.text("navigate", url=f"{lab}/frame")
    assert session.tabs.current is not None
    page, entries = session.tabs.current.page, session.tabs._entries[:]  # pyright: ignore[reportPrivateUsage]
    page.remove_listener("dialog", session.tabs.current._on_dialog)  # pyright: ignore[reportPrivateUsage]
    session.tabs._entries.clear()  # pyright: ignore[reportPrivateUsage]
    with anyio.fail_after(30):
        assert await page.evaluate("() => confirm('Nobody hears')") is False
    session.tabs._entries += entries  # pyright: ignore[reportPrivateUsage]


@pytest.mark.thorough
async def test_a_selector_is_not_blamed_for_a_page_that_does_not_answer(
    browse: Browse, lab: str
) -> None:
    session = browse.connection.session
    await browse.text("navigate", url=f"{lab}/frame")
    session.config = browse.service.config.model_copy(update={"action_seconds": 0.5})
    assert session.tabs.current is not None
    page = session.tabs.current.page
    await browse.value("() => { setTimeout(() => { for (;;); }); }")
    text = section(await browse.error("click", target="#nothing"), "Error")
    assert "no selector" not in text
    assert "did not answer within 0.5 seconds" in text
    await session.free_stuck_page()
    assert not page.is_closed()
    assert await browse.value("() => 2") == 2
