"""The parts of an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import Browse, opened, running, section
from hypothesis import given
from hypothesis import strategies as some

from statehold.tools.browser.call import summarize
from statehold.tools.browser.session.answer import TEXT_LIMIT, Answer, as_json, difference
from statehold.tools.browser.session.tab import EVENT_LINES, TabEvents

LINES = some.lists(some.sampled_from(["- a", "- b", "  - c", "- d"]), max_size=12)


@given(LINES, LINES)
def test_a_difference_tells_lines_apart(before: list[str], now: list[str]) -> None:
    found = difference("\n".join(before), "\n".join(now))
    if found is None:
        return
    assert (found == "") == (before == now)
    lines = found.splitlines()
    gone = [line[1:] for line in lines if line.startswith("-")]
    come = [line[1:] for line in lines if line.startswith("+")]
    assert len(now) - len(before) == len(come) - len(gone)
    assert set(gone) <= set(before)
    assert set(come) <= set(now)


def test_too_much_of_a_difference_is_none() -> None:
    old, new = ("\n".join(f"- {kind} {n}" for n in range(5000)) for kind in ("old", "new"))
    assert difference(old, new) is None
    assert difference(old, old.replace("- old 70\n", "- new 70\n")) == (
        " - old 69\n-- old 70\n+- new 70\n - old 71"
    )


def test_a_section_that_is_too_long_is_cut_and_that_is_said() -> None:
    answer = Answer()
    answer.result("x" * (TEXT_LIMIT + 5))
    text = answer.render().payload["content"][0]["text"]
    assert text.endswith("[5 more characters were left out]")


def test_what_was_withheld_is_gone() -> None:
    answer = Answer()
    answer.result("secret")
    answer.image(b"secret", "image/png")
    answer.withhold("No.")
    payload = answer.render().payload
    assert payload == {"content": [{"type": "text", "text": "### Error\nNo."}], "isError": True}


@pytest.mark.peer
@pytest.mark.parametrize(
    ("snapshot", "said"),
    [("diff", '+  - status [ref=e11]: "2"'), ("none", None), ("full", "Vanish")],
)
async def test_an_action_answers_with_as_much_of_the_page_as_is_wanted(
    tmp_path: Path, shell: str, lab: str, snapshot: str, said: str | None
) -> None:
    async with (
        running(tmp_path / "data", shell, snapshot=snapshot) as service,
        opened(service) as browse,
    ):
        await browse.text("navigate", url=f"{lab}/counter")
        await browse.text("click", target="text=Increment")
        text = await browse.text("click", target="text=Increment")
        if said is None:
            assert "### Snapshot" not in text
        else:
            assert said in section(text, "Snapshot")
        assert ("Vanish" in text) == (snapshot == "full")
        assert "Vanish" in await browse.text("snapshot")
        assert "Vanish" in section(await browse.error("click", target="e999"), "Snapshot")


def test_what_happened_often_is_one_line_and_very_much_is_counted() -> None:
    assert summarize(["one", "two", "one", "one"]) == ["one (3 times)", "two"]
    assert summarize([]) == []
    many = summarize([str(number) for number in range(60)])
    assert many[:50] == [str(number) for number in range(50)]
    assert many[50:] == ["(10 more)"]


def test_of_very_much_that_happened_only_so_much_is_kept_and_the_rest_is_counted() -> None:
    news = TabEvents()
    for number in range(EVENT_LINES + 300):
        news.append(f"line {number}")
    assert len(news) == EVENT_LINES
    told = summarize(news, omitted=news.omitted_count)
    assert told[0] == "line 0"
    assert told[-1] == f"({EVENT_LINES + 300 - 50} more)"
    assert summarize(["one"], omitted=2) == ["one", "(2 more)"]


def test_an_answer_holds_no_half_of_a_surrogate_pair() -> None:
    answer = Answer()
    answer.result("a \ud83d, a \ud83d\ude00")
    answer.file("files/\udc00.txt", "\udc00.txt", "text/plain", 1)
    text, link = answer.render().payload["content"]
    # A failing test cannot print text that is invalid Unicode.
    assert ascii(text["text"]) == ascii("### Result\na \ufffd, a 😀")
    assert ascii([link["uri"], link["name"]]) == ascii(["files/\ufffd.txt", "\ufffd.txt"])


def test_a_value_without_end_is_said() -> None:
    value: object = 1
    for _ in range(5000):
        value = [value]
    assert as_json(value) == '"[Nested too deeply]"'


@pytest.mark.peer
async def test_half_of_a_surrogate_pair_in_a_page_reaches_answers_and_files_as_a_replacement(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(
        """() => {
            document.title = document.querySelector("h1").textContent = "half " + "😀"[0];
            console.log("half " + "😀"[0]);
        }"""
    )
    text = ascii(await browse.text("snapshot", filename="snapshot.txt"))
    assert "Page Title: half \\ufffd" in text
    for tool, more in (
        ("console_messages", {}),
        ("evaluate", {"function": "() => document.title"}),
    ):
        await browse.text(tool, **more, filename="kept.txt")
        data, _ = await browse.connection.session.files.read("files/kept.txt")
        assert "half \ufffd" in data.decode(), tool
