"""The flags of a browser: ours and the configured ones, joined with Playwright's."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from .executables import playwright_package

logger = logging.getLogger("statehold.browser")

SLIM: Final = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "AutofillServerCommunication",
)
"""Features of a full browser that no session uses. The popup of an address bar that is never shown costs a renderer in every
context; autofill asks a server about each form, which a result would report as a request of the page that failed."""

SETTINGS: Final = "--blink-settings="
_PLAYWRIGHT_SETTINGS: Final = (
    "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
)
"""Playwright's settings for a headless browser. They are repeated here because a second list of settings hides the first."""
_OUR_SETTINGS: Final = "middleClickPasteAllowed=false"
"""With middle-click paste on, text selected in one session could be pasted in another."""

_PLAYWRIGHT_LISTS: Final = {
    "--disable-features": b"disabledFeatures = [",
    "--enable-features": b"enabledFeatures = () => [",
}
"""The text that begins the list of each flag in Playwright's source."""
_LISTS: Final = (*_PLAYWRIGHT_LISTS, "--disable-blink-features")
"""The flags whose value is a list of which a browser uses only the last."""
_BUNDLE: Final = "lib/coreBundle.js"
_STRING: Final = re.compile(r'"(\w+)"')


def join_flags(*flags: str) -> list[str]:
    """Return the flags to pass to Playwright, with lists of features joined.

    A browser uses only the last `--disable-features`, so all of them become one list that begins with Playwright's own. The
    other lists are joined in the same way.
    """
    result: list[str] = []
    lists: dict[str, list[str]] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in _LISTS:
            lists.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif flag not in result:
            result.append(flag)
    for name, features in lists.items():
        result.append(_list(name, [*playwright_features(name), *features]))
    return result


def with_settings(args: Sequence[str], *, headless: bool) -> list[str]:
    """Return arguments of a browser in which Playwright's settings, ours and the given ones form one list."""
    configured = [arg.removeprefix(SETTINGS) for arg in args if arg.startswith(SETTINGS)]
    first = (_PLAYWRIGHT_SETTINGS,) if headless else ()
    rest = [arg for arg in args if not arg.startswith(SETTINGS)]
    return [*rest, SETTINGS + ",".join([*first, _OUR_SETTINGS, *configured])]


def _list(name: str, features: Iterable[str]) -> str:
    return f"{name}={','.join(dict.fromkeys(features))}"


def slim() -> tuple[str, ...]:
    """Return the flag that reduces the memory of a full browser; empty if Playwright's own list cannot be read."""
    if not playwright_features("--disable-features"):
        # More memory does no harm, but Playwright relies on its own list, which our flag would hide.
        logger.warning("this version of Playwright hides its flags; the browser uses more memory")
        return ()
    return (_list("--disable-features", SLIM),)


@cache
def playwright_features(name: str) -> Sequence[str]:
    """Return the features that Playwright itself lists in one flag; empty if they cannot be read.

    Playwright has no API for them, so they are read from its source, which takes some milliseconds once. A test compares
    them with the command line of a browser that Playwright started.
    """
    package = playwright_package()
    if package is None or name not in _PLAYWRIGHT_LISTS:
        return ()
    try:
        source = (package / _BUNDLE).read_bytes()
    except OSError:
        return ()
    start = source.find(_PLAYWRIGHT_LISTS[name])
    end = source.find(b"]", start)
    if start < 0 or end < 0:
        return ()
    lines = source[start:end].decode("utf-8", "replace").splitlines()[1:]
    return tuple(_STRING.findall("\n".join(line for line in lines if "//" not in line)))
