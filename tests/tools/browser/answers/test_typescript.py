"""The code of results, in Python, in TypeScript, or left out."""

from __future__ import annotations

import json
import subprocess

import pytest
from changing import Changing
from hypothesis import given
from hypothesis import strategies as some
from support.browsing import Browse, ref_of, section

from statehold.tools.browser.answers.typescript import to_typescript
from statehold.tools.browser.devtools.sdk import driver_command
from statehold.tools.browser.service import BrowserService

STEPS = {
    'await page.get_by_role("button", name="Send", exact=True).click()': (
        "await page.getByRole('button', { name: 'Send', exact: true }).click();"
    ),
    "await page.get_by_text('It\\'s \"x\"\\n').first.fill('a\\\\')": (
        "await page.getByText('It\\'s \"x\"\\n').first().fill('a\\\\');"
    ),
    "await page.locator('#a').content_frame.get_by_role('link', name=re.compile('a/b', re.I)).hover()": (
        "await page.locator('#a').contentFrame().getByRole('link', { name: /a\\/b/i }).hover();"
    ),
    "await page.get_by_role('row').filter(has=page.get_by_text('x')).and_(page.locator('b')).nth(-1).hover()": (
        "await page.getByRole('row').filter({ has: page.getByText('x') }).and(page.locator('b')).nth(-1).hover();"
    ),
    "await page.locator('b').click(button='right', modifiers=['Alt'])": (
        "await page.locator('b').click({ button: 'right', modifiers: ['Alt'] });"
    ),
    "await page.evaluate('() => document.title')": "await page.evaluate(() => document.title);",
    "await page.evaluate('document.title')": "await page.evaluate('document.title');",
    "await page.context.tracing.start(screenshots=True)": (
        "await page.context().tracing.start({ screenshots: true });"
    ),
    "await page.context.storage_state(indexed_db=True)": (
        "await page.context().storageState({ indexedDB: true });"
    ),
    "await page.context.add_cookies([{'name': 'a', 'httpOnly': True, 'b-c': None}])": (
        "await page.context().addCookies([{ name: 'a', httpOnly: true, 'b-c': null }]);"
    ),
    "await expect(page.get_by_role('checkbox')).not_to_be_checked()": (
        "await expect(page.getByRole('checkbox')).not.toBeChecked();"
    ),
    "await page.wait_for_timeout(3e+04)": "await page.waitForTimeout(30000);",
    "await page.mouse.wheel(0.5, -100)": "await page.mouse.wheel(0.5, -100);",
    "await page.get_by_label('a').select_option(label=['b', 'c'])": (
        "await page.getByLabel('a').selectOption(['b', 'c']);"
    ),
    "page1 = page.context.pages[1]": "const page1 = page.context().pages()[1];",
    'await page.get_by_label("a").fill("")  # the password is left out': (
        "await page.getByLabel('a').fill(''); // the password is left out"
    ),
    "await page.get_by_label('a').fill(os.environ[\"PASSWORD\"])": (
        "await page.getByLabel('a').fill(process.env['PASSWORD']);"
    ),
    "# nothing was done": "// nothing was done",
}


@pytest.mark.parametrize(("step", "translation"), STEPS.items())
def test_a_step_is_translated(step: str, translation: str) -> None:
    assert to_typescript(step) == translation


def test_node_reads_the_translations() -> None:
    code = f"async () => {{ {chr(10).join([*STEPS.values(), '}'])}"
    script = f"new Function({json.dumps(f'return {code}')})"
    subprocess.run([driver_command()[0], "-e", script], check=True, timeout=20)


@pytest.mark.thorough
@given(
    some.text() | some.sampled_from(["f(", "a = b = c", "f(**a)", "f(*a)", "x: int", "1 + 1", ""])
)
def test_a_line_that_is_no_step_stays_as_it_is(text: str) -> None:
    assert to_typescript(text).rstrip(";").strip("/# \t\f") or not text.strip("/# \t\f;")


@given(some.text())
def test_every_text_survives_the_translation(text: str) -> None:
    translated = to_typescript(f"await page.keyboard.press({text!r})")
    quoted = translated.removeprefix("await page.keyboard.press('").removesuffix("');")
    assert json.loads('"' + quoted.replace('"', '\\"').replace("\\'", "'") + '"') == text


PAGE = """<button data-testid=send>Send</button><button>Go</button><p hidden>Sent</p><p>Sent</p>
<p data-qa=own>Own</p><iframe srcdoc="<button data-testid=pay>Pay</button>"></iframe>"""


@pytest.mark.peer
async def test_code_is_in_the_configured_language_or_left_out(
    service: BrowserService, browse: Browse
) -> None:
    with Changing() as site:
        site.pages["/"] = PAGE
        code: dict[str, str] = {}
        for language in ("python", "typescript", "none"):
            config = service.config.model_copy(update={"codegen": language})
            browse.connection.session.config = config
            await browse.text("navigate", url=site.url)
            code[language] = await browse.text("click", target="getByText('Go')")
            locator = section(await browse.text("generate_locator", target="text=Go"), "Result")
            is_script = language == "typescript"
            assert locator == (
                "getByRole('button', { name: 'Go' })"
                if is_script
                else 'get_by_role("button", name="Go")'
            )
    ran = "Ran Playwright code"
    assert section(code["python"], ran) == "```python\nawait page.get_by_text('Go').click()\n```"
    assert section(code["typescript"], ran) == "```js\nawait page.getByText('Go').click();\n```"
    assert ran not in code["none"]


@pytest.mark.thorough
@pytest.mark.peer
async def test_code_uses_the_test_id_and_takes_the_first_only_of_several(
    service: BrowserService, browse: Browse
) -> None:
    with Changing() as site:
        site.pages["/"] = PAGE
        snapshot = await browse.text("navigate", url=site.url)

        async def code_of(tool: str, **arguments: str) -> str:
            lines = section(await browse.text(tool, **arguments), "Ran Playwright code")
            return lines.splitlines()[1].removeprefix("await ")

        by_test_id = 'page.get_by_test_id("send")'
        for target in (ref_of(snapshot, "Send"), "text=Send", "getByText('Send')"):
            assert await code_of("hover", target=target) == f"{by_test_id}.hover()"
        in_frame = await code_of("hover", target=ref_of(snapshot, "Pay"))
        assert in_frame.endswith('.content_frame.get_by_test_id("pay").hover()')
        named = 'page.get_by_role("button", name="Go")'
        assert await code_of("hover", target=ref_of(snapshot, '"Go"')) == f"{named}.hover()"
        config = service.config.model_copy(update={"test_id_attribute": "data-qa"})
        browse.connection.session.config = config
        assert await code_of("hover", target="text=Send") == "page.locator('text=Send').hover()"
        visible = "page.get_by_text('Sent').filter(visible=True)"
        for text, locator in (("Sent", visible), ("Go", "page.get_by_text('Go')")):
            waited = await code_of("wait_for", text=text)
            assert waited == f"{locator}.wait_for(state='visible')"
            expected = await code_of("verify_text_visible", text=text)
            assert expected == f"expect({locator}).to_be_visible()"
        await browse.value("() => document.body.append('Sent, too')")
        await browse.value("() => { document.body.insertAdjacentHTML('beforeend', '<p>Sent</p>') }")
        assert (
            await code_of("wait_for", text="Sent") == f"{visible}.first.wait_for(state='visible')"
        )
