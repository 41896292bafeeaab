"""Known pitfalls for agents with other browser servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import anyio
import anyio.to_thread
import pytest
from support.browsing import Browse, opened, section
from support.waiting import until

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session.files import MAX_DOWNLOADS

pytestmark = pytest.mark.peer


async def until_later(
    browse: Browse, condition: Callable[[], bool], texts: list[str] | None = None
) -> str:
    """Call a tool until a condition holds, and return the texts of the results."""
    texts = [] if texts is None else texts

    async def holds() -> bool:
        if not condition():
            texts.append(await browse.text("wait_for", time=0.05))
        return condition()

    await until(holds)
    return "".join(texts)


async def test_two_calls_at_once_run_one_after_the_other(browse: Browse, lab: str) -> None:
    texts: dict[str, str] = {}

    async def navigate(name: str) -> None:
        texts[name] = await browse.text("navigate", url=f"{lab}/frame?name={name}")

    async with anyio.create_task_group() as tasks:
        for name in ("one", "two", "three"):
            tasks.start_soon(navigate, name)
    assert list(texts) == ["one", "two", "three"]
    for name, text in texts.items():
        assert f"Frame {name}" in section(text, "Snapshot")


async def test_a_cancelled_call_lets_the_next_one_go(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    with anyio.move_on_after(0.05) as scope:
        await browse.call("wait_for", time=30)
    assert scope.cancelled_caught
    assert "Frame plain" in await browse.text("snapshot")


async def test_a_download_is_a_file_of_the_session(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/downloads")
    for label, name, content in (
        ("Small file", "small.txt", "the small file\n"),
        ("Blob", "blob.txt", "made by the page\n"),
    ):
        result = await browse.call("click", target=f"text={label}")
        link = result.payload["content"][-1]
        assert (link["type"], link["name"], link["size"]) == (
            "resource_link",
            name,
            len(content),
        )
        assert f"Downloaded file {name} to " in result.payload["content"][0]["text"]
        read = await browse.connection.request("resources/read", {"uri": link["uri"]}, browse.ctx)
        assert read["contents"][0]["text"] == content


@pytest.mark.thorough
async def test_navigating_to_a_download_keeps_the_page(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    text = await browse.text("navigate", url=f"{lab}/file/small")
    uri = f"session://{browse.view.id}/browser/files/small.txt"
    assert f'Downloaded file small.txt to "{uri}" (15 bytes)' in section(text, "Events")
    [name] = await browse.connection.session.files.names()
    assert browse.connection.session.files.folder.joinpath(name).stat().st_mode & 0o777 == 0o600
    assert "(nothing changed)" in section(text, "Snapshot")


async def test_a_failed_or_endless_download_is_bounded_and_reported(
    service: BrowserService, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_usage(_: object) -> SimpleNamespace:
        return SimpleNamespace(free=77)

    monkeypatch.setattr("shutil.disk_usage", disk_usage)
    config = service.config.model_copy(update={"download_bytes": 1_000_000})
    monkeypatch.setattr(service, "config", config)
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/downloads")
        text = await browse.text("click", target="text=Broken file")
        why = "its connection ended or there was no room for temporary files (77 bytes were left)"
        assert why in section(text, "Events")
        text = await browse.text("click", target="text=Endless file")
        texts = [text]
        await until_later(browse, lambda: "download of endless.txt" in texts[-1], texts)
        assert browse.connection.session.busy_reason() is None
        assert list(browse.connection.session.files.folder.iterdir()) == []


async def test_a_download_keeps_its_session_from_being_paused(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/downloads")
    session = browse.connection.session
    session.config = browse.service.config.model_copy(update={"settle_seconds": 0.1})
    await browse.text("evaluate", function="() => { location.href = '/file/slow?half=one' }")
    await until_later(browse, lambda: browse.connection.busy is not None)
    assert browse.connection.busy == "a download is under way"
    assert session.activities() == ["a download that was under way"]
    with await anyio.to_thread.run_sync(urlopen, f"{lab}/api/open/one"):
        pass
    await until_later(browse, lambda: not session.downloads_active)


async def test_files_of_one_name_that_come_at_once_stay_apart(browse: Browse) -> None:
    files = browse.connection.session.files
    paths: list[Path] = []

    async def one() -> None:
        paths.append(await files.path("same.txt"))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(one)
    assert len(set(paths)) == 100


@pytest.mark.thorough
async def test_the_number_of_downloads_at_once_is_limited(browse: Browse, lab: str) -> None:
    # A browser keeps six connections to a host.
    other = lab.replace("127.0.0.1", "127.0.0.2")
    urls = [f"{site}/file/slow?half=many&n={n}" for site in (lab, other) for n in range(6)]
    script = f"""() => {{ for (const url of {urls}) {{
        const frame = document.createElement("iframe"); frame.src = url; document.body.append(frame); }} }}"""
    await browse.text("navigate", url=f"{lab}/downloads")
    session = browse.connection.session
    text = await browse.text("evaluate", function=script)
    text += await until_later(
        browse,
        lambda: session.downloads_total >= len(urls) and session.downloads_active <= MAX_DOWNLOADS,
    )
    with await anyio.to_thread.run_sync(urlopen, f"{lab}/api/open/many"):
        pass
    text += await until_later(browse, lambda: not session.downloads_active)
    text += await browse.text("tabs", action="list")
    refused = re.findall(
        rf"failed: {MAX_DOWNLOADS} others are under way(?: \((\d+) times\))?", text
    )
    assert sum(int(times or 1) for times in refused) == len(urls) - MAX_DOWNLOADS
    assert len(await session.files.names()) == MAX_DOWNLOADS
