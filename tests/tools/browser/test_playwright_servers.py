"""Browsers of a Playwright server, which may run on another machine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from changing import Changing
from playwright.async_api import Error, async_playwright
from support.browsing import Browse, new_view, opened, running
from support.listening import run_until_line
from support.waiting import until

from statehold.tools.browser.session import files


@pytest.fixture
def launch_server(tmp_path: Path, shell: str) -> list[str]:
    """Serves one browser, the same one to all."""
    (tmp_path / "server.json").write_text(
        json.dumps({"executablePath": shell, "chromiumSandbox": False, "host": "127.0.0.1"})
    )
    return ["launch-server", "--browser", "chromium", "--config", str(tmp_path / "server.json")]


@pytest.fixture
async def run_server(tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Serves each connection a separate browser: the shell, put where Playwright looks for its downloads."""
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "browsers"))
    async with async_playwright() as playwright:
        with pytest.raises(Error) as caught:
            await playwright.chromium.launch()
    path = re.search(r"Executable doesn't exist at (.+)", caught.value.message)
    assert path is not None
    put(shell, Path(path[1]))
    return ["run-server", "--port", "0", "--host", "127.0.0.1"]


def put(program: str, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
    path.chmod(0o755)


@pytest.mark.thorough
async def test_a_playwright_server_elsewhere_is_used(
    launch_server: list[str], tmp_path: Path, lab: str
) -> None:
    await use_server(launch_server, tmp_path, lab)


@pytest.mark.thorough
async def test_a_playwright_server_with_a_browser_for_each_connection_is_used(
    run_server: list[str], tmp_path: Path, lab: str
) -> None:
    await use_server(run_server, tmp_path, lab)


async def use_server(options: list[str], data: Path, lab: str) -> None:
    """Open and restore a session in the browser of a server, and again by another service."""
    with run_until_line([sys.executable, "-m", "playwright", *options], "ws://") as address:
        for _ in range(2):
            async with (
                running(data, None, ws_endpoint=f"ws://{address}") as service,
                opened(service) as browse,
            ):
                await browse.text("navigate", url=f"{lab}/frame?name=one")
                assert "Frame one" in await browse.text("snapshot")
                snapshot = await browse.connection.snapshot()
                assert snapshot is not None
                async with opened(service, new_view(generation=2), snapshot) as again:
                    assert "Frame one" in await again.text("snapshot")


@pytest.fixture
def far(
    launch_server: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Generator[str]:
    """A Playwright server as on another machine: the folder of its browser is not here."""

    def places(_: object) -> tuple[Path]:
        return (tmp_path / "not" / "here",)

    monkeypatch.setattr(files, "_paths_of", places)
    with run_until_line([sys.executable, "-m", "playwright", *launch_server], "ws://") as address:
        yield f"ws://{address}"


async def text_holds(browse: Browse, text: str, words: str) -> None:
    """Wait until this answer or a later one holds the words."""

    async def holds() -> bool:
        nonlocal text
        if words not in text:
            text += await browse.text("wait_for", time=0.05)
        return words in text

    await until(holds)


@pytest.mark.thorough
async def test_a_download_from_another_machine_ends_at_its_bound(
    far: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOOK_SECONDS", 0)
    settings = {"ws_endpoint": far, "download_bytes": 10_000_000}
    with Changing() as site:
        site.pages |= {"/": "<a href=/small>small</a><a href=/large>large</a>"}
        site.pages |= {"/small": "x" * 500_000, "/large": "x" * 38_000_000}
        for name in ("small", "large"):
            disposition = f"attachment; filename={name}.bin"
            site.headers[f"/{name}"] = {"Content-Disposition": disposition}
        async with running(tmp_path, None, **settings) as service, opened(service) as browse:
            session = browse.connection.session
            await browse.text("navigate", url=site.url)
            assert "Downloaded file small.bin to " in await browse.text(
                "click", target="text=small"
            )
            sizes: list[int] = []

            async def watch() -> None:
                while True:
                    sizes.extend(path.stat().st_size for path in session.files.folder.iterdir())
                    await anyio.sleep(0.002)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                text = await browse.text("click", target="text=large")
                await text_holds(browse, text, "large.bin failed: it is larger than 10000000 bytes")
                tasks.cancel_scope.cancel()
            assert max(sizes) < 25_000_000
            assert await session.files.names() == ["small.bin"]
            assert "Downloaded file small-2.bin" in await browse.text("click", target="text=small")


@pytest.mark.thorough
async def test_a_download_from_another_machine_ends_without_data(
    far: str, tmp_path: Path, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "UNSEEN_SECONDS", 0.2)
    async with running(tmp_path, None, ws_endpoint=far) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/downloads")
        text = await browse.text("click", target="text=Endless file")
        await text_holds(browse, text, "endless.txt failed: nothing of it arrived")
        assert browse.connection.busy is None
        assert await browse.connection.session.files.names() == []
