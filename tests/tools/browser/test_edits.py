"""Edits on a page are restored in their places, and no action on the site is repeated."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator

import pytest
from browsing import again, lost, new_view, opened, ref_of
from changing import Changing

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import opening, restore
from statehold.tools.browser.snapshot.model import ContextSnapshot, SavedTab

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        yield site


TASKS = {1: "Pay rent", 2: "Delete old backups", 3: "Cancel subscription"}


async def test_a_tick_that_the_site_was_told_of_ticks_nothing_when_it_comes_back(
    service: BrowserService, site: Changing
) -> None:
    def tasks() -> str:
        done = [int(hit.rpartition("=")[2]) for hit in site.hits if hit.startswith("POST")]
        row = """<li><label><input type=checkbox onchange="fetch('/done?id={}', {{method: 'POST'}})">{}</label></li>"""
        return "".join(row.format(id, name) for id, name in TASKS.items() if id not in done)

    site.pages |= {"/tasks": tasks, "/done": "ok"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/tasks")
        await browse.text("click", target="input >> nth=0")
        assert site.hits.count("POST /done?id=1") == 1
        async with again(browse) as once, again(once) as twice:
            assert "sent at once" in lost(once)
            assert await twice.value("[...document.querySelectorAll(':checked')].length") == 0
    assert [hit for hit in site.hits if hit.startswith("POST")] == ["POST /done?id=1"]


@pytest.mark.parametrize("telling", ["this.form.submit()", "socket.send('ticked')"])
async def test_a_tick_that_the_site_was_told_of_by_a_form_or_a_socket_is_not_sent_again(
    service: BrowserService, site: Changing, lab: str, telling: str
) -> None:
    site.pages |= {"/done": "ok"}
    site.pages["/"] = (
        "<iframe name=answer></iframe><form method=post action=/done target=answer>"
        f"""<input id=tick name=tick type=checkbox onchange="{telling}"></form>"""
        f"<script>socket = new WebSocket('{lab.replace('http', 'ws', 1)}/ws')</script>"
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("new Promise(go => socket.readyState ? go() : socket.onopen = go)")
        await browse.text("click", target="#tick")
        async with again(browse) as resumed:
            assert await resumed.value("tick.checked") is False
            assert "sent at once" in lost(resumed)
    assert site.hits.count("POST /done") == ("form" in telling)


async def test_a_tick_that_nobody_was_told_of_comes_back_in_its_own_row(
    service: BrowserService, site: Changing
) -> None:
    rows = ["ann", "bob"]
    site.pages["/"] = lambda: "".join(
        f"<li><label><input type=checkbox>{row}</label><input placeholder=note></li>"
        for row in rows
    )
    filled = """[...document.querySelectorAll('li')].map(
        li => [li.innerText.trim(), li.children[0].firstChild.checked, li.children[1].value])"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("click", target="input[type=checkbox] >> nth=0")
        await browse.text("type", target="input[placeholder=note] >> nth=1", text="of bob")
        rows.insert(0, "new")
        async with again(browse) as resumed:
            expected = [["new", False, ""], ["ann", True, ""], ["bob", False, "of bob"]]
            assert await resumed.value(filled) == expected
            rows[:] = ["new", "bob"]
            async with again(resumed) as later:
                assert await later.value(filled) == [["new", False, ""], ["bob", False, "of bob"]]
                assert "1 form field of tab 0 (not there)" in lost(later)


async def test_what_was_typed_stays_with_its_row_where_ids_are_numbers_of_rows(
    service: BrowserService, site: Changing
) -> None:
    rows = {"ann": 41, "bob": 42}
    cells = "<input id=note{0}><input name=sum-{0}-paid><input id=key{1}>"
    site.pages["/"] = lambda: "".join(
        f"<li>{name}{cells.format(number, key)}</li>"
        for number, (name, key) in enumerate(rows.items())
    )
    filled = """Object.fromEntries([...document.querySelectorAll('li')].map(
        li => [li.innerText.trim(), [...li.children].map(({value}) => value).join()]))"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for number, key in enumerate(rows.values()):
            for target in (f"#note{number}", f"[name=sum-{number}-paid]", f"#key{key}"):
                await browse.text("type", target=target, text=str(key))
        async with again(browse) as resumed:
            assert await resumed.value(filled) == {"ann": "41,41,41", "bob": "42,42,42"}
            del rows["ann"]
            rows["new"] = 43
            async with again(resumed) as later:
                assert await later.value(filled) == {"bob": "42,,42", "new": ",,"}
                assert "4 form fields of tab 0 (not there)" in lost(later)


async def test_what_the_site_has_newer_is_not_overwritten(
    service: BrowserService, site: Changing
) -> None:
    values = ["as sent", "as sent", "as sent"]
    site.pages["/"] = lambda: (
        "<input id=sought><input id=one value='{}'><div id=editor contenteditable>{}</div>"
        "<div id=other contenteditable>{}</div>".format(*values)
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for target in ("#one", "#editor", "#sought"):
            await browse.text("type", target=target, text=f"mine {target}")
        values[:] = ["newer", "newer", "newer"]
        async with again(browse) as resumed:
            found = "[sought.value, one.value, editor.innerText, other.innerText]"
            assert await resumed.value(found) == ["mine #sought", "newer", "newer", "newer"]
            assert "2 form fields of tab 0 (the site has something newer there)" in lost(resumed)


async def test_a_choice_that_the_site_has_newer_is_not_overwritten(
    service: BrowserService, site: Changing
) -> None:
    sent = {"first": "open", "kept": "open", "same": "open"}
    site.pages["/"] = lambda: (
        "".join(
            f"<select id={name}>"
            + "".join(
                f"<option {'selected' if each == value else ''}>{each}"
                for each in ("new", "open", "closed", "archived")
            )
            + "</select>"
            for name, value in sent.items()
        )
        + "<select id=scripted><option>a<option>b<option>c</select><script>scripted.value = 'b'</script>"
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for target in ("#first", "#kept", "#same"):
            await browse.text("select_option", target=target, values=["closed"])
        await browse.text("select_option", target="#scripted", values=["c"])
        sent |= {"first": "archived", "same": "closed"}
        async with again(browse) as resumed:
            found = "[first.value, kept.value, same.value, scripted.value]"
            expected = ["archived", "closed", "closed", "c"]
            assert await resumed.value(found) == expected
            assert "1 form field of tab 0 (the site has something newer there)" in lost(resumed)


@pytest.mark.parametrize("filled", ["by the browser", "by a script"])
async def test_what_the_site_did_not_send_is_not_newer_than_what_was_typed_over_it(
    service: BrowserService, site: Changing, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "PATIENCE", {**restore.PATIENCE, "fieldMilliseconds": 200})
    site.pages |= {"/": "<input id=field>", "/next": "<p>next</p>"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        if filled == "by a script":
            await browse.value("field.value = 'one'")
        else:
            await browse.text("type", target="#field", text="one")
            await browse.text("navigate", url=site.url + "/next")
            await browse.text("navigate_back")
            assert await browse.value("field.value") == "one"
        await browse.text("type", target="#field", text="two")
        async with again(browse) as resumed:
            assert await resumed.value("field.value") == "two"
            assert "form field" not in lost(resumed)
            site.pages["/"] = "<input id=field><script>field.value = 'newer'</script>"
            async with again(resumed) as later:
                assert await later.value("field.value") == "newer"
                assert "1 form field of tab 0 (the site has something newer" in lost(later)


async def test_what_a_page_fills_in_late_is_not_newer_and_does_not_replace_what_was_typed(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {
        "/sent": "one",
        "/": "<input id=field><p></p><script>onload = () => setTimeout(async () => {"
        "field.value = await (await fetch('/sent')).text();"
        "document.querySelector('p').textContent = 'filled' }, 100)</script>",
    }
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("wait_for", text="filled")
        await browse.text("type", target="#field", text="two")
        async with again(browse) as resumed:
            await resumed.text("wait_for", text="filled")
            assert await resumed.value("field.value") == "two"


async def test_editors_come_back_that_were_emptied_or_have_a_picture_only(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<div id=a contenteditable>old text</div><div id=b contenteditable></div>"
    picture = '<img src="data:," alt="x">'
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#a", text="")
        await browse.text("click", target="#b")
        await browse.value(f"document.execCommand('insertHTML', false, '{picture}')")
        async with again(browse) as resumed:
            assert await resumed.value("[a.innerText.trim(), b.innerHTML]") == ["", picture]


async def test_fields_that_show_something_where_the_site_sent_nothing_are_not_edited(
    service: BrowserService, site: Changing
) -> None:
    field = "<input type={} id=range{}><input type={} id=color{}>".format
    site.pages["/"] = field("range", " max=10", "color", "")
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        site.pages["/"] = field("range", " value=80", "color", " value=#ff0000")
        async with again(browse) as resumed:
            assert "form field" not in resumed.connection.opened.restored
            assert await resumed.value("[range.value, color.value]") == ["80", "#ff0000"]
            await resumed.value("range.value = 30")
            async with again(resumed) as later:
                assert await later.value("[range.value, color.value]") == ["30", "#ff0000"]


async def test_choices_and_ticks_come_back_that_their_values_do_not_tell(
    service: BrowserService, site: Changing
) -> None:
    options = "<option value=0>None<option value=0>A<option value=0>B<option value=1>C"
    site.pages["/"] = (
        f"<select id=one>{options}</select><select id=many multiple>{options}</select>"
        "<input type=checkbox id=tick><script>tick.onclick = () =>"
        "setTimeout(() => { tick.checked = false; tick.indeterminate = true })</script>"
    )
    shown = "[one, many].map(s => [...s.selectedOptions].map(o => o.label)), tick.indeterminate"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("select_option", target="#one", values=["B"])
        await browse.text("select_option", target="#many", values=["A", "C"])
        await browse.text("click", target="#tick")
        async with again(browse) as resumed:
            assert await resumed.value(f"[{shown}]") == [[["B"], ["A", "C"]], True]


async def test_a_field_of_a_frame_comes_back_when_other_text_of_the_frame_changed(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {
        "/": "<p>outer</p><iframe src=/inner></iframe>",
        "/inner": "<p>inner <span id=said></span></p><input aria-label=note>"
        "<button onclick=\"said.textContent = 'clicked'\">b</button>",
    }
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        snapshot = await browse.text("snapshot")
        await browse.text("click", target=ref_of(snapshot, 'button "b"'))
        await browse.text("type", target=ref_of(snapshot, 'textbox "note"'), text="mine")
        async with again(browse) as resumed:
            field = "document.querySelector('iframe').contentDocument.querySelector('input').value"
            assert await resumed.value(field) == "mine"
            assert "form field" not in lost(resumed)


async def test_what_was_typed_where_a_frame_had_gone_is_not_filled_in_where_it_began(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {"/": "<iframe id=frame src=/one></iframe>", "/one": "<input id=amount>"}
    site.pages["/two"] = site.pages["/one"]
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("new Promise(go => { frame.onload = go; frame.src = '/two'; })")
        await browse.value("frame.contentDocument.getElementById('amount').focus()")
        await browse.text("press_key", key="9")
        async with again(browse) as resumed:
            amount = "frame.contentDocument.getElementById('amount').value"
            assert await resumed.value(amount) == ""
            assert "1 form field of tab 0 (not there)" in lost(resumed)


@pytest.mark.parametrize("light", [False, True])
async def test_fields_that_mirror_their_value_come_back_again_and_again(
    service: BrowserService, site: Changing, light: bool
) -> None:
    site.pages["/"] = (
        "<input id=a><input id=b><script>for (const field of document.querySelectorAll('input'))"
        "field.addEventListener('input', () => field.setAttribute('value', field.value))</script>"
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#a", text="one")
        await browse.text("type", target="#b", text="two")
        async with again(browse, light=light) as once, again(once, light=light) as twice:
            assert await twice.value("[a.value, b.value]") == ["one", "two"]
            await twice.text("type", target="#b", text="three")
            async with again(twice, light=light) as later:
                assert await later.value("[a.value, b.value]") == ["one", "three"]


@pytest.mark.parametrize(
    "page",
    [
        "<input id=field type=password><button onclick=\"field.type = 'text'\">Show</button>",
        "<label>Kennwort <input id=field></label>",
        "<input id=field name=login_pass>",
        "<input id=field name=pin_code>",
    ],
)
async def test_what_was_typed_into_a_secret_field_is_not_saved_however_it_is_shown(
    service: BrowserService, site: Changing, page: str
) -> None:
    site.pages["/"] = page
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="hunter2")
        if "button" in page:
            await browse.text("click", target="button")
        for saved in (await browse.connection.checkpoint(), await browse.connection.snapshot()):
            assert saved is not None
            assert "hunter2" not in str(saved.data)
            assert "what was typed into password" in str(saved.data)


async def test_a_login_in_an_address_is_not_saved(service: BrowserService, site: Changing) -> None:
    site.pages["/"] = "<p>hello</p>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url.replace("//", "//ann:hunter2@"))
        saved = await browse.connection.snapshot()
    assert saved is not None
    assert saved.data["tabs"][0]["url"] == site.url + "/"
    assert "hunter2" not in str(saved.data)


async def test_fields_come_back_from_what_was_saved_without_numbers_and_originals(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = (
        "<select id=one><option>a<option>b<option>c</select><input id=typed><input id=newer value=b>"
    )
    before = "1.0.0"
    fields = [
        [[["one"]], "select", "select-one", "", "chosen", ["c"], "", None],
        [[["typed"]], "input", "text", "", "value", "mine", "", None],
        [[["newer"]], "input", "text", "", "value", "mine", "", before],
    ]
    page = json.dumps({"fields": fields, "scrolled": []})
    tab = SavedTab(site.url + "/", page=page, entry='{"session":[],"state":"{\\"at\\":1}"}')
    async with opened(
        service, new_view(generation=2), ContextSnapshot(tabs=[tab]).snapshot()
    ) as browse:
        found = await browse.value("[one.value, typed.value, newer.value, history.state.at]")
        assert found == ["c", "mine", "b", 1]
        assert "1 form field of tab 0 (the site has something newer there)" in lost(browse)


async def test_a_form_is_not_filled_into_another_page(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<input id=amount>"
    site.pages["/wizard"] = (
        "<input id=amount><script>if (window.name && location.search === '?step=2')"
        "location.replace('?step=1'); window.name = 'begun'</script>"
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/wizard?step=2")
        await browse.text("type", target="#amount", text="999")
        site.pages["/wizard"] = (
            "<input id=amount><script>if (location.search === '?step=2')"
            "location.replace('?step=1')</script>"
        )
        async with again(browse) as resumed:
            assert await resumed.value("amount.value") == ""
            assert "it went on to" in lost(resumed)


@pytest.mark.parametrize("begun", ["", "window.name = 'begun'; "])
async def test_what_was_typed_for_a_site_does_not_reach_the_one_that_its_page_goes_on_to(
    service: BrowserService, site: Changing, begun: str
) -> None:
    leaving = f"<script>addEventListener('load', () => location.replace('{site.at(2)}/'))</script>"
    with_field = f"<form><input id=sought></form><script>{begun}</script>"
    site.pages |= {"/mine": with_field, "/": "<form><input id=sought></form>"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/mine")
        await browse.text("type", target="#sought", text="for this site alone")
        site.pages["/mine"] = with_field + leaving
        async with again(browse) as resumed:
            assert await resumed.value("[location.href, sought.value]") == [site.at(2) + "/", ""]
            # It depends on how soon it goes.
            assert any(how in lost(resumed) for how in ("(the page moved on)", "(it went on to"))


async def test_what_a_sleeping_tab_lost_is_told_once(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<input id=field type=password>"
    async with opened(service, new_view()) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="hunter2")
        await browse.text("tabs", action="new")
        async with again(browse) as once, again(once) as twice:
            assert "what was typed into password" in lost(once)
            assert "what was typed into password" not in lost(twice)


async def test_what_the_current_tab_lost_is_told_once_also_when_it_does_not_load(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/"] = "<input id=field type=password>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="hunter2")
        found = await browse.saved()
    monkeypatch.setattr(opening, "RESTORE_SECONDS", 0.3)
    site.held["/"] = threading.Event()
    async with opened(service, browse.later(), found) as once, again(once) as twice:
        assert "what was typed into password" in lost(once)
        assert "did not load" in lost(twice)
        assert "what was typed into password" not in lost(twice)


async def test_media_features_stay_emulated(service: BrowserService, site: Changing) -> None:
    site.pages["/"] = "<p>hello</p>"
    dark = "[matchMedia('(prefers-color-scheme: dark)').matches, matchMedia('print').matches]"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("emulate_media", colorScheme="dark", media="print")
        await browse.text("emulate_media", media=None)
        async with again(browse) as once, again(once) as twice:
            assert await twice.value(dark) == [True, False]


async def test_a_page_that_asks_something_keeps_nobody_waiting(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<input id=field>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="mine")
        site.pages["/"] = "<script>alert('welcome')</script><input id=field>"
        async with again(browse) as resumed:
            assert "it asks something first" in lost(resumed)
            assert "welcome" in await resumed.error("snapshot")
            await resumed.text("handle_dialog", accept=True)
            assert await resumed.value("field.value") == ""


async def test_a_form_that_became_a_download_leaves_the_page_what_it_was(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<form method=post><button>Export</button></form><input id=field>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="mine")
        site.headers["/"] = {"Content-Disposition": "attachment; filename=export.txt"}
        assert "export.txt" in await browse.text("click", target="button")
        site.headers.clear()
        async with again(browse) as resumed:
            assert await resumed.value("field.value") == "mine"


async def test_fields_come_back_whose_form_is_asked_for_them_by_its_own_properties(
    service: BrowserService, site: Changing
) -> None:
    names = ["children", "childNodes", "id", "localName", "parentNode"]
    fields = "".join(f"<p>{name} <input name={name}></p>" for name in names)
    site.pages["/"] = f"<form>{fields}</form>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for name in names:
            await browse.text("type", target=f"[name={name}]", text=f"typed into {name}")
        async with again(browse) as resumed:
            values = "Array.from(document.querySelectorAll('input'), field => field.value)"
            assert await resumed.value(values) == [f"typed into {name}" for name in names]
            assert "form field" not in lost(resumed)


async def test_a_document_whose_elements_are_only_called_like_fields_is_saved_as_any_other(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/feed"] = "<feed><select>what</select><textarea/><input/></feed>"
    site.headers["/feed"] = {"Content-Type": "text/xml"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/feed")
        await browse.value("sessionStorage.step = 'kept'")
        async with again(browse) as resumed:
            assert await resumed.value("sessionStorage.step") == "kept"
            assert lost(resumed) == restore.ALWAYS_LOST
