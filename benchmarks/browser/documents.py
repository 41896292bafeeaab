"""Large generated pages: documentation of the shape that rustdoc writes, and a page that logs errors."""

from __future__ import annotations

import random
from collections.abc import Generator
from functools import cache

WHOLE = "/documents/whole"
"""A page whose snapshot takes some 200,000 tokens."""
ERRORS = "/documents/errors"
"""A page that logs sixty errors."""
TYPES = {
    "/documents/option": 50,
    "/documents/vector": 100,
    "/documents/iterator": 160,
    "/documents/string": 225,
}
"""Pages modelled on the Rust documentation: snapshots of some 2,000 to 8,000 lines, by the number of methods."""
METHODS_OF_WHOLE = 515

BUTTON = "#expand"
"""The button of a page of documentation that shows one more paragraph."""

_TEXT = """returns the value at this index or none when it is out of bounds without a check of the length and takes
ownership of its argument so that the caller keeps a reference to each element while an iterator over the slice moves to
the next one which panics if the capacity overflows"""
_WORDS = _TEXT.split()
_KINDS = (
    "Vec",
    "Option",
    "Iterator",
    "String",
    "Result",
    "Range",
    "Cow",
    "Box",
    "Slice",
    "Pattern",
)


def pages() -> dict[str, tuple[str, str]]:
    """Return the title and the body of each page by its path."""
    documents = {**TYPES, WHOLE: METHODS_OF_WHOLE}
    found = {path: (_title(path), document(path, methods)) for path, methods in documents.items()}
    return {**found, ERRORS: ("Errors", _ERRORS)}


@cache
def document(path: str, methods: int) -> str:
    """Return the body of a page; the same path has the same text in every run."""
    drawn = random.Random(path)
    names = [f"{drawn.choice(_WORDS)}_{drawn.choice(_WORDS)}_{n}" for n in range(methods)]
    nested = "".join(
        f'<li><a href="#{kind}">{kind}</a><ul>{_links(f"{kind.lower()}_{n}" for n in range(12))}</ul></li>'
        for kind in _KINDS
    )
    sections = "".join(_method(drawn, name) for name in names)
    return f"""<nav aria-label="Sidebar">
<h2>Methods</h2><ul>{_links(names)}</ul><h2>Implementations</h2><ul>{nested}</ul></nav>
<h2>Description</h2>
<button id="expand" onclick="document.getElementById('more').hidden = false">Expand description</button>
<p id="more" hidden>{_sentence(drawn)} {_sentence(drawn)}</p>{sections}"""


def _method(drawn: random.Random, name: str) -> str:
    kind, other = drawn.sample(_KINDS, 2)
    code = "\n".join(f"let {drawn.choice(_WORDS)} = {name}(&mut vector, {n});" for n in range(4))
    notes = "".join(f"<li>{_sentence(drawn)}</li>" for _ in range(drawn.randint(0, 3)))
    return f"""<section id="{name}"><h3><a href="#{name}">§</a> pub fn <a href="#{name}">{name}</a>(&amp;self) -&gt;
<a href="#{kind}">{kind}</a>&lt;<a href="#{other}">{other}</a>&gt;</h3>
<p>{_sentence(drawn)} See <a href="#{kind}"><code>{kind}</code></a> and <a href="#{other}"><code>{other}</code></a>.</p>
<ul>{notes}</ul><h4>Examples</h4><pre><code>{code}</code></pre><a href="#run-{name}">Run</a></section>"""


def _links(names: Generator[str] | list[str]) -> str:
    return "".join(f'<li><a href="#{name}">{name}</a></li>' for name in names)


def _sentence(drawn: random.Random) -> str:
    return " ".join(drawn.choices(_WORDS, k=drawn.randint(8, 24))).capitalize() + "."


def _title(path: str) -> str:
    return path.rpartition("/")[2].capitalize()


_ERRORS = """<p>Sixty errors are in the console.</p><script>
for (let n = 0; n < 60; n++) console.error(`Failed to load module ${n % 20} of the shop: TypeError: cannot read ` +
`properties of undefined (reading 'price') at render (/static/js/vendor.${n % 3}.js:${n}:17)`);</script>"""
