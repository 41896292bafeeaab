"""The choice of a browser: the real ones of this machine, and files in folders that stand for other machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.process.choice import (
    BrowserChoice,
    NoBrowser,
    find_browser,
    launch_options,
    read_version,
)
from statehold.tools.browser.process.executables import (
    Machine,
    playwright_folder,
    playwright_version,
)
from statehold.tools.browser.process.sandbox import sandbox

SLIM = (
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,AutofillServerCommunication",
)


def machine(folder: Path, *, platform: str = "linux", root: bool = False, **env: str) -> Machine:
    """A machine whose system folders, home and PATH are in a folder of the test."""
    known = {"PATH": str(folder / "bin"), "HOME": str(folder / "home")}
    return Machine(platform=platform, env={**known, **env}, top=folder, root=root)


def program(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def own_build(machine: Machine, name: str, *, complete: bool = True) -> str:
    """Put a build where Playwright keeps those it downloaded."""
    from statehold.tools.browser.process.executables import _playwright_builds  # pyright: ignore[reportPrivateUsage]

    kind = "chromium" if name == "chrome" else "chromium-headless-shell"
    revision = _playwright_builds()[kind]["revision"]
    folder = playwright_folder(machine) / f"{kind.replace('-', '_')}-{revision}"
    path = program(folder / f"{name}-linux64" / name)
    if complete:
        (folder / "INSTALLATION_COMPLETE").touch()
    return path


def find(machine: Machine, **config: object) -> BrowserChoice:
    return find_browser(BrowserConfig.model_validate(config), machine)


def test_the_headless_shell_of_this_machine_is_found_and_tells_its_version(
    headless_shell: str,
) -> None:
    choice = find_browser(BrowserConfig())
    assert choice.kind in {"shell", "playwright"}
    assert choice.shell
    assert choice.flags == ()
    version = read_version(choice)
    assert version is not None
    assert version.partition(".")[0].isdecimal()


def test_finding_one_imports_nothing_of_playwright() -> None:
    import subprocess

    code = (
        "import sys; from statehold.tools.browser.process import choice, install; "
        "from statehold.tools.browser.config import BrowserConfig; "
        "choice.find_browser(BrowserConfig(executable=sys.executable)); "
        "assert not [m for m in sys.modules if m.startswith('playwright')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_shell_is_preferred_then_playwrights_own_then_the_rest(tmp_path: Path) -> None:
    here = machine(tmp_path)
    with pytest.raises(NoBrowser):
        find(here)
    edge = program(tmp_path / "opt/microsoft/msedge/msedge")
    assert find(here) == BrowserChoice(edge, None, "edge", flags=SLIM)
    chrome = program(tmp_path / "bin/google-chrome")
    assert find(here) == BrowserChoice(chrome, None, "chrome", flags=SLIM)
    chromium = program(tmp_path / "bin/chromium")
    assert find(here) == BrowserChoice(chromium, None, "chromium", flags=SLIM)
    version = playwright_version(shell=True)
    whole = own_build(here, "chrome")
    assert find(here) == BrowserChoice(whole, None, "playwright", version=version, flags=SLIM)
    own = own_build(here, "chrome-headless-shell")
    assert find(here) == BrowserChoice(own, None, "playwright", shell=True, version=version)
    shell = program(tmp_path / "bin/chromium-headless-shell")
    assert find(here) == BrowserChoice(shell, None, "shell", shell=True)


def test_debians_script_is_passed_over_for_what_it_starts(tmp_path: Path) -> None:
    here = machine(tmp_path, PATH=str(tmp_path / "usr/bin"))
    program(tmp_path / "usr/bin/chromium-headless-shell")
    debian = program(tmp_path / "usr/lib/chromium/chromium-headless-shell")
    assert find(here).path == debian
    other = machine(tmp_path, PATH=str(tmp_path / "local"))
    assert find(other).path == debian
    mine = program(tmp_path / "local/chromium-headless-shell")
    assert find(other).path == mine


def test_a_half_downloaded_build_is_not_used(tmp_path: Path) -> None:
    here = machine(tmp_path)
    own_build(here, "chrome-headless-shell", complete=False)
    with pytest.raises(NoBrowser):
        find(here)


def test_a_browser_of_snap_is_the_last_resort(tmp_path: Path) -> None:
    here = machine(tmp_path)
    script = program(tmp_path / "bin/chromium-browser", '#!/bin/sh\nexec /snap/bin/chromium "$@"\n')
    assert find(here).path == script
    edge = program(tmp_path / "bin/microsoft-edge")
    assert find(here).path == edge


@pytest.mark.parametrize(
    ("platform", "place", "kind"),
    [
        ("darwin", "Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "chrome"),
        ("darwin", "home/Applications/Chromium.app/Contents/MacOS/Chromium", "chromium"),
        ("darwin", "Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge", "edge"),
        ("win32", "programs/Google/Chrome/Application/chrome.exe", "chrome"),
        ("win32", "programs/Microsoft/Edge/Application/msedge.exe", "edge"),
        ("linux", "opt/google/chrome/chrome", "chrome"),
        ("linux", "usr/lib/chromium/chromium", "chromium"),
    ],
)
def test_browsers_are_found_where_each_system_keeps_them(
    tmp_path: Path, platform: str, place: str, kind: str
) -> None:
    path = program(tmp_path / place)
    here = machine(tmp_path, platform=platform, PROGRAMFILES=str(tmp_path / "programs"))
    assert find(here) == BrowserChoice(path, None, kind, flags=SLIM)  # pyright: ignore[reportArgumentType]


def test_playwrights_folder_can_be_elsewhere(tmp_path: Path) -> None:
    elsewhere = machine(tmp_path, PLAYWRIGHT_BROWSERS_PATH=str(tmp_path / "elsewhere"))
    assert playwright_folder(elsewhere) == tmp_path / "elsewhere"
    inside = playwright_folder(machine(tmp_path, PLAYWRIGHT_BROWSERS_PATH="0"))
    assert inside.name == ".local-browsers"
    cache = playwright_folder(machine(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")))
    assert cache == tmp_path / "cache" / "ms-playwright"
    mac = playwright_folder(machine(tmp_path, platform="darwin"))
    assert mac == tmp_path / "home/Library/Caches/ms-playwright"


def test_the_configured_browser_wins_and_is_never_replaced(tmp_path: Path) -> None:
    here = machine(tmp_path)
    program(tmp_path / "bin/chromium-headless-shell")
    mine = program(tmp_path / "mine/thing")
    assert find(here, executable=mine) == BrowserChoice(mine, None, "chromium", flags=SLIM)
    named = program(tmp_path / "bin/my-edge")
    assert find(here, executable="my-edge") == BrowserChoice(named, None, "edge", flags=SLIM)
    with pytest.raises(NoBrowser, match="`executable`"):
        find(here, executable=str(tmp_path / "gone"))


def test_a_channel_is_left_to_playwright_unless_it_is_its_own(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert find(here, channel="chrome") == BrowserChoice(None, "chrome", "chrome", flags=SLIM)
    assert find(here, channel="msedge-beta").kind == "edge"
    with pytest.raises(NoBrowser, match="playwright install --only-shell chromium"):
        find(here, channel="chromium-headless-shell")
    own = own_build(here, "chrome")
    assert find(here, channel="chromium").path == own


def test_a_window_needs_a_display_and_a_whole_browser(tmp_path: Path) -> None:
    program(tmp_path / "bin/chromium-headless-shell")
    with pytest.raises(NoBrowser, match="display"):
        find(machine(tmp_path), headless=False)
    here = machine(tmp_path, DISPLAY=":0")
    with pytest.raises(NoBrowser, match="--no-shell"):
        find(here, headless=False)
    with pytest.raises(NoBrowser, match="headless shell"):
        find(here, headless=False, executable="chromium-headless-shell")
    chromium = program(tmp_path / "bin/chromium")
    assert find(here, headless=False).path == chromium


def test_a_missing_browser_is_reported_with_the_command_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(NoBrowser, match="`python -m playwright install --only-shell chromium`"):
        find(machine(tmp_path))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('PRETTY_NAME="Debian"\nID=debian\n')
    program(tmp_path / "bin/apt-get")
    with pytest.raises(NoBrowser, match="`apt-get install chromium-headless-shell`"):
        find(machine(tmp_path))


def test_the_sandbox_is_off_for_root_alone(tmp_path: Path) -> None:
    config = BrowserConfig(args=["--mute-audio"])
    chromium = program(tmp_path / "bin/chromium")
    as_user = launch_options(find(machine(tmp_path)), config, machine(tmp_path))
    assert as_user["chromium_sandbox"] is True
    as_root = machine(tmp_path, root=True)
    options = launch_options(find(as_root), config, as_root)
    assert options["chromium_sandbox"] is False
    assert options["executable_path"] == chromium
    assert "channel" not in options
    assert options["args"][0] == "--mute-audio"


def test_a_system_that_refuses_sandboxes_is_reported_with_its_remedy(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert sandbox(here).remedy == ""
    setting = tmp_path / "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    setting.parent.mkdir(parents=True)
    setting.write_text("1\n")
    refused = sandbox(here)
    assert refused.on
    assert refused.remedy == "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    helper = tmp_path / "usr/lib/chromium/chrome-sandbox"
    program(helper)
    os.chmod(helper, 0o4755)
    assert sandbox(here, tmp_path / "bin/chromium").remedy == ""
    assert not sandbox(machine(tmp_path, root=True)).on
    assert sandbox(machine(tmp_path, platform="darwin")).on
