"""Restoring typed text: pages react as to a person who types, once and in the same place."""

from __future__ import annotations

import threading
from collections.abc import Generator

import anyio.to_thread
import pytest
from browsing import again, lost, opened
from changing import Changing

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import restore

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        yield site


async def test_what_a_page_acts_on_when_it_is_typed_is_typed_once(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {
        "/add": "ok",
        "/": """<input id=item onchange="add()"><input type=checkbox id=tick onchange="add()">
        <script>function add() { fetch("/add", {method: "POST"}); item.value = ""; tick.checked = false }</script>""",
    }
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#item", text="milk")
        await browse.value("tick.checked = true")
        async with again(browse) as resumed:
            assert await resumed.value("[item.value, tick.checked]") == ["", False]
            assert "2 form fields of tab 0 (the page did not keep it)" in lost(resumed)
            await resumed.value("fetch('/last')")
            assert site.hits.count("POST /add") == 2


async def test_a_page_that_takes_up_a_change_a_moment_later_gets_all_of_them(
    service: BrowserService, site: Changing
) -> None:
    site.pages[
        "/"
    ] = """<input type=checkbox value=a><input type=checkbox value=b><input type=checkbox value=c><script>
      let model = [], shown = [];
      const boxes = [...document.querySelectorAll("input")];
      onchange = ({target}) => {
        model = target.checked ? [...shown, target.value] : shown.filter(each => each !== target.value);
        queueMicrotask(() => { shown = model; for (const box of boxes) box.checked = shown.includes(box.value); });
      }</script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for number in (0, 2):
            await browse.text("click", target=f"input >> nth={number}")
        assert await browse.value("model") == ["a", "c"]
        async with again(browse) as resumed:
            assert await resumed.value("model") == ["a", "c"]
            assert "form field" not in lost(resumed)


async def test_fields_come_back_whose_page_says_beside_them_what_is_typed(
    service: BrowserService, site: Changing
) -> None:
    row = "<tr><td>{}<td><input name=item-{}-count value=1><td class=sum>10.00"
    site.pages["/"] = (
        "<form><label>About <textarea></textarea><small>0/500</small></label>"
        "<select><option>free<option>pro</select><div><label><input type=checkbox>I agree <em></em></label></div>"
        f"<table>{row.format('Pear', 0)}{row.format('Plum', 1)}</table><b>20.00</b></form>"
        """<script>oninput = ({target}) => {
          if (target.localName === "textarea") target.nextSibling.textContent = target.value.length + "/500";
          if (target.type === "checkbox") target.parentNode.lastChild.textContent = target.checked ? "Thanks" : "Please!";
          const row = target.closest("tr");
          if (row) row.lastChild.textContent = (target.value * 10).toFixed(2);
          document.querySelector("b").textContent =
            [...document.querySelectorAll(".sum")].reduce((sum, each) => sum + +each.textContent, 0);
        }</script>"""
    )
    filled = """[...document.querySelectorAll("input, textarea, select")].map(each =>
      each.type === "checkbox" ? each.checked : each.value).join()"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("select_option", target="select", values=["pro"])
        await browse.text("type", target="textarea", text="me")
        await browse.text("click", target="input[type=checkbox]")
        for number, count in ((0, "3"), (1, "5")):
            await browse.text("type", target=f"td input >> nth={number}", text=count)
        async with again(browse) as once:
            assert await once.value(filled) == "me,pro,true,3,5"
            assert await once.value("document.querySelector('b').textContent") == "80"
            assert "form field" not in lost(once)
            async with again(once) as twice:
                assert await twice.value(filled) == "me,pro,true,3,5"
                assert "form field" not in lost(twice)


async def test_what_was_typed_at_a_later_step_is_not_filled_in_at_the_first_one(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = (
        "<form><p></p><input><button type=button onclick='next()'>Next</button></form>"
        "<script>let step = 0; function next() {"
        "document.querySelector('p').textContent = `Question ${++step}`;"
        "document.querySelector('input').value = '' } next()</script>"
    )
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for answer in ("a cat", "a dog"):
            await browse.text("type", target="input", text=answer)
            await browse.text("click", target="button")
        await browse.text("type", target="input", text="a baker")
        async with again(browse) as resumed:
            assert await resumed.value("document.querySelector('input').value") == ""
            assert "1 form field of tab 0 (not there)" in lost(resumed)


async def test_what_was_typed_for_one_thing_is_not_filled_in_for_another_that_has_the_same_field(
    service: BrowserService, site: Changing
) -> None:
    site.pages[
        "/"
    ] = """<label for=answer id=what>Your cat</label><input id=answer><textarea id=message></textarea><input id=q>
      <script>function next() { what.textContent = "Your job"; message.placeholder = "Message Ann"; answer.value = "" }
      message.placeholder = "Message Bob"</script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#answer", text="Tom")
        await browse.value("next()")
        for target in ("#answer", "#message", "#q"):
            await browse.text("type", target=target, text=f"typed into {target}")
        async with again(browse) as resumed:
            found = await resumed.value("[answer.value, message.value, q.value]")
            assert found == ["", "", "typed into #q"]
            assert "2 form fields of tab 0 (not there)" in lost(resumed)


@pytest.mark.parametrize("route", ["#/tasks/7", "#!/tasks/7"])
async def test_what_was_typed_at_a_route_is_not_filled_in_at_another(
    service: BrowserService, site: Changing, route: str
) -> None:
    site.pages["/"] = """<input name=q><script>
      if (localStorage.loggedOut) location.hash = "#/login"</script>"""
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{site.url}{route}?tab=1")
        await browse.text("type", target="input", text="typed for 7")
        async with again(browse) as resumed:
            assert await resumed.value("document.querySelector('input').value") == "typed for 7"
            await resumed.value("localStorage.loggedOut = '1'")
            async with again(resumed) as later:
                assert await later.value("document.querySelector('input').value") == ""
                assert "form fields of tab 0" in lost(later)


async def test_what_is_chosen_of_several_is_not_overwritten_where_the_site_has_something_newer(
    service: BrowserService, site: Changing
) -> None:
    sent = {"first": "a", "kept": "a", "same": "a"}

    def page() -> str:
        radio = "<label>{0}<input type=radio name={1} value={0} {2}></label>"
        option = "<option {2}>{0}"
        groups = "".join(
            "".join(radio.format(v, name, "checked" if v == value else "") for v in "abc")
            + f"<select multiple id={name}>"
            + "".join(option.format(v, name, "selected" if v == value else "") for v in "abc")
            + "</select>"
            for name, value in sent.items()
        )
        return f"<form>{groups}</form>"

    site.pages["/"] = page
    chosen = """[...document.querySelectorAll("select")].map(each =>
      document.querySelector(`[name=${each.id}]:checked`).value + " " +
        [...each.selectedOptions].map(({value}) => value).join(""))"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for name in sent:
            await browse.text("click", target=f"[name={name}][value=b]")
            await browse.text("select_option", target=f"#{name}", values=["a", "b"])
        assert await browse.value(chosen) == ["b ab", "b ab", "b ab"]
        sent |= {"first": "c", "same": "b"}
        async with again(browse) as resumed:
            assert await resumed.value(chosen) == ["c c", "b ab", "b b"]
            assert "3 form fields of tab 0 (the site has something newer there)" in lost(resumed)


async def test_what_a_page_sets_to_what_it_was_when_its_data_has_come_is_put_back_again(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "PATIENCE", {**restore.PATIENCE, "fieldMilliseconds": 200})
    site.pages |= {
        "/data": "Ann",
        "/": """<input id=who><textarea id=bio></textarea><select id=plan><option>free<option>pro</select>
          <input type=checkbox id=news><input id=item onchange="added.push(this.value); setTimeout(() => this.value = '')">
          <script>
            const added = [];
            async function load() {
              const name = await (await fetch("/data")).text();
              [who.value, bio.value, plan.value, news.checked, window.loaded] = [name, "", "free", false, true];
            }
            load();
          </script>""",
    }
    found = "[who.value, bio.value, plan.value, news.checked].join()"
    site.held["/data"] = held = threading.Event()
    held.set()
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("new Promise(done => setInterval(() => window.loaded && done(), 10))")
        await browse.text("type", target="#who", text="Bob")
        await browse.text("type", target="#bio", text="typed")
        await browse.text("select_option", target="#plan", values=["pro"])
        await browse.text("click", target="#news")
        await browse.text("type", target="#item", text="milk")
        held.clear()
        async with again(browse) as resumed:
            assert await resumed.value(found) == "Bob,typed,pro,true"
            held.set()
            page = resumed.connection.session.tabs.current
            assert page is not None
            await page.page.wait_for_function(
                f"window.loaded && {found} === 'Bob,typed,pro,true' && item.value"
            )
            assert await resumed.value("added") == ["milk"]


async def test_what_was_typed_into_an_editor_that_came_later_is_not_what_it_begins_with(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<button>Begin</button><script>
      function edit() {
        localStorage.editing = "1";
        const frame = document.body.appendChild(document.createElement("iframe"));
        const { body } = frame.contentDocument;
        body.contentEditable = "true";
        setTimeout(() => { body.innerHTML = "<p>draft</p>"; window.begun = true; }, localStorage.slow ?? 0);
      }
      if (localStorage.editing) edit();
    </script>"""
    text = "document.querySelector('iframe').contentDocument.body.innerText"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("click", target="button")
        await browse.value("edit()")
        await browse.text("click", target=await browse.ref("draft"))
        await browse.text("press_key", key="End")
        await browse.text("press_key", key="s")
        assert await browse.value(text) == "drafts"
        await browse.value("localStorage.slow = 300")
        async with again(browse) as resumed:
            assert await resumed.value("begun")
            assert await resumed.value(text) == "drafts"
            assert "form field" not in lost(resumed)


async def test_what_a_site_had_not_answered_yet_is_said(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {"/": "<input id=amount>", "/pay": "paid", "/other": "other"}
    site.held["/pay"] = threading.Event()
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#amount", text="100")
        await browse.value("void fetch('/pay', {method: 'POST'})")
        await browse.value("fetch('/other', {method: 'POST'}).then(answer => answer.text())")
        async with again(browse) as resumed:
            assert "what was sent may have taken effect) of tab 0" in lost(resumed)
            assert site.hits.count("POST /pay") == 1
            await resumed.value(
                "void (onpagehide = () => fetch('/pay', {method: 'POST', keepalive: true}))"
            )
            await resumed.text("navigate", url=site.url + "/other")
            async with again(resumed) as later:
                assert "may have taken effect" not in lost(later)


async def test_what_scripts_put_into_hidden_fields_is_said_unless_they_do_so_again(
    service: BrowserService, site: Changing
) -> None:
    site.pages[
        "/"
    ] = """<form><input id=shown readonly><input type=hidden name=date value=2026-01-01>
      <input id=plain oninput="mirror.value = this.value"><input type=hidden id=mirror name=mirror>
      <input type=hidden name=token value=abc><input type=hidden id=nonce></form>
      <script>setInterval(() => { nonce.value ||= Math.random() }, 200)</script>
      <button onclick="shown.value = '2 May'; document.querySelector('[name=date]').value = '2026-05-02'">2</button>"""
    said = "(hidden, and filled by a script: what is sent may be other than what is shown)"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.page.wait_for_function("nonce.value")
        await browse.text("type", target="#plain", text="typed")
        async with again(browse) as once:
            assert said not in lost(once)
            await once.page.wait_for_function("nonce.value")
            await once.text("click", target="button")
            async with again(once) as twice:
                assert await twice.value("[shown.value, mirror.value]") == ["2 May", "typed"]
                assert f"1 form field of tab 0 {said}" in lost(twice)


async def test_a_page_that_waits_for_news_of_its_site_has_sent_nothing(
    service: BrowserService, site: Changing
) -> None:
    answers, waits = threading.Semaphore(3), threading.Event()

    def news() -> str:
        if not answers.acquire(blocking=False):
            waits.set()
            answers.acquire(timeout=30)
        return "news"

    site.pages |= {
        "/news": news,
        "/pay": "paid",
        "/": """<script>(async () => {
          for (let n = 0;; n++) await (await fetch("/news?" + n, {method: "POST"})).text();
        })()</script>""",
    }
    site.held["/pay"] = threading.Event()
    try:
        async with opened(service) as browse:
            await browse.text("navigate", url=site.url)
            await anyio.to_thread.run_sync(waits.wait, 10)
            assert (await browse.saved(light=True)).data["tabs"][0]["lost"] == []
            await browse.value("void fetch('/pay', {method: 'POST'})")
            (lost,) = (await browse.saved(light=True)).data["tabs"][0]["lost"]
            assert "may have taken effect" in lost
    finally:
        answers.release(100)


async def test_a_text_that_the_site_was_told_of_is_not_sent_again(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {
        "/invite": "ok",
        "/": """<input id=guest oninput="window.shown = this.value"
          onchange="fetch('/invite', {method: 'POST'})"><button>Next</button>""",
    }
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#guest", text="ann")
        await browse.text("click", target="button")
        assert site.hits.count("POST /invite") == 1
        async with again(browse) as once:
            assert await once.value("[guest.value, shown]") == ["ann", "ann"]
            assert "1 form field of tab 0 (its text is there, but was not sent" in lost(once)
            async with again(once) as twice:
                assert await twice.value("[guest.value, shown]") == ["ann", "ann"]
                assert site.hits.count("POST /invite") == 1
                await twice.text("type", target="#guest", text="bob")
                await twice.text("click", target="button")
                assert site.hits.count("POST /invite") == 2


async def test_a_tick_comes_back_of_which_a_page_told_no_more_than_that_there_was_a_click(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {
        "/clicks": "ok",
        "/": """<input type=checkbox id=tick><script>
          onclick = () => navigator.sendBeacon("/clicks", "a click")</script>""",
    }
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("click", target="#tick")
        await browse.value("fetch('/clicks')")
        async with again(browse) as resumed:
            assert await resumed.value("tick.checked")
            assert "sent at once" not in lost(resumed)


async def test_a_page_may_tell_its_document_of_changes(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<input id=field><p>there"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#field", text="typed")
        for target in ("document", "window", "document.querySelector('p').firstChild"):
            event = "new Event('input', {bubbles: true})"
            told = await browse.text("evaluate", function=f"() => {target}.dispatchEvent({event})")
            assert "error" not in told
        async with again(browse) as resumed:
            assert await resumed.value("field.value") == "typed"


async def test_what_a_sleeping_tab_lost_is_told_by_the_number_that_it_has_now(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {"/": "first", "/second": "second"}
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("tabs", action="new", url=site.url)
        await browse.text("tabs", action="new", url=site.url + "/second")
        await browse.text("tabs", action="select", index=0)
        async with again(browse) as resumed:
            del site.pages["/second"]
            await resumed.text("tabs", action="close", index=1)
            assert "the page of tab 1 " in await resumed.text("tabs", action="select", index=1)


async def test_what_is_chosen_is_not_overwritten_when_it_came_back_before(
    service: BrowserService, site: Changing
) -> None:
    sent = {"value": "a"}
    site.pages["/"] = lambda: (
        "<form>"
        + "".join(
            f"<label>{v}<input type=radio name=r value={v} {'checked' * (v == sent['value'])}></label>"
            for v in "abc"
        )
        + "</form>"
    )
    chosen = "document.querySelector(':checked').value"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("click", target="[value=b]")
        async with again(browse) as once:
            assert await once.value(chosen) == "b"
            sent["value"] = "c"
            async with again(once) as twice:
                assert await twice.value(chosen) == "c"
                assert "1 form field of tab 0 (the site has something newer there)" in lost(twice)


async def test_what_is_cleared_in_a_frame_stays_so_when_it_was_just_put_back(
    service: BrowserService, site: Changing
) -> None:
    site.pages |= {
        "/": "<iframe src=/frame></iframe>",
        "/frame": "<input id=q><button onclick=\"q.value = ''\">Clear</button>",
    }
    text = "document.querySelector('iframe').contentDocument.querySelector('input').value"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target=await browse.ref("textbox"), text="typed")
        async with again(browse) as resumed:
            assert await resumed.value(text) == "typed"
            await resumed.text("click", target=await resumed.ref("Clear"))
            # There is no event for the absence of changes, so wait for a few more checks of the restoring script.
            await resumed.value("new Promise(done => setTimeout(done, 200))")
            assert await resumed.value(text) == ""


async def test_what_a_script_of_the_caller_clears_stays_so_when_it_was_just_put_back(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = "<input id=one><input id=other><input id=late>"
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        for field in ("one", "other", "late"):
            await browse.text("type", target=f"#{field}", text="typed")
        async with again(browse) as resumed:
            await resumed.text("evaluate", function="() => { one.value = '' }")
            await resumed.text("evaluate", target="#other", function="each => { each.value = '' }")
            # The page's own changes are still corrected.
            await resumed.value("late.value = ''")
            await resumed.page.wait_for_function("late.value === 'typed'")
            assert await resumed.value("[one.value, other.value]") == ["", ""]


async def test_what_a_page_writes_in_its_own_way_comes_back_each_time(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<input id=amount onchange="
      this.value = this.value.replace(/(\\d)(\\d{3})$/, '$1,$2'); this.defaultValue = this.value">"""
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.text("type", target="#amount", text="12345")
        async with again(browse) as once:
            assert await once.value("amount.value") == "12,345"
            async with again(once) as twice:
                assert await twice.value("amount.value") == "12,345"


async def test_a_text_comes_back_where_its_placeholder_is_there_only_when_somebody_is_in_it_or_nobody(
    service: BrowserService, site: Changing
) -> None:
    site.pages["/"] = """<input id=hides placeholder=Name onfocus="this.placeholder = ''"
      onblur="this.placeholder = 'Name'"><input id=shows onfocus="this.placeholder = 'such as Ann'"
      onblur="this.placeholder = ''"><input id=turns placeholder=cats oninput="this.placeholder = 'dogs'">"""
    for field in ("hides", "shows", "turns"):
        async with opened(service) as browse:
            await browse.text("navigate", url=site.url)
            await browse.text("type", target=f"#{field}", text="typed")
            async with again(browse) as resumed:
                assert await resumed.value(f"{field}.value") == "typed"
                assert "form field" not in lost(resumed)
