"""Locators of Playwright's in place of a ref."""

from __future__ import annotations

import pytest
from support.browsing import Browse, section

pytestmark = pytest.mark.peer

PAGE = """<title>Locators</title>
<button id=one>Press me</button><button class=dup>Dup</button><button class=dup>Dup</button>
<input aria-label=Fancy placeholder=Colour title=Hue><img alt=Logo><p data-testid=note>A note: {x}</p>
<ul><li>Ada <b>first</b></li><li>Bob</li></ul>
<iframe name=inner srcdoc="<button>Deep</button>"></iframe>"""


@pytest.fixture
async def shown(browse: Browse) -> Browse:
    await browse.text("navigate", url="data:text/html,<p>")
    await browse.value(f"() => {{ document.body.innerHTML = {PAGE!r}; }}")
    return browse


TAKEN = [
    (
        "getByRole('button', { name: 'Press me' })",
        "page.get_by_role('button', name='Press me')",
        "Press me",
    ),
    (
        'page.get_by_role("button", name="Press me", exact=True)',
        "page.get_by_role('button', name='Press me', exact=True)",
        "Press me",
    ),
    (
        "page\n  .getByRole('button', {name: /^PRESS/i, exact: false,})\n  .first();",
        "page.get_by_role('button', name=re.compile('^PRESS', re.I), exact=False).first",
        "Press me",
    ),
    (
        'get_by_text(re.compile(r"press.me", re.IGNORECASE))',
        "page.get_by_text(re.compile('press.me', re.IGNORECASE))",
        "Press me",
    ),
    ("locator('.dup').nth(1)", "page.locator('.dup').nth(1)", "Dup"),
    ("locator('.dup').nth(-1)", "page.locator('.dup').nth(-1)", "Dup"),
    ("locator('.dup').last()", "page.locator('.dup').last", "Dup"),
    ("getByLabel(`Fancy`)", "page.get_by_label('Fancy')", ""),
    ('get_by_placeholder("Colour")', "page.get_by_placeholder('Colour')", ""),
    ("getByTitle('Hue')", "page.get_by_title('Hue')", ""),
    ("getByAltText('Logo')", "page.get_by_alt_text('Logo')", ""),
    ("getByTestId('note')", "page.get_by_test_id('note')", "A note: {x}"),
    ("getByText('A note: {x}')", 'page.get_by_test_id("note")', "A note: {x}"),
    (
        "locator('li').filter({ has: page.getByText('first'), hasNotText: 'Bob' })",
        "page.locator('li').filter(has=page.get_by_text('first'), has_not_text='Bob')",
        "Ada first",
    ),
    (
        "locator('ul').locator('li:has(b)')",
        "page.locator('ul').locator('li:has(b)')",
        "Ada first",
    ),
    (
        "getByRole('button').and(locator('#one'))",
        "page.get_by_role('button').and_(page.locator('#one'))",
        "Press me",
    ),
    (
        "frameLocator('iframe').getByRole('button')",
        "page.frame_locator('iframe').get_by_role('button')",
        "Deep",
    ),
    (
        "locator('iframe').contentFrame().getByText('Deep')",
        "page.locator('iframe').content_frame.get_by_text('Deep')",
        "Deep",
    ),
]


async def test_a_locator_of_either_language_is_a_target(shown: Browse) -> None:
    for written, code, content in TAKEN:
        text = await shown.text("evaluate", function="e => e.textContent", target=written)
        assert section(text, "Result") == f'"{content}"', written
        assert f"await {code}.evaluate(" in text, written


@pytest.mark.thorough
async def test_a_generated_locator_is_a_target(shown: Browse) -> None:
    for name in ("Dup", "Press me", "Deep", "Fancy"):
        ref = await shown.ref(f'"{name}"')
        locator = section(await shown.text("generate_locator", target=ref), "Result")
        again = section(await shown.text("generate_locator", target=locator), "Result")
        assert again == locator


REFUSED = [
    ("getByRole('button').click()", "click() is no part of one"),
    ("page.goto('http://a.test')", "goto() is no part of one"),
    ("page.evaluate('1')", "evaluate() is no part of one"),
    ("getByText(document.title)", "cannot be read"),
    ("getByText(5)", "5 is not what is taken there"),
    ("getByText('a', 'b')", "takes one argument"),
    ("getByText('a', { level: 1 })", "cannot be read"),
    ("locator('a').filter('b')", "takes named arguments only"),
    ("locator('a', **{'has_text': 'x'})", "cannot be read"),
    ("locator('a').filter(has='b')", "is no part of one"),
    ("locator('a').__class__('b')", "__class__() is no part of one"),
    ("getByText('a').first.page.locator('b')", "is no part of one"),
    ("getByText(__import__('os').getcwd())", "is no part of one"),
    ("getByText(re.compile('('))", "is no regular expression"),
    ("getByText(re.compile('(?x)a'))", "flags that pages do not know"),
    ("getByText(re.escape('a'))", "is no part of one"),
    ("getByText('a'", "cannot be read"),
    ("getByText('a') or getByText('b')", "is no part of one"),
    ("locator('a').nth(True)", "True is not what is taken there"),
    ("locator('iframe').contentFrame()", "go on to an element in it"),
    ("frameLocator('iframe').filter({ visible: true })", "has no filter"),
    ("getByText(" + "(" * 900 + "'a'" + ")" * 900 + ")", "cannot be read"),
    ("getByText('" + "a" * 2000 + "')", "more than 2000 characters"),
]


async def test_an_expression_that_is_no_locator_is_refused(browse: Browse) -> None:
    for written, words in REFUSED:
        text = section(await browse.error("click", target=written), "Error")
        assert words in text, written
        assert "2000" in words or "getByRole()" in text, written


async def test_a_locator_of_more_than_one_element_or_of_none_is_refused(shown: Browse) -> None:
    text = await shown.error("click", target="getByText('Dup')")
    assert "matches 2 elements; it has to match one. Use a ref, or add `.first`" in text
    assert "matches no element" in await shown.error("click", target="getByText('Nope')")
    assert "The target is empty" in await shown.error("click", target=" ")
