"""Pages and callers that try to get the value of a secret which is not theirs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator

import pytest
from changing import Changing
from support.browsing import Browse, opened, running, section
from support.selection import matrix

from statehold.tools.browser.service import BrowserService

PASSWORD = 'open "sesame" & ü/7'
QUOTED = "it's: my gremlin {x}, é"
CODE = "271828"
FORM = "<form><input name=first><input name=code><input name=decoy><textarea name=notes></textarea></form>"
THIEF = """<input id=x tabindex=0 autofocus><script>
  const input = document.querySelector("#x");
  window.keys = [];
  for (const kind of ["keydown", "beforeinput", "paste"]) addEventListener(kind, e => keys.push(e.key ?? e.data), true);
  const take = () => input.focus();
  window.got = () => input.value + keys.join("");
  %s
</script>"""
LOOP = """
  const { port1, port2 } = new MessageChannel(), next = () => port2.postMessage(0);
  port1.onmessage = () => { take(); next(); };
  next();"""
BLUR = "take(); input.onblur = take; onblur = take; setInterval(take, 1);"
SHADOW = "const root = document.body.attachShadow({ mode: 'closed' }); root.append(input); " + LOOP
FRAMED = (
    "const inner = document.body.appendChild(document.createElement('iframe'));"
    "inner.contentDocument.body.append(input); " + LOOP
)


@pytest.fixture(scope="module")
def shop() -> Generator[Changing]:
    with Changing() as site:
        yield site


@pytest.fixture(scope="module")
async def with_secrets(
    service: BrowserService, tmp_path_factory: pytest.TempPathFactory, shell: str, shop: Changing
) -> AsyncGenerator[BrowserService]:
    folder = tmp_path_factory.mktemp("secrets")
    lines = (
        f"PASSWORD@{shop.url}='{PASSWORD}'",
        f"CODE={CODE}",
        "WORD=word-of-all-sites",
        f'QUOTED="{QUOTED}"',
        "KEY@http://shop.test=key-of-the-shop",
    )
    (folder / "secrets.env").write_text("\n".join(lines), "utf-8")
    settings = {"caps": ["devtools", "storage", "testing"], "secrets": str(folder / "secrets.env")}
    async with running(folder / "data", shell, **settings) as with_secrets:
        yield with_secrets


@pytest.fixture
async def browse(with_secrets: BrowserService) -> AsyncGenerator[Browse]:
    async with opened(with_secrets) as browse:
        yield browse


@pytest.mark.parametrize("attack", matrix(LOOP, BLUR, SHADOW, FRAMED))
async def test_a_foreign_frame_with_the_focus_gets_no_key_of_a_secret(
    browse: Browse, shop: Changing, attack: str
) -> None:
    thief = shop.url.replace("127.0.0.1", "localhost")
    shop.pages |= {
        "/": f"{FORM}<iframe src='{thief}/thief'></iframe>",
        "/thief": THIEF % attack,
    }
    await browse.text("navigate", url=f"{shop.url}/")
    text = await browse.text("type", target="[name=notes]", text="%PASSWORD%", slowly=True)
    assert "was put in at once" in section(text, "Events")
    for _ in range(3):
        await browse.text("type", target="[name=first]", text="%PASSWORD%")
    values = "() => [...document.querySelectorAll('[name=first], [name=notes]')].map(e => e.value)"
    assert await browse.value(values) == [PASSWORD, PASSWORD]
    frame = next(frame for frame in browse.page.frames if frame.url.startswith(thief))
    assert await frame.evaluate("got()") == ""


async def test_a_prompt_that_a_foreign_frame_may_have_opened_gets_no_secret(
    browse: Browse, shop: Changing
) -> None:
    thief = shop.url.replace("127.0.0.1", "localhost")
    shop.pages |= {
        "/": "<script>var answer;</script>",
        "/framed": f"<iframe src='{thief}/thief'></iframe>",
        "/thief": "<script>setTimeout(() => { window.got = prompt('Code?'); })</script>",
    }
    await browse.text("navigate", url=f"{shop.url}/framed")
    if browse.tab.dialog is None:
        await browse.text("wait_for", time=5)
    assert browse.tab.dialog is not None
    answer = {"accept": True, "promptText": "%PASSWORD%"}
    assert f"this one is of {thief}" in await browse.error("handle_dialog", **answer)
    await browse.text("handle_dialog", accept=True, promptText="%WORD%")
    await browse.text("navigate", url=f"{shop.url}/")
    await browse.text("evaluate", function="() => { answer = prompt('Code?'); }")
    await browse.text("handle_dialog", **answer)
    assert await browse.value("() => answer") == PASSWORD


@pytest.mark.parametrize(
    "domain",
    matrix("evil.test\\@shop.test", "evil.test@shop.test", "shop.test/", "shop.test:80", "evil?@shop.test",
           "evil#@shop.test", "sh%6fp.test", "shop\t.test", "..", " shop.test", quick=2),
)  # fmt: skip
async def test_a_cookie_with_a_secret_is_set_only_for_the_domain_that_was_checked(
    browse: Browse, domain: str
) -> None:
    error = await browse.error("cookie_set", name="a", value="%KEY%", domain=domain)
    assert "is no domain" in error
    assert await browse.connection.session.context.cookies() == []


@pytest.mark.thorough
async def test_the_domain_of_a_cookie_is_the_one_of_the_browser(browse: Browse) -> None:
    await browse.text("cookie_set", name="a", value="%KEY%", domain="SHOP.test")
    await browse.text("cookie_set", name="b", value="x", domain=".BÜCHER.test")
    await browse.text("cookie_set", name="c", value="x", domain="::1")
    cookies = {
        c.get("name"): c.get("domain") for c in await browse.connection.session.context.cookies()
    }
    assert cookies == {"a": "shop.test", "b": ".xn--bcher-kva.test", "c": "[::1]"}
    for domain in ("shop.test.", "a.shop.test", ".shop.test", "xn--shop.test"):
        error = await browse.error("cookie_set", name="d", value="%KEY%", domain=domain)
        assert "only for pages of http://shop.test" in error


async def test_a_cookie_with_a_secret_of_a_page_over_https_stays_off_plain_http(
    browse: Browse,
) -> None:
    await browse.text("navigate", url="about:blank")
    await browse.page.route("https://shop.test/", lambda route: route.fulfill(body="<p>"))
    await browse.page.goto("https://shop.test/")
    await browse.text("cookie_set", name="a", value="%WORD%")
    await browse.text("cookie_set", name="b", value="%WORD%", secure=False)
    await browse.text("cookie_set", name="c", value="plain")
    cookies = await browse.connection.session.context.cookies()
    assert {c.get("name"): c.get("secure") for c in cookies} == {"a": True, "b": True, "c": False}


LOGINS = (
    "https://u:it's@a.test/",
    'https://u:say"hi"@a.test',
    "https://u:p@ss@a.test",
    "wss://glpat-0123456789abcdef@a.test/x",
)
NO_LOGINS = ("http://a.test:3000','ada@a.test", "https://a.test/@ada", "ssh://git@a.test")


async def test_logins_in_addresses_are_masked_in_results_and_files(browse: Browse) -> None:
    code = f"() => {json.dumps([*LOGINS, *NO_LOGINS])}.join(' ')"
    text = await browse.text("evaluate", function=code)
    await browse.text("evaluate", function=code, filename="logins.json")
    data, _ = await browse.connection.session.files.read("files/logins.json")
    for shown in (json.loads(section(text, "Result")), json.loads(data)):
        parts = ("u:••••••@a.test/", "u:••••••@a.test", "u:••••••@a.test", "••••••@a.test/x")
        schemes = [address.partition("://")[0] for address in LOGINS]
        masked = [f"{scheme}://{part}" for scheme, part in zip(schemes, parts, strict=True)]
        assert shown.split(" ") == [*masked, *NO_LOGINS]


async def test_the_mask_of_a_value_that_can_be_guessed_is_no_oracle(
    browse: Browse, shop: Changing
) -> None:
    shop.pages |= {
        "/guess": f"<title>{CODE}</title><p>a {CODE} b</p>{FORM}",
        f"/{CODE}": f"{{'number': {CODE}}}",
    }
    await browse.text("navigate", url=f"{shop.url}/guess?n={CODE}")
    guess = f"""async () => {{ console.error("n {CODE}"); history.pushState(0, "", "/guess?m={CODE}");
      document.querySelector("[name=decoy]").value = "{CODE}"; await fetch("/{CODE}"); return "{CODE}"; }}"""
    texts = [await browse.text("evaluate", function=guess)]
    texts += [await browse.text("snapshot"), await browse.text("console_messages")]
    texts += [await browse.text("network_requests"), await browse.text("find", text=CODE)]
    texts += [await browse.text("network_request", index=2, part="response-body")]
    texts += [await browse.text("tabs", action="list")]
    field = {"type": "textbox", "element": "decoy", "target": "[name=decoy]"}
    texts += [await browse.error("verify_value", **field, value="zz")]
    assert [text for text in texts if "%CODE%" in text or CODE not in text] == []
    for tool, arguments in {
        "cookie_set": {"name": "a", "value": "%CODE%"},
        "localstorage_set": {"key": "a", "value": "%CODE%"},
        "wait_for": {"text": "%CODE%"},
    }.items():
        assert "so easy to guess" in await browse.error(tool, **arguments)


@pytest.mark.parametrize("slowly", matrix(False, True))
async def test_a_value_that_can_be_guessed_is_hidden_in_the_field_that_it_was_put_into(
    browse: Browse, shop: Changing, slowly: bool
) -> None:
    shop.pages["/"] = FORM.replace("name=code", "name=code placeholder=Code")
    await browse.text("navigate", url=f"{shop.url}/")
    await browse.value(f"() => {{ document.querySelector('[name=decoy]').value = '{CODE}'; }}")
    for name in ("code", "first"):
        result = await browse.call("type", target=f"[name={name}]", text="%CODE%", slowly=slowly)
        assert not result.is_error
        assert CODE not in (result.secrets or ())
    fields = "() => [...document.querySelectorAll('input')].map(e => e.value)"
    assert await browse.value(fields) == [CODE, CODE, CODE]
    snapshot = section(await browse.text("snapshot"), "Snapshot")
    assert (snapshot.count("%CODE%"), snapshot.count(CODE)) == (2, 1)
    field = {"type": "textbox", "element": "code", "target": "[name=code]"}
    for guess in ("other", CODE, CODE[:-1]):
        error = await browse.error("verify_value", **field, value=guess)
        assert 'but got "%CODE%"' in error
    done = await browse.text("verify_value", **field, value="%CODE%")
    assert ('os.environ["CODE"]' in done, CODE in done) == (True, False)
    await browse.text("type", target="[name=first]", text="plain")
    snapshot = section(await browse.text("snapshot"), "Snapshot")
    assert (snapshot.count("%CODE%"), snapshot.count("plain")) == (1, 1)
    await browse.text("start_tracing")
    error = await browse.error("type", target="[name=first]", text="%CODE%")
    assert "%CODE% would be in a trace" in error


@pytest.mark.parametrize("kind", matrix("date", "time", "month", "week", "color", "datetime-local"))
async def test_a_value_that_can_be_guessed_is_in_no_warning_of_a_field_that_refuses_it(
    browse: Browse, shop: Changing, kind: str
) -> None:
    value = "#010203" if kind == "color" else ""
    shop.pages["/"] = f"<input aria-label=Code type={kind} value='{value}'>"
    await browse.text("navigate", url=f"{shop.url}/")
    texts = [await browse.error("type", target="input", text="a%CODE%")]
    assert "did not take it" in texts[0]
    texts += [await browse.text("console_messages"), await browse.text("snapshot")]
    assert not [text for text in texts if CODE in text]
    assert await browse.value("() => document.querySelector('input').value") == value


@pytest.mark.parametrize(
    ("name", "content"),
    matrix(
        ("kept.txt", "secret"),
        ("kept.json", "JSON.stringify({secret})"),
        ("kept", "`<p>${secret}</p>`"),
        ("kept.csv", "encodeURIComponent(secret)"),
    ),
)
async def test_a_download_that_a_page_made_of_a_value_is_masked_when_it_is_read(
    browse: Browse, shop: Changing, name: str, content: str
) -> None:
    shop.pages["/"] = f"{FORM}<button>Save</button>"
    await browse.text("navigate", url=f"{shop.url}/")
    await browse.text("type", target="[name=first]", text="%PASSWORD%")
    await browse.value(
        f"""() => {{ document.querySelector("button").onclick = () => {{
          const secret = document.querySelector("[name=first]").value, link = document.createElement("a");
          link.href = URL.createObjectURL(new Blob([{content}]));
          link.download = "{name}";
          link.click(); }} }}"""
    )
    result = await browse.call("click", target="button")
    (link,) = (b for b in result.payload["content"] if b["type"] == "resource_link")
    read = await browse.service.answer(browse.view, "resources/read", {"uri": link["uri"]})
    text = read["contents"][0]["text"]
    assert ("%PASSWORD%" in text, "sesame" in text) == (True, False)
    # A page gets the file as it is.
    data, _ = await browse.connection.session.files.read(f"files/{link['name']}")
    assert b"sesame" in data


SPELLINGS = {
    "query": "history.replaceState(0, '', '/?q=' + secret)",
    "fragment": "history.replaceState(0, '', '/#' + secret)",
    "lower case": "history.replaceState(0, '', '/?' + encodeURIComponent(secret).toLowerCase())",
    "latin": "history.replaceState(0, '', '/?' + escape(secret))",
    "name": "h.textContent = `Is: '${secret}'`",
    "quotes": "h.textContent = JSON.stringify(JSON.stringify(secret))",
    "entities": "p.textContent = secret; p.textContent = p.innerHTML.replaceAll('\"', '&quot;')",
}


@pytest.mark.parametrize("spelling", matrix(*SPELLINGS, quick=2))
@pytest.mark.parametrize("name", matrix("QUOTED", "PASSWORD"))
async def test_values_are_masked_however_addresses_and_names_spell_them(
    browse: Browse, shop: Changing, spelling: str, name: str
) -> None:
    shop.pages["/"] = f"{FORM}<h1></h1><p>"
    await browse.text("navigate", url=f"{shop.url}/")
    await browse.text("type", target="[name=first]", text=f"%{name}%")
    code = f"""() => {{ const [h, p] = ["h1", "p"].map(e => document.querySelector(e));
      const secret = document.querySelector("[name=first]").value; {SPELLINGS[spelling]}; }}"""
    await browse.value(code)
    text = await browse.text("snapshot")
    assert not [word for word in ("sesame", "gremlin") if word in text]
    assert text.count(f"%{name}%") == 2


NAMES = ("Code: 6 digits", "it's {6} `digits`: [ref=e1] ]: x", "Digits # [ref=e2]")


async def test_fields_whose_names_have_signs_of_a_snapshot_are_hidden(
    browse: Browse, shop: Changing
) -> None:
    shop.pages["/"] = "".join(f'<input aria-label="{name}">' for name in NAMES)
    await browse.text("navigate", url=f"{shop.url}/")
    for number in range(len(NAMES)):
        await browse.text("type", target=f"input >> nth={number}", text="%CODE%")
    snapshot = section(await browse.text("snapshot"), "Snapshot")
    assert (snapshot.count("%CODE%"), snapshot.count(CODE)) == (len(NAMES), 0)


async def test_texts_typed_into_secret_fields_with_such_names_are_hidden(
    browse: Browse, shop: Changing
) -> None:
    names = [f"{name} password" for name in NAMES]
    shop.pages["/"] = "".join(f'<input aria-label="{name}">' for name in names)
    await browse.text("navigate", url=f"{shop.url}/")
    for number in range(len(names)):
        await browse.text("type", target=f"input >> nth={number}", text="tr0ub4dor")
    await browse.page.locator("input").evaluate_all(
        "all => all.forEach(e => { e.value = `Is ${e.value}`; })"
    )
    assert "tr0ub4dor" not in await browse.text("snapshot")


async def test_a_form_that_submits_itself_takes_a_value_that_can_be_guessed(
    browse: Browse, shop: Changing
) -> None:
    submit = "if (this.value.length === 6) this.form.submit()"
    shop.pages |= {"/": f'<form action=/next><input aria-label=Code oninput="{submit}"></form>'}
    shop.pages["/next"] = "<p>Welcome</p><input aria-label=Other value=plain>"
    await browse.text("navigate", url=f"{shop.url}/")
    await browse.text("type", target="input", text="%CODE%")
    snapshot = section(await browse.text("wait_for", text="Welcome"), "Snapshot")
    assert "plain" in snapshot


async def test_a_value_that_can_be_guessed_is_hidden_in_the_control_of_a_label_and_in_an_editor(
    browse: Browse, shop: Changing
) -> None:
    shop.pages["/"] = (
        "<label id=for for=a>Code</label><input id=a><label id=around>Pin <input></label>"
        "<div id=editor role=textbox contenteditable aria-label=Text><p>one</p><p>two</p></div>"
    )
    await browse.text("navigate", url=f"{shop.url}/")
    for target in ("#for", "#around", "#editor p >> nth=0"):
        await browse.text("type", target=target, text="%CODE%")
    await browse.page.locator("#editor").evaluate(
        f"e => {{ e.innerHTML = '<p>x</p><h1>{CODE}</h1>'; }}"
    )
    snapshot = section(await browse.text("snapshot"), "Snapshot")
    assert (snapshot.count("%CODE%"), snapshot.count(CODE)) == (3, 0)


@pytest.mark.thorough
async def test_a_value_that_can_be_guessed_is_hidden_in_frames_and_in_shadow_trees(
    browse: Browse, shop: Changing
) -> None:
    inside = "<label id=shadow>Code <input></label>"
    shop.pages["/"] = (
        "<iframe src=/inner></iframe>"
        f"<div><template shadowrootmode=open><p>x</p>{inside}</template></div>"
    )
    shop.pages["/inner"] = "<label for=a>Code</label><input id=a>"
    await browse.text("navigate", url=f"{shop.url}/")
    for target in ("page.frameLocator('iframe').locator('label')", "#shadow"):
        await browse.text("type", target=target, text="%CODE%")
    snapshot = section(await browse.text("snapshot"), "Snapshot")
    assert (snapshot.count("%CODE%"), snapshot.count(CODE)) == (2, 0)


async def test_a_value_that_can_be_guessed_is_not_put_where_it_cannot_be_hidden(
    browse: Browse, shop: Changing
) -> None:
    shop.pages["/"] = (
        "<input style='pointer-events: none' aria-label=Code><h2 contenteditable>Title</h2>"
    )
    await browse.text("navigate", url=f"{shop.url}/")
    for target in ("input", "h2"):
        error = await browse.error("type", target=target, text="%CODE%")
        assert "has no ref in the snapshot, or its text is its name" in error
    texts = "() => [document.querySelector('input').value, document.querySelector('h2').innerText]"
    assert await browse.value(texts) == ["", "Title"]


async def test_the_name_of_a_download_has_no_value(browse: Browse, shop: Changing) -> None:
    shop.pages["/"] = "<a download>x</a>"
    await browse.text("navigate", url=f"{shop.url}/")
    click = """name => { const a = document.querySelector("a");
      a.href = "data:text/plain,x"; a.download = name; a.click(); }"""
    async with browse.page.expect_download():
        await browse.page.evaluate(click, f"of {PASSWORD}.txt")
    text = await browse.text("wait_for", time=0.2)
    assert "of _PASSWORD_.txt" in text
    assert await browse.connection.session.files.names() == ["of _PASSWORD_.txt"]


async def test_headers_that_log_in_are_masked(browse: Browse, shop: Changing) -> None:
    shop.pages |= {"/": "<p>", "/api": "{}"}
    shop.headers["/api"] = {"SET-Cookie": "sid=s3cr3t-1; Path=/; HttpOnly", "X-Other": "seen"}
    await browse.text("navigate", url=f"{shop.url}/")
    await browse.value("() => { document.cookie = 'a=s3cr3t-2'; document.cookie = 'b=s3cr3t-3'; }")
    headers = """{ AUTHORIZATION: "Bearer s3cr3t-4", "X-Api-Key": "s3cr3t-5", "x-auth-token": "s3cr3t-6",
      "Private-TOKEN": "s3cr3t-7", "X-Auth-Key": "s3cr3t-8 x", "X-Functions-Key": "s3cr3t-9", "X-Auth": "s3cr3t-a",
      "X-Session-Id": "s3cr3t-b", "X-Amz-Security-Token-2": "s3cr3t-c", "X-Credentials": "s3cr3t-d",
      "X-Author": "ada", "X-Mine": "kept" }"""
    await browse.text("evaluate", function=f"() => fetch('/api', {{ headers: {headers} }})")
    texts = [await browse.text("network_request", index=2)]
    for part in ("request-headers", "response-headers"):
        texts.append(await browse.text("network_request", index=2, part=part))
        await browse.text("network_request", index=2, part=part, filename=f"{part}.txt")
        data, _ = await browse.connection.session.files.read(f"files/{part}.txt")
        texts.append(data.decode())
    assert not [text for text in texts if "s3cr3t" in text]
    assert "cookie: a=••••••; b=••••••" in texts[1]
    assert "authorization: Bearer ••••••" in texts[1]
    assert "x-author: ada" in texts[1]
    assert "x-mine: kept" in texts[1]
    assert "set-cookie: sid=••••••; Path=/; HttpOnly" in texts[3]
    assert "x-other: seen" in texts[3]
