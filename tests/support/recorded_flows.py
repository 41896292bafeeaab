"""Twelve flows on the site of tests/site/flow_site.py, as an agent takes them, and the mutations that their tests find."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from flow_site import PASSWORD

from statehold.client import CallResult, Session

EMAIL: Final = "ada@example.org"


class Agent:
    """Takes the steps of a flow: it looks at the page and uses the refs that it finds there."""

    def __init__(self, session: Session, url: str, database: str) -> None:
        self.session = session
        self.url = url
        self.database = database

    async def call(self, tool: str, **arguments: Any) -> CallResult:
        return await self.session.call(tool, **arguments)

    async def go(self, page: str) -> None:
        await self.call("browser_navigate", url=f"{self.url}/{page}")

    async def ref(self, line: str) -> str:
        """Return the ref of the first element whose line begins so."""
        page = (await self.call("browser_snapshot")).text
        found = re.search(rf"- '?{re.escape(line)}.* \[ref=(\w+)\]", page)
        assert found, f"{line} is not in:\n{page}"
        return found[1]

    async def click(self, line: str) -> None:
        await self.call("browser_click", target=await self.ref(line))

    async def type(self, line: str, text: str, **options: Any) -> None:
        await self.call("browser_type", target=await self.ref(line), text=text, **options)

    async def query(self, prefix: str) -> None:
        """Query the last order whose id begins so."""
        sql = (
            f"select email, size, cents from orders where id like '{prefix}-%' order by rowid desc"
        )
        await self.call("query", path=self.database, sql=f"{sql} limit 1")

    async def select(self, line: str, *values: str) -> None:
        await self.call("browser_select_option", target=await self.ref(line), values=list(values))


async def shop(agent: Agent) -> None:
    await agent.go("shop")
    await agent.type('textbox "Email"', EMAIL)
    await agent.select('combobox "Size"', "M")
    await agent.click('button "Place order"')
    await agent.query("A")


async def login(agent: Agent) -> None:
    await agent.go("login")
    await agent.type('textbox "Name"', "ada")
    await agent.type('textbox "Password"', PASSWORD)
    await agent.click('button "Log in"')


async def pin(agent: Agent) -> None:
    await agent.go("pin")
    await agent.type('textbox "Access code"', "%DOOR_PIN%", submit=True)


async def cart(agent: Agent) -> None:
    await agent.go("cart")
    await agent.click('button "Remove"')


async def notes(agent: Agent) -> None:
    await agent.go("notes")
    await agent.click('button "Delete"')
    await agent.call("browser_handle_dialog", accept=True)
    await agent.call("browser_snapshot")


async def preferences(agent: Agent) -> None:
    await agent.go("preferences")
    names = {"textbox": "Display name", "checkbox": "Newsletter", "combobox": "Plan"}
    values = {"textbox": "Ada L.", "checkbox": "true", "combobox": "Pro"}
    fields = [
        {
            "target": await agent.ref(f'{kind} "{name}"'),
            "name": name,
            "type": kind,
            "value": values[kind],
        }
        for kind, name in names.items()
    ]
    await agent.call("browser_fill_form", fields=fields)
    await agent.click('button "Save"')


async def search(agent: Agent) -> None:
    await agent.go("search")
    await agent.type('textbox "Find"', "tea", submit=True)
    await agent.call("browser_wait_for", textGone="Searching")


async def invoice(agent: Agent) -> None:
    await agent.go("invoice")
    await agent.click('button "Download invoice"')


async def frame(agent: Agent) -> None:
    await agent.go("frame")
    await agent.click('button "Pay now"')


async def orders(agent: Agent) -> None:
    await agent.go("orders")
    await agent.click('link "Order A-')


async def publish(agent: Agent) -> None:
    await agent.go("publish")
    await agent.type('textbox "Text"', "Open until six")
    await agent.click('button "Publish"')
    file = agent.database.replace(".db", ".html")
    await agent.call("run", command=f"cat {file} && date && exit 3")


async def stock(agent: Agent) -> None:
    await agent.go("stock")
    await agent.type('textbox "Buyer"', EMAIL)
    await agent.click('button "Take two"')
    await agent.query("S")
    await agent.call("run", command=f"test -s {agent.database} && echo the database is there")


@dataclass(frozen=True)
class Flow:
    """A flow, its mutations, and for each a pattern of the line that fails."""

    run: Callable[[Agent], Awaitable[None]]
    mutations: dict[str, str] = field(default_factory=dict[str, str])
    parameters: tuple[str, ...] = ("site",)

    @property
    def name(self) -> str:
        return self.run.__name__


FLOWS: Final = [
    Flow(
        shop,
        {
            "shop-email": "status: Order {ID} placed for",
            "shop-silent": "status: Order {ID} placed for",
            "shop-size": '"/rows/0/size"',
            "shop-stored": '"/rows/0/email"',
        },
        ("site", "email"),
    ),
    Flow(
        cart,
        {
            "cart-stays": "page_lacks.*Tea",
            "cart-total": "status: 1 item",
            "cart-count": "status: 1 item",
        },
    ),
    Flow(
        login,
        {
            "login-refused": "Page URL: .*/account",
            "login-place": "Page URL: .*/account",
            "login-name": "Account of Ada",
            "login-balance": "paragraph: Balance",
        },
    ),
    Flow(pin, {"pin-refused": "heading Door is open", "pin-open": "heading Door is open"}),
    Flow(
        notes,
        {
            "notes-asks": "Delete the note Milk",
            "notes-kept": "page_lacks.*Milk",
            "notes-silent": "status: Deleted at",
        },
    ),
    Flow(
        preferences,
        {
            "preferences-plan": "status: Saved for Ada",
            "preferences-news": "status: Saved for Ada",
            "preferences-name": "status: Saved for Ada",
        },
    ),
    Flow(
        search,
        {
            "search-one": "status: 2 results|listitem: Black tea",
            "search-price": "listitem: Black tea",
            "search-none": "listitem: Green tea",
        },
    ),
    Flow(
        invoice,
        {
            "invoice-name": "has_file",
            "invoice-none": "has_file",
            "invoice-said": "status: Downloaded one page",
        },
    ),
    Flow(
        frame,
        {
            "frame-amount": "status: Paid 3",
            "frame-card": "status: Paid 3",
            "frame-silent": "status: Paid 3",
        },
    ),
    Flow(
        orders,
        {
            "orders-state": "status: The order is paid",
            "orders-other": "Order {ID}",
            "orders-when": "status: The order is paid",
        },
    ),
    Flow(
        publish,
        {
            "publish-text": '"/output"',
            "publish-file": '"/output"',
            "publish-state": "heading The page is published",
        },
    ),
    Flow(
        stock,
        {
            "stock-lost": '"/count"',
            "stock-size": '"/rows/0/size"',
            "stock-cents": '"/rows/0/cents"',
        },
        ("site", "email"),
    ),
]

__all__ = ["EMAIL", "FLOWS", "Agent", "Flow"]
