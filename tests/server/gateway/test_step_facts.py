"""Facts of steps: what the journal keeps of a call in the browser, so that a test can do it again, and no secret."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from mcp import Client
from support.agent import Agent
from support.gateway_process import JSON, opened_session, service, structured, toml
from support.page_server import serve_pages

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.records import HistoryFilter, JournalRecord

NAMED, TYPED, CONFIGURED = "tok-4711-live", "correct horse battery", "key-0815-of-the-service"

SHOP = """<!doctype html><title>Shop</title><h1>Cart</h1><p role=status>Cart: 1 items</p>
<form aria-label=Order onsubmit="return place()">
<label>Email <input name=email></label> <label>Password: <input type=password name=password></label>
<label>Size <select name=size><option>S<option>M</select></label>
<button>Place order</button></form>
<button data-testid=later onclick="say('Later')">Keep</button>
<div aria-label="Delivery note" contenteditable>none</div>
<table><tr><td>Tea <td><button onclick="say('Tea is gone')">Remove</button></tr>
<tr><td>Salt <td><button onclick="say('Salt is gone')">Remove</button></tr></table>
<ul><li><button>More</button><li><button onclick="say('More of the second')">More</button></ul>
<button onclick="say('Page 2')">Page 2 of 3</button>
<button onclick="if (confirm('Empty the cart?')) say('Emptied')">Empty</button>
<a href=/invoice download=invoice.txt>Invoice</a>
<section aria-label=Today><button>Details</button></section>
<section aria-label=Later><button>Details</button></section>
<iframe name=help src=/help></iframe>
<script>
const say = text => { document.querySelector('[role=status]').textContent = text; };
const place = () => {
  say(`Order placed for ${document.forms[0].email.value}`);
  const later = document.createElement('button');
  later.textContent = 'Place order later';
  document.body.append(later);
  return false;
};
</script>"""
PAGES = {
    "/": SHOP,
    "/help": "<!doctype html><button onclick=\"this.textContent = 'Asked'\">Ask</button>",
    "/done": "<!doctype html><title>Done</title><h1>Thank you</h1><p>Total: 3.20</p><label>Code <input></label>",
}


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path, "an invoice").encode()
        self.send_response(200)
        kind = "text/html; charset=utf-8" if self.path in PAGES else "application/octet-stream"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def shop() -> Generator[str]:
    with serve_pages(Shop) as address:
        yield address


@pytest.fixture(scope="module")
def settings(headless_shell: str, tmp_path_factory: pytest.TempPathFactory) -> JSON:
    secrets = tmp_path_factory.mktemp("secrets") / "secrets.env"
    secrets.write_text(f"TOKEN={NAMED}\n")
    browser = {"executable": headless_shell, "secrets": str(secrets), "private": True}
    toolsets = ["core", "lifecycle", "admin"]
    services = {"browser": browser, "quick": service("asking", env={"API_KEY": CONFIGURED})}
    return {"toolsets": toolsets, "services": services}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncGenerator[Client]:
    async with Client(StateholdServer(gateway, version="0"), cache=None) as client:
        yield client


class Shopper(Agent):
    """An agent on the page of the shop."""

    def __init__(self, client: Client, session: str, gateway: Gateway) -> None:
        super().__init__(client, session)
        self._gateway = gateway

    async def facts_of(self, tool: str, **arguments: Any) -> JSON:
        """Call a tool and return the facts that the journal keeps of it."""
        await self.said(tool, **arguments)
        facts = await self.last_facts()
        assert isinstance(facts, dict)
        return cast("JSON", facts)

    async def last_facts(self) -> Any:
        [entry] = await self.entries()
        return entry.facts

    async def entries(self) -> list[JournalRecord]:
        """Return the last entry of the journal."""
        await self._gateway.store.flush()
        return await self._gateway.store.history(self.session, HistoryFilter(limit=1))

    async def ref(self, line: str) -> str:
        """Return the ref of the first line of the page that begins so."""
        page = await self.said("browser_snapshot")
        match = re.search(rf"- {re.escape(line)}.*?\[ref=(\w+)\]", page)
        assert match is not None, page
        return match[1]

    async def click(self, line: str) -> JSON:
        return await self.facts_of("browser_click", target=await self.ref(line))


@pytest.fixture
async def ada(client: Client, gateway: Gateway, shop: str) -> Shopper:
    ada = Shopper(client, await opened_session(client), gateway)
    await ada.said("browser_navigate", url=shop)
    return ada


def role(name: str, role: str = "button") -> str:
    return f'get_by_role("{role}", name="{name}", exact=True)'


async def test_a_click_is_kept_by_role_and_exact_name_with_its_effects(
    ada: Shopper, shop: str
) -> None:
    email = await ada.ref('textbox "Email"')
    facts = await ada.facts_of("browser_type", target=email, text="ada@shop.test")
    assert facts["target"] == {"locator": role("Email", "textbox"), "kind": "role"}
    facts = await ada.click('button "Place order"')
    # A later button would make the name without `exact` ambiguous.
    assert facts["target"] == {"locator": role("Place order"), "kind": "role"}
    assert facts["url"] == f"{shop}/"
    assert facts["title"] == "Shop"
    assert "status: Order placed for ada@shop.test" in facts["appeared"]
    assert 'button "Place order later"' in facts["appeared"]
    assert facts["gone"] == ['status: "Cart: 1 items"']
    assert "asks" not in facts
    assert "[ref=" not in json.dumps(facts)


async def test_a_line_that_another_element_still_has_is_not_gone(ada: Shopper) -> None:
    remove = "() => document.querySelector('tr').remove()"
    await ada.said("browser_evaluate", function=remove)
    facts = await ada.facts_of("browser_snapshot")
    assert 'cell "Tea"' in facts["gone"]
    assert 'button "Remove"' not in facts["gone"]


async def test_a_snapshot_after_a_dialog_has_the_effects_of_its_answer(ada: Shopper) -> None:
    await ada.click('button "Empty"')
    facts = await ada.facts_of("browser_handle_dialog", accept=True)
    assert "appeared" not in facts
    facts = await ada.facts_of("browser_snapshot")
    assert facts["appeared"] == ["status: Emptied"]
    assert facts["gone"] == ['status: "Cart: 1 items"']
    assert "appeared" not in await ada.facts_of("browser_snapshot")


async def test_a_chosen_option_is_no_secret(ada: Shopper) -> None:
    size = await ada.ref('combobox "Size"')
    field = {"name": "Size", "type": "combobox", "target": size, "value": "M"}
    await ada.facts_of("browser_fill_form", fields=[field])
    [entry] = await ada.entries()
    assert entry.request["fields"][0]["value"] == "M"


async def test_a_locator_prefers_the_test_id_and_falls_back_to_the_label(ada: Shopper) -> None:
    facts = await ada.click('button "Keep"')
    assert facts["target"] == {"locator": 'get_by_test_id("later")', "kind": "testid"}
    facts = await ada.facts_of("browser_click", target="[contenteditable]")
    assert facts["target"] == {
        "locator": 'get_by_label("Delivery note", exact=True)',
        "kind": "label",
    }


async def test_a_selector_or_a_locator_is_kept_as_the_best_locator_of_its_element(
    ada: Shopper,
) -> None:
    facts = await ada.facts_of("browser_click", target="form button")
    assert facts["target"] == {"locator": role("Place order"), "kind": "role"}
    facts = await ada.facts_of("browser_hover", target="getByText('Cart', { exact: true })")
    assert facts["target"] == {"locator": "get_by_text('Cart', exact=True)", "kind": "text"}


async def test_one_of_several_is_kept_within_its_part_of_the_page_or_marked_as_fragile(
    ada: Shopper,
) -> None:
    page = await ada.said("browser_snapshot")
    details = re.findall(r'button "Details" \[ref=(\w+)\]', page)
    facts = await ada.facts_of("browser_click", target=details[1])
    assert facts["target"] == {
        "locator": role("Details"),
        "kind": "role",
        "scope": role("Later", "region"),
    }
    remove = re.findall(r'button "Remove" \[ref=(\w+)\]', page)
    facts = await ada.facts_of("browser_click", target=remove[1])
    assert facts["target"] == {
        "locator": 'get_by_role("button")',
        "kind": "role",
        "scope": 'get_by_role("row", name="Salt Remove")',
    }
    more = re.findall(r'button "More" \[ref=(\w+)\]', page)
    facts = await ada.facts_of("browser_click", target=more[1])
    assert facts["target"]["kind"] == "role"
    assert facts["target"]["locator"].endswith(".nth(1)")
    assert facts["target"]["fragile"] is True
    facts = await ada.click('button "Page 2')
    assert facts["target"] == {
        "locator": role("Page 2 of 3"),
        "kind": "role",
        "fragile": True,
    }


async def test_an_element_of_a_frame_is_kept_with_its_frame(ada: Shopper) -> None:
    facts = await ada.click('button "Ask"')
    assert facts["target"] == {
        "locator": role("Ask"),
        "kind": "role",
        "scope": 'locator("iframe[name=\\"help\\"]").content_frame',
    }
    assert 'button "Asked"' in facts["appeared"]


async def test_a_form_is_kept_with_the_fields_in_order(ada: Shopper) -> None:
    email, size = await ada.ref('textbox "Email"'), await ada.ref('combobox "Size"')
    fields = [
        {"target": size, "name": "Size", "type": "combobox", "value": "M"},
        {"target": email, "name": "Email", "type": "textbox", "value": "ada@shop.test"},
    ]
    facts = await ada.facts_of("browser_fill_form", fields=fields)
    assert [target["locator"] for target in facts["targets"]] == [
        role("Size", "combobox"),
        role("Email", "textbox"),
    ]
    start, end = await ada.ref('heading "Cart"'), await ada.ref('button "Keep"')
    facts = await ada.facts_of("browser_drag", startTarget=start, endTarget=end)
    assert [target["kind"] for target in facts["targets"]] == ["role", "testid"]
    assert "target" not in facts


async def test_dialogs_and_downloads_are_kept(ada: Shopper) -> None:
    facts = await ada.click('button "Empty"')
    assert facts["asks"] == "Empty the cart?"
    facts = await ada.facts_of("browser_handle_dialog", accept=True)
    assert facts["dialogs"] == ["Empty the cart?"]
    assert "asks" not in facts
    facts = await ada.click('link "Invoice"')
    assert facts["files"] == ["invoice.txt"]


async def test_of_another_page_the_headings_and_texts_are_kept(ada: Shopper, shop: str) -> None:
    facts = await ada.facts_of("browser_navigate", url=f"{shop}/done")
    assert facts["url"] == f"{shop}/done"
    assert facts["appeared"] == ['heading "Thank you" [level=1]', 'paragraph: "Total: 3.20"']
    assert "gone" not in facts


async def test_facts_have_neither_the_values_of_named_secrets_nor_typed_passwords(
    ada: Shopper, gateway: Gateway, shop: str
) -> None:
    email, password = await ada.ref('textbox "Email"'), await ada.ref('textbox "Password')
    fields = [
        {"target": email, "name": "Email", "type": "textbox", "value": "%TOKEN%"},
        {"target": password, "name": "Password", "type": "textbox", "value": TYPED},
    ]
    facts = await ada.facts_of("browser_fill_form", fields=fields)
    assert facts["targets"][1]["locator"] == role("Password:", "textbox")
    facts = await ada.click('button "Place order"')
    assert "status: Order placed for %TOKEN%" in facts["appeared"]
    # The page repeats them in a name, a title and an address.
    script = f"""() => {{
      const button = document.createElement('button');
      button.textContent = 'Use ' + '{TYPED}';
      button.onclick = () => history.replaceState(0, '', '/?q=' + encodeURIComponent('{TYPED}'));
      document.body.append(button);
      document.title = document.forms[0].email.value + ' of {TYPED}';
    }}"""
    await ada.said("browser_evaluate", function=script)
    facts = await ada.click('button "Use ')
    assert "target" not in facts
    assert facts["title"] == "%TOKEN% of [redacted]"
    assert facts["url"].endswith("/?q=[redacted]")
    await gateway.store.flush()
    for file in gateway.config.data.glob("statehold.db*"):
        content = file.read_bytes()
        for secret in (NAMED, TYPED, quote(TYPED)):
            assert secret.encode() not in content, file


WITH_ANSWERS = {
    "user": {"name": "ada", "password": TYPED, "fields": [{"name": "pin", "value": "98761"}]},
    "a/b": [True, None, 4711, "a text"],
    "exit_code": 3,
    "long": "x" * 300,
}


async def test_of_other_services_the_scalars_of_structured_content_are_kept(
    client: Client, gateway: Gateway
) -> None:
    ada = Shopper(client, await opened_session(client), gateway)
    facts = await ada.facts_of("shaped", value=WITH_ANSWERS)
    assert facts == {
        "exit_code": 3,
        "values": {
            "/user/name": "ada",
            "/user/password": "[redacted]",
            "/user/fields/0/name": "pin",
            "/user/fields/0/value": "[redacted]",
            "/a~1b/0": True,
            "/a~1b/1": None,
            "/a~1b/2": 4711,
            "/a~1b/3": "a text",
            "/exit_code": 3,
        },
    }
    many = {f"key{number}": number for number in range(1000)}
    facts = await ada.facts_of("shaped", value={"nested": [many]})
    assert facts["values"] == {f"/nested/0/key{number}": number for number in range(20)}


async def test_without_structured_content_the_first_and_the_last_line_are_kept(
    client: Client, gateway: Gateway
) -> None:
    ada = Shopper(client, await opened_session(client), gateway)
    assert await ada.facts_of("shaped", text="one line") == {"first": "one line"}
    text = "\n\n total 3 \nalpha\n\nlast of them\n"
    assert await ada.facts_of("shaped", text=text) == {"first": "total 3", "last": "last of them"}
    # A line that is cut at its beginning may begin with half of a secret.
    assert list(await ada.facts_of("shaped", text="x" * 5000)) == ["first"]


async def test_facts_have_no_secret_of_the_configuration(client: Client, gateway: Gateway) -> None:
    ada = Shopper(client, await opened_session(client), gateway)
    facts = await ada.facts_of("shaped", value={"text": f"It is {CONFIGURED}.", "count": 1})
    assert facts == {"values": {"/text": "It is [redacted].", "/count": 1}}
    facts = await ada.facts_of("shaped", text=f"{'x' * 490} {CONFIGURED} and more")
    assert CONFIGURED[:6] not in facts["first"]


async def test_facts_take_two_kibibytes_at_most(client: Client, gateway: Gateway) -> None:
    ada = Shopper(client, await opened_session(client), gateway)
    long = {f"key{number}": "\u00fc" * 150 for number in range(20)}
    facts = await ada.facts_of("shaped", value=long)
    assert len(json.dumps(facts, ensure_ascii=False).encode()) <= 2048
    assert list(facts["values"]) == [f"/key{number}" for number in range(len(facts["values"]))]
    assert len(facts["values"]) > 4


async def test_an_imported_session_has_the_facts_of_the_exported_one(
    ada: Shopper, gateway: Gateway
) -> None:
    password = await ada.ref('textbox "Password')
    facts = await ada.facts_of("browser_type", target=password, text=TYPED)
    exported = structured(await ada.call("session_export"))
    imported = structured(
        await ada.client.call_tool("session_import", {"document": exported["document"]})
    )
    other = Shopper(ada.client, imported["session_id"], gateway)
    history = await gateway.store.history(other.session, HistoryFilter(tools=["browser_type"]))
    assert [entry.facts for entry in history] == [facts]
    assert facts["target"]["locator"] == role("Password:", "textbox")


@pytest.mark.thorough
async def test_facts_can_be_switched_off(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"history": {"facts": False}, "services": {"quick": service("asking")}}))
    loaded = load(config=config, services=None, flags={"data": str(tmp_path / "data")})
    async with (
        open_gateway(loaded, address="test") as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        ada = Shopper(client, await opened_session(client), gateway)
        await ada.said("shaped", value={"count": 1})
        assert await ada.last_facts() is None
