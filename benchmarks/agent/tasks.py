"""The ten tasks: what the agent does in each, and how the outcome is checked without asking the agent."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .policy import Agent
from .site import content, documentation
from .site.content import CUSTOMER, PASSWORD

SECRET: Final = "BANK_PASSWORD"
COMPASS: Final = "Oak compass"
RECEIPT: Final = "Ferry Anstey to Merrow, 2 adults, 31.20\n" * 40


@dataclass(frozen=True, slots=True)
class Sites:
    """Where the sites of one run are, and a folder that files are uploaded from."""

    url: str
    down: str
    """An address where no server listens."""
    folder: Path

    def received(self, path: str) -> list[Any]:
        """Return what visitors sent to a path."""
        with urllib.request.urlopen(f"{self.url}/received") as answer:
            return [one["data"] for one in json.load(answer) if one["path"] == path]


@dataclass(frozen=True, slots=True)
class Task:
    """`work` returns the agent's answer; `check` says whether it is right and the site has what it should."""

    name: str
    work: Callable[[Agent, Sites], Awaitable[str]]
    check: Callable[[Agent, Sites, str], Awaitable[bool]]


async def _documentation(agent: Agent, sites: Sites) -> str:
    """Find the default of a parameter, and who prepared the version that changed it."""
    await agent.open(f"{sites.url}/docs")
    row = rf'{documentation.SOUGHT}.{{1,80}}?cell "int".{{1,80}}?cell "(\w+)"'
    default = await agent.read(row, documentation.SOUGHT)
    await agent.click("link", f"version {documentation.ADDED}, {documentation.OWNER}")
    author = await agent.read(r"Prepared by ([^.]+)\.", "Prepared by")
    return f"{default}, {author}"


async def _documentation_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    at = await agent.server.peek("() => location.pathname")
    return (
        answer == f"{documentation.DEFAULT}, Ines Duarte"
        and f"/docs/notes/{documentation.ADDED}" in at
    )


async def _shop(agent: Agent, sites: Sites) -> str:
    """Put a compass with a finish of aged brass into the basket, and read the total."""
    await agent.open(f"{sites.url}/shop")
    await agent.click("button", "Only necessary")
    await agent.type("combobox", "Search products", "oak comp")
    await agent.click("option", COMPASS)
    await agent.select("Finish", "Aged brass")
    await agent.click("button", "Add to basket")
    await agent.see("Added to your basket")
    await agent.click("link", "Basket, 1 item")
    return await agent.read(r"Total: £([\d.]+)", "Total: £")


async def _shop_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    compass = next(one for one in content.PRODUCTS.values() if one.name == COMPASS)
    ordered = [{"product": compass.id, "finish": "aged", "amount": 1}]
    return sites.received("/shop/basket") == ordered and answer == f"{compass.price + 4.9:.2f}"


async def _login(agent: Agent, sites: Sites) -> str:
    """Log in with a password that the model must not see, and read a balance."""
    await agent.open(f"{sites.url}/bank")
    await agent.type("textbox", "Customer number", CUSTOMER)
    await agent.type("textbox", "Password", agent.server.secret(SECRET))
    await agent.click("button", "Log in")
    return await agent.read(r'"Everyday account".{1,250}?cell "£([\d.,]+)"', "Everyday account")


async def _login_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    sent = sites.received("/bank/login")
    read = any(PASSWORD in text for text in agent.server.texts)
    return [one["password"] for one in sent] == [PASSWORD] and answer == "2,318.07" and not read


async def _table(agent: Agent, sites: Sites) -> str:
    """Find the heaviest item of a table that sorts itself 300 ms after a click."""
    await agent.open(f"{sites.url}/inventory")
    await agent.click("button", "Sort by weight")
    await agent.see("Sorted by weight, smallest first")
    await agent.click("button", "Sort by weight")
    await agent.see("Sorted by weight, largest first")
    return await agent.read(r"(HB-\d+)", "HB-", fresh=True)


async def _table_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    return answer == max(content.inventory(), key=lambda row: row[4])[0]


async def _wizard(agent: Agent, sites: Sites) -> str:
    """Register a boat in four steps, each of which is checked before the next one."""
    await agent.open(f"{sites.url}/register")
    await agent.fill(
        ("textbox", "Full name", "Mara Lindqvist"),
        ("textbox", "E-mail", "mara@example.org"),
        ("combobox", "Country", "Sweden"),
        ("checkbox", "I am 18 or older", "true"),
    )
    await agent.click("button", "Continue")
    await agent.fill(
        ("textbox", "Name of the boat", "Petrel"),
        ("combobox", "Kind", "Ketch"),
        ("spinbutton", "Length in metres", "11.4"),
    )
    await agent.click("button", "Continue")
    await agent.click("radio", "Inner basin")
    await agent.click("checkbox", "Shore power")
    await agent.click("button", "Continue")
    await agent.click("checkbox", "I accept the harbour rules")
    await agent.click("button", "Send registration")
    return await agent.read(r"(PA-\d+)", "registration number", fresh=True)


async def _wizard_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    entries = {
        "name": "Mara Lindqvist", "email": "mara@example.org", "country": "Sweden", "adult": True,
        "boat": "Petrel", "kind": "Ketch", "length": "11.4", "berth": "inner", "services": ["power"], "terms": True,
    }  # fmt: skip
    return sites.received("/register") == [entries] and answer == "PA-30917"


async def _upload(agent: Agent, sites: Sites) -> str:
    """Send a claim with a receipt, and read its reference."""
    await agent.open(f"{sites.url}/claims")
    await agent.fill(("textbox", "Reason", "Ferry"), ("combobox", "Month", "November"))
    await agent.click("button", "Choose receipts")
    await agent.upload(sites.folder / "receipt.txt")
    await agent.click("button", "Send claim")
    return await agent.read(r"received, reference ([\w-]+)", "Claim received", fresh=True)


async def _upload_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    claim = {"reason": "Ferry", "month": "November", "receipt": RECEIPT}
    return sites.received("/claims") == [claim] and answer == "C-401"


async def _feed(agent: Agent, sites: Sites) -> str:
    """Scroll until the 64th post is there, open it, and read where it was written."""
    post = content.posts()[63]
    await agent.open(f"{sites.url}/feed")
    for _ in range(10):
        await agent.press("End")
        if await agent.sees(post["title"]):
            break
    await agent.click("link", post["title"])
    return await agent.read(r"mooring: ([\d.]+ N, [\d.]+ W)", "Coordinates of the mooring")


async def _feed_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    at = await agent.server.peek("() => location.pathname")
    return "/feed/post/64" in at and answer == content.posts()[63]["place"]


async def _payment(agent: Agent, sites: Sites) -> str:
    """Pay by card in a frame of another origin, and read the number of the order."""
    await agent.open(f"{sites.url}/checkout")
    await agent.fill(
        ("textbox", "Card number", "4242 4242 4242 4242"),
        ("textbox", "Expiry date", "11/29"),
        ("textbox", "Security code", "771"),
        ("textbox", "Name on the card", "Mara Lindqvist"),
    )
    await agent.click("button", "Pay €84.50")
    return await agent.read(r"received, order (\d+)", "Payment received", fresh=True)


async def _payment_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    card = {
        "number": "4242 4242 4242 4242", "expiry": "11/29", "code": "771", "holder": "Mara Lindqvist",
    }  # fmt: skip
    return sites.received("/checkout/pay") == [card] and answer == "2291"


async def _application(agent: Agent, sites: Sites) -> str:
    """Create a task in a project of a single-page application, and read its key."""
    await agent.open(f"{sites.url}/board")
    await agent.click("link", "Projects")
    await agent.click("link", "New moorings")
    await agent.click("button", "New task")
    await agent.fill(
        ("textbox", "Title", "Order two shackles"),
        ("combobox", "Assignee", "Ines Duarte"),
        ("combobox", "Priority", "High"),
    )
    await agent.click("button", "Create task")
    return await agent.read(r"Task ([\w-]+) was created", "was created", fresh=True)


async def _application_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    task = {
        "project": "p3",
        "title": "Order two shackles",
        "who": "Ines Duarte",
        "priority": "High",
    }
    return sites.received("/board/api/tasks") == [task] and answer == "N3-31"


async def _down(agent: Agent, sites: Sites) -> str:
    """Find that a site does not answer, and read the table of its mirror."""
    result = await agent.open(f"{sites.down}/tides")
    reason = "refused" if "refuse" in result.text.lower() else "unknown"
    await agent.open(f"{sites.url}/mirror")
    water = await agent.read(r'cell "Merrow, Saturday".{1,80}?cell "([\d:]+)"', "Merrow, Saturday")
    return f"{reason}, {water}"


async def _down_is_right(agent: Agent, sites: Sites, answer: str) -> bool:
    water = next(one for day, one, _ in content.tides()["Merrow"] if day == "Saturday")
    return answer == f"refused, {water}"


TASKS: Final = (
    Task("long documentation", _documentation, _documentation_is_right),
    Task("shop with type-ahead", _shop, _shop_is_right),
    Task("login with a secret", _login, _login_is_right),
    Task("table sorted by a timer", _table, _table_is_right),
    Task("wizard", _wizard, _wizard_is_right),
    Task("upload", _upload, _upload_is_right),
    Task("infinite scroll", _feed, _feed_is_right),
    Task("payment in a frame", _payment, _payment_is_right),
    Task("single-page application", _application, _application_is_right),
    Task("site that is down", _down, _down_is_right),
)
