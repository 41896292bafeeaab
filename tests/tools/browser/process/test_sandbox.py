"""Installed browsers that do not start: the caller gets the reason, and their output is in the log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.browsing import new_view, running
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.browser.errors import explain_failed_start


def program(folder: Path, script: str) -> str:
    path = folder / "browser"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


LIBRARY = (
    "browser: error while loading shared libraries: libnss3.so: cannot open shared object file"
)


@pytest.mark.parametrize(
    ("script", "why"),
    matrix(
        (f"echo '{LIBRARY}' >&2; exit 127", "libnss3.so is missing on this machine; `playwright"),
        ("exit 3", "it ended at once, with exit code 3"),
        ("kill -SEGV $$", "it ended at once, by SIGSEGV"),
        ("exec sleep 60", "it did not answer within 1 seconds"),
    ),
)
async def test_a_browser_that_does_not_start_is_reported_with_the_reason(
    tmp_path: Path, data: Path, script: str, why: str, leaks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(data, program(tmp_path, script), connect_seconds=2) as service:
        with anyio.fail_after(20), pytest.raises(ServiceUnavailable) as caught:
            await service.open(new_view(), None)
    assert re.search(f"The browser did not start: {re.escape(why)}", caught.value.message)
    assert "statehold doctor" in caught.value.recovery
    assert ("libnss3" in caplog.text) is ("libnss3" in script)
    assert str(tmp_path) not in caught.value.message
    await leaks.check()


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (LIBRARY, "libnss3.so is missing on this machine; `playwright"),
        ("Host system is missing dependencies", "libraries are missing on this machine"),
        ("FATAL: No usable sandbox!", "its sandbox does not work here; `statehold doctor`"),
        ("Missing X server or DISPLAY", "there is no display for its window"),
        ("Timeout 1800ms exceeded", "it did not answer within 1 seconds"),
        ("spawn /opt/browser EACCES", "it cannot be run (EACCES)"),
        ("<process did exit: exitCode=3, signal=null>", "it ended at once, with exit code 3"),
        ("<process did exit: exitCode=null, signal=SIGSEGV>", "it ended at once, by SIGSEGV"),
    ],
)
def test_the_output_of_a_failed_start_names_its_reason(output: str, why: str) -> None:
    error = Exception(f"BrowserType.launch: failed\nBrowser logs:\n{output}")
    assert explain_failed_start(error).startswith(why)
