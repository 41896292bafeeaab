"""The driver's process: its environment, its errors and its end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Error
from support.browsing import opened, process_of, running_in_hosts

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.browser.process import driver as drivers
from statehold.tools.browser.process.driver import Driver


async def test_a_driver_gets_nothing_of_ours_and_fails_without_naming_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "STATEHOLD_TOKENS",
        "PLAYWRIGHT_DISABLE_FORCED_CHROMIUM_PROXIED_LOOPBACK",
        "PLAYWRIGHT_PROXY_BYPASS_FOR_TESTING",
        "SELENIUM_REMOTE_URL",
    ):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    environment: dict[str, str] = {}

    async def spawn(*_: str, env: dict[str, str], **__: Any) -> None:
        environment.update(env)
        raise FileNotFoundError(2, "No such file or directory", "/secret/node")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    with pytest.raises(ServiceUnavailable) as caught:
        await Driver.start(tmp_path)
    assert "/secret" not in caught.value.message
    assert "No such file or directory" in caught.value.message
    assert environment["LANG"] == "C.UTF-8"
    assert "127.0.0.1" not in environment.values()


async def test_an_installation_without_playwright_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "playwright":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "playwright", None)
    with pytest.raises(ServiceUnavailable) as caught:
        await Driver.start(tmp_path / "data")
    assert "playwright" in caught.value.message


@pytest.mark.thorough
async def test_debugging_other_programs_of_node_writes_no_secrets_of_browsers(
    tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = tmp_path / "messages"
    monkeypatch.setenv("DEBUG", "*")
    for file in (str(messages), ""):
        monkeypatch.setenv("DEBUG_FILE", file)
        async with running_in_hosts(tmp_path / "data", shell) as service, opened(service) as browse:
            host = process_of(browse).host
            assert host is not None
            text = await browse.text("evaluate", function="() => 'secret'.repeat(2)")
            assert "secretsecret" in text
        written = capfd.readouterr().err + (messages.read_text() if messages.exists() else "")
        assert [text for text in ("secretsecret", host.address.endpoint) if text in written] == []


async def test_a_driver_that_ends_at_its_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaks: Any
) -> None:
    """A missing library of its node has the same effect."""
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\nexit 127\n")
    node.chmod(0o755)
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", str(node))
    with pytest.raises(ServiceUnavailable) as caught:
        await Driver.start(tmp_path / "data")
    assert "did not start: its process ended with exit code 127" in caught.value.message
    assert "statehold doctor" in caught.value.recovery
    assert list((tmp_path / "data").iterdir()) == []
    await leaks.check()


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="uvloop")
async def test_a_write_to_a_driver_that_just_died_fails_as_playwright_does(
    tmp_path: Path,
) -> None:
    async def ask() -> None:
        driver = await Driver.start(tmp_path)
        try:
            private: Any = driver
            private._process.stdin.transport.abort()
            # Wait until the loop has closed it. The driver then ends by itself, which its stdout shows.
            for _ in range(2):
                await asyncio.sleep(0)
            with anyio.fail_after(10), pytest.raises(Error):
                await driver.playwright.request.new_context()
        finally:
            await driver.aclose()

    # In a thread of its own, beside the loop on which the browser of the other tests may be running.
    run = partial(anyio.run, ask, backend_options={"use_uvloop": True})
    await anyio.to_thread.run_sync(run)


async def test_a_driver_that_is_given_up_while_it_starts_leaves_nothing_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spawn = asyncio.create_subprocess_exec

    async def stopped(*command: str, **options: Any) -> asyncio.subprocess.Process:
        process = await spawn(*command, **options)
        os.kill(process.pid, signal.SIGSTOP)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", stopped)
    monkeypatch.setattr(drivers, "START_SECONDS", 0.1)
    monkeypatch.setattr(drivers, "STOP_SECONDS", 0.1)
    with anyio.fail_after(10), pytest.raises(ServiceUnavailable):
        await Driver.start(tmp_path)
    await anyio.wait_all_tasks_blocked()
    gc.collect()
    assert "never retrieved" not in caplog.text
