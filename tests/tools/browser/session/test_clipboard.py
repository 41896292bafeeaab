"""The clipboard: each session has its own, in a process that has one for all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.browsing import Browse, opened, running
from support.selection import matrix

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session.clipboard import uses_clipboard

pytestmark = pytest.mark.peer

GRANTED = """async () => {
  const names = ["clipboard-read", "clipboard-write", "geolocation", "notifications", "camera", "microphone", "midi",
    "background-sync", "storage-access", "persistent-storage"];
  const found = await Promise.all(names.map(name => navigator.permissions.query({name}).catch(() => ({state: "unknown"}))));
  return names.filter((_, n) => found[n].state === "granted");
}"""
FIELD = "() => document.querySelector('#word').value"
COPYING = """() => document.body.insertAdjacentHTML("beforeend", `<button id="copy" onclick="
  const field = document.createElement('textarea'); field.value = 'copied by the page'; document.body.append(field);
  field.select(); document.execCommand('copy'); field.remove()">Copy</button>`)"""


async def arrive(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.text("click", target="#word")


@asynccontextmanager
async def both(service: BrowserService, lab: str) -> AsyncGenerator[tuple[Browse, Browse]]:
    """Two sessions of one process, each at the field to copy from and paste into."""
    async with opened(service) as ann, opened(service) as bob:
        for browse in (ann, bob):
            await arrive(browse, lab)
        yield ann, bob


async def copy(browse: Browse, text: str) -> None:
    await browse.text("type", target="#word", text=text)
    await browse.text("press_key", key="Control+a")
    await browse.text("press_key", key="Control+c")


async def pasted(browse: Browse) -> str:
    await browse.text("type", target="#word", text="")
    await browse.text("press_key", key="Control+v")
    return str(await browse.value(FIELD))


async def test_a_session_does_not_paste_the_clipboard_of_another(
    service: BrowserService, lab: str
) -> None:
    async with both(service, lab) as (ann, bob):
        await copy(ann, "the secret of ann")
        assert await pasted(bob) == ""
        await copy(bob, "of bob")
        assert await pasted(ann) == "the secret of ann"
        assert await pasted(bob) == "of bob"


WAYS = {
    "text": "navigator.clipboard.writeText('of a button')",
    "items": """navigator.clipboard.write([new ClipboardItem(
        { 'text/plain': new Blob(['of a button'], { type: 'text/plain' }) })])""",
    "after a fetch": "fetch('/api/data').then(() => navigator.clipboard.writeText('of a button'))",
    "if permitted": """navigator.permissions.query({ name: 'clipboard-write' }).then(
        ({ state }) => state === 'granted' ? navigator.clipboard.writeText('of a button') : Promise.reject(state))""",
}


async def add_button(browse: Browse, script: str) -> None:
    await browse.value(f"""() => {{
      const button = document.body.appendChild(document.createElement('button'));
      button.textContent = 'Copy';
      const show = text => button.textContent = text;
      button.onclick = () => {script}.then(() => show('Copied!'), error => show(error.name ?? error));
    }}""")


@pytest.mark.parametrize("way", matrix(*WAYS))
async def test_a_copy_button_copies_to_the_clipboard_of_its_session(
    service: BrowserService, lab: str, way: str
) -> None:
    async with both(service, lab) as (ann, bob):
        await add_button(ann, WAYS[way])
        await ann.text("click", target="text=Copy")
        await ann.text("wait_for", text="Copied!")
        await bob.text("click", target="#word")
        assert await pasted(bob) == ""
        assert await pasted(ann) == "of a button"
        await copy(bob, "of bob")
        assert await pasted(ann) == "of a button"
        await copy(ann, "newer")
        assert await pasted(ann) == "newer"
        assert await pasted(bob) == "of bob"


@pytest.mark.thorough
async def test_a_frame_of_another_site_copies_if_its_page_allows_it(
    browse: Browse, lab: str
) -> None:
    for allow, text in (("", "NotAllowedError"), ("clipboard-write", "Copied!")):
        await arrive(browse, lab)
        await browse.page.evaluate(
            """([address, allow]) => new Promise(done => {
              const frame = Object.assign(document.createElement('iframe'), { src: address, allow, onload: done });
              document.body.append(frame); })""",
            [f"{lab.replace('127.0.0.1', 'localhost')}/counter", allow],
        )
        frame = browse.page.frames[1]
        await frame.evaluate("""() => { const button = document.body.appendChild(document.createElement('button'));
          button.textContent = 'Copy'; button.onclick = () => navigator.clipboard.writeText('of a frame').then(
            () => button.textContent = 'Copied!', error => button.textContent = error.name); }""")
        assert text in await browse.text(
            "click", target="frame_locator('iframe').get_by_text('Copy')"
        )
    assert await pasted(browse) == "of a frame"


async def test_a_page_copies_nothing_without_a_gesture(browse: Browse, lab: str) -> None:
    body = """<script>setTimeout(() => navigator.clipboard.writeText('x').catch(
      error => { document.body.textContent = error.name; }), 20)</script>"""
    await browse.text("route", pattern="**/frame", body=body, contentType="text/html")
    assert "NotAllowedError" in await browse.text("navigate", url=f"{lab}/frame")


async def test_a_page_gets_what_chrome_grants_without_a_question(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    script = "() => navigator.wakeLock.request('screen').then(() => 'held', error => error.name)"
    assert await browse.value(script) == "held"
    names = ["accelerometer", "background-sync", "gyroscope", "magnetometer", "payment-handler"]
    query = f"() => Promise.all({names}.map(name => navigator.permissions.query({{ name }}).then(s => s.state)))"
    assert await browse.value(query) == ["granted"] * len(names)


@pytest.mark.thorough
async def test_cut_and_paste_goes_from_page_to_page_of_a_session_with_its_markup(
    browse: Browse, lab: str
) -> None:
    await arrive(browse, lab)
    await browse.value(
        "() => { document.body.innerHTML = '<div contenteditable><b>bold</b></div>' }"
    )
    await browse.text("click", target="b")
    await browse.text("press_key", key="Control+a")
    await browse.text("press_key", key="Control+x")
    assert await browse.value("() => document.body.innerText.trim()") == ""
    await arrive(browse, lab)
    await browse.value("() => { document.body.innerHTML = '<div contenteditable id=x>x</div>' }")
    await browse.text("click", target="#x")
    await browse.text("press_key", key="Shift+Insert")
    assert "<b" in await browse.value("() => document.body.innerHTML")


@pytest.mark.thorough
async def test_a_copy_made_by_a_page_stays_in_its_session(
    service: BrowserService, lab: str
) -> None:
    async with both(service, lab) as (ann, bob):
        await copy(bob, "of bob")
        await ann.value(COPYING)
        await ann.text("click", target="#copy")
        assert await pasted(ann) == "copied by the page"
        await ann.text("click", target="#copy")
        assert await pasted(bob) == "of bob"
        assert await pasted(ann) == "copied by the page"


@pytest.mark.thorough
async def test_a_key_that_opens_a_dialog_does_not_block_the_clipboard(
    service: BrowserService, lab: str
) -> None:
    async with both(service, lab) as (ann, bob):
        await ann.value("() => { addEventListener('paste', () => alert('pasting')) }")
        assert "pasting" in await ann.text("press_key", key="Control+v")
        await copy(bob, "of bob")
        assert await pasted(bob) == "of bob"
        await ann.text("handle_dialog", accept=True)


@pytest.mark.thorough
async def test_sessions_with_clipboard_permission_have_processes_of_their_own(
    tmp_path: Path, shell: str, lab: str
) -> None:
    granted = ["clipboard-read", "clipboard-write"]
    async with (
        running(tmp_path, shell, permissions=granted) as service,
        both(service, lab) as (ann, bob),
    ):
        await ann.value("() => navigator.clipboard.writeText('the secret of ann')")
        assert await ann.value("() => navigator.clipboard.readText()") == "the secret of ann"
        assert await bob.value("() => navigator.clipboard.readText()") == ""
        assert await pasted(ann) == "the secret of ann"


async def test_a_page_is_granted_little_and_copies_nothing_by_itself(
    service: BrowserService, lab: str
) -> None:
    async with both(service, lab) as (ann, bob):
        assert await ann.value(GRANTED) == ["background-sync"]
        await copy(bob, "of bob")
        refused = (
            "() => navigator.clipboard.writeText('of a page').then(() => 'written', e => e.name)"
        )
        assert await ann.value(refused) == "NotAllowedError"
        assert await pasted(bob) == "of bob"


@pytest.mark.parametrize("key", ["Control+C", "ControlOrMeta+KeyV", "Shift+Control+v", "Meta+x"])
def test_keys_that_use_the_clipboard(key: str) -> None:
    assert uses_clipboard(key)


@pytest.mark.parametrize("key", ["Shift+Insert", "Control+Insert", "Shift+Delete", "Paste"])
def test_older_keys_that_use_the_clipboard(key: str) -> None:
    assert uses_clipboard(key)


@pytest.mark.parametrize("key", ["c", "Shift+C", "Alt+v", "Control+a", "Delete", "+", "Control++"])
def test_keys_that_do_not_use_the_clipboard(key: str) -> None:
    assert not uses_clipboard(key)
