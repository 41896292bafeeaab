"""The lines about what happened since the last answer."""

from __future__ import annotations

import pytest
from support.browsing import Browse, opened, section

from statehold.tools.browser.answers.page_events import News, summarize, summarize_news
from statehold.tools.browser.service import BrowserService


def test_repeated_events_are_one_line_and_surplus_ones_are_counted() -> None:
    assert summarize(["one", "two", "one", "one"]) == ["one (3 times)", "two"]
    assert summarize([]) == []
    many = summarize([str(number) for number in range(60)])
    assert many[:50] == [str(number) for number in range(50)]
    assert many[50:] == ["(10 more)"]


def test_news_that_differ_in_numbers_are_one_line_and_the_rest_is_counted_by_its_tool() -> None:
    errors = [f"Failed to load {n} of 9" for n in range(60)]
    assert summarize_news([News(errors, 0, "console"), News(["No way"] * 2, 0, "network")]) == [
        "Failed to load 0 of 9 (60 times, with other numbers)",
        "No way (2 times)",
    ]
    many = [f"{chr(97 + n % 26) * 200}{chr(97 + n // 26)}" for n in range(60)]
    lines = summarize_news([News(many, 5, "console"), News(["No way"] * 3, 0, "network")])
    assert sum(len(line) + 3 for line in lines) <= 2000
    assert len(lines) == 10
    assert lines[-1] == "(56 more in console, 3 more in network)"
    assert summarize_news([]) == []


@pytest.mark.thorough
@pytest.mark.peer
async def test_sixty_errors_of_a_page_cost_little(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    words = "Array.from({length: 12}, (_, n) => String.fromCharCode(97 + w + n % 3)).join('')"
    script = f"""() => {{ for (let w = 0; w < 20; w++) for (let n = 0; n < 3; n++)
        console.error(`${{{words}.repeat(10)}} failed, no ${{n}}`); }}"""
    text = section(await browse.text("evaluate", function=script), "Events")
    assert len(text) <= 2000
    assert "failed, no 0" in text
    assert "(3 times, with other numbers)" in text
    assert text.splitlines()[-1].endswith("more in browser_console_messages)")
    assert "failed, no 2" in await browse.text("console_messages")


@pytest.mark.peer
async def test_the_level_of_messages_that_are_reported_can_be_chosen(
    service: BrowserService, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = service.config.model_copy(update={"console_level": "warning"})
    monkeypatch.setattr(service, "config", config)
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/console")
        lines = section(await browse.text("click", target="text=All levels"), "Events").splitlines()
        assert lines[0].startswith("- New console error: [ERROR] an error")
        assert lines[1].startswith("- New console warning: [WARNING] a warning")
        assert not any("a log" in line for line in lines)
