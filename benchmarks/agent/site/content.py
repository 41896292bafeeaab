"""The data on the pages, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

CUSTOMER: Final = "70041"
PASSWORD: Final = "correct horse 7 staple"
PEOPLE: Final = (
    "Mara Lindqvist", "Tom Okafor", "Ines Duarte", "Jonas Feld", "Priya Nair", "Callum Reid",
    "Aiko Mori", "Sofia Brandt", "Levi Stern", "Nora Haugen", "Paul Duval", "Wren Castle",
)  # fmt: skip
COUNTRIES: Final = (
    "Austria", "Belgium", "Bulgaria", "Croatia", "Cyprus", "Czechia", "Denmark", "Estonia", "Finland",
    "France", "Germany", "Greece", "Hungary", "Iceland", "Ireland", "Italy", "Latvia", "Lithuania",
    "Luxembourg", "Malta", "Netherlands", "Norway", "Poland", "Portugal", "Romania", "Slovakia",
    "Slovenia", "Spain", "Sweden", "Switzerland", "Turkey", "Ukraine", "United Kingdom",
)  # fmt: skip
SENTENCES: Final = (
    "The wind had gone round to the west by noon and the harbour filled within the hour.",
    "Check the lines twice before you leave the boat for more than a night.",
    "Nobody in the office remembered who had ordered the second crane.",
    "It holds well in mud and sand, and badly in weed, as every anchor of its kind.",
    "The museum opens at ten, and the café beside it rather later than that.",
    "Answer the questions in order, and keep a copy of the form for the next survey.",
    "After the third winter the varnish had to go, and oil took its place.",
    "The channel is dredged every other year, so trust the buoys more than the chart.",
)  # fmt: skip
_THINGS: Final = (
    "lantern",
    "rope",
    "boots",
    "compass",
    "blanket",
    "kettle",
    "anchor",
    "knife",
    "bell",
    "cushion",
)
_KINDS: Final = ("Storm", "Harbour", "Skipper's", "Folding", "Winter", "Oak")
FINISHES: Final = {"plain": "Plain", "aged": "Aged brass", "black": "Blackened"}


@dataclass(frozen=True, slots=True)
class Product:
    id: int
    name: str
    price: float


def _products() -> Generator[Product]:
    drawn = random.Random(1)
    for number in range(60):
        kind, thing = _KINDS[number // 10], _THINGS[number % 10]
        yield Product(number + 1, f"{kind} {thing}", drawn.randrange(400, 12000) / 100)


PRODUCTS: Final = {product.id: product for product in _products()}
LISTED: Final = 48
"""The number of products on the first page; the others are found by searching."""


def search(words: str) -> list[dict[str, Any]]:
    """Return the first products whose names contain some words."""
    found = [one for one in PRODUCTS.values() if words.lower() in one.name.lower()]
    return [{"id": one.id, "name": one.name} for one in found[:8]]


def sentences(drawn: random.Random, count: int) -> str:
    return " ".join(drawn.choices(SENTENCES, k=count))


def payments() -> list[tuple[str, str, str, str]]:
    drawn = random.Random(2)
    kinds = ("Card", "Transfer", "Direct debit")
    return [
        (
            f"{23 - number // 2} November",
            f"{drawn.choice(PEOPLE).split()[1]} and Sons",
            drawn.choice(kinds),
            f"-£{drawn.randrange(300, 30000) / 100:.2f}",
        )
        for number in range(40)
    ]


def inventory() -> list[list[Any]]:
    """Return rows of code, name, store, stock, weight and supplier; all weights differ."""
    drawn = random.Random(3)
    weights = drawn.sample(range(10, 9000), 60)
    return [
        [
            f"HB-{1000 + number}",
            f"{drawn.choice(_KINDS)} {drawn.choice(_THINGS)} {number}",
            drawn.choice(("North shed", "Quay", "Loft")),
            drawn.randrange(200),
            weight / 10,
            drawn.choice(PEOPLE),
        ]
        for number, weight in enumerate(weights)
    ]


def claims() -> list[tuple[str, str, str, str, str]]:
    drawn = random.Random(4)
    reasons = ("Train", "Hotel", "Paint", "Survey", "Fuel")
    return [
        (
            f"C-{400 - number}",
            drawn.choice(reasons),
            drawn.choice(("September", "October")),
            f"£{drawn.randrange(900, 40000) / 100:.2f}",
            drawn.choice(("Paid", "In review")),
        )
        for number in range(40)
    ]


def posts() -> list[dict[str, Any]]:
    drawn = random.Random(5)
    subjects = ("The ferry", "A quiet anchorage", "Fog", "New paint", "The long pier")
    return [
        {
            "number": number,
            "title": f"{drawn.choice(subjects)}, part {number}",
            "text": sentences(drawn, 3),
            "author": drawn.choice(PEOPLE),
            "date": f"{1 + number % 28} October",
            "likes": drawn.randrange(400),
            "place": f"{drawn.randrange(5000, 5900) / 100:.2f} N, {drawn.randrange(900) / 100:.2f} W",
        }
        for number in range(1, 121)
    ]


PROJECTS: Final = {
    f"p{number}": name
    for number, name in enumerate(
        (
            "Lighthouse refit", "Ferry timetable", "New moorings", "Fuel dock", "Visitor pages", "Winter storage",
            "Crane inspection", "Noise survey", "Museum boat", "Chart update", "Radio mast", "Shore power",
        ),
        1,
    )
}  # fmt: skip


def board() -> dict[str, list[dict[str, str]]]:
    """Return the tasks of each project."""
    drawn = random.Random(6)
    verbs = ("Order", "Measure", "Paint", "Replace", "Inspect", "Describe")
    return {
        project: [
            {
                "key": f"{name[0]}{project[1:]}-{number}",
                "title": f"{drawn.choice(verbs)} the {drawn.choice(_THINGS)}",
                "who": drawn.choice(PEOPLE),
                "status": drawn.choice(("Open", "Doing", "Done")),
            }
            for number in range(1, 31)
        ]
        for project, name in PROJECTS.items()
    }


def tides() -> dict[str, list[tuple[str, str, str]]]:
    """Return by place the day and the times of both high waters."""
    drawn = random.Random(7)
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    places = ("Port Anstey", "Cairn Head", "Sallow Bay", "Old Quay", "Merrow", "Tern Island")

    def time(first: int) -> str:
        return f"{first + drawn.randrange(6):02}:{drawn.randrange(60):02}"

    return {place: [(day, time(1), time(13)) for day in days] for place in places}
