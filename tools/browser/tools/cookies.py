"""The cookies of the session: reading, setting and deleting them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import Field

from ...definition import NoArguments
from .. import errors
from ..call import BrowserCall
from ..devtools.world import origin_of
from ..errors import BrowserToolFailed, describe_error
from ..snapshot.restore import delete_cookies
from ..tool import BrowserArguments, BrowserTool, tool

if TYPE_CHECKING:
    from playwright.async_api import Cookie

_READ_CODE = "await page.context.cookies()"
_NO_HOST: Final = re.compile(r"[\s\x00-\x1f/\\?#@%]|\]:")
"""Matches a character that does not belong to a host, though a URL with it may be valid."""
_PORT: Final = re.compile(r":\d+$")
HIDDEN_COOKIES: Final = 20
"""The number of cookies whose values are kept out of the journal; it records only the beginning of a result."""


class ListCookies(BrowserArguments):
    domain: Annotated[str | None, Field(description="Only of domains that contain this")] = None
    path: Annotated[str | None, Field(description="Only of paths that begin with this")] = None


@tool("browser_cookie_list", title="List cookies", cap="storage", read_only=True)
async def cookie_list(call: BrowserCall, arguments: ListCookies) -> None:
    """List the cookies of the session, of all sites unless a domain or a path is given."""
    cookies = [
        cookie
        for cookie in await _cookies_of(call)
        if (arguments.domain or "") in cookie.get("domain", "")
        and cookie.get("path", "").startswith(arguments.path or "")
    ]
    _hide_values(call, cookies)
    lines = [
        f"{cookie.get('name')}={cookie.get('value')} ({_site_of(cookie)})" for cookie in cookies
    ]
    call.answer.result("\n".join(lines) or "No cookies found")
    call.answer.code(_READ_CODE)


class CookieName(BrowserArguments):
    name: Annotated[str, Field(description="The name of the cookie")]


@tool("browser_cookie_get", title="Get cookie", cap="storage", read_only=True)
async def cookie_get(call: BrowserCall, arguments: CookieName) -> None:
    """Return the cookies of one name with their attributes; there is one for each site that set it."""
    cookies = await _cookies_named(call, arguments.name)
    _hide_values(call, cookies)
    call.answer.result(
        "\n".join(map(_describe_cookie, cookies)) or f"Cookie '{arguments.name}' not found"
    )
    call.answer.code(_READ_CODE)


def _hide_values(call: BrowserCall, cookies: Sequence[Cookie]) -> None:
    """Keep the values of the first cookies out of the journal: most are logins."""
    call.hide_from_journal(cookie.get("value", "") for cookie in cookies[:HIDDEN_COOKIES])


async def _cookies_named(call: BrowserCall, name: str) -> list[Cookie]:
    return [cookie for cookie in await _cookies_of(call) if cookie.get("name") == name]


async def _cookies_of(call: BrowserCall) -> list[Cookie]:
    """Return the cookies of the session, without those of logins."""
    cookies = await call.session.context.cookies()
    return [cookie for cookie in cookies if not call.login_sites.has_cookie(cookie)]


def _site_of(cookie: Cookie) -> str:
    return f"domain: {cookie.get('domain')}, path: {cookie.get('path')}"


def _describe_cookie(cookie: Cookie) -> str:
    words = {key: json.dumps(bool(cookie.get(key))) for key in ("httpOnly", "secure")}
    words["sameSite"] = str(cookie.get("sameSite"))
    expires = cookie.get("expires", -1)
    if expires > 0:
        words["expires"] = f"{expires:.0f}"
    flags = ", ".join(f"{key}: {value}" for key, value in words.items())
    return f"{cookie.get('name')}={cookie.get('value')} ({_site_of(cookie)}, {flags})"


class SetCookie(BrowserArguments):
    name: Annotated[str, Field(min_length=1)]
    value: str
    domain: Annotated[str | None, Field(description="The host of the page when left out")] = None
    path: Annotated[str | None, Field(description="/ when left out")] = None
    expires: Annotated[
        float | None, Field(description="Seconds since 1970; with the session when left out")
    ] = None
    http_only: Annotated[bool | None, Field(alias="httpOnly")] = None
    secure: bool | None = None
    same_site: Annotated[Literal["Strict", "Lax", "None"] | None, Field(alias="sameSite")] = None


@tool("browser_cookie_set", title="Set cookie", cap="storage", secret=["value"])
async def cookie_set(call: BrowserCall, arguments: SetCookie) -> None:
    """Set a cookie, for the site of the current page unless a domain is given. The page sees it at its next request."""
    cookie: dict[str, Any] = arguments.model_dump(by_alias=True, exclude_none=True)
    if arguments.domain is None:
        url = (await call.tab()).page.url
        cookie["domain"] = _host_of(url)
        if not cookie["domain"]:
            raise BrowserToolFailed(
                "The current page is of no site; give a domain, or open the site first."
            )
    else:
        cookie["domain"] = _domain_of(arguments.domain)
        url = f"{'https' if arguments.secure else 'http'}://{cookie['domain']}"
    cookie.setdefault("path", "/")
    if call.login_sites.has_cookie(cookie):
        raise BrowserToolFailed(f"The cookies of {cookie['domain']} belong to a login.")
    value = call.session.secrets.named.insert(arguments.value, url)
    if value != arguments.value and url.startswith("https:"):
        # Otherwise the value would go over plain HTTP to the same host.
        cookie["secure"] = True
    try:
        await call.session.context.add_cookies(cast("Any", [{**cookie, "value": value}]))
    except errors.Error as error:
        raise BrowserToolFailed(f"The cookie was not set: {describe_error(error)}.") from None
    call.answer.code(f"await page.context.add_cookies([{cookie!r}])")


def _domain_of(text: str) -> str:
    """Return the domain of a cookie as the browser writes it.

    Raises:
        BrowserToolFailed: The text is more or less than the name or the address of a host.
    """
    dot, host = ("." if text.startswith(".") else ""), text.removeprefix(".")
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    domain = "" if _NO_HOST.search(host) else _host_of(f"https://{host}")
    if not domain.strip("."):
        raise BrowserToolFailed(
            f"{text[:200]!r} is no domain; give a host such as shop.test or .shop.test."
        )
    return f"{dot}{domain}"


def _host_of(url: str) -> str:
    """Return the host of a web address as the browser writes it, or ""."""
    origin = origin_of(url)
    return "" if origin is None else _PORT.sub("", origin.partition("://")[2])


@tool("browser_cookie_delete", title="Delete cookie", cap="storage")
async def cookie_delete(call: BrowserCall, arguments: CookieName) -> None:
    """Delete the cookies of one name, of all sites."""
    cookies = await _cookies_named(call, arguments.name)
    if not cookies:
        call.answer.result(f"Cookie '{arguments.name}' not found")
    await delete_cookies(call.session.context, cookies)
    call.answer.code(f"await page.context.clear_cookies(name={arguments.name!r})")


@tool("browser_cookie_clear", title="Clear cookies", cap="storage")
async def cookie_clear(call: BrowserCall, arguments: NoArguments) -> None:
    """Delete all cookies of the session, which logs out of most sites."""
    await delete_cookies(call.session.context, await _cookies_of(call))
    call.answer.code("await page.context.clear_cookies()")


TOOLS: list[BrowserTool] = [cookie_list, cookie_get, cookie_set, cookie_delete, cookie_clear]
