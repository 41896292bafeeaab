"""Locators written in Playwright's Python or JavaScript. They are parsed and never executed as code."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from .. import errors
from ..errors import BrowserToolFailed, describe_error

if TYPE_CHECKING:
    from playwright.async_api import Frame, FrameLocator, Locator, Page

    Node: TypeAlias = Page | Locator | FrameLocator

MAX_CHARACTERS: Final = 2000
"""The longest locator that is parsed, in characters."""

SUPPORTED: Final = (
    "getByRole(), getByText(), getByLabel(), getByPlaceholder(), getByAltText(), getByTitle(), getByTestId(), locator(),"
    " frameLocator(), contentFrame(), filter(), and(), or(), nth(), first() and last(), also as in Python"
)

_LOCATOR_START: Final = re.compile(
    r"\s*(?:page\s*\.\s*\w+|get_?by\w+|(?:frame_?)?locator)\s*\(", re.IGNORECASE
)
"""Matches the beginning of a locator; no selector begins like this."""

_TOKEN: Final = re.compile(
    r"""(?P<text>r?'(?:[^'\\]|\\.)*'|r?"(?:[^"\\]|\\.)*")"""
    r"|`(?P<template>[^`\\$]*)`"
    r"|/(?P<pattern>(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/(?P<flags>[a-z]*)"
    r"|\.\s*(?P<property>first|last|contentFrame)\s*\(\s*\)"
    r"|\.\s*(?P<keyword>and|or)\b"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark>[{}:])",
    re.DOTALL,
)
"""Matches the tokens of JavaScript that differ in Python, and string literals, which stay as they are."""

_WORDS: Final = {"true": "True", "false": "False", "null": "None", "undefined": "None"}
_MARKS: Final = {"{": "", "}": "", ":": "="}
_FLAGS: Final = {"i": "re.I", "m": "re.M", "s": "re.S"}
_PYTHON_FLAGS: Final = {
    "I": re.IGNORECASE,
    "IGNORECASE": re.IGNORECASE,
    "M": re.MULTILINE,
    "MULTILINE": re.MULTILINE,
    "S": re.DOTALL,
    "DOTALL": re.DOTALL,
}
_KNOWN_FLAGS: Final = re.UNICODE | re.IGNORECASE | re.MULTILINE | re.DOTALL

_METHODS: Final = {
    "get_by_role": "text",
    "get_by_text": "words",
    "get_by_label": "words",
    "get_by_placeholder": "words",
    "get_by_alt_text": "words",
    "get_by_title": "words",
    "get_by_test_id": "words",
    "locator": "selector",
    "frame_locator": "text",
    "filter": None,
    "and_": "locator",
    "or_": "locator",
    "nth": "number",
}
"""The kind of the one positional argument of each method; None if it takes none."""

_PROPERTIES: Final = frozenset({"first", "last", "content_frame"})

_OPTIONS: Final = {
    "name": "words",
    "description": "words",
    "has_text": "words",
    "has_not_text": "words",
    "has": "locator",
    "has_not": "locator",
    "level": "number",
}
"""The kinds of named arguments; the others are booleans."""


class _NotALocator(Exception):
    """Raised for an expression that is no part of a locator."""


def is_locator(target: str) -> bool:
    """Return whether a target is meant as a locator, valid or not."""
    return _LOCATOR_START.match(target) is not None


def parse_target(page: Page, target: str) -> tuple[Locator, str, str]:
    """Return the locator for a locator as in code or a selector, its code, and how to take its first match.

    Raises:
        BrowserToolFailed: The locator cannot be parsed.
    """
    if is_locator(target):
        return *parse_locator(page, target), "`.first`"
    return page.locator(target), f"page.locator({target!r})", "`>> nth=0`"


def parse_locator(page: Page, text: str) -> tuple[Locator, str]:
    """Return the locator, and its spelling in Playwright's Python.

    Raises:
        BrowserToolFailed: The text is no locator, or more than a locator.
    """
    from playwright.async_api import Error, Locator

    if len(text) > MAX_CHARACTERS:
        raise BrowserToolFailed(f"A locator of more than {MAX_CHARACTERS} characters is not read.")
    try:
        tree = _parse(text)
        locator = _evaluate(page, tree)
        if not isinstance(locator, Locator):
            raise _NotALocator("it ends in a frame; go on to an element in it")
    except (_NotALocator, SyntaxError, TypeError, ValueError, MemoryError, RecursionError) as error:
        reason = str(error) if isinstance(error, _NotALocator) else "it cannot be read"
        raise BrowserToolFailed(
            f"{text!r} is no locator that is taken: {reason}. Taken are {SUPPORTED}; or a ref or a selector."
        ) from None
    except Error as error:
        raise BrowserToolFailed(f"{text!r} is no locator: {describe_error(error)}") from None
    return locator, ast.unparse(tree)


def _parse(source: str) -> ast.expr:
    text = _TOKEN.sub(_as_python, source.strip().removesuffix(";"))
    with warnings.catch_warnings():
        # JavaScript accepts unknown escapes; Python warns about them.
        warnings.simplefilter("ignore")
        return ast.parse(f"({text})", mode="eval").body


def _as_python(match: re.Match[str]) -> str:
    kind, text = match.lastgroup, match[0]
    if kind == "template":
        return repr(match["template"])
    if kind == "flags":
        flags = "|".join(_FLAGS[flag] for flag in match["flags"] if flag in _FLAGS)
        return f"re.compile({match['pattern']!r}, {flags or 0})"
    if kind == "property":
        return f".{_snake(match['property'])}"
    if kind == "keyword":
        return f".{match['keyword']}_"
    if kind == "word":
        return _WORDS.get(text) or _snake(text)
    return _MARKS.get(text, text)


def _snake(word: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", word)


def _evaluate(page: Page, node: ast.expr) -> Node:
    """Return the object of an expression: the page, a locator, or a frame. A leading `page.` may be absent and is added."""
    match node:
        case ast.Name(id="page"):
            return page
        case ast.Attribute(value=inner, attr=name) if name in _PROPERTIES:
            return _attribute(_evaluate(page, inner), name)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)):
            target: Node = _evaluate(page, inner)
        case ast.Call(func=ast.Name(id=name)):
            target = page
            node.func = ast.Attribute(ast.Name("page"), name)
        case _:
            raise _NotALocator(f"{ast.unparse(node)[:100]} is no part of one")
    if name not in _METHODS:
        raise _NotALocator(f"{name}() is no part of one")
    kind = _METHODS[name]
    if len(node.args) != (kind is not None):
        raise _NotALocator(f"{name}() takes {'one argument' if kind else 'named arguments only'}")
    values = [_value(page, kind, argument) for argument in node.args if kind]
    options: dict[str, Any] = {}
    for option in node.keywords:
        if option.arg is None:
            raise _NotALocator("** is no part of one")
        options[option.arg] = _value(page, _OPTIONS.get(option.arg, "truth"), option.value)
    return _attribute(target, name)(*values, **options)


def _attribute(target: Node, name: str) -> Any:
    attribute = getattr(target, name, None)
    if attribute is None:
        raise _NotALocator(f"a {type(target).__name__} has no {name}")
    return attribute


def _value(page: Page, kind: str, node: ast.expr) -> Any:
    """Return the value of an argument: a text, a number, a regular expression, or another locator."""
    from playwright.async_api import Locator

    if kind == "locator" or (kind == "selector" and not isinstance(node, ast.Constant)):
        locator = _evaluate(page, node)
        if isinstance(locator, Locator):
            return locator
        raise _NotALocator(f"{ast.unparse(node)[:100]} is no element")
    if kind == "words" and isinstance(node, ast.Call):
        return _pattern(node)
    value: object = ast.literal_eval(node)
    expected_type = {"number": int, "truth": bool}.get(kind, str)
    if type(value) is expected_type or (value is None and kind == "truth"):
        return value
    raise _NotALocator(f"{ast.unparse(node)[:100]} is not what is taken there")


def _pattern(node: ast.Call) -> re.Pattern[str]:
    if ast.unparse(node.func) != "re.compile" or not 1 <= len(node.args) <= 2 or node.keywords:
        raise _NotALocator(f"{ast.unparse(node)[:100]} is no part of one")
    source = ast.literal_eval(node.args[0])
    flags = re.NOFLAG
    for part in ast.walk(node.args[-1]):
        if isinstance(part, ast.Attribute):
            flags |= _PYTHON_FLAGS.get(part.attr, re.NOFLAG)
    try:
        pattern = re.compile(cast("str", source), flags)
    except (re.error, OverflowError) as error:
        raise _NotALocator(f"{source!r:.100} is no regular expression: {error}") from None
    if pattern.flags & ~_KNOWN_FLAGS:
        raise _NotALocator(f"{source!r:.100} has flags that pages do not know")
    return pattern


async def find_element(
    page: Page, locate: Callable[[Frame], Locator], code: str, *, visible: bool = True
) -> str | None:
    """Return Playwright's Python for the first element that `locate` locates in a frame; None if there is none.

    `code` is the Python for all elements that `locate` locates outside of frames. With `visible`, others do not count.
    """
    for frame in page.frames:
        matches = locate(frame).filter(visible=True) if visible else locate(frame)
        try:
            count = await matches.count()
            if count == 0:
                continue
            if frame is not page.main_frame:
                return f"page.{await matches.first.normalize()}"
            if await locate(frame).count() == 1:
                return code
            only_visible = ".filter(visible=True)" if visible else ""
            return f"{code}{only_visible}{'.first' if count > 1 else ''}"
        except errors.Error:
            # A frame that is being replaced has no elements.
            if frame is page.main_frame or page.is_closed():
                raise
    return None
