"""Typing, keys, choosing and whole forms."""

from __future__ import annotations

import re

import anyio
import pytest
from support.browsing import Browse, section
from support.selection import matrix

pytestmark = pytest.mark.peer


async def test_a_text_takes_the_place_of_what_was_in_the_field(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    first = await browse.ref('textbox "First name"')
    await browse.text("type", target=first, text="Ada")
    text = await browse.text("type", target=first, text='it\'s "me"')
    assert await browse.value("() => document.querySelector('[name=first]').value") == 'it\'s "me"'
    assert "### Snapshot" not in text


async def test_typing_slowly_is_heard_key_by_key_and_enter_submits(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/keys")
    text = await browse.text("type", target="#typed", text="abc", slowly=True, submit=True)
    assert "a b c Enter" in section(text, "Snapshot")
    assert "press_sequentially('abc')" in text
    assert "press('Enter')" in text


TYPED = {
    "<input value=old>": "oldx1",
    "<textarea>old\nolder</textarea>": "old\nolderx1",
    "<input type=email value=a@b.test>": "a@b.testx1",
    "<input type=number value=7>": "71",
    "<div contenteditable><p>old</p><p>older</p></div>": "<p>old</p><p>olderx1</p>",
}


@pytest.mark.thorough
async def test_typing_slowly_goes_on_after_what_a_field_holds(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    content = "() => { const e = document.body.firstElementChild; return e.value ?? e.innerHTML; }"
    for field, result in TYPED.items():
        await browse.value(f"() => {{ document.body.innerHTML = {field!r}; }}")
        await browse.text("type", target="body > *", text="x1", slowly=True)
        assert await browse.value(content) == result


@pytest.mark.parametrize(
    ("kind", "wrong", "right", "wanted"),
    matrix(
        ("date", "31/12/2024", "2024-12-31", "yyyy-MM-dd"),
        ("time", "9:30", "09:30", "HH:mm"),
        ("month", "Dec 2024", "2024-12", "yyyy-MM"),
        ("week", "52", "2024-W52", "yyyy-Www"),
        ("datetime-local", "tomorrow", "2024-12-31 10:00", "yyyy-MM-ddThh:mm"),
        ("color", "none of them", "red", "color"),
    ),
)
async def test_a_field_that_does_not_take_a_text_says_what_it_takes(
    browse: Browse, lab: str, kind: str, wrong: str, right: str, wanted: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(f"() => {{ document.body.innerHTML = '<input id=field type={kind}>'; }}")
    text = section(await browse.error("type", target="#field", text=wrong), "Error")
    assert wrong in text
    assert wanted in text
    await browse.text("type", target="#field", text=right)
    assert await browse.value("() => document.querySelector('#field').value")
    await browse.text("type", target="#field", text="")
    field = {"name": "When", "type": "textbox", "target": "#field", "value": wrong}
    text = section(await browse.error("fill_form", fields=[field]), "Error")
    assert text.startswith("When: ")
    assert wanted in text


@pytest.mark.thorough
@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize("by_ref", [False, True])
async def test_a_slider_says_what_it_made_of_a_number_and_takes_nothing_else(
    browse: Browse, lab: str, by_ref: bool, slowly: bool
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    field = "<input type=range min=0 max=10 step=2 value=4 aria-label=Level>"
    await browse.value(f"() => {{ document.body.innerHTML = {field!r}; }}")
    target = await browse.ref('slider "Level"') if by_ref else "input"
    arguments = {"target": target, "slowly": slowly}
    text = section(await browse.error("type", text="loud", **arguments), "Error")
    assert "a number from 0 to 10, not 'loud'" in text
    value = "4" if slowly else "6"
    text = section(await browse.text("type", text="5", **arguments), "Events")
    assert text == f"- The field made {value} of 5."
    assert "Events" not in await browse.text("type", text=value, **arguments)


@pytest.mark.thorough
async def test_a_field_that_leads_elsewhere_is_not_asked_any_more(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    field = "<input oninput=\"location.href = '/counter'\">"
    await browse.value(f"() => {{ document.body.innerHTML = {field!r}; }}")
    with anyio.fail_after(4):
        assert "/counter" in section(await browse.text("type", target="input", text="x"), "Page")


@pytest.mark.thorough
async def test_typing_into_an_element_that_is_no_field_is_an_error(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    text = await browse.error("type", target="text=Reset", text="x")
    assert "Element is not an <input>" in section(text, "Error")


@pytest.mark.thorough
async def test_a_key_that_could_scroll_may_press_a_button_that_goes_elsewhere(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/slow")
    await browse.value("() => document.querySelectorAll('button')[4].focus()")
    await browse.text("press_key", key="Space")
    assert "The picture comes late." in await browse.text("snapshot")


async def test_keys_go_where_the_focus_is(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/keys")
    assert "### Page" not in await browse.text("press_key", key="ArrowLeft")
    await browse.text("press_key", key="Control+a")
    text = await browse.text("press_key", key="Enter")
    assert "ArrowLeft Control a Enter" in section(text, "Snapshot")
    assert 'Unknown key: "NoSuchKey"' in await browse.error("press_key", key="NoSuchKey")


async def test_options_are_chosen_by_label_or_value(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    text = await browse.text("select_option", target=await browse.ref("Country"), values=["Japan"])
    assert 'option "Japan" [selected]' in section(text, "Snapshot")
    text = await browse.text(
        "select_option", target=await browse.ref("Sports"), values=["Rowing", "Chess"]
    )
    assert "select_option(['Rowing', 'Chess'])" in text
    chosen = "() => [...document.querySelector('[name=sports]').selectedOptions].map(o => o.text)"
    assert await browse.value(chosen) == ["Rowing", "Chess"]


@pytest.mark.thorough
async def test_the_ref_of_an_option_selects_in_its_list(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    chess = await browse.ref('option "Chess"')
    text = await browse.text("select_option", target=chess, values=["Rowing", "Chess"])
    assert re.search(r"page\.get_by_label\(.*\)\.select_option\(\['Rowing', 'Chess'\]\)", text)
    field = {"name": "Sports", "type": "combobox", "target": chess, "value": "Rowing"}
    text = await browse.text("fill_form", fields=[field])
    assert re.search(r"page\.get_by_label\(.*\)\.select_option\('Rowing'\)", text)
    chosen = "() => [...document.querySelector('[name=sports]').selectedOptions].map(o => o.text)"
    assert await browse.value(chosen) == ["Rowing"]


async def test_a_missing_option_is_answered_with_the_existing_ones(
    browse: Browse, lab: str
) -> None:
    browse.connection.session.config = browse.service.config.model_copy(
        update={"action_seconds": 0.5}
    )
    await browse.text("navigate", url=f"{lab}/form")
    text = await browse.error("select_option", target="[name=country]", values=["Atlantis"])
    assert "there are: 'Norway', 'Portugal', 'Japan', 'Peru'" in section(text, "Error")


@pytest.mark.thorough
async def test_options_that_cannot_be_chosen_are_refused(browse: Browse, lab: str) -> None:
    browse.connection.session.config = browse.service.config.model_copy(
        update={"action_seconds": 0.5}
    )
    await browse.text("navigate", url=f"{lab}/form")
    await browse.value("() => { document.querySelector('option:nth-child(2)').disabled = true; }")
    chosen = "() => document.querySelector('select').selectedIndex"
    before = await browse.value(chosen)
    name = await browse.value("() => document.querySelector('option:nth-child(2)').label")
    text = await browse.error("select_option", target="select >> nth=0", values=[name])
    assert "one is disabled" in section(text, "Error")
    text = await browse.error("select_option", target="[name=country]", values=["Japan", "Peru"])
    assert "one option only" in section(text, "Error")
    assert await browse.value(chosen) == before


async def test_a_form_is_filled_in_one_call(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    values = {
        "First name": ("textbox", "[name=first]", "Ada"),
        "Level": ("slider", "[name=level]", "70"),
        "Country": ("combobox", "[name=country]", "Peru"),
        "Outside": ("radio", "[value=outside]", "true"),
        "News": ("checkbox", "[name=news]", "true"),
        "Terms": ("checkbox", "[name=terms]", "false"),
    }
    fields = [
        {"name": name, "type": kind, "target": target, "value": value}
        for name, (kind, target, value) in values.items()
    ]
    text = await browse.text("fill_form", fields=fields)
    assert text.count("await page.") == 6
    sent = await browse.value("() => [...new FormData(document.forms[0])].map(p => p.join('='))")
    assert {"first=Ada", "level=70", "country=Peru", "berth=outside", "news=on"} <= set(sent)
    assert "terms=on" not in sent


async def test_a_form_stops_at_the_field_that_fails_and_says_which_were_filled(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    fields = [
        {"name": "First name", "type": "textbox", "target": "[name=first]", "value": "Ada"},
        {"name": "Nothing", "type": "textbox", "target": "e999", "value": "x"},
        {"name": "Last name", "type": "textbox", "target": "[name=last]", "value": "L"},
    ]
    text = await browse.error("fill_form", fields=fields)
    assert "Nothing: Ref e999" in section(text, "Error")
    assert "Filled in before it: First name" in section(text, "Error")
    assert 'textbox "First name"' in section(text, "Snapshot")
    assert await browse.value("() => document.querySelector('[name=last]').value") == ""


async def test_a_checkbox_takes_true_or_false_and_a_radio_button_only_true(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    field = {"name": "News", "type": "checkbox", "target": "[name=news]", "value": "yes"}
    assert "true or false" in await browse.error("fill_form", fields=[field])
    field = {"name": "Berth", "type": "radio", "target": "[value=inside]", "value": "false"}
    assert "goes out only when another" in await browse.error("fill_form", fields=[field])


SECRETS = """<label>User <input id=user></label><label id=label>Password <input id=password type=password></label>
<input id=code autocomplete=one-time-code aria-label=Code><input id=again placeholder="Your passphrase">
<iframe srcdoc="<input id=inner type=password aria-label=Inner>"></iframe>"""


async def test_the_text_of_a_secret_field_is_shown_nowhere(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(f"() => {{ document.body.innerHTML = {SECRETS!r}; }}")
    texts = {
        "#user": "ada lovelace",
        "#label": 'hunter2: "x"',
        "#code": "123",
        "#again": " open  sesame ",
    }
    output = await browse.text(
        "fill_form",
        fields=[
            {"target": target, "name": target, "type": "textbox", "value": text}
            for target, text in texts.items()
        ],
    )
    output += await browse.text(
        "type", target=await browse.ref("Inner"), text="in a frame", slowly=True
    )
    output += await browse.text("type", target="#password", text=" 2nd", slowly=True)
    snapshot = await browse.text("snapshot")
    assert "ada lovelace" in output
    assert "ada lovelace" in section(snapshot, "Snapshot")
    assert snapshot.count("••••••") == 4
    for secret in ("hunter2", "123", "sesame", "in a frame", "2nd"):
        assert secret not in output + snapshot
    assert (
        await browse.value("() => document.querySelector('#password').value") == 'hunter2: "x" 2nd'
    )


async def test_a_result_says_which_texts_the_journal_must_not_have(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(f"() => {{ document.body.innerHTML = {SECRETS!r}; }}")
    assert not (await browse.call("type", target="#user", text="ada")).secrets
    # The field was not found, so the text may be a password.
    assert (await browse.call("type", target="#none", text="hunter2")).secrets == ["hunter2"]
    assert not (await browse.call("snapshot")).secrets
    assert (await browse.call("type", target="#code", text="12")).secrets == ["12"]
    await browse.call("type", target="#password", text="hunter2")
    assert (await browse.call("snapshot")).secrets == ["hunter2"]
