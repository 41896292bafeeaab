"""Cookies, local storage, session storage, and all of them as a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.browsing import Browse, again, new_view, opened, section, text_of
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.peer

AREAS = [("localstorage", "localStorage"), ("sessionstorage", "sessionStorage")]


async def test_a_cookie_is_set_for_the_site_of_the_page(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/logins")
    text = await browse.text("cookie_set", name="a", value="1")
    assert "add_cookies([{'name': 'a', 'value': '1', 'domain': '127.0.0.1', 'path': '/'}])" in text
    assert await browse.value("() => document.cookie") == "a=1"
    listed = await browse.text("cookie_list")
    assert section(listed, "Result") == "a=1 (domain: 127.0.0.1, path: /)"


async def test_a_cookie_has_attributes_and_another_domain(browse: Browse) -> None:
    wanted: dict[str, Any] = {"httpOnly": True, "secure": True, "sameSite": "Strict"}
    await browse.text("cookie_set", name="b", value="2", domain="example.org", path="/x", **wanted)
    cookie = section(await browse.text("cookie_get", name="b"), "Result")
    assert cookie == (
        "b=2 (domain: example.org, path: /x, httpOnly: true, secure: true, sameSite: Strict)"
    )


async def test_cookies_are_listed_by_domain_and_by_path(browse: Browse) -> None:
    await browse.text("cookie_set", name="a", value="1", domain="example.org")
    await browse.text("cookie_set", name="b", value="2", domain="example.com", path="/x")
    by_domain = section(await browse.text("cookie_list", domain="example.org"), "Result")
    assert by_domain == "a=1 (domain: example.org, path: /)"
    by_path = section(await browse.text("cookie_list", path="/x"), "Result")
    assert by_path == "b=2 (domain: example.com, path: /x)"
    assert "No cookies found" in await browse.text("cookie_list", domain="none.org")


async def test_the_journal_gets_no_login_of_a_cookie_or_an_address(
    browse: Browse, lab: str
) -> None:
    assert (await browse.call("cookie_set", name="a", value="login 1")).secrets == ["login 1"]
    await browse.text("cookie_set", name="a", value="login 1", domain="example.org")
    assert (await browse.call("cookie_get", name="a")).secrets == ["login 1"]
    assert (await browse.call("cookie_list")).secrets == ["login 1"]
    assert not (await browse.call("snapshot")).secrets
    for password in ("it's", "p@ss"):
        address = lab.replace("://", f"://ada:{password}@")
        assert password in ((await browse.call("navigate", url=address)).secrets or ())


async def test_cookies_are_deleted_by_name_and_all_at_once(browse: Browse) -> None:
    for name in ("a", "b", "c"):
        await browse.text("cookie_set", name=name, value="1", domain="example.org")
    await browse.text("cookie_delete", name="a")
    assert "Cookie 'a' not found" in await browse.text("cookie_get", name="a")
    assert "Cookie 'a' not found" in await browse.text("cookie_delete", name="a")
    assert "b=1" in await browse.text("cookie_list")
    await browse.text("cookie_clear")
    assert "No cookies found" in await browse.text("cookie_list")


async def test_a_cookie_of_no_site_says_what_to_give(browse: Browse) -> None:
    text = await browse.error("cookie_set", name="a", value="1")
    assert "give a domain, or open the site first" in text


async def test_a_refused_cookie_is_an_error(browse: Browse) -> None:
    text = await browse.error("cookie_set", name="a", value="1;2\n", domain="example.org")
    assert "The cookie was not set" in text


@pytest.mark.parametrize(("tool", "name"), AREAS)
async def test_items_are_set_read_and_deleted(
    browse: Browse, lab: str, tool: str, name: str
) -> None:
    await browse.text("navigate", url=f"{lab}/logins")
    assert f"No {name} items found" in await browse.text(f"{tool}_list")
    await browse.text(f"{tool}_set", key="login", value="ada")
    await browse.text(f"{tool}_set", key="other", value='{"x":1}')
    assert await browse.value(f"() => {name}.login") == "ada"
    listed = section(await browse.text(f"{tool}_list"), "Result")
    assert sorted(listed.splitlines()) == ["login=ada", 'other={"x":1}']
    assert section(await browse.text(f"{tool}_get", key="login"), "Result") == "login=ada"
    await browse.text(f"{tool}_delete", key="login")
    assert f"{name} key 'login' not found" in await browse.text(f"{tool}_get", key="login")
    assert f"{name} key 'login' not found" in await browse.text(f"{tool}_delete", key="login")
    await browse.text(f"{tool}_clear")
    assert await browse.value(f"() => {name}.length") == 0


@pytest.mark.parametrize(("tool", "name"), matrix(*AREAS))
async def test_a_page_of_no_site_has_no_storage(browse: Browse, tool: str, name: str) -> None:
    text = await browse.error(f"{tool}_list")
    assert f"The page about:blank has no {name}" in section(text, "Error")
    assert "Ran Playwright code" not in text


async def test_a_saved_state_brings_a_login_back(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/logins")
    await browse.text("cookie_set", name="a", value="1")
    await browse.text("localstorage_set", key="login", value="ada")
    result = await browse.call("storage_state", filename="mine (1)")
    link = result.payload["content"][1]
    assert (link["type"], link["uri"]) == ("resource_link", "files/mine (1).json")
    address = f"session://{browse.view.id}/browser/files/mine%20%281%29.json"
    assert f"({address})" in text_of(result)

    await browse.text("cookie_clear")
    await browse.text("localstorage_clear")
    for filename in (address, "files/mine (1).json"):
        text = await browse.text("set_storage_state", filename=filename)
        assert f"Storage state restored from {filename}" in text
        assert "a=1" in await browse.text("cookie_list")
        assert "login=ada" in await browse.text("localstorage_list")
        await browse.text("cookie_clear")


@pytest.mark.thorough
async def test_a_saved_state_replaces_the_current_one(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/logins")
    await browse.text("storage_state")
    saved = browse.connection.session.files.folder / "storage-state.json"
    assert saved.stat().st_mode & 0o077 == 0
    await browse.text("cookie_set", name="later", value="1")
    await browse.text("set_storage_state", filename="storage-state.json")
    assert "No cookies found" in await browse.text("cookie_list")


@pytest.mark.thorough
async def test_a_saved_state_has_the_databases_too(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/logins")
    await browse.value(
        """() => new Promise(done => {
          const open = indexedDB.open("notes", 1);
          open.onupgradeneeded = () => open.result.createObjectStore("all").put("ada", "who");
          open.onsuccess = () => { open.result.close(); done(); };
        })"""
    )
    await browse.text("storage_state")
    files = browse.connection.session.files
    data, _ = await files.read("files/storage-state.json")
    databases = json.loads(data)["origins"][0]["indexedDB"]
    assert "notes" in [database["name"] for database in databases]


async def test_new_sessions_begin_with_the_configured_state_and_restored_ones_do_not(
    service: BrowserService, tmp_path: Path, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = {"domain": "127.0.0.1", "path": "/", "expires": -1}
    items = [{"name": "login", "value": "ada"}]
    state = {
        "cookies": [{"name": "a", "value": "1", **domain}, {"name": "", "value": "", **domain}],
        "origins": [{"origin": lab, "localStorage": items}],
    }
    file = tmp_path / "uploads" / "state.json"
    file.parent.mkdir()
    file.write_text(json.dumps(state))
    settings = {"storage_state": str(file), "uploads": [str(file.parent)]}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    async with opened(service) as browse:
        text = await browse.text("navigate", url=f"{lab}/frame")
        assert "Not taken from `storage_state`: 1 cookie" in text
        assert browse.connection.restore_report.restored == ""
        assert await browse.value("() => [document.cookie, localStorage.login]") == [
            "a=1",
            "ada",
        ]
        await browse.text("cookie_clear")
        await browse.text("localstorage_clear")
        async with again(browse) as later:
            assert await later.value("() => [document.cookie, localStorage.length]") == ["", 0]
            state["cookies"].pop()
            file.write_text(json.dumps(state))
            await later.text("set_storage_state", filename=str(file))
            assert await later.value("() => [document.cookie, localStorage.login]") == [
                "a=1",
                "ada",
            ]
    for part, value in (("cookies", ["a=1", None]), ("origins", ["", "ada"])):
        file.write_text(json.dumps({part: state[part]}))
        async with opened(service) as browse:
            await browse.text("navigate", url=f"{lab}/frame")
            shown = "() => [document.cookie, localStorage.login ?? null]"
            assert await browse.value(shown) == value
    for text in ("{}", '{"cookies": {}}'):
        file.write_text(text)
        with pytest.raises(ServiceUnavailable, match="is no saved storage state") as caught:
            await service.open(new_view(), None)
        assert not caught.value.retryable
        assert "later" not in caught.value.recovery


async def test_a_state_comes_from_files_of_the_session_and_upload_folders_only(
    browse: Browse,
) -> None:
    await browse.connection.session.files.write("list.json", b"[1]")
    await browse.connection.session.files.write("half.json", b'{"cookies": {}}')
    await browse.connection.session.files.write("words.txt", b"hello")
    outside = await browse.error("set_storage_state", filename="/etc/passwd")
    assert "is no file of this session and none in a folder for uploads" in outside
    assert "no saved storage state" in await browse.error("set_storage_state", filename="list.json")
    assert "no saved storage state" in await browse.error("set_storage_state", filename="half.json")
    await browse.connection.session.files.write("deep.json", b"[" * 100_000)
    for filename in ("words.txt", "deep.json"):
        assert "is no JSON" in await browse.error("set_storage_state", filename=filename)


async def test_a_file_is_read_up_to_the_size_of_a_download(
    service: BrowserService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"uploads": [str(tmp_path)], "download_bytes": 3000}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    large = tmp_path / "large"
    large.write_bytes(b" " * 3001)
    async with opened(service) as browse:
        text = await browse.error("set_storage_state", filename=str(large))
        assert "has more than 3000 bytes" in text


async def test_a_file_that_is_replaced_while_it_is_opened_is_not_read(
    service: BrowserService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, other = tmp_path / "allowed" / "in", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir(parents=True)
        (folder / "state.json").write_text('{"cookies": []}')
    settings = {"uploads": [str(allowed)]}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    real_open = os.open

    def replace_and_open(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        """Open a file while its folder is another one, as a program beside us could have it."""
        if path != allowed / "state.json":
            return real_open(path, flags, *rest, **options)
        allowed.rename(tmp_path / "aside")
        allowed.symlink_to(other)
        try:
            return real_open(path, flags, *rest, **options)
        finally:
            allowed.unlink()
            (tmp_path / "aside").rename(allowed)

    async with opened(service) as browse:
        name = str(allowed / "state.json")
        assert "restored" in await browse.text("set_storage_state", filename=name)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", replace_and_open)
            text = await browse.error("set_storage_state", filename=name)
        assert "was replaced while it was read" in text


@pytest.mark.thorough
async def test_a_refused_cookie_of_a_state_is_reported_and_the_others_are_set(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    good = {"name": "a", "value": "1", "domain": "127.0.0.1", "path": "/"}
    items = [{"name": "login", "value": "ada"}]
    broken = {
        "cookies": [{"name": 5}, good],
        "origins": [{"origin": lab, "localStorage": items}],
    }
    files = browse.connection.session.files
    await files.write("broken.json", json.dumps(broken).encode())
    text = await browse.text("set_storage_state", filename="broken.json")
    assert "Not taken from it: 1 cookie" in text
    script = "() => [document.cookie, localStorage.login]"
    assert await browse.value(script) == ["a=1", "ada"]
    for cookie in (1, {**good, "expires": "soon"}):
        await files.write("none.json", json.dumps({"cookies": [cookie], "origins": []}).encode())
        text = await browse.error("set_storage_state", filename="none.json")
        assert "a cookie is none" in text


@pytest.mark.thorough
async def test_a_saved_state_keeps_texts_that_are_invalid_unicode(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/logins")
    await browse.value("() => localStorage.setItem('packed', '\\ud83d')")
    await browse.text("storage_state", filename="packed.json")
    await browse.value("() => localStorage.removeItem('packed')")
    await browse.text("set_storage_state", filename="packed.json")
    assert await browse.value("() => localStorage.packed.charCodeAt(0)") == 0xD83D
