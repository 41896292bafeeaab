"""Fields and editors whose scripts hold more than they show: edits are restored, or reported lost."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from browsing import again, lost, opened
from changing import Changing

from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        yield site


async def test_what_an_editor_holds_beyond_what_it_shows_is_not_cut_by_putting_back(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<div class=cm-editor><div id=shown contenteditable>one</div></div><script>
      window.whole = "one, two, three";
      shown.oninput = () => { window.whole = shown.innerText; }
    </script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#shown", text="1")
        async with again(browse) as resumed:
            assert await resumed.value("whole") == "one, two, three"
            assert "1 form field of tab 0 (its editor takes only what is typed)" in lost(resumed)


async def test_what_an_editor_does_itself_and_does_not_take_back_is_said(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<div id=editor contenteditable></div><script>
      let text = "";
      const show = () => { editor.textContent = text; watching.takeRecords(); };
      const watching = new MutationObserver(show);
      watching.observe(editor, {childList: true, characterData: true, subtree: true});
      editor.onbeforeinput = event => { event.preventDefault(); text += event.data ?? ""; show(); };
    </script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#editor", text="typed", slowly=True)
        assert await browse.value("editor.innerText") == "typed"
        async with again(browse) as resumed:
            assert await resumed.value("editor.innerText") == ""
            assert "1 form field of tab 0 (the page did not keep it)" in lost(resumed)


async def test_what_a_page_takes_out_again_at_once_is_not_said_to_be_back(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<input id=film><script>
      const chosen = localStorage.again ? "" : "Brazil";
      film.oninput = () => queueMicrotask(() => { film.value = chosen; });
    </script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#film", text="Bra")
        await browse.value("() => { localStorage.again = 1 }")
        async with again(browse) as resumed:
            assert "1 form field of tab 0 (the page did not keep it)" in lost(resumed)


@pytest.mark.parametrize(("kind", "value"), [("date", "2026-11-23"), ("range", "30")])
async def test_what_is_picked_comes_back_where_the_page_keeps_its_default_equal(
    service: BrowserService, site: Changing, kind: str, value: str
) -> None:
    site.pages["/"] = f"""<input id=picked type={kind} oninput="this.defaultValue = this.value">"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#picked", text=value)
        async with again(browse) as resumed:
            assert await resumed.value("picked.value") == value


async def test_a_box_comes_back_that_is_called_after_whether_it_is_ticked(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<label>Send me news <input type=checkbox id=news name=news value=false
      onclick="this.value = this.checked"></label>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("click", target="#news")
        async with again(browse) as resumed:
            assert await resumed.value("[news.checked, news.value]") == [True, "true"]


async def test_a_text_that_is_chosen_from_a_list_is_not_put_there_without_the_choice(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<input id=film role=combobox oninput="list.hidden = false">
      <ul id=list hidden><li>Brazil</ul>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#film", text="Brazil")
        async with again(browse) as resumed:
            assert await resumed.value("[film.value, list.hidden]") == ["", True]
            assert "1 form field of tab 0 (it has to be chosen from its list again)" in lost(
                resumed
            )


async def test_what_was_typed_stays_with_its_card_where_ids_are_counted_up_by_scripts(
    service: BrowserService, site: Changing
) -> None:
    cards = ["Apple", "Banana"]
    site.pages["/"] = lambda: "".join(
        f"<div><h3>{name}</h3><p><label for=':r{number}:'>Note</label><input id=':r{number}:'></p></div>"
        for number, name in enumerate(cards)
    )
    typed = "[...document.querySelectorAll('input')].map(field => field.value)"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="input >> nth=1", text="ripe")
        cards.insert(0, "Cherry")
        async with again(browse) as resumed:
            assert await resumed.value(typed) == ["", "", "ripe"]
            cards.remove("Banana")
            async with again(resumed) as later:
                assert await later.value(typed) == ["", ""]
                assert "1 form field of tab 0 (not there)" in lost(later)
