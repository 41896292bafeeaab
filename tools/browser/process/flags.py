"""The flags a browser is started with, and how ours and the configured ones join Playwright's."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from .executables import playwright_package

logger = logging.getLogger("statehold.browser")

SLIM: Final = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup")
"""Features of a whole browser that cost a renderer in every context: the list under an address bar that nobody sees."""

SETTINGS: Final = "--blink-settings="
_OF_PLAYWRIGHT: Final = (
    "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
)
"""What Playwright gives a browser without a window; a second list of settings hides the first."""
_OURS: Final = "middleClickPasteAllowed=false"
"""What is selected in one session would be pasted by the middle button in another."""

_LISTS: Final = {
    "--disable-features": b"disabledFeatures = [",
    "--enable-features": b"enabledFeatures = () => [",
}
"""How Playwright's source begins the list of each flag."""
_BUNDLE: Final = "lib/coreBundle.js"
_STRING: Final = re.compile(r'"(\w+)"')


def joined(*flags: str) -> list[str]:
    """Return flags to give Playwright, so that no list of features hides another.

    Of `--disable-features` given twice a browser takes the last: all of them become one, with Playwright's own in front.
    """
    result: list[str] = []
    lists: dict[str, list[str]] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in _LISTS:
            lists.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif flag not in result:
            result.append(flag)
    for name, wanted in lists.items():
        result.append(_list(name, [*of_playwright(name), *wanted]))
    return result


def with_settings(args: Sequence[str], *, headless: bool) -> list[str]:
    """Return arguments of a browser with our settings, Playwright's and those that are among them in one list."""
    given = [arg.removeprefix(SETTINGS) for arg in args if arg.startswith(SETTINGS)]
    first = (_OF_PLAYWRIGHT,) if headless else ()
    rest = [arg for arg in args if not arg.startswith(SETTINGS)]
    return [*rest, SETTINGS + ",".join([*first, _OURS, *given])]


def _list(name: str, features: Iterable[str]) -> str:
    return f"{name}={','.join(dict.fromkeys(features))}"


def slim() -> tuple[str, ...]:
    """Return the flag that makes a whole browser smaller; nothing when Playwright's own list cannot be told."""
    if not of_playwright("--disable-features"):
        # A larger browser works; one without Playwright's list is another browser than Playwright expects.
        logger.warning("this version of Playwright hides its flags; the browser uses more memory")
        return ()
    return (_list("--disable-features", SLIM),)


@cache
def of_playwright(name: str) -> Sequence[str]:
    """Return the features that Playwright itself gives in one flag, empty when that cannot be told.

    It offers no way to ask, so they are read from its source, some milliseconds once. A test compares them with the command
    line of a browser that it started.
    """
    package = playwright_package()
    if package is None:
        return ()
    try:
        source = (package / _BUNDLE).read_bytes()
    except OSError:
        return ()
    start = source.find(_LISTS[name])
    end = source.find(b"]", start)
    if start < 0 or end < 0:
        return ()
    lines = source[start:end].decode("utf-8", "replace").splitlines()[1:]
    return tuple(_STRING.findall("\n".join(line for line in lines if "//" not in line)))


__all__ = ["SLIM", "joined", "of_playwright", "slim", "with_settings"]
