"""Installing a browser: with a package manager of the test's own, and with Playwright's real installer from a local site."""

from __future__ import annotations

import io
import os
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from support.browser_mirror import browser_mirror

from statehold.server.config.model import Config
from statehold.shell.doctor.browser import install_missing
from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.process.browsers import BrowserComing, Browsers
from statehold.tools.browser.process.choice import NoBrowser
from statehold.tools.browser.process.executables import Machine
from statehold.tools.browser.process.install import install_browser, install_methods

# Puts a browser into the PATH of the test, as the package would.
APT = """#!/bin/sh
echo "$@" >> "$HOME/asked"
[ "$1" = update ] && exit 0
for package; do :; done
printf '#!/bin/sh\\n' > "$HOME/bin/$package"
/bin/chmod 755 "$HOME/bin/$package"
"""
BROKEN_APT = """#!/bin/sh
echo "$@" >> "$HOME/asked"
echo "E: Unable to locate package"
exit 100
"""
# Waits for a reader that never comes, in a child of its own.
HANGING_APT = """#!/bin/sh
/usr/bin/mkfifo "$HOME/gate"
/bin/cat "$HOME/gate"
"""


INSTALLS = BrowserConfig(install=True)


def quiet(line: str) -> None:
    """Say nothing."""


# This one continues after a write to the gate.
GATED_APT = """#!/bin/sh
[ "$1" = update ] && exit 0
read line < "$HOME/gate"
""" + APT.partition("\n")[2]


@pytest.fixture
def mirror() -> Generator[str]:
    with browser_mirror() as address:
        yield address


def machine(folder: Path, *, root: bool, apt: str = "", **env: str) -> Machine:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "etc").mkdir(exist_ok=True)
    (folder / "etc/os-release").write_text("NAME=x\nID=debian\n")
    if apt:
        (folder / "bin/apt-get").write_text(apt)
        (folder / "bin/apt-get").chmod(0o755)
    # Playwright's installer ends at once where its folder cannot be made.
    (folder / "file").touch()
    known = {
        "PATH": str(folder / "bin"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PLAYWRIGHT_BROWSERS_PATH": str(folder / "file" / "browsers"),
    }
    return Machine(platform="linux", env={**known, **env}, top=folder, root=root)


async def test_root_on_debian_installs_the_package_and_says_so(tmp_path: Path) -> None:
    lines: list[str] = []
    choice = await install_browser(lines.append, machine=machine(tmp_path, root=True, apt=APT))
    assert choice.path == str(tmp_path / "bin/chromium-headless-shell")
    commands = (tmp_path / "asked").read_text().splitlines()
    install = "install -q -y --no-install-recommends chromium-headless-shell"
    assert commands == ["update -q", install]
    assert "chromium-headless-shell with apt-get" in lines[0]
    assert lines[1].startswith("installed ")


async def test_a_visible_browser_is_the_whole_one(tmp_path: Path) -> None:
    here = machine(tmp_path, root=True, apt=APT, DISPLAY=":0")
    choice = await install_browser(quiet, config=BrowserConfig(headless=False), machine=here)
    assert choice.path == str(tmp_path / "bin/chromium")


@pytest.mark.thorough
async def test_a_user_without_root_gets_playwrights_own(tmp_path: Path, mirror: str) -> None:
    folder = tmp_path / "browsers"
    here = machine(
        tmp_path,
        root=False,
        PLAYWRIGHT_BROWSERS_PATH=str(folder),
        PLAYWRIGHT_DOWNLOAD_HOST=mirror,
        PLAYWRIGHT_HOST_PLATFORM_OVERRIDE="debian12-x64",
    )
    lines: list[str] = []
    choice = await install_browser(lines.append, machine=here)
    assert choice.kind == "playwright"
    assert choice.shell
    assert choice.path is not None
    assert Path(choice.path).is_relative_to(folder)
    assert "playwright install" in lines[0]


async def test_a_failure_names_the_command_and_is_not_repeated_at_once(tmp_path: Path) -> None:
    here = machine(tmp_path, root=True, apt=BROKEN_APT)
    now = 100.0
    lines: list[str] = []
    async with anyio.create_task_group() as tasks:
        browsers = Browsers(
            INSTALLS, tasks.start_soon, say=lines.append, machine=here, clock=lambda: now
        )
        with pytest.raises(NoBrowser, match="`apt-get install chromium-headless-shell`"):
            await browsers.get(seconds=20)
        assert any("Unable to locate package" in line for line in lines)
        once = (tmp_path / "asked").read_text()
        with pytest.raises(NoBrowser, match="installing one failed"):
            await browsers.get(seconds=20)
        assert (tmp_path / "asked").read_text() == once
        now += 1000
        (tmp_path / "bin/apt-get").write_text(APT)
        assert (await browsers.get(seconds=20)).path == str(
            tmp_path / "bin/chromium-headless-shell"
        )


async def test_a_browser_put_there_by_hand_ends_the_error_at_once(tmp_path: Path) -> None:
    here = machine(tmp_path, root=True, apt=BROKEN_APT)
    async with anyio.create_task_group() as tasks:
        browsers = Browsers(INSTALLS, tasks.start_soon, say=quiet, machine=here)
        with pytest.raises(NoBrowser):
            await browsers.get(seconds=20)
        chrome = tmp_path / "bin/google-chrome"
        chrome.write_text("#!/bin/sh\n")
        chrome.chmod(0o755)
        assert (await browsers.get(seconds=20)).path == str(chrome)


async def test_many_at_once_install_one_browser(tmp_path: Path) -> None:
    here = machine(tmp_path, root=True, apt=APT)
    paths: list[str | None] = []

    async def get(browsers: Browsers) -> None:
        paths.append((await browsers.get(seconds=20)).path)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            # Two of them, as two processes would have.
            each = [Browsers(INSTALLS, tasks.start_soon, say=quiet, machine=here) for _ in range(2)]
            for browsers in each * 3:
                tasks.start_soon(get, browsers)
    assert paths == [str(tmp_path / "bin/chromium-headless-shell")] * 6
    assert len((tmp_path / "asked").read_text().splitlines()) == 2


async def test_a_cancelled_caller_does_not_stop_the_installation(
    tmp_path: Path, leaks: Any
) -> None:
    here = machine(tmp_path, root=True, apt=GATED_APT)
    os.mkfifo(tmp_path / "gate")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            browsers = Browsers(INSTALLS, tasks.start_soon, say=quiet, machine=here)
            with pytest.raises(BrowserComing) as coming:
                await browsers.get(seconds=0)
            assert coming.value.retryable
            assert coming.value.retry_after
            # It opens when the other side does, so the installation is under way by then.
            gate = await anyio.to_thread.run_sync((tmp_path / "gate").write_text, "go\n")
            assert gate
            assert (await browsers.get(seconds=20)).kind == "shell"
    await leaks.check()


async def test_an_installation_that_hangs_ends_with_all_it_started(
    tmp_path: Path, leaks: Any
) -> None:
    here = machine(tmp_path, root=True, apt=HANGING_APT)
    with anyio.fail_after(20), pytest.raises(NoBrowser):
        await install_browser(quiet, machine=here, timeout=0.5)
    await leaks.check()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"executable": "nowhere"},
        {"headless": False},
        {"headless": False, "channel": "chromium-headless-shell"},
    ],
)
async def test_nothing_is_installed_where_it_is_not_wanted_or_does_not_help(
    tmp_path: Path, config: dict[str, object]
) -> None:
    here = machine(tmp_path, root=True, apt=APT)
    async with anyio.create_task_group() as tasks:
        wanted = BrowserConfig.model_validate({"install": bool(config), **config})
        browsers = Browsers(wanted, tasks.start_soon, say=quiet, machine=here)
        with pytest.raises(NoBrowser) as caught:
            await browsers.get(seconds=20)
        if not config:
            assert "run `statehold doctor --install`, or `apt-get install" in caught.value.message
            assert "statehold doctor --install" in caught.value.recovery
    assert not (tmp_path / "asked").exists()


def doctored(folder: Path, *, consent: bool, browsers: bool = True) -> bool:
    """Run the part of the doctor that installs. Returns whether it asked the package manager."""
    config = Config.model_validate({"services": {"browser": {}} if browsers else {}})
    here = machine(folder, root=True, apt=APT)
    # In a thread of its own: the loop of a fixture may still be open in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(install_missing, config, consent=consent, machine=here).result()
    return (folder / "asked").exists()


@pytest.mark.parametrize("browsers", [True, False])
def test_the_doctor_installs_with_consent(tmp_path: Path, browsers: bool) -> None:
    assert not doctored(tmp_path, consent=False, browsers=browsers)
    assert doctored(tmp_path, consent=True, browsers=browsers)


@pytest.mark.skipif(os.name != "posix", reason="needs a terminal")
@pytest.mark.parametrize("answer", ["y", "no", ""])
def test_the_doctor_asks_at_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    user, program = os.openpty()
    with os.fdopen(user, "wb") as keyboard, os.fdopen(program, "r+b", buffering=0) as terminal:
        keyboard.write(f"{answer}\n".encode())
        keyboard.flush()
        with io.TextIOWrapper(terminal, write_through=True) as text:
            monkeypatch.setattr("sys.stdin", text)
            monkeypatch.setattr("sys.stderr", text)
            installed = doctored(tmp_path, consent=False)
            monkeypatch.undo()
    assert installed is (answer == "y")


def test_the_ways_fit_the_machine(tmp_path: Path) -> None:
    root = machine(tmp_path, root=True, apt=APT)
    first, second = install_methods(BrowserConfig(), root)
    assert first.commands[1][-1] == "chromium-headless-shell"
    assert second.commands[0][-3:] == ("--with-deps", "--only-shell", "chromium")
    (only,) = install_methods(BrowserConfig(channel="chromium"), root)
    assert only.commands[0][-2:] == ("--no-shell", "chromium")
    (user,) = install_methods(BrowserConfig(), machine(tmp_path, root=False, apt=APT))
    assert "--with-deps" not in user.commands[0]
