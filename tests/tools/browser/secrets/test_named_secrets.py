"""Secrets by name: pages get the values, and no text that a caller gets has one."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from changing import Changing
from support.browsing import Browse, again, lost, opened, running, section, text_of

from statehold.sessions.services import ToolResult
from statehold.tools.browser.secrets.named import NamedSecret
from statehold.tools.browser.service import BrowserService

PASSWORD = 'open "sesame" & ü/7'
USER = "grace.hopper"
FORMS = (PASSWORD, json.dumps(PASSWORD)[1:-1], quote(PASSWORD, safe=""), quote_plus(PASSWORD), USER)
FIELD = "() => document.querySelector('[name={}]').value"


@pytest.fixture(scope="module")
async def with_secrets(
    service: BrowserService, tmp_path_factory: pytest.TempPathFactory, shell: str, lab: str
) -> AsyncGenerator[BrowserService]:
    folder = tmp_path_factory.mktemp("secrets")
    file = folder / "secrets.env"
    lines = (
        "# two for every site, two for one",
        f"export USER_NAME={USER}",
        "TOKEN=tok-4711-live",
        f"PASSWORD@{lab}='{PASSWORD}'",
        "PIN@https://bank.test:443/=98761",
    )
    file.write_text("\n".join(lines), "utf-8")
    caps = ["devtools", "storage", "testing"]
    async with running(folder / "data", shell, caps=caps, secrets=str(file)) as with_secrets:
        yield with_secrets


@pytest.fixture
async def browse(with_secrets: BrowserService) -> AsyncGenerator[Browse]:
    async with opened(with_secrets) as browse:
        yield browse


class Results:
    """The results of a session's calls."""

    def __init__(self, browse: Browse) -> None:
        self._browse = browse
        self.all: list[ToolResult] = []

    async def __call__(self, tool: str, /, **arguments: Any) -> str:
        result = await self._browse.call(tool, **arguments)
        self.all.append(result)
        return text_of(result)

    def holding(self) -> list[str]:
        """Return the results that hold a secret."""
        texts = [json.dumps(result.payload, ensure_ascii=False) for result in self.all]
        texts += map(text_of, self.all)
        return [text for text in texts if any(form in text for form in FORMS)]


async def test_pages_get_the_values_and_no_result_shows_one(browse: Browse, lab: str) -> None:
    call = Results(browse)
    await call("start_recording")
    await call("navigate", url=f"{lab}/form")
    fields = [
        {"target": "[name=first]", "name": "First", "type": "textbox", "value": "%USER_NAME%"},
        {"target": "[name=last]", "name": "Last", "type": "textbox", "value": "Dr. %USER_NAME%!"},
    ]
    filled = await call("fill_form", fields=fields)
    assert 'fill(os.environ["USER_NAME"])' in filled
    assert "fill('Dr. %USER_NAME%!')" in filled
    typed = await call("type", target="[name=secret]", text="%PASSWORD%")
    assert 'fill(os.environ["PASSWORD"])' in typed
    slow = await call("type", target="[name=notes]", text="%PASSWORD%", slowly=True)
    assert 'fill(os.environ["PASSWORD"])' in slow
    assert [await browse.value(FIELD.format(n)) for n in ("first", "last", "secret", "notes")] == [
        USER,
        f"Dr. {USER}!",
        PASSWORD,
        PASSWORD,
    ]
    assert "%PASSWORD%" in section(await call("snapshot"), "Snapshot")
    assert "Found 2 matches" in await call("find", text="%PASSWORD%")
    assert "No matches found" in await call("find", text=PASSWORD)

    echo = """() => { const secret = document.querySelector("[name=notes]").value;
      console.error("logged", secret, JSON.stringify({ secret }));
      document.title = secret; history.pushState(null, "", "/form?q=" + encodeURIComponent(secret));
      document.querySelector("h1").textContent = secret;
      document.querySelector("button").textContent = secret;
      return fetch("/echo", { method: "POST", body: new URLSearchParams({ secret }) })
        .then(answer => answer.text()).then(answer => ({ secret, answer })); }"""
    value = await call("evaluate", function=echo)
    assert '"secret": "%PASSWORD%"' in value
    assert '"answer": "secret=%PASSWORD%"' in value
    page = section(await call("snapshot"), "Page")
    assert "Page Title: %PASSWORD%" in page
    assert "/form?q=%PASSWORD%" in page
    assert "logged %PASSWORD%" in await call("console_messages")
    listed = await call("network_requests", static=True)
    number = next(
        line.partition(".")[0] for line in listed.splitlines() if line.endswith("/echo => [200] OK")
    )
    for part in ("request-headers", "request-body", "response-headers", "response-body", None):
        await call("network_request", index=int(number), **({"part": part} if part else {}))
    await call("tabs", action="new", url="about:blank")
    await call("tabs", action="select", index=0)
    await call("click", target=f"text={USER} is nowhere")
    recorded = await call("stop_recording")
    assert recorded.count('fill(os.environ["PASSWORD"])') == 2

    files = browse.connection.session.files
    await call("snapshot", filename="page.yml")
    await call("evaluate", function=FIELD.format("notes"), filename="value.json")
    await call("network_request", index=int(number), part="request-body", filename="body.txt")
    for name in await files.names():
        data, _ = await files.read(f"files/{name}")
        assert b"PASSWORD%" in data
        assert not any(form.encode() in data for form in FORMS)
    assert call.holding() == []


def test_letters_and_signs_around_a_code_do_not_make_it_strong() -> None:
    weak = (
        "482913",
        "G-482913",
        "AB482913",
        "(030) 1234567890",
        "Acme-482913",
        "tok-4711",
        "letmein",
    )
    strong = (PASSWORD, USER, "tok-4711-live", "hunter2xyz", "aB3dE6gHiJ")
    found = {value: NamedSecret("A", value).is_weak for value in (*weak, *strong)}
    assert found == dict.fromkeys(weak, True) | dict.fromkeys(strong, False)


async def test_the_journal_gets_the_values_to_redact_and_the_names_as_arguments(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    result = await browse.call("type", target="[name=secret]", text="%PASSWORD%")
    assert result.secrets is not None
    assert {PASSWORD, USER} <= set(result.secrets)
    assert "%PASSWORD%" not in result.secrets


async def test_cookies_storage_and_prompts_take_names(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    text = await browse.text("cookie_set", name="login", value="%TOKEN%")
    assert "'value': os.environ[\"TOKEN\"]" in text
    assert "login=tok-4711-live" in await browse.value("() => document.cookie")
    assert "login=%TOKEN%" in await browse.text("cookie_get", name="login")
    await browse.text("localstorage_set", key="login", value="Bearer %TOKEN%")
    assert await browse.value("() => localStorage.login") == "Bearer tok-4711-live"
    assert "login=Bearer %TOKEN%" in await browse.text("localstorage_get", key="login")
    await browse.call("evaluate", function="() => { document.title = prompt('who?'); }")
    await browse.text("handle_dialog", accept=True, promptText="%PASSWORD%")
    assert await browse.page.title() == PASSWORD
    refused = await browse.error("cookie_set", name="p", value="%PIN%", domain="evil.test")
    assert "only for pages of https://bank.test" in refused


async def test_tools_find_a_value_by_its_name(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    await browse.text("type", target="[name=secret]", text="%PASSWORD%")
    fill = "password => { document.body.insertAdjacentHTML('beforeend', '<ul><li></li></ul>');"
    fill += "document.querySelector('li').textContent = `Hello ${password}`; }"
    await browse.page.evaluate(fill, PASSWORD)
    text = "Hello %PASSWORD%"
    assert text in section(await browse.text("wait_for", text=text), "Snapshot")
    await browse.text("verify_text_visible", text=text)
    await browse.text("verify_list_visible", element="list", target="ul", items=[text])
    field = {"type": "textbox", "element": "secret", "target": "[name=secret]"}
    code = await browse.text("verify_value", **field, value="%PASSWORD%")
    assert 'to_have_value(os.environ["PASSWORD"])' in code
    assert "but got" in await browse.error("verify_value", **field, value="other")


@pytest.mark.thorough
async def test_code_stays_code_where_a_value_is_part_of_a_text_with_quotes(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    script = (
        f"() => {{ document.querySelector('h1').textContent = `Hello '{USER}'`; return '{USER}'; }}"
    )
    code = section(await browse.text("evaluate", function=script), "Ran Playwright code")
    assert "return '%USER_NAME%'" in code
    assert "os.environ" not in code
    locator = section(await browse.text("generate_locator", target="h1"), "Result")
    assert locator == """get_by_role("heading", name="Hello '%USER_NAME%'")"""


@pytest.mark.thorough
async def test_the_reason_against_a_pause_holds_no_value(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    await browse.text("type", target="[name=secret]", text="%PASSWORD%")
    await browse.text(
        "evaluate", function="() => alert(document.querySelector('[name=secret]').value)"
    )
    assert "%PASSWORD%" in (browse.connection.busy or "")
    await browse.text("handle_dialog", accept=True)


@pytest.mark.thorough
async def test_the_report_of_a_restored_session_holds_no_value(browse: Browse) -> None:
    with Changing() as site:
        site.pages[f"/{USER}"] = "<h1>Berth</h1>"
        await browse.text("navigate", url=f"{site.url}/{USER}")
        site.pages.clear()
        async with again(browse) as later:
            assert "/%USER_NAME% answers 404 now" in lost(later)


async def test_a_trace_holds_no_value(browse: Browse, lab: str) -> None:
    await browse.text("start_tracing")
    await browse.text("navigate", url=f"{lab}/form")
    for name in ("first", "last"):
        await browse.text("type", target=f"[name={name}]", text="%PASSWORD%")
    await browse.text("type", target="[name=secret]", text="%USER_NAME%", slowly=True)
    await browse.text("click", target="[name=terms]")
    assert "%USER_NAME%" in await browse.text("click", target="button >> nth=0")
    await browse.text("stop_tracing")
    data, _ = await browse.connection.session.files.read("files/trace.zip")
    with zipfile.ZipFile(io.BytesIO(data)) as trace:
        assert trace.testzip() is None
        entries = {name: trace.read(name) for name in trace.namelist()}
    assert b"%PASSWORD%" in entries["trace.trace"]
    assert b"first=%PASSWORD%" in b"".join(entries.values())
    assert not [name for name, entry in entries.items() if any(f.encode() in entry for f in FORMS)]
    assert all(json.loads(line) for line in entries["trace.trace"].splitlines())


async def test_a_secret_of_one_site_is_typed_nowhere_else(browse: Browse, lab: str) -> None:
    other = lab.replace("127.0.0.1", "localhost")
    await browse.text("navigate", url=f"{other}/form")
    for slowly in (False, True):
        error = await browse.error("type", target="[name=first]", text="%PASSWORD%", slowly=slowly)
        assert f"%PASSWORD% is only for pages of {lab}; this one is of {other}." in error
    assert await browse.value(FIELD.format("first")) == ""
    # In a page of the right site, a frame of another one.
    await browse.text("navigate", url=f"{lab}/form")
    await browse.value(
        f"""() => new Promise(done => {{ const frame = document.createElement("iframe");
        frame.src = "{other}/form"; frame.onload = done; document.body.prepend(frame); }})"""
    )
    inner = "page.frameLocator('iframe').locator('[name=first]')"
    assert f"this one is of {other}" in await browse.error("type", target=inner, text="%PASSWORD%")
    await browse.text("type", target="[name=first] >> nth=0", text="%PASSWORD%")
    assert await browse.value(FIELD.format("first")) == PASSWORD
    assert "only for pages of https://bank.test" in await browse.error(
        "type", target="[name=first]", text="%PIN%"
    )


async def test_other_texts_with_percent_signs_are_typed_as_they_are(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    for text in ("100%", "50%20%", "%HOME%", "%%", "%20PASSWORD%20"):
        await browse.text("type", target="[name=first]", text=text)
        assert await browse.value(FIELD.format("first")) == text


async def test_a_misspelled_name_is_refused(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    for text in ("%PASSWROD%", "%user_name%"):
        assert "did you mean %" in await browse.error("type", target="[name=first]", text=text)
    assert await browse.value(FIELD.format("first")) == ""


async def test_the_tool_that_types_names_the_secrets(
    with_secrets: BrowserService, lab: str
) -> None:
    tools = {tool.name: tool for tool in await with_secrets.tools()}
    assert (
        tools["browser_type"]
        .definition["description"]
        .endswith(
            f"Secrets to type: %USER_NAME%, %TOKEN%, %PASSWORD% ({lab}), %PIN% (https://bank.test)"
        )
    )
    assert PASSWORD not in json.dumps([tool.definition for tool in tools.values()])
