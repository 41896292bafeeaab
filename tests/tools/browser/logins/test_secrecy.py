"""The values of a login that is lent: nothing that an agent can call without its scripts shows one."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.browsing import Browse, text_of
from support.login_site import LoginSite

from statehold.sessions.errors import InvalidArgument, SessionError

from .conftest import Lender, Lending, session

TOKEN = "storage-token-of-ada"

TRIES: list[tuple[str, dict[str, Any]]] = [
    ("cookie_list", {}),
    ("cookie_list", {"domain": "127.0.0.1"}),
    ("cookie_get", {"name": "login"}),
    ("cookie_set", {"name": "spy", "value": "1"}),
    ("cookie_set", {"name": "spy", "value": "1", "domain": "127.0.0.1"}),
    ("localstorage_list", {}),
    ("localstorage_get", {"key": "token"}),
    ("localstorage_set", {"key": "spy", "value": "1"}),
    ("localstorage_delete", {"key": "token"}),
    ("localstorage_clear", {}),
    ("sessionstorage_list", {}),
    ("storage_state", {}),
    ("storage_state", {"filename": "mine.json"}),
    ("set_storage_state", {"filename": "mine.json"}),
    ("evaluate", {"function": "() => document.cookie"}),
    ("evaluate", {"function": "() => JSON.stringify(localStorage)"}),
    ("evaluate", {"function": "() => fetch('/echo').then(r => r.text())"}),
    ("evaluate", {"function": "e => localStorage.token", "target": "h1"}),
    ("run_code_unsafe", {"code": "async page => page.context().cookies()"}),
    ("run_code_unsafe", {"code": "async page => page.evaluate('localStorage.token')"}),
    ("route", {"pattern": "**/*", "body": "<script>document.title = localStorage.token</script>"}),
    ("route", {"pattern": "**/spy", "headers": ["X-Spy: 1"]}),
    ("navigate", {"url": "javascript:document.title = localStorage.token"}),
    ("navigate", {"url": "SITE/show"}),
    ("navigate", {"url": "SITE/echo"}),
    ("snapshot", {}),
    ("network_requests", {"static": True}),
    ("network_request", {"index": 1}),
    ("network_request", {"index": 1, "part": "request-headers"}),
    ("network_request", {"index": 1, "part": "response-headers"}),
    ("network_request", {"index": 1, "part": "response-body"}),
    ("network_request", {"index": 1, "part": "response-body", "filename": "body.txt"}),
    ("console_messages", {}),
    ("console_messages", {"filename": "console.txt"}),
    ("tabs", {"action": "list"}),
    ("tabs", {"action": "new", "url": "SITE/show"}),
    ("evaluate", {"function": "() => opener && opener.localStorage.token"}),
    ("navigate", {"url": "about:blank"}),
    ("evaluate", {"function": "() => opener && opener.localStorage.token"}),
    ("start_tracing", {}),
    ("navigate", {"url": "SITE/show"}),
    ("stop_tracing", {}),
]
"""Calls of an agent that has a login without scripts."""


async def attempt(browse: Browse, tool: str, arguments: dict[str, Any]) -> str:
    try:
        return text_of(await browse.call(tool, **arguments))
    except SessionError as error:
        return error.message


def in_files(data: Path, text: str) -> list[str]:
    """The files with a text, also those inside of archives."""
    found: list[str] = []
    for path in data.rglob("*"):
        if not path.is_file() or "temporary" in path.parts:
            continue
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                contents = [archive.read(name) for name in archive.namelist()]
        else:
            contents = [path.read_bytes()]
        if any(text.encode() in content for content in contents):
            found.append(str(path))
    return found


async def test_no_tool_shows_a_value_without_scripts(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    shop.policy = "fixed"
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        for tool, arguments in TRIES:
            if "url" in arguments:
                url = arguments["url"].replace("SITE", shop.address)
                arguments = {**arguments, "url": url}
            text = await attempt(browse, tool, arguments)
            assert shop.valid not in text, (tool, arguments)
            assert TOKEN not in text, (tool, arguments)
        for value in (shop.valid, TOKEN):
            assert in_files(data, value) == []
            assert value in browse.connection.session.secrets.texts
        # It is as it was.
        await browse.text("login_release", login="shop")
    assert await lender.cookie() == shop.valid
    assert TOKEN in str((await lender.value()).origins)


async def test_what_pages_show_of_a_rotated_cookie_is_masked(
    lending: Lending, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        text = await browse.text("navigate", url=shop.address + "/show")
        assert "[login]" in text
        assert not any(cookie in text for cookie in (*shop.used, shop.valid))


async def test_scripts_of_before_do_not_reach_the_login(
    lending: Lending, shop: LoginSite, data: Path
) -> None:
    spy = "() => setInterval(() => { document.title = localStorage.token ?? document.title }, 10)"
    async with lending(data) as service, session(service) as browse:
        await browse.text("navigate", url="about:blank")
        await browse.text("evaluate", function=spy)
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        assert await browse.page.title() == "Shop"
        await browse.text("login_release", login="shop")
        await browse.text("route", pattern="**/spy", body="spy")
        with pytest.raises(InvalidArgument, match="browser_unroute"):
            await browse.text("login_use", login="shop")
        await browse.text("unroute")
        await browse.text("run_code_unsafe", code="async page => {}")
        with pytest.raises(InvalidArgument, match="new session"):
            await browse.text("login_use", login="shop")


async def test_a_page_whose_login_went_back_runs_no_scripts(
    lending: Lending, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        await browse.text("login_release", login="shop")
        refused = await browse.call("evaluate", function="() => document.title")
        assert "do not allow them" in text_of(refused)
        await browse.text("navigate", url="about:blank")
        assert '"x"' in await browse.text("evaluate", function="() => 'x'")


async def test_the_origin_of_a_document_decides_about_scripts(
    lending: Lending, shop: LoginSite, data: Path, lab: str
) -> None:
    """An empty frame belongs to its page, and an empty window to the page that has opened it."""
    other = lab.replace("127.0.0.1", "localhost")
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=f"{other}/")
        await browse.value("document.body.append(document.createElement('iframe'))")
        assert '"x"' in await browse.text("evaluate", function="() => 'x'")
        await browse.text("navigate", url=shop.address + "/")
        async with browse.page.expect_popup():
            await browse.value("void open('about:blank')")
        await browse.text("login_release", login="shop")
        await browse.text("tabs", action="select", index=1)
        assert browse.page.url == "about:blank"
        refused = await browse.call("evaluate", function="() => opener.document.title")
        assert "do not allow them" in text_of(refused)


async def test_a_trace_has_no_header_that_logs_in(
    lending: Lending, shop: LoginSite, data: Path
) -> None:
    sent = "fetch('/api', { headers: { Authorization: 'Bearer token-' + 'in-memory' } })"
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        await browse.text("start_tracing")
        for _ in range(3):
            await browse.value(f"{sent}.then(answer => answer.text())")
        await browse.text("stop_tracing")
        assert in_files(data, shop.address) != []
        for value in ("token-in-memory", *shop.used, shop.valid):
            assert in_files(data, value) == []


async def test_a_file_is_masked_after_the_login_has_gone_back(
    lending: Lending, shop: LoginSite, data: Path
) -> None:
    save = """() => { const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([localStorage.token]));
        link.download = "token.txt"; link.textContent = "Save"; document.body.append(link); }"""
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        await browse.value(save)
        link = (await browse.call("click", target="text=Save")).payload["content"][-1]
        await browse.connection.aclose()
        read = await service.answer(browse.view, "resources/read", {"uri": link["uri"]})
        assert read["contents"][0]["text"] == "[login]"


async def test_a_rule_allows_scripts(lending: Lending, shop: LoginSite, data: Path) -> None:
    lend = [{"principals": ["local"], "scripts": True}]
    async with lending(data, lend=lend) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        assert "[login]" in await browse.text("evaluate", function="() => localStorage.token")


async def test_other_sites_keep_their_cookies_and_scripts(
    lending: Lending, shop: LoginSite, data: Path, lab: str
) -> None:
    other = lab.replace("127.0.0.1", "localhost")
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=f"{other}/")
        await browse.text("evaluate", function="() => { document.cookie = 'own=kept-value' }")
        assert "own=kept-value" in await browse.text("cookie_list")
        await browse.text("cookie_clear")
        assert "own" not in await browse.text("cookie_list")
        await browse.text("navigate", url=shop.address + "/")
        await browse.text("login_release", login="shop")
        assert set(shop.statuses) == {200}
