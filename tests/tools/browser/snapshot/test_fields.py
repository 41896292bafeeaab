"""Form fields: native ones come back once and in their place, and all others are counted as lost."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from changing import Changing
from support.browsing import again, lost, opened
from support.selection import matrix

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import restore, saved_tab

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        yield site


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for fields that never come."""
    monkeypatch.setattr(
        saved_tab, "RETRY_LIMITS", {**saved_tab.RETRY_LIMITS, "fieldMilliseconds": 300}
    )


NATIVE = """<form><input id=text value="as sent"><input name=note><textarea id=area>as sent</textarea>
<select id=one><option>a<option>b<option>c</select>
<select name=many multiple><option selected>a<option>b<option>c</select>
<input type=checkbox id=tick><input type=checkbox id=untick checked>
<input type=radio name=r value=1 checked><input type=radio name=r value=2>
<input type=date id=date><input type=range id=range><input id=untouched value="as sent"></form>"""
VALUES = """() => [...document.querySelectorAll("input, textarea, select")].map(field =>
  field.type === "checkbox" || field.type === "radio" ? field.checked
    : field.multiple ? [...field.selectedOptions].map(({value}) => value).join() : field.value)"""


async def test_text_choices_and_ticks_come_back(service: BrowserService, site: Changing) -> None:
    site.pages["/"] = NATIVE
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        page = browse.page
        for selector in ("#text", "[name=note]"):
            await browse.text("type", target=selector, text=f"typed into {selector}")
        await browse.text("type", target="#area", text="first\nsecond")
        await browse.text("select_option", target="#one", values=["c"])
        await browse.text("select_option", target="[name=many]", values=["b", "c"])
        for selector in ("#tick", "#untick", "[value='2']"):
            await browse.text("click", target=selector)
        await page.fill("#date", "2026-11-23")
        await page.fill("#range", "30")
        expected = await browse.value(VALUES)
        assert expected[:4] == ["typed into #text", "typed into [name=note]", "first\nsecond", "c"]
        # Saved again, the fields are still edited ones.
        async with again(browse, light=True) as once, again(once) as twice:
            assert await twice.value(VALUES) == expected
            assert "10 form fields" in twice.connection.restore_report.restored
            assert "form field" not in lost(twice)


OTHERS = """<input class=nameless><input name=row><input name=row><div id=editor contenteditable></div>
<x-field></x-field><iframe src=/framed></iframe><input id=hides><input id=off>
<input id=list role=combobox><script>
  customElements.define("x-field", class extends HTMLElement {
    connectedCallback() { this.attachShadow({mode: "open"}).innerHTML = "<input class=deep>"; }
  });
  if (sessionStorage.later) { hides.style.display = "none"; off.disabled = true; }
</script>"""


@pytest.mark.thorough
async def test_fields_that_are_not_restored_are_counted(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {"/": OTHERS, "/framed": "<input id=framed>"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        shown = [".nameless", "[name=row] >> nth=0", "#editor", ".deep", "#hides", "#off", "#list"]
        for target in shown:
            await browse.text("type", target=target, text="typed")
        await browse.page.frames[1].fill("#framed", "typed")
        await browse.value("sessionStorage.later = 1")
        async with again(browse) as resumed:
            assert "8 form fields of tab 0" in lost(resumed)
            assert set(await resumed.value(VALUES)) == {""}


@pytest.mark.thorough
async def test_newer_content_of_the_site_is_not_overwritten(
    service: BrowserService, site: Changing
) -> None:
    page = "<input id=text value={0}><select id=one><option>a<option {1}>b<option {2}>c</select>"
    site.pages["/"] = page.format("old", "selected", "")
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#text", text="typed")
        await browse.text("select_option", target="#one", values=["a"])
        site.pages["/"] = page.format("newer", "", "selected")
        async with again(browse) as resumed:
            assert await resumed.value("[text.value, one.value]") == ["newer", "c"]
            assert "2 form fields of tab 0" in lost(resumed)


@pytest.mark.thorough
async def test_text_is_not_filled_into_a_field_with_another_label(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<label>Your cat <input id=answer></label>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#answer", text="Tom")
        site.pages["/"] = "<label>Your password hint <input id=answer></label>"
        async with again(browse) as resumed:
            assert await resumed.value("answer.value") == ""
            assert "1 form field of tab 0" in lost(resumed)


@pytest.mark.thorough
async def test_fields_that_a_script_builds_or_fills_late_come_back(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<input id=filled><script>onload = () => setTimeout(() => {
      filled.value = "from the server";
      document.body.insertAdjacentHTML("beforeend", "<input id=built><p>ready");
    }, 50)</script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("wait_for", text="ready")
        for target in ("#filled", "#built"):
            await browse.text("type", target=target, text="typed")
        async with again(browse) as resumed:
            await resumed.text("wait_for", text="ready")
            assert await resumed.value("[filled.value, built.value]") == ["typed", "typed"]
            assert "form field" not in lost(resumed)


@pytest.mark.thorough
async def test_fields_that_mirror_their_value_come_back_again_and_again(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = (
        "<input id=a><input id=b><script>for (const field of document.querySelectorAll('input'))"
        "field.addEventListener('input', () => field.setAttribute('value', field.value))</script>"
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#a", text="one")
        await browse.text("type", target="#b", text="two")
        async with again(browse) as once, again(once) as twice:
            assert await twice.value("[a.value, b.value]") == ["one", "two"]
            await twice.text("type", target="#b", text="three")
            async with again(twice) as loop_clock:
                assert await loop_clock.value("[a.value, b.value]") == ["one", "three"]


@pytest.mark.thorough
async def test_choices_that_the_site_was_sent_at_once_are_not_sent_again(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {"/done": "ok"}
    site.pages["/"] = """<input type=checkbox id=tick onchange="fetch('/done', {method: 'POST'})">
      <input id=guest onchange="fetch('/done', {method: 'POST'})">"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("click", target="#tick")
        await browse.text("type", target="#guest", text="Ann", submit=True)
        async with again(browse) as resumed:
            assert await resumed.value("[tick.checked, guest.value]") == [False, "Ann"]
            assert "sent at once" in lost(resumed)
    assert site.hits.count("POST /done") == 2


@pytest.mark.parametrize(
    "page",
    matrix(
        "<input id=field type=password><button onclick=\"field.type = 'text'\">Show</button>",
        "<label>Kennwort <input id=field></label>",
        "<input id=field name=login_pass>",
        "<input id=field name=pin_code>",
    ),
)
async def test_text_in_a_secret_field_is_not_saved_however_it_is_shown(
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


@pytest.mark.thorough
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


@pytest.mark.thorough
async def test_text_typed_for_a_site_does_not_reach_the_one_that_its_page_goes_on_to(
    service: BrowserService, site: Changing
) -> None:
    leaving = f"<script>addEventListener('load', () => location.replace('{site.at(2)}/'))</script>"
    with_field = "<form><input id=sought></form>"
    site.pages |= {"/mine": with_field, "/": "<form><input id=sought></form>"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url + "/mine")
        await browse.text("type", target="#sought", text="for this site alone")
        site.pages["/mine"] = with_field + leaving
        async with again(browse) as resumed:
            assert await resumed.value("[location.href, sought.value]") == [site.at(2) + "/", ""]
            # It depends on how soon it goes.
            assert any(how in lost(resumed) for how in ("(the page moved on)", "(it went on to"))


@pytest.mark.thorough
async def test_a_page_that_opens_a_dialog_keeps_no_caller_waiting(
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


@pytest.mark.thorough
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


@pytest.mark.thorough
async def test_fields_come_back_whose_form_is_asked_for_them_by_its_own_properties(
    service: BrowserService, site: Changing
) -> None:
    names = ["children", "reset", "id", "localName", "parentNode"]
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
