"""Snapshots, searches, pictures and values."""

from __future__ import annotations

import base64
import re
import struct
from typing import Any

import pytest
from changing import Changing
from lab import Lab
from support.browsing import Browse, ref_of, section, text_of
from support.selection import matrix

from statehold.sessions.errors import InvalidArgument
from statehold.tools.browser.tools import snapshot

pytestmark = pytest.mark.peer


async def test_a_snapshot_may_be_of_one_element_less_deep_or_with_places(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    part = section(await browse.text("snapshot", target=await browse.ref("Berth")), "Snapshot")
    assert part.splitlines()[1].startswith('- group "Berth"')
    assert "First name" not in part
    shallow = section(await browse.text("snapshot", depth=1), "Snapshot")
    assert "textbox" not in shallow
    whole = section(await browse.text("snapshot", depth=0), "Snapshot")
    assert "textbox" in whole
    assert "[box=" in await browse.text("snapshot", boxes=True)
    assert "Ref e999" in await browse.error("snapshot", target="e999")


@pytest.mark.thorough
async def test_a_page_without_a_body_has_a_snapshot_too(browse: Browse) -> None:
    with Changing() as site:
        site.pages |= {
            "/": "<button onclick='document.open()'>Begin anew</button>",
            "/drawing": """<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink">
              <a x:href="/"><text y="40">Home</text></a></svg>""",
        }
        site.headers["/drawing"] = {"Content-Type": "image/svg+xml"}
        text = await browse.text("navigate", url=site.url + "/drawing")
        ref = ref_of(section(text, "Snapshot"), "Home")
        assert "Begin anew" in await browse.text("click", target=ref)
        text = await browse.text("click", target="button")
        assert section(text, "Snapshot") == "```yaml\n\n```"


async def test_output_goes_into_a_file_of_the_session_where_wanted(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    result = await browse.call("snapshot", filename="../../snap.yml")
    assert "textbox" not in result.payload["content"][0]["text"]
    link = result.payload["content"][1]
    assert (link["type"], link["uri"]) == ("resource_link", "files/snap.yml")
    read = await browse.connection.request("resources/read", {"uri": link["uri"]}, browse.ctx)
    assert 'textbox "First name"' in read["contents"][0]["text"]
    assert [path.name for path in browse.connection.session.files.folder.iterdir()] == ["snap.yml"]


async def test_find_shows_what_matches_below_what_it_is_in(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    text = section(await browse.text("find", text="BERTH"), "Result")
    lines = text.splitlines()
    assert lines[0] == 'Found 1 match for "BERTH":'
    assert lines[2].startswith("- main [ref=")
    assert any('group "Berth" [ref=' in line for line in lines)
    assert "First name" not in text
    two = section(await browse.text("find", regex="/first NAME|notes/i"), "Result")
    assert two.startswith("Found 4 matches for /first NAME|notes/i:")
    assert "\n----\n" in two


@pytest.mark.thorough
async def test_find_marks_lines_left_out_beside_the_path_to_a_match(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    items = "Array.from({length: 9}, (_, n) => `<li>Item ${n}</li>`).join('')"
    end = "<ol><li>End</li></ol>"
    await browse.value(f"() => {{ document.body.innerHTML = `<ul>${{{items}}}</ul>{end}`; }}")

    async def found(text: str) -> list[str]:
        lines = section(await browse.text("find", text=text), "Result").splitlines()
        return [re.sub(r" \[(active|ref=\w+)\]", "", line) for line in lines[2:]]

    first = [f"    - listitem: Item {n}" for n in range(4)]
    last = [f"    - listitem: Item {n}" for n in range(5, 9)]
    assert await found("Item 0") == ["- generic:", "  - list:", *first]
    assert await found("Item 8") == [
        "- generic:",
        "  - list:",
        *last,
        "  - list:",
        "    - listitem: End",
    ]
    aside = ["  - list:", "    ...", *last[2:]]
    assert await found("End") == ["- generic:", *aside, "  - list:", "    - listitem: End"]


@pytest.mark.thorough
async def test_find_says_when_nothing_matches_and_what_it_needs(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    assert 'No matches found for "zzz".' in await browse.text("find", text="zzz")
    assert "No matches found for /Zzz/." in await browse.text("find", regex="Zzz")
    assert 'either "text" or "regex"' in await browse.error("find")
    assert "not both" in await browse.error("find", text="a", regex="b")
    assert "no regular expression" in await browse.error("find", regex="(")


async def test_an_endless_regular_expression_is_stopped(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.tools.browser.process.node_js.MATCH_SECONDS", 0.5)
    await browse.text("navigate", url=f"{lab}/frame?name={'a' * 60}!")
    assert "takes too long" in await browse.error("find", regex="(a+)+$")
    assert "Frame" in await browse.text("snapshot")


async def test_a_picture_is_shown_and_kept_as_a_file(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    result = await browse.call("take_screenshot")
    text, link, image = result.payload["content"]
    uri = f"session://{browse.view.id}/browser/files/page.png"
    assert section(text["text"], "Result") == f"- [Screenshot of viewport]({uri})"
    assert (link["type"], link["mimeType"]) == ("resource_link", "image/png")
    data = base64.b64decode(image["data"])
    assert struct.unpack(">II", data[16:24]) == (1280, 720)
    assert (browse.connection.session.files.folder / "page.png").read_bytes() == data


@pytest.mark.parametrize(
    ("arguments", "mime", "begins"),
    matrix(
        ({"filename": "a.jpg", "fullPage": True}, "image/jpeg", b"\xff\xd8"),
        ({"target": "button >> text=Send", "element": "send"}, "image/png", b"\x89PNG"),
        ({"filename": "a.webp", "scale": "device"}, "image/webp", b"RIFF"),
        ({"type": "jpeg"}, "image/jpeg", b"\xff\xd8"),
        quick=2,
    ),
)
async def test_pictures_of_other_kinds_and_parts(
    browse: Browse, lab: str, arguments: dict[str, Any], mime: str, begins: bytes
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    _, link, *images = (await browse.call("take_screenshot", **arguments)).payload["content"]
    assert link["mimeType"] == mime
    assert (await browse.connection.session.files.read(link["uri"]))[0].startswith(begins)
    # A picture that goes into a file of the caller's choice is not sent as well.
    assert [image["mimeType"] for image in images] == ([] if "filename" in arguments else [mime])


async def test_a_picture_has_the_name_of_what_it_is(browse: Browse) -> None:
    names = {
        ("x", "png"): "x.png",
        ("v1.2", "jpeg"): "v1.2.jpeg",
        ("a.gif", None): "a.gif.png",
        ("a.jpg", "png"): "a.jpg.png",
        ("b.JPG", None): "b.JPG",
        ("c.jpeg", "jpeg"): "c.jpeg",
    }
    for (wanted, kind), name in names.items():
        arguments = {"filename": wanted} | ({"type": kind} if kind else {})
        result = await browse.call("take_screenshot", **arguments)
        _, link = result.payload["content"]
        assert link["name"] == name
        assert link["mimeType"] == f"image/{'jpeg' if 'j' in name[-4:].lower() else 'png'}"


@pytest.mark.thorough
async def test_a_chosen_name_is_obeyed_and_other_names_never_collide(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    names: list[str] = []
    for tool, arguments in (
        ("take_screenshot", {}),
        ("take_screenshot", {}),
        ("take_screenshot", {"filename": "page.png"}),
        ("pdf_save", {}),
        ("pdf_save", {}),
        ("storage_state", {}),
        ("storage_state", {}),
        ("snapshot", {"filename": "page-2.png"}),
        ("console_messages", {"filename": "new.txt"}),
    ):
        text, link, *_ = (await browse.call(tool, **arguments)).payload["content"]
        names.append(link["name"])
        is_replaced = arguments.get("filename", "").startswith("page")
        assert ("It replaced the file of that name." in text["text"]) == is_replaced
    assert names == [
        *("page.png", "page-2.png", "page.png", "page.pdf", "page-2.pdf"),
        *("storage-state.json", "storage-state-2.json", "page-2.png", "new.txt"),
    ]
    files = browse.connection.session.files
    assert await files.names() == sorted(set(names))
    assert (await files.read("files/page-2.png"))[0].startswith(b"- main")


async def test_a_text_in_a_file_is_text_whatever_its_name(browse: Browse) -> None:
    result = await browse.call("console_messages", filename="console.log")
    assert result.payload["content"][1]["mimeType"] == "text/plain"
    uri = {"uri": "files/console.log"}
    read = await browse.connection.request("resources/read", uri, browse.ctx)
    assert read["contents"][0]["text"].startswith("Total messages: 0")


@pytest.mark.thorough
async def test_the_picture_of_a_very_long_page_is_cut_with_a_note(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/many?refs=1600")
    result = await browse.call("take_screenshot", fullPage=True)
    assert "it shows the upper part" in result.payload["content"][0]["text"]
    image = result.payload["content"][-1]
    sides = struct.unpack(">II", base64.b64decode(image["data"])[16:24])
    assert sides == (1280, snapshot.MAX_SIDE)


@pytest.mark.thorough
async def test_a_picture_too_large_to_show_is_in_the_file_alone(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "INLINE_BYTES", 1000)
    await browse.text("navigate", url=f"{lab}/form")
    result = await browse.call("take_screenshot")
    assert [block["type"] for block in result.payload["content"]] == ["text", "resource_link"]
    assert "too large" in result.payload["content"][0]["text"]


async def test_a_picture_cannot_be_of_everything_and_one_element(browse: Browse, lab: str) -> None:
    assert "fullPage cannot be used" in await browse.error(
        "take_screenshot", fullPage=True, target="e1"
    )
    with pytest.raises(InvalidArgument):
        await browse.call("take_screenshot", type="gif")


VALUES = [
    ("() => document.title", '"Counter - Lab"'),
    ("1 + 1", "2"),
    ("() => ({a: [1, null]})", '{\n  "a": [\n    1,\n    null\n  ]\n}'),
    ("async () => 'later'", '"later"'),
    ("() => undefined", "null"),
    ("() => new Date(0)", '"1970-01-01T00:00:00.000Z"'),
    ("() => { const a = {}; a.a = a; return a; }", '{\n  "a": "[Circular]"\n}'),
    ("() => { const a = []; return {b: a, c: a}; }", '{\n  "b": [],\n  "c": []\n}'),
    ("() => new URL('http://a.test/b?c#d')", '"http://a.test/b?c#d"'),
    ("() => /x/i", '"/x/i"'),
    ("() => [NaN, -Infinity, -0]", "[\n  null,\n  null,\n  0\n]"),
    ("() => window", '"ref: <Window>"'),
]


async def test_a_script_answers_with_its_value(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    for function, value in VALUES:
        text = await browse.text("evaluate", function=function)
        assert section(text, "Result") == value
        assert "### Page" not in text


async def test_a_script_on_an_element_and_one_that_fails(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    target = await browse.ref("Increment")
    text = await browse.text("evaluate", function="e => e.textContent", target=target)
    assert section(text, "Result") == '"Increment"'
    text = await browse.error("evaluate", function="() => { throw new Error('bad') }")
    assert section(text, "Error") == "bad"
    result = await browse.call("evaluate", function="() => [1, 2]", filename="value.json")
    assert result.payload["content"][1]["uri"] == "files/value.json"


@pytest.mark.thorough
async def test_a_script_that_leads_elsewhere_is_waited_for(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    text = await browse.text("evaluate", function="() => { location.href = '/frame?name=next' }")
    assert section(text, "Page").startswith(f"- Page URL: {lab}/frame?name=next")


@pytest.mark.thorough
async def test_a_screenshot_does_not_wait_for_a_font_that_never_arrives(
    browse: Browse, lab_site: Lab
) -> None:
    await browse.text("navigate", url=f"{lab_site.url}/frame")
    await browse.value("""() => {
      const font = new FontFace("late", "url(/api/gate/font)");
      document.fonts.add(font);
      void font.load();
      document.body.style.fontFamily = "late";
    }""")
    result = await browse.call("take_screenshot")
    assert not result.is_error
    assert "A font of the page has not arrived; the picture shows another" in text_of(result)
    assert any(block["type"] == "image" for block in result.payload["content"])


async def test_an_element_with_the_name_of_the_fonts_breaks_no_screenshot(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value("() => { document.body.innerHTML = '<form name=fonts></form>'; }")
    text = await browse.text("take_screenshot")
    assert "A font of the page" not in text


async def test_an_outline_is_short_until_an_element_is_acted_on(browse: Browse, lab: str) -> None:
    overview = await browse.text("navigate", url=f"{lab}/many?refs=1600")
    assert len(section(overview, "Snapshot")) < 6100
    browse.connection.session.config = browse.service.config.model_copy(
        update={"snapshot_tokens": 3000}
    )
    browse.tab.shown_snapshot = None
    text = await browse.text("hover", target=ref_of(overview, "Buy 0"))
    assert len(section(text, "Snapshot")) > 10_000
