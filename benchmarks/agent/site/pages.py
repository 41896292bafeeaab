"""Pages of the sites, put together from `html/` and the data."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from . import content, documentation

HTML: Final = Path(__file__).parent / "html"
BRANDS: Final = {
    "docs": ("Tidewater", "Guide,Reference,Recipes,Releases,Community,Blog,Source,Support"),
    "shop": ("Quay Goods", "Lighting,Ropes,Clothing,Kitchen,Navigation,Gifts,Sale,Brands,Journal"),
    "bank": ("Harbour Bank", "Accounts,Cards,Loans,Mortgages,Insurance,Pensions,Help"),
    "inventory": ("Stores", "Items,Orders,Deliveries,Suppliers,Reports,Users,Settings"),
    "register": ("Port Authority", "Boats,Berths,Pilots,Tariffs,Notices,Contact"),
    "claims": ("Ledger", "Claims,Invoices,Budgets,Approvals,Reports,Settings"),
    "feed": ("Coastwise", "Notes,Photos,Maps,Events,Groups,Market"),
    "checkout": (
        "Quay Goods",
        "Lighting,Ropes,Clothing,Kitchen,Navigation,Gifts,Sale,Brands,Journal",
    ),
    "board": ("Slipway", "Work,Calendar,Files,Chat,Search,Help"),
    "mirror": ("Coast Mirror", "Tides,Weather,Notices,Charts,About"),
}
_FOOTER: Final = {
    "About us": "Company,Jobs,Press,Sustainability,Partners",
    "Help": "Contact,Delivery,Returns,Questions,Accessibility",
    "Legal": "Terms,Privacy,Cookies,Imprint,Licences",
    "Follow us": "Newsletter,Podcast,Videos,Pictures,Feed",
}


def filled(name: str, values: dict[str, Any]) -> str:
    text = (HTML / f"{name}.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: str(values[match[1]]), text)


def page(site: str, title: str, body: str, *, tools: str = "") -> str:
    """Return a page with the header and the footer of its site."""
    brand, links = BRANDS[site]
    columns = "".join(
        f"<section><h2>{head}</h2><ul>{_links(names.split(','))}</ul></section>"
        for head, names in _FOOTER.items()
    )
    values = {
        "title": title, "brand": brand, "home": f"/{site}", "body": body, "tools": tools,
        "navigation": _links(links.split(",")), "columns": columns,
    }  # fmt: skip
    return filled("layout", values)


def docs() -> str:
    return page("docs", "Reference", documentation.body())


def notes(version: str) -> str:
    return page("docs", f"Version {version}", documentation.notes(version))


def shop(basket: int) -> str:
    cards = "".join(
        f'<div class="card"><a href="/shop/product/{one.id}">{one.name}</a><p>£{one.price:.2f}</p>'
        f"<p>{one.id % 3 + 3} of 5 stars</p><button>Add {one.name} to wish list</button></div>"
        for one in [*content.PRODUCTS.values()][: content.LISTED]
    )
    body = filled("shop", {"count": len(content.PRODUCTS), "cards": cards})
    return page("shop", "Outdoor and boat", body, tools=_shop_tools(basket))


def product(number: int, basket: int) -> str:
    shown, drawn = content.PRODUCTS[number], random.Random(number)
    reviews = "".join(
        f"<article><h3>{drawn.randrange(3, 6)} of 5 stars, by {drawn.choice(content.PEOPLE)}</h3>"
        f"<p>{content.sentences(drawn, 2)}</p><button>Helpful</button> <button>Report</button></article>"
        for _ in range(16)
    )
    values = {
        "id": shown.id, "name": shown.name, "price": f"{shown.price:.2f}",
        "reviews": reviews, "related": _related(drawn),
    }  # fmt: skip
    return page("shop", shown.name, filled("product", values), tools=_shop_tools(basket))


def basket(orders: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            content.PRODUCTS[order["product"]].name,
            content.FINISHES[order["finish"]],
            order["amount"],
            f"£{content.PRODUCTS[order['product']].price:.2f}",
            "<button>Remove</button>",
        )
        for order in orders
    ]
    total = 4.9 + sum(content.PRODUCTS[one["product"]].price * one["amount"] for one in orders)
    values = {"rows": _rows(rows), "total": f"{total:.2f}", "related": _related(random.Random(9))}
    return page("shop", "Basket", filled("basket", values), tools=_shop_tools(len(orders)))


def login(problem: str) -> str:
    advice = "".join(f"<li>{one}</li>" for one in content.SENTENCES)
    values = {"problem": problem, "advice": advice, "questions": _questions(10)}
    return page("bank", "Log in", filled("login", values))


def accounts() -> str:
    return page("bank", "Accounts", filled("accounts", {"payments": _rows(content.payments())}))


def inventory() -> str:
    items = json.dumps(content.inventory())
    return page("inventory", "Inventory", filled("inventory", {"items": items}))


def register() -> str:
    countries = "".join(f"<option>{name}</option>" for name in content.COUNTRIES)
    values = {"countries": countries, "questions": _questions(15)}
    return page("register", "Register a boat", filled("register", values))


def claims() -> str:
    return page("claims", "Claims", filled("claims", {"claims": _rows(content.claims())}))


def feed() -> str:
    return page("feed", "Notes", filled("feed", {}))


def post(number: int) -> str:
    values, drawn = content.posts()[number - 1], random.Random(number)
    text = "".join(f"<p>{content.sentences(drawn, 4)}</p>" for _ in range(8))
    comments = "".join(
        f"<article><h3>{drawn.choice(content.PEOPLE)}</h3><p>{content.sentences(drawn, 1)}</p>"
        f"<button>Reply</button></article>"
        for _ in range(20)
    )
    more = {"text": text, "comments": comments, "related": _related(drawn)}
    return page("feed", values["title"], filled("post", {**values, **more}))


def checkout(frame: str) -> str:
    drawn = random.Random(10)
    lines = [
        (one.name, 1, f"€{one.price:.2f}") for one in drawn.sample([*content.PRODUCTS.values()], 6)
    ]
    values = {"lines": _rows(lines), "frame": frame, "questions": _questions(10)}
    return page("checkout", "Checkout", filled("checkout", values))


def card() -> str:
    return filled("card", {})


def board() -> str:
    people = "".join(f"<option>{name}</option>" for name in content.PEOPLE)
    return page("board", "Board", filled("board", {"people": people}))


def tides() -> str:
    tables = "".join(
        f"<h2>{place}</h2><table><thead><tr><th>Day</th><th>First high water</th><th>Second high water</th></tr></thead>"
        f"<tbody>{_rows([(f'{place}, {day}', one, two) for day, one, two in days])}</tbody></table>"
        for place, days in content.tides().items()
    )
    return page("mirror", "Tides", filled("tides", {"tables": tables}))


def _shop_tools(count: int) -> str:
    return filled("shop_tools", {"items": items(count)})


def items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def _links(names: Iterable[str]) -> str:
    return "".join(f'<li><a href="#{name.lower()}">{escape(name)}</a></li>' for name in names)


def _rows(rows: Iterable[Iterable[object]]) -> str:
    return "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)


def _related(drawn: random.Random) -> str:
    some = drawn.sample([*content.PRODUCTS.values()], 12)
    return "".join(
        f'<li><a href="/shop/product/{one.id}">{one.name}</a> £{one.price:.2f}</li>' for one in some
    )


def _questions(count: int) -> str:
    drawn = random.Random(count)
    return "".join(
        f"<details><summary>{drawn.choice(content.SENTENCES)}</summary><p>{content.sentences(drawn, 2)}</p></details>"
        for _ in range(count)
    )


PLAIN: Final = {
    "inventory": inventory,
    "register": register,
    "claims": claims,
    "feed": feed,
    "mirror": tides,
}
"""Pages that are the same for all visitors, by their path."""
