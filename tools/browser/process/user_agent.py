"""The user agent and client hints of pages: those that the same browser has with a window.

A headless browser names itself HeadlessChrome. Flags change the user agent of every request. The client hints of a headless
shell cannot be changed by flags, only emptied; the driver sends them with the user agent of each context
(hooks/user_agent.cjs).
"""

from __future__ import annotations

import platform
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

from .. import errors

if TYPE_CHECKING:
    from playwright.async_api import Browser

Brand: TypeAlias = Literal["Google Chrome", "Microsoft Edge"] | None
"""The brand of a browser beside Chromium."""

HOOK: Final = Path(__file__).with_name("hooks") / "user_agent.cjs"
"""The script that adds client hints to the user agents that the driver sends."""
LANGUAGES: Final = "en-US,en"
"""The languages of a headless shell, which by itself sends no Accept-Language."""
NOT_AUTOMATED: Final = "--disable-blink-features=AutomationControlled"
"""Makes `navigator.webdriver` false."""

_SYSTEMS: Final = {
    "darwin": "Macintosh; Intel Mac OS X 10_15_7",
    "win32": "Windows NT 10.0; Win64; x64",
}
_CHROME: Final = re.compile(r"Chrome/((\d+)[\d.]*)")
_WINDOWS_11: Final = 22000

_GREASE: Final = (" ", "(", ":", "-", ".", "/", ")", ";", "=", "?", "_")
_GREASE_VERSIONS: Final = ("8", "99", "24")
_ORDERS: Final = {
    2: ((0, 1), (1, 0)),
    3: ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)),
}

_of_browsers: WeakKeyDictionary[Browser, str] = WeakKeyDictionary()


def user_agent(version: str, brand: Brand = None) -> str:
    """Return the user agent of a browser of this version with a window; it shows the major version only."""
    system = _SYSTEMS.get(sys.platform, "X11; Linux x86_64")
    chrome = f"Chrome/{_reduce(version)}"
    edge = f" Edg/{_reduce(version)}" if brand == "Microsoft Edge" else ""
    return f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) {chrome} Safari/537.36{edge}"


def flags(user_agent: str | None, *, shell: bool) -> tuple[str, ...]:
    """Return the flags of a headless browser for a user agent; None if its version is not known."""
    # In a shell, hints without a user agent of ours would name HeadlessChrome.
    languages = (f"--accept-lang={LANGUAGES}",) if shell else ()
    if user_agent is None:
        return languages
    empty_hints = ("--enable-features=UACHOverrideBlank",) if shell else ()
    return (*languages, *empty_hints, f"--user-agent={user_agent}")


def with_version(user_agent: str, version: str) -> str:
    """Return the user agent of a device with the version of the browser that is like it."""
    return _CHROME.sub(f"Chrome/{_reduce(version)}", user_agent)


async def register(
    browser: Browser, user_agent: str, brand: Brand, *, shell: bool, is_own: bool
) -> None:
    """Set the user agent of a browser's contexts, and tell the driver its client hints.

    `is_own`: it names this browser on this machine, and not another one or a device.
    """
    metadata = _hints(user_agent, browser.version, brand)
    params: dict[str, Any] = {"userAgent": user_agent, "userAgentMetadata": metadata}
    if is_own:
        metadata |= _machine_hints()
    if shell:
        params["acceptLanguage"] = LANGUAGES
    session: Any = await browser.new_browser_cdp_session()
    with suppress(errors.Error):
        # The browser as a whole refuses the command; the driver has read it by then.
        await session.send("Emulation.setUserAgentOverride", params)
    await session.detach()
    _of_browsers[browser] = user_agent


def user_agent_of(browser: Browser) -> str | None:
    """Return the registered user agent of a browser's contexts; None for the browser's own."""
    return _of_browsers.get(browser)


def _reduce(version: str) -> str:
    return f"{version.partition('.')[0]}.0.0.0"


def _hints(user_agent: str, browser_version: str, brand: Brand) -> dict[str, Any]:
    """Return the brands of a user agent; none if it is no Chromium's."""
    match = _CHROME.search(user_agent)
    if match is None:
        return {"brands": [], "fullVersionList": []}
    version, major = match[1], int(match[2])
    if browser_version.startswith(f"{major}."):
        version = browser_version
    grease_version = _GREASE_VERSIONS[major % 3]
    return {
        "brands": _brands(major, brand, str(major), grease_version),
        "fullVersionList": _brands(major, brand, version, f"{grease_version}.0.0.0"),
        "fullVersion": version,
    }


def _brands(major: int, brand: Brand, version: str, grease_version: str) -> list[dict[str, str]]:
    """Return the brands in the order that Chromium gives them in a major version, with its meaningless one."""
    count = len(_GREASE)
    grease = f"Not{_GREASE[major % count]}A{_GREASE[(major + 1) % count]}Brand"
    entries = [(grease, grease_version), ("Chromium", version)]
    if brand is not None:
        entries.append((brand, version))
    orders = _ORDERS[len(entries)]
    positions = orders[major % len(orders)]
    ordered = sorted(zip(positions, entries, strict=True))
    return [{"brand": name, "version": number} for _, (name, number) in ordered]


def _machine_hints() -> dict[str, Any]:
    """Return the hints about this machine, which Playwright reads from the user agent, where they are not true."""
    machine = platform.machine().lower()
    hints: dict[str, Any] = {
        "architecture": "arm" if machine in ("arm64", "aarch64") else "x86",
        "bitness": "64",
        "wow64": False,
        "formFactors": ["Desktop"],
    }
    if sys.platform == "darwin":
        release = platform.mac_ver()[0]
        return {**hints, "platformVersion": ".".join([*release.split("."), "0", "0"][:3])}
    if sys.platform == "win32":
        is_11 = sys.getwindowsversion().build >= _WINDOWS_11
        return {**hints, "platformVersion": "15.0.0" if is_11 else "10.0.0"}
    return {**hints, "platformVersion": ""}
