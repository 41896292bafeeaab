"""Opening a browser for a session: restored content, reachable addresses, and browsers that run elsewhere."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from lab import Lab
from playwright.async_api import Error
from support.browsing import Browse, again, new_view, opened, process_of, running, section, text_of
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import ServiceUnavailable
from statehold.sessions.services import Snapshot
from statehold.sessions.store.sealing.encryption import DecryptionFailed
from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.service import BrowserService

KEY = "a key of the tests, not short"


async def saved(browse: Browse) -> Snapshot:
    snapshot = await browse.connection.snapshot()
    assert snapshot is not None
    return Snapshot(json.loads(json.dumps(snapshot.data)), snapshot.blobs)


Configure = Callable[..., None]


@pytest.fixture
def configure(service: BrowserService, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Gives the shared service other settings for the sessions that are opened from now on."""
    config = service.config

    def change(**settings: Any) -> None:
        monkeypatch.setattr(service, "config", config.model_copy(update=settings))

    return change


async def three_tabs(browse: Browse, lab: str) -> Snapshot:
    """Open three pages with the second as the current one, and save them."""
    await browse.text("navigate", url=f"{lab}/frame?name=one")
    await browse.text("tabs", action="new", url=f"{lab}/frame?name=two")
    await browse.text("tabs", action="new", url=f"{lab}/frame?name=three")
    await browse.text("tabs", action="select", index=1)
    return await saved(browse)


# Restored content.


async def test_tabs_come_back_in_their_order_and_wake_when_they_are_selected(
    service: BrowserService, browse: Browse, lab: str, lab_hits: Lab
) -> None:
    snapshot = await three_tabs(browse, lab_hits.url)
    before = len(lab_hits.hits)
    async with opened(service, new_view(generation=2), snapshot) as again:
        assert "3 tabs (2 of them when first used)" in again.connection.restore_report.restored
        assert [hit for hit in lab_hits.hits[before:] if "name=two" not in hit] == []
        listed = section(await again.text("tabs", action="list"), "Result").splitlines()
        assert [line.partition("name=")[2].rstrip(")") for line in listed] == [
            "one",
            "two",
            "three",
        ]
        assert "(current)" in listed[1]
        assert "Frame two" in await again.text("snapshot")
        await again.text("tabs", action="select", index=2)
        assert "Frame three" in await again.text("snapshot")
        # A tab that never woke is saved as it was.
        data = (await saved(again)).data
        assert [tab["url"].partition("name=")[2] for tab in data["tabs"]] == ["one", "two", "three"]
        assert data["current"] == 2


@pytest.mark.thorough
async def test_a_sleeping_tab_follows_the_current_one_that_closes(
    service: BrowserService, browse: Browse, lab: str
) -> None:
    snapshot = await three_tabs(browse, lab)
    async with opened(service, new_view(generation=2), snapshot) as again:
        closed = await again.text("tabs", action="close")
        assert [line for line in closed.splitlines() if "(current)" in line] == [
            f"- 1: (current) [Frame three - Lab]({lab}/frame?name=three)"
        ]
        assert "Frame three" in await again.text("snapshot")
        await again.text("tabs", action="close", index=0)
        assert len(again.connection.session.tabs) == 1
        await again.text("close")
        assert len(again.connection.session.tabs) == 0


@pytest.mark.thorough
async def test_popups_beside_sleeping_tabs_are_tabs(
    service: BrowserService, browse: Browse, lab: str
) -> None:
    snapshot = await three_tabs(browse, lab)
    async with opened(service, new_view(generation=2), snapshot) as again:
        await again.text("evaluate", function="() => { open('/frame?name=four') }")
        await again.text("tabs", action="select", index=0)
        listed = section(await again.text("tabs", action="list"), "Result").splitlines()
        assert "name=one" in listed[0]
        assert "name=four" in listed[3]


async def test_a_session_that_was_never_saved_says_so(service: BrowserService) -> None:
    async with opened(service, new_view(generation=2)) as again:
        assert "nothing had been saved yet" in again.connection.restore_report.lost
    async with opened(service) as first:
        assert first.connection.restore_report.lost == ""


async def test_only_calls_that_change_something_need_a_checkpoint(browse: Browse, lab: str) -> None:
    connection = browse.connection
    await browse.text("navigate", url=f"{lab}/frame?name=one")
    assert connection.unsaved
    await saved(browse)
    await browse.text("snapshot")
    await browse.text("console_messages", level="info")
    assert not connection.unsaved
    await browse.text("evaluate", function="() => { localStorage.a = 1 }")
    assert connection.unsaved


async def test_no_checkpoint_waits_for_a_page_that_asks_something(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    await browse.text("evaluate", function="() => { setTimeout(() => alert('hm')) }")
    tab = browse.tab
    with anyio.fail_after(5):
        await tab.modal.wait()
    assert await browse.connection.checkpoint() is None
    assert browse.connection.unsaved
    assert browse.connection.busy is not None
    await browse.text("handle_dialog", accept=True)
    assert browse.connection.busy is None
    assert await browse.connection.checkpoint() is not None


async def test_a_saved_session_opens_with_its_key_only(
    service: BrowserService, configure: Configure, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use_key(key: str | None) -> None:
        configure(key=key)
        monkeypatch.setattr(service, "_encryption", None)

    use_key(KEY)
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/frame?name=one")
        snapshot = await saved(browse)
        assert "name=one" not in str(snapshot)
        async with opened(service, new_view(generation=2), snapshot) as again:
            assert "Frame one" in await again.text("snapshot")
    for key in (None, "another key of the tests"):
        use_key(key)
        with pytest.raises(DecryptionFailed):
            await service.open(new_view(), snapshot)


# Reachable addresses.


@pytest.fixture
def lab_hits() -> Generator[Lab]:
    with Lab() as site:
        yield site


@pytest.mark.thorough
async def test_a_blocked_host_gets_no_request(tmp_path: Path, shell: str, lab_hits: Lab) -> None:
    async with running(tmp_path, shell, block=["127.0.0.2"]) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{lab_hits.url}/frame?name=here")
        script = f"() => fetch('{lab_hits.other}/frame?name=there').then(() => 1, () => 0)"
        text = await browse.text("evaluate", function=script)
        assert "Not allowed to reach 127.0.0.2" in text
        result = await browse.call("navigate", url=f"{lab_hits.other}/frame?name=there")
        assert "127.0.0.2" in text_of(result)
        assert "Frame there" not in text_of(result)
    assert not [hit for hit in lab_hits.hits if "name=there" in hit]


async def test_private_addresses_are_refused_unless_the_caller_has_the_machine(
    tmp_path: Path, shell: str, lab: str
) -> None:
    async with running(tmp_path, shell, private=None) as service, opened(service) as browse:
        text = await browse.error("navigate", url=f"{lab}/frame?name=one")
        assert "Not allowed to reach 127.0.0.1" in section(text, "Error")
        assert "(Not allowed to reach 127.0.0.1" in section(text, "Page")
        assert "Frame one" not in text


@pytest.mark.thorough
async def test_a_cancelled_service_leaves_nothing_behind(shell: str, lab: str, leaks: Any) -> None:
    config = BrowserConfig(executable=shell, private=True)
    folder: Path | None = None
    with anyio.CancelScope() as scope:
        async with BrowserService("browser", config) as service, opened(service) as browse:
            await browse.text("navigate", url=f"{lab}/counter")
            folder = process_of(browse).driver.folder
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    await leaks.check()
    assert folder is not None
    assert not folder.exists()


# Device, locale and first script.


async def test_pages_believe_in_the_configured_device(
    service: BrowserService, configure: Configure
) -> None:
    configure(device="iPhone 15", locale="de-DE", timezone="Asia/Tokyo")
    async with opened(service) as browse:
        await browse.text("navigate", url="about:blank")
        assert await browse.value("() => [devicePixelRatio, navigator.maxTouchPoints > 0]") == [
            3,
            True,
        ]
        assert await browse.value("() => navigator.language") == "de-DE"
        zone = "() => Intl.DateTimeFormat().resolvedOptions().timeZone"
        assert await browse.value(zone) == "Asia/Tokyo"


@pytest.mark.thorough
async def test_pages_get_the_user_agent_of_the_configured_device(
    tmp_path: Path, shell: str
) -> None:
    async with running(tmp_path, shell, device="iPhone 15") as service, opened(service) as browse:
        await browse.text("navigate", url="about:blank")
        assert "iPhone" in await browse.value("() => navigator.userAgent")


async def test_a_configured_size_is_that_of_a_device_too(
    service: BrowserService, configure: Configure
) -> None:
    configure(mobile=True, viewport=(500, 600))
    async with opened(service) as browse:
        await browse.text("navigate", url="about:blank")
        assert browse.page.viewport_size == {"width": 500, "height": 600}
        assert await browse.value("() => navigator.maxTouchPoints") > 0


async def test_an_unknown_device_is_refused_with_the_nearest_name(
    service: BrowserService, configure: Configure
) -> None:
    configure(device="iphone 15")
    with pytest.raises(ServiceUnavailable) as caught:
        await service.open(new_view(), None)
    assert "Did you mean iPhone 15?" in caught.value.message


async def test_every_page_runs_the_configured_scripts_first(
    service: BrowserService, configure: Configure, tmp_path: Path, lab: str
) -> None:
    (tmp_path / "first.js").write_text("window.early = document.readyState")
    (tmp_path / "second.js").write_text("window.second = early")
    scripts = [str(tmp_path / "first.js"), str(tmp_path / "second.js")]
    configure(init_script=scripts)
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/frame?name=one")
        assert await browse.value("() => [early, second]") == ["loading", "loading"]
        await anyio.Path(scripts[0]).unlink()
        with pytest.raises(ServiceUnavailable) as caught:
            await service.open(new_view(), None)
        assert caught.value.message == "`init_script` cannot be read: No such file or directory."


async def test_the_first_page_of_a_session_is_prepared_by_python(
    service: BrowserService, configure: Configure, tmp_path: Path, lab: str
) -> None:
    file = tmp_path / "prepare.py"
    file.write_text(
        "async def default(page):\n"
        "    await page.context.add_cookies([{'name': 'seen', 'value': '1', 'url': '"
        + lab
        + "'}])\n"
    )
    configure(init_page=[str(file)])
    async with opened(service) as browse:
        assert "- 0: (current) [](about:blank)" in await browse.text("tabs", action="list")
        await browse.text("navigate", url=f"{lab}/frame?name=one")
        assert await browse.value("() => document.cookie") == "seen=1"
        await browse.page.context.clear_cookies()
        async with again(browse) as resumed:
            assert "Frame one" in await resumed.text("snapshot")
            assert await resumed.value("() => document.cookie") == "seen=1"
    file.write_text(
        "async def default(page):\n    raise ValueError('none at http://ada:pw1@a.test')\n"
    )
    with pytest.raises(ServiceUnavailable) as caught:
        await service.open(new_view(), None)
    assert (
        caught.value.message == "`init_page` failed: ValueError: none at http://ada:••••••@a.test."
    )
    file.write_text("import sys\nsys.exit('no such file')\n")
    with pytest.raises(ServiceUnavailable, match="SystemExit: no such file"):
        await service.open(new_view(), None)


@pytest.mark.parametrize("kind", matrix("def", "async def"))
async def test_the_error_of_a_listener_of_an_init_page_is_that_of_a_call(
    service: BrowserService,
    configure: Configure,
    tmp_path: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "listen.py"
    file.write_text(
        f"{kind} fail(message):\n"
        "    raise KeyError('no such customer')\n"
        "async def default(page):\n"
        "    page.on('console', fail)\n"
    )
    configure(init_page=[str(file)])
    async with opened(service) as browse, opened(service) as other:
        await browse.value("() => console.log('x')")
        await until(lambda: browse.connection.session.listener_errors)
        text = await browse.error("snapshot")
        assert "A listener of `init_page` failed: KeyError: 'no such customer'." in text
        assert "about:blank" in await browse.text("snapshot")
        assert "about:blank" in await other.text("snapshot")
        await browse.value("() => { for (let i = 0; i < 50; i++) console.log(i); }")
        await until(lambda: len(browse.connection.session.listener_errors) == 50)
        text = await browse.error("snapshot")
        assert (text.count("no such customer"), "45 more errors" in text) == (5, True)
    assert caplog.text.count("a listener of an event of Playwright failed") == 1


# Browsers elsewhere.


@pytest.mark.parametrize("times", matrix(1, 2))
async def test_a_browser_elsewhere_is_used_and_left_as_it_was(
    by_devtools: str, tmp_path: Path, lab: str, times: int
) -> None:
    for _ in range(times):
        async with running(tmp_path, None, cdp_endpoint=by_devtools) as service:
            async with opened(service) as browse:
                await browse.text("navigate", url=f"{lab}/frame?name=one")
                snapshot = await saved(browse)
                page = await browse.connection.session.context.new_page()
                with pytest.raises(Error, match="ERR_FAILED"):
                    await page.goto("file:///etc/hostname")
            async with opened(service, new_view(generation=2), snapshot) as again:
                assert "Frame one" in await again.text("snapshot")


async def test_a_session_without_a_free_port_is_refused(
    service: BrowserService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def admit(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(FilteringProxy, "admit", admit)
    with pytest.raises(ServiceUnavailable, match="egress proxy: Too many open files"):
        async with opened(service):
            pytest.fail("it was opened")
    monkeypatch.undo()
    async with opened(service) as browse:
        assert "about:blank" in await browse.text("snapshot")


@pytest.mark.thorough
async def test_the_error_of_an_unreachable_browser_holds_no_key(
    tmp_path: Path,
) -> None:
    endpoint = "ws://127.0.0.1:9/?token=s3cr3t"
    for name in ("cdp_endpoint", "ws_endpoint"):
        async with running(tmp_path, None, **{name: endpoint}) as service:
            with pytest.raises(ServiceUnavailable) as caught:
                await service.open(new_view(), None)
            assert "The browser at ws://127.0.0.1:9 cannot be used" in caught.value.message
            assert "ECONNREFUSED" in caught.value.message
            assert "s3cr3t" not in repr(caught.value) + caught.value.message
