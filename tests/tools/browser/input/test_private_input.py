"""The texts that a person typed, and pages that the agent prepared to read them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from changing import Changing
from pydantic import ValidationError
from support.browsing import Browse, again, opened, running
from support.selection import matrix
from support.taking_over import Person, press
from support.waiting import until

from statehold.sessions.journal.digest import pages_of
from statehold.sessions.live.snapshots import encode_snapshot
from statehold.tools.browser.input.events import InputBatch
from statehold.tools.browser.service import BrowserService

PASSWORD = "Hum4nTyped!Pw77"
CODE = "604312"
LISTENER = """() => addEventListener("keydown", event => {
  localStorage.kk = (localStorage.kk ?? "") + event.key;
  console.log("typed", localStorage.kk);
  document.title = localStorage.kk;
})"""
LOGIN = "<input id=text autofocus><input id=password type=password><p id=out>"


@pytest.fixture(scope="module")
def shop() -> Generator[Changing]:
    with Changing() as site:
        yield site


@pytest.fixture(scope="module")
async def prepared_service(
    tmp_path_factory: pytest.TempPathFactory, shell: str
) -> AsyncGenerator[BrowserService]:
    settings = {"caps": ["devtools", "network", "storage", "testing", "unsafe"]}
    async with running(tmp_path_factory.mktemp("private"), shell, **settings) as service:
        yield service


@pytest.fixture
async def browse(prepared_service: BrowserService, shop: Changing) -> AsyncGenerator[Browse]:
    shop.pages = {"/": LOGIN, "/other": "<title>Other</title>"}
    async with opened(prepared_service) as browse:
        await browse.text("navigate", url=f"{shop.url}/")
        yield browse


async def give_text(browse: Browse, *events: dict[str, Any]) -> list[str]:
    """Have a person take control, do something in the field of the page, and give back."""
    await browse.connection.begin_human_control()
    person = Person(browse.connection)
    await browse.page.focus("#text")
    await person.act(*events)
    return await browse.connection.end_human_control()


def typed(text: str) -> list[dict[str, Any]]:
    """The events of a text at a keyboard, with Shift for capitals."""
    events: list[dict[str, Any]] = []
    for letter in text:
        keys = press(letter)
        shift = press("Shift")
        events += [shift[0], *keys, shift[1]] if letter.isupper() else keys
    return [*events, *press("Enter")]


@pytest.mark.parametrize(
    ("events", "text"),
    matrix(
        (typed(PASSWORD), PASSWORD),
        (typed(CODE), CODE),
        ([{"type": "text", "text": part} for part in (PASSWORD[:6], PASSWORD[6:])], PASSWORD),
        ([{"type": "paste", "text": PASSWORD}], PASSWORD),
        ([{"type": "paste", "text": "päss wörd & 日本"}], "päss wörd & 日本"),
    ),
)
async def test_a_typed_text_is_masked_in_all_results(
    browse: Browse, events: list[dict[str, Any]], text: str
) -> None:
    await browse.text("evaluate", function=LISTENER)
    await give_text(browse, *events)
    # As the script of a page that was not loaded anew may write it.
    await browse.page.evaluate(
        """text => {
          localStorage.plain = `x${text}y`;
          localStorage.json = JSON.stringify({ text });
          document.querySelector("#out").textContent = `It is ${text}.`;
          document.cookie = `typed=${encodeURIComponent(text)}`;
          history.replaceState(null, "", `/?q=${encodeURIComponent(text)}`);
          console.log("late", text);
        }""",
        text,
    )
    results = [
        await browse.text("localstorage_list"),
        await browse.text("localstorage_get", key="plain"),
        await browse.text("console_messages"),
        await browse.text("snapshot"),
        await browse.text("cookie_list"),
        await browse.text("tabs", action="list"),
        await browse.text("evaluate", function="() => text.value + '|' + localStorage.plain"),
        await browse.error("verify_value", type="textbox", element="e", target="#text", value="z"),
    ]
    for result in results:
        assert text not in result
        assert CODE[:5] not in result
        assert "yped!Pw77" not in result
    assert "x••••••y" in results[1]


WORDS = 'Say "hi" to Ada & Löw'
KEY = "Long" + "K3y" * 165
ECHOES = {
    "small letters": (WORDS, "text => document.title = text.toLowerCase()"),
    "capitals": ("jane@example.org", "text => out.textContent = `Hi ${text.toUpperCase()}!`"),
    "an address in an address": (
        WORDS,
        """text => history.replaceState(0, '', '/?next=' + encodeURIComponent(
          '/find?q=' + encodeURIComponent(text)))""",
    ),
    "an address in an address in an address": (
        "jane@example.org",
        "text => localStorage.a = [1, 2, 3].reduce(encodeURIComponent, text)",
    ),
    "a form in an address": (
        WORDS,
        "text => localStorage.a = encodeURIComponent(new URLSearchParams({ text }))",
    ),
    "JSON in an address": (
        "Ada Löw 9",
        """text => localStorage.a = encodeURIComponent(
          JSON.stringify({ text }).replace(/ö/g, '\\\\u00f6'))""",
    ),
    "a long line of the console": (KEY, "text => console.error('xx' + text)"),
    "a long error": (KEY, "text => { setTimeout(() => { throw Error(text) }) }"),
    "a long address": (KEY, "text => fetch(`/${text}`)"),
    "an address that is cut": (PASSWORD, "text => fetch(`/${'x'.repeat(1963)}${text}`)"),
}


@pytest.mark.parametrize("echo", matrix(*ECHOES, quick=2))
async def test_a_typed_text_is_masked_as_sites_write_it(browse: Browse, echo: str) -> None:
    text, script = ECHOES[echo]
    await give_text(browse, {"type": "paste", "text": text})
    await browse.page.evaluate(script, text)
    await browse.text("wait_for", time=0.3)
    results = [
        await browse.text("click", target="#password"),
        await browse.text("snapshot"),
        await browse.text("console_messages"),
        await browse.text("localstorage_list"),
        await browse.text("network_requests"),
    ]
    for result in results:
        parts = (part for part in text.split() if len(part) > 2)
        assert not [part for part in parts if part[:8].lower() in result.lower()]


@pytest.mark.parametrize("name", matrix("Ada: 1/2?.txt", "of jane.doe@example.org.pdf", "A:b 77*"))
async def test_the_name_of_a_download_of_the_person_has_no_typed_text(
    browse: Browse, name: str
) -> None:
    await browse.connection.begin_human_control()
    person = Person(browse.connection)
    await browse.page.focus("#text")
    text = name.removeprefix("of ").removesuffix(".pdf").removesuffix(".txt")
    await person.act({"type": "paste", "text": text}, *press("Tab"))
    await browse.page.evaluate(
        """name => {
          const link = document.createElement("a");
          link.href = URL.createObjectURL(new Blob(["x"]));
          link.download = name;
          link.click();
        }""",
        name,
    )
    names = browse.connection.session.files.names
    await until(names)
    changes = await browse.connection.end_human_control()
    told = [*changes, *await names(), await browse.text("snapshot")]
    assert any("New files: " in line for line in changes)
    assert not [line for line in told if "jane" in line or "Ada" in line or "b 77" in line]


@pytest.mark.parametrize(
    ("name", "script"),
    matrix(
        ("kept.txt", "text => `It is ${text}.`"),
        ("kept.json", "text => JSON.stringify(JSON.stringify({ text: text.toUpperCase() }))"),
        ("kept.csv", "text => encodeURIComponent(encodeURIComponent(text))"),
        ("kept", "text => `<p title='${text}'>`"),
    ),
)
async def test_files_and_the_pages_of_a_saved_session_have_no_typed_text(
    browse: Browse, name: str, script: str
) -> None:
    await give_text(browse, {"type": "paste", "text": PASSWORD})
    await browse.page.evaluate(
        f"""text => {{
          const link = document.createElement("a");
          link.href = URL.createObjectURL(new Blob([({script})(text)]));
          link.download = "{name}";
          link.click();
          document.title = ({script})(text);
        }}""",
        PASSWORD,
    )
    (kept,) = await until(browse.connection.session.files.names)
    service, view = browse.service, browse.view
    uri = {"uri": f"files/{kept}"}

    async def read() -> str:
        return str(await service.answer(view, "resources/read", uri))

    async def is_masked() -> bool:
        return "••••••" in await read()

    # The download may be on its way.
    await until(is_masked)
    assert "YPED!" not in (await read()).upper()
    pages = pages_of(encode_snapshot(await browse.saved()))
    assert "••••••" in str(pages)
    assert "YPED!" not in str(pages).upper()
    await browse.connection.aclose()
    assert await is_masked()


UPPER = "<input id=text oninput='this.value = this.value.toUpperCase()'>"
GROUPS = "<input id=text oninput='this.value = this.value.replace(/(\\d{3})(?=\\d)/g, `$1 `)'>"
BOXES = "<input id=text maxlength=1 oninput='this.nextElementSibling.focus()'><input maxlength=1>"
PREPARED = "<textarea id=text></textarea>"


def keys(*names: str) -> list[dict[str, Any]]:
    return [event for name in names for event in press(name)]


@pytest.mark.parametrize(
    ("page", "events", "shown"),
    matrix(
        (LOGIN, keys(*"Passwrd9X", *["ArrowLeft"] * 4, "o"), "Password9X"),
        (LOGIN, keys(*"Secrx3tWord", "Home", *["ArrowRight"] * 4, "Delete"), "Secr3tWord"),
        (LOGIN, keys(*"Secrx3t", "ArrowLeft", "ArrowLeft", "Backspace", "Tab"), "Secr3t"),
        (UPPER, keys(*"secret9x"), "SECRET9X"),
        (UPPER, keys(*"secret9x", "Tab"), "SECRET9X"),
        (GROUPS, keys(*"604312"), "604 312"),
        (BOXES, keys(*"73"), '"7"'),
        (
            LOGIN,
            [{"type": "composition", "text": "秘密の言葉", "start": 1, "end": 1}],
            "秘密の言葉",
        ),
    ),
)
async def test_a_text_that_differs_from_what_was_typed_is_masked(
    browse: Browse, shop: Changing, page: str, events: list[dict[str, Any]], shown: str
) -> None:
    shop.pages["/field"] = page
    await browse.text("navigate", url=f"{shop.url}/field")
    await give_text(browse, *events)
    snapshot = await browse.text("snapshot")
    assert shown not in snapshot
    assert "••••••" in snapshot


@pytest.mark.thorough
async def test_texts_that_stood_in_a_field_before_stay_readable(
    browse: Browse, shop: Changing
) -> None:
    shop.pages["/field"] = PREPARED
    await browse.text("navigate", url=f"{shop.url}/field")
    await browse.text("type", target="#text", element="text", text="Dear Eve,\nmy draft")
    await give_text(browse, *keys("Enter", *"her words"))
    await browse.page.evaluate("() => document.title = text.value")
    answer = await browse.text("tabs", action="list")
    assert "Dear Eve" in answer
    assert "my draft" in answer
    assert "her words" not in answer


async def test_masks_outlive_a_pause_without_the_text(browse: Browse) -> None:
    await give_text(browse, *typed(PASSWORD))
    await browse.page.evaluate("text => { localStorage.kk = `<${text}> 12`; }", PASSWORD)
    saved = await browse.saved()
    assert PASSWORD not in str(saved.data["typed"])
    async with again(browse) as resumed:
        assert "kk=<••••••> 12" in await resumed.text("localstorage_list")
        async with again(resumed) as later:
            text = await later.text("evaluate", function="() => escape(localStorage.kk)")
            assert PASSWORD not in text
            assert "Pw77" not in text


@pytest.mark.thorough
async def test_masks_outlive_a_browser_that_was_lost_before_it_was_saved(browse: Browse) -> None:
    await give_text(browse, *typed(PASSWORD))
    await browse.connection.aclose()
    async with opened(browse.service, browse.next_view(), None) as resumed:
        assert "<••••••>" in await resumed.text("evaluate", function=f"() => '<{PASSWORD}>'")


async def test_short_and_common_texts_leave_the_page_readable(browse: Browse) -> None:
    await give_text(browse, {"type": "text", "text": "html"})
    await browse.page.evaluate("() => { out.textContent = 'htmlish, and html too' }")
    assert "htmlish, and •••••• too" in await browse.text("snapshot")


@pytest.mark.parametrize("word", matrix("heading", "Button", "https", "listitem"))
async def test_words_of_every_answer_are_no_typed_texts(browse: Browse, word: str) -> None:
    await browse.page.evaluate(
        "() => { out.outerHTML = '<h1>A</h1><ul><li>B</ul><button>C</button>' }"
    )
    await give_text(browse, {"type": "text", "text": word})
    shown = await browse.text("snapshot")
    assert all(part in shown for part in ('heading "A"', "listitem", 'button "C"'))


async def test_a_trace_after_the_hand_back_has_no_typed_text(browse: Browse) -> None:
    await give_text(browse, *typed(PASSWORD)[:-2])
    await browse.page.evaluate("text => { out.textContent = text }", PASSWORD.upper())
    await browse.text("start_tracing")
    await browse.text("click", target="#text")
    await browse.text("stop_tracing")
    data, _ = await browse.connection.session.files.read("files/trace.zip")
    with zipfile.ZipFile(io.BytesIO(data)) as trace:
        texts = [trace.read(name).decode(errors="replace") for name in trace.namelist()]
    assert any("••••••" in text for text in texts)
    assert not any(PASSWORD.upper() in text.upper() for text in texts)


async def test_routes_of_the_agent_are_lifted_while_a_person_drives(
    browse: Browse, shop: Changing
) -> None:
    await browse.text("route", pattern="**/other*", body="<title>Agent</title>")
    await browse.text("network_state_set", state="offline")
    await browse.connection.begin_human_control()
    person = Person(browse.connection)
    await person.act({"type": "address", "address": f"{shop.url}/other"})
    await until(lambda: browse.page.url.endswith("/other"))
    assert await browse.page.title() == "Other"
    changes = await browse.connection.end_human_control()
    assert any("offline" in line and "route" in line for line in changes)
    await browse.text("network_state_set", state="online")
    assert "Agent" in await browse.text("navigate", url=f"{shop.url}/other?again")


PLANTS = {
    "evaluate": ("evaluate", {"function": LISTENER}),
    "element": ("evaluate", {"function": f"e => ({LISTENER})()", "target": "#text"}),
    "written": (
        "evaluate",
        {"function": f"() => {{ document.write(`{LOGIN}`); document.close(); ({LISTENER})(); }}"},
    ),
    "window": (
        "evaluate",
        {
            "function": f"() => {{ const w = open('/'); w.onload = () => w.eval(`({LISTENER})()`); }}"
        },
    ),
}


@pytest.mark.parametrize("plant", matrix(*PLANTS))
async def test_a_page_that_the_agent_scripted_listens_no_more_once_it_is_loaded_anew(
    browse: Browse, plant: str
) -> None:
    scripts = browse.connection.session.scripts
    assert scripts.state == "none"
    tool, arguments = PLANTS[plant]
    await browse.text(tool, **arguments)
    await browse.connection.begin_human_control()
    assert scripts.state == "pages"
    person = Person(browse.connection)
    outcome = await person.act({"type": "history", "action": "renew"})
    assert outcome.refusals == ()
    assert scripts.state == "none"
    tabs = list(browse.connection.session.tabs)
    for tab in tabs:
        await until(lambda tab=tab: tab.page.url.startswith("http"))
        await tab.page.focus("#text")
        await person.act(*press("a"), tab=tab.number)
        assert await tab.page.evaluate("() => [text.value, localStorage.kk ?? '']") == ["a", ""]
        await tab.page.fill("#text", "")
    await browse.connection.end_human_control()


WRITTEN = f"<input id=text><script>({LISTENER})()</script>"
WRITES = {
    "address": "url => { location = url }",
    "link": "url => { out.innerHTML = `<a href=${url}>go</a>`; out.firstChild.click() }",
    "picture": "url => { location = url }",
    "opener": "url => { location = url }",
}
OPENER = """<script>
  const page = open(`${origin}/`);
  setInterval(() => { try { page.eval(`LISTENER`); close(); } catch {} }, 20);
</script>""".replace("LISTENER", f"window.has ??= 1, ({LISTENER})()")


@pytest.mark.parametrize("write", matrix(*WRITES))
async def test_a_document_that_a_script_of_the_agent_wrote_is_one_that_the_agent_changed(
    browse: Browse, write: str
) -> None:
    scripts = browse.connection.session.scripts
    text, kind = WRITTEN, "text/html"
    if write == "picture":
        namespace = "xmlns='http://www.w3.org/2000/svg'"
        text, kind = (
            f"<svg {namespace}><script><![CDATA[({LISTENER})()]]></script></svg>",
            "image/svg+xml",
        )
    elif write == "opener":
        text = OPENER
    blob = f"URL.createObjectURL(new Blob([{json.dumps(text)}], {{ type: '{kind}' }}))"
    await browse.text("evaluate", function=f"() => ({WRITES[write]})({blob})")
    tabs = browse.connection.session.tabs
    if write == "opener":
        await until(lambda: len(list(tabs)) == 2)
    else:
        await until(lambda: browse.page.url.startswith("blob:"))
    assert scripts.state == "pages"
    await browse.connection.begin_human_control()
    person = Person(browse.connection)
    await person.act({"type": "history", "action": "renew"})
    assert scripts.state == "none"
    for tab in tabs:
        await until(lambda tab=tab: tab.page.url != "about:blank")
        assert not tab.page.url.startswith("blob:")
        listening = await tab.page.evaluate("() => 'has' in window")
        assert not listening
    await browse.connection.end_human_control()


WORKER = f"""
addEventListener("install", () => skipWaiting());
addEventListener("activate", event => event.waitUntil(clients.claim()));
addEventListener("fetch", event => event.request.mode === "navigate" && event.respondWith(
  new Response(`{LOGIN}<script>({LISTENER})()</script>`, {{ headers: {{ "Content-Type": "text/html" }} }})));
"""
REGISTER = """async () => {
  await navigator.serviceWorker.register("/worker.js");
  await navigator.serviceWorker.ready;
}"""


@pytest.mark.parametrize("leaves", matrix(True, False))
async def test_a_service_worker_of_the_agent_ends_when_pages_are_loaded_anew(
    browse: Browse, shop: Changing, leaves: bool
) -> None:
    scripts = browse.connection.session.scripts
    await browse.text("route", pattern="**/worker.js", body=WORKER, contentType="text/javascript")
    await browse.text("evaluate", function=REGISTER)
    await browse.text("unroute")
    if leaves:
        await browse.text("navigate", url=f"{shop.url}/other")
    assert scripts.state == "pages"
    await browse.connection.begin_human_control()
    person = Person(browse.connection)
    assert (await person.act({"type": "history", "action": "renew"})).refusals == ()
    assert scripts.state == "none"
    await person.act({"type": "address", "address": f"{shop.url}/?login"})
    await until(lambda: browse.page.url.endswith("/?login"))
    await browse.page.focus("#text")
    await person.act(*press("a"))
    assert await browse.page.evaluate("() => [text.value, localStorage.kk ?? '']") == ["a", ""]
    await browse.connection.end_human_control()


async def test_a_page_that_a_route_answered_is_one_that_the_agent_changed(
    browse: Browse, shop: Changing
) -> None:
    scripts = browse.connection.session.scripts
    shop.pages["/app"] = LOGIN + "<script src=app.js></script>"
    shop.pages["/app.js"] = "document.title = 'site'"
    body = f"({LISTENER})(); document.title = 'agent'"
    headers = ["Cache-Control: max-age=3600", "Content-Type: text/javascript"]
    await browse.text("route", pattern="**/app.js", body=body, headers=headers)
    await browse.text("navigate", url=f"{shop.url}/app")
    assert await browse.page.title() == "agent"
    await browse.text("unroute")
    assert scripts.state == "pages"
    await browse.connection.begin_human_control()
    await Person(browse.connection).act({"type": "history", "action": "renew"})
    await until(lambda: browse.page.url.endswith("/app"))
    await browse.page.wait_for_load_state()
    assert (await browse.page.title(), scripts.state) == ("site", "none")
    await browse.connection.end_human_control()


async def test_a_new_page_is_not_marked_and_code_marks_for_good(
    browse: Browse, shop: Changing
) -> None:
    scripts = browse.connection.session.scripts
    await browse.text("evaluate", function="() => 1")
    assert scripts.state == "pages"
    await browse.text("navigate", url=f"{shop.url}/other")
    assert scripts.state == "none"
    await browse.text("run_code_unsafe", code="async page => { await page.title(); }")
    await browse.text("navigate", url=f"{shop.url}/")
    assert scripts.state == "code"


@pytest.mark.thorough
def test_a_batch_that_would_outlast_the_control_is_refused() -> None:
    events = [{"type": "text", "text": "x" * 20_000}] * 150
    with pytest.raises(ValidationError):
        InputBatch.model_validate({"epoch": 1, "events": events})
    InputBatch.model_validate({"epoch": 1, "events": events[:10]})
