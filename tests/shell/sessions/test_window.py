"""`statehold sessions screenshot` and `open`, beside a server that holds the session and beside none."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import commands
from support.fork_server import ForkServer
from support.gateway_process import (
    STATEHOLD,
    UPSTREAMS,
    Running,
    Way,
    serving,
    statehold,
    text_of,
    toml,
)
from support.screen import Screen
from support.selection import matrix

from statehold.server.exit_codes import BUSY, FAILURE, NOT_FOUND, OK, USAGE
from statehold.sessions.json_codec import JSON
from statehold.shell.main import main


def browser(shell: str) -> JSON:
    return {"executable": shell, "private": True}


class DataFolder(commands.DataFolder):
    """With a browser, and one session of the test."""

    def __init__(
        self,
        folder: Path,
        shell: str,
        capsys: pytest.CaptureFixture[str],
        name: str = "work",
        **services: JSON,
    ) -> None:
        super().__init__(folder, capsys, {"browser": browser(shell), **services})
        self.name = name

    def on(self, command: str, *words: str) -> tuple[int, str, str]:
        """Run a command on the session."""
        return self.run(command, self.name, *words)

    def show(self) -> JSON:
        return self.json("show", self.name, "--last", "100")

    @contextmanager
    def calling(self) -> Generator[Caller]:
        with serving(self.config, self.data) as running:
            yield Caller(running, self)


class Caller:
    """A client of a running server, with a connection for each call."""

    def __init__(self, running: Running, folder_cli: DataFolder) -> None:
        self._way = Way("http", "modern", folder_cli.config, folder_cli.data, url=running.url)
        self._path = f"/s/{folder_cli.name}/mcp"

    def call(self, tool: str, **arguments: Any) -> str:
        async def run() -> str:
            with anyio.fail_after(50):
                async with self._way.connect(self._path) as client:
                    return text_of(await client.call_tool(tool, arguments))

        return anyio.run(run)

    def log_in(self, site: str) -> None:
        self.call("browser_navigate", url=f"{site}/login")
        self.call("browser_type", target="#name", text="ada")
        self.call("browser_type", target="#password", text="open sesame", submit=True)
        assert "Logged in as ada" in self.call("browser_snapshot")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("looks")


@pytest.fixture(scope="module")
def running(folder: Path, headless_shell: str) -> Generator[Running]:
    """The server of all tests that do not need it to end."""
    config = folder / "statehold.toml"
    config.write_text(toml({"services": {"browser": browser(headless_shell)}}))
    with serving(config, folder / "data") as server:
        yield server


@pytest.fixture
def folder_cli(
    folder: Path, headless_shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> DataFolder:
    """Where that server works, and a session of the test's own."""
    return DataFolder(folder, headless_shell, capsys, tmp_path.name)


@pytest.fixture
def caller(running: Running, folder_cli: DataFolder) -> Generator[Caller]:
    """A client of that server, whose session is closed at the end."""
    yield Caller(running, folder_cli)
    folder_cli.on("close", "--force")


def size_of(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    return struct.unpack(">II", data[16:24])


def test_screenshot_shows_the_page_and_leaves_no_trace(
    folder_cli: DataFolder, caller: Caller, login_site: str, tmp_path: Path
) -> None:
    code, _, err = folder_cli.on("screenshot", str(tmp_path / "none.png"))
    assert (code, f"there is no session {folder_cli.name}" in err) == (NOT_FOUND, True)
    caller.log_in(login_site)
    before = folder_cli.show()
    code, out, _ = folder_cli.on("screenshot", str(tmp_path / "page.png"))
    assert (code, out) == (
        OK,
        f"{tmp_path}/page.png shows Your berth - Harbour ({login_site}/me)\n",
    )
    assert size_of(tmp_path / "page.png") == (1280, 720)
    code, out, _ = folder_cli.on("screenshot", str(tmp_path / "page.jpg"), "--json")
    assert json.loads(out) | {"session_id": ""} == {
        "session_id": "",
        "name": folder_cli.name,
        "file": f"{tmp_path}/page.jpg",
        "url": f"{login_site}/me",
        "title": "Your berth - Harbour",
    }
    assert (tmp_path / "page.jpg").read_bytes().startswith(b"\xff\xd8")
    after = folder_cli.show()
    # The journal is written behind: of the last call it may not have known before.
    del before["journal"]
    called = [entry["tool"] for entry in after.pop("journal") if entry["kind"] == "call"]
    assert called == ["browser_navigate", *["browser_type"] * 2, "browser_snapshot"]
    assert after == before
    # The caller gets no event, and its refs are still valid.
    assert "### Events" not in caller.call("browser_snapshot")


@pytest.mark.thorough
def test_screenshot_of_a_paused_session_leaves_it_paused(
    folder_cli: DataFolder, caller: Caller, login_site: str, tmp_path: Path
) -> None:
    caller.log_in(login_site)
    assert folder_cli.on("pause")[0] == OK
    before = folder_cli.show()
    assert folder_cli.on("screenshot", str(tmp_path / "page.png"))[0] == OK
    after = folder_cli.show()
    assert (after["status"], after["open_in"]) == ("paused", None)
    assert after["used_at"] == before["used_at"]
    steps = [(e["request"]["code"], e["request"]["cause"]) for e in after["journal"][-2:]]
    assert steps == [("T09", "screenshot"), ("T08", "screenshot")]
    answer = caller.call("browser_snapshot")
    assert "Logged in as ada" in answer


@pytest.mark.thorough
def test_the_command_takes_the_screenshot_of_an_unheld_session(
    headless_shell: str,
    capsys: pytest.CaptureFixture[str],
    login_site: str,
    tmp_path: Path,
    process_leaks: Any,
) -> None:
    folder_cli = DataFolder(tmp_path, headless_shell, capsys)
    with folder_cli.calling() as caller:
        caller.log_in(login_site)
    before = folder_cli.show()
    assert before["open_in"] is None
    assert folder_cli.on("screenshot", str(tmp_path / "page.png"))[0] == OK
    assert size_of(tmp_path / "page.png") == (1280, 720)
    process_leaks.check_now()
    after = folder_cli.show()
    for key in ("status", "used_at", "open_in"):
        assert after[key] == before[key], key
    with folder_cli.calling() as caller:
        assert "Logged in as ada" in caller.call("browser_snapshot")


@pytest.mark.thorough
def test_full_page_is_larger_than_the_view(
    folder_cli: DataFolder, caller: Caller, lab_site: Any, tmp_path: Path
) -> None:
    caller.call("browser_navigate", url=f"{lab_site.url}/form")
    file = tmp_path / "page.png"
    assert folder_cli.on("screenshot", str(file), "--full-page")[0] == OK
    width, height = size_of(file)
    assert width == 1280
    assert height > 720


def test_a_failed_screenshot_is_reported_in_one_line(
    folder_cli: DataFolder, caller: Caller, lab_site: Any, tmp_path: Path
) -> None:
    file = str(tmp_path / "page.png")
    caller.call("browser_navigate", url=f"{lab_site.url}/form")
    for words, message, expected in (
        ((str(tmp_path / "page.gif"),), "a picture is one of .png, .jpg, .jpeg, .webp", USAGE),
        ((str(tmp_path / "no" / "page.png"),), "there is no folder", USAGE),
        ((str(tmp_path),), "a picture is one of", USAGE),
    ):
        code, out, err = folder_cli.on("screenshot", *words)
        assert (code, out, err.count("\n")) == (expected, "", 1)
        assert message in err
    caller.call("browser_close")
    code, _, err = folder_cli.on("screenshot", file)
    assert code == FAILURE
    assert "browser_navigate url=URL" in err
    assert folder_cli.on("close")[0] == OK
    code, _, err = folder_cli.on("screenshot", file)
    assert code == FAILURE
    assert "is closed" in err
    assert not Path(file).exists()


# The window.


@contextmanager
def window(
    folder_cli: DataFolder, command: Sequence[str], env: dict[str, str], *words: str
) -> Generator[subprocess.Popen[str]]:
    """Run `sessions open`, or the command of some words, and wait until there is a window."""
    with subprocess.Popen(
        [*command, *(words or ("sessions", "open", folder_cli.name)), *folder_cli.flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == (
                f"statehold: {folder_cli.name} is open in a window; close the window to give it back\n"
            )
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    out = process.stdout.read()
    assert process.wait(30) == OK, process.stderr.read()
    return out.partition(") is ")[2].strip()


def until_shown(folder_cli: DataFolder, url: str, file: Path) -> None:
    """Take pictures of the window from outside until it shows a page."""
    out = ""
    for _ in range(20):
        code, out, err = folder_cli.on("screenshot", str(file), "--json")
        assert code == OK, err
        if json.loads(out)["url"] == url:
            return
    raise AssertionError(f"the window shows {out}, not {url}")


@pytest.mark.thorough
def test_window_needs_a_display(
    folder_cli: DataFolder, caller: Caller, login_site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    caller.log_in(login_site)
    code, out, err = folder_cli.on("open")
    assert (code, out, err.count("\n")) == (FAILURE, "", 1)
    assert "there is no display for a window: run this where one is (DISPLAY)" in err
    assert folder_cli.show()["status"] == "idle"


@pytest.mark.thorough
def test_person_logs_in_for_the_session_in_a_window(
    folder_cli: DataFolder,
    caller: Caller,
    login_site: str,
    screen: Screen,
    lab_site: Any,
    tmp_path: Path,
) -> None:
    caller.call("browser_navigate", url=f"{login_site}/login")
    with window(folder_cli, STATEHOLD, screen.env) as process:
        answer = caller.call("browser_snapshot")
        assert "human_in_control: A person has control of the session" in answer
        code, _, err = folder_cli.on("pause")
        assert code == BUSY
        assert "Close the window first." in err
        assert folder_cli.show()["open_in"] == f"a window that a person works in, pid {process.pid}"
        log_in(folder_cli, screen, login_site, tmp_path)
        screen.keys("ctrl+t")
        screen.go(f"{lab_site.url}/counter")
        until_shown(folder_cli, f"{lab_site.url}/counter", tmp_path / "page.png")
        screen.keys("ctrl+shift+w")
        # The server continues with the session that the window held.
        assert ended(process) == "idle"
    answer = caller.call("browser_tabs", action="list")
    assert "Note from Statehold: a person had control of the session for" in answer
    assert f"The current page was {login_site}/login and is {lab_site.url}/counter." in answer
    assert f"- 1: (current) [Counter - Lab]({lab_site.url}/counter)" in answer
    caller.call("browser_tabs", action="select", index=0)
    answer = caller.call("browser_snapshot")
    assert "Logged in as ada" in answer
    assert "note of ada" in answer
    assert folder_cli.on("pause")[0] == OK
    assert "Logged in as ada" in caller.call("browser_snapshot")


def log_in(folder_cli: DataFolder, screen: Screen, login_site: str, tmp_path: Path) -> None:
    """Log in as ada in the window that shows the login page, with keys and clicks of a person."""
    screen.focus()
    until_shown(folder_cli, f"{login_site}/login", tmp_path / "before.png")
    # Beside the form, so that the next key leads to its first field.
    screen.click(60, 500)
    screen.keys("Tab")
    screen.type("ada")
    screen.keys("Tab")
    screen.type("open sesame")
    screen.keys("Return")
    until_shown(folder_cli, f"{login_site}/me", tmp_path / "me.png")


@pytest.mark.thorough
def test_login_creates_a_session_in_which_a_person_logs_in(
    headless_shell: str,
    capsys: pytest.CaptureFixture[str],
    login_site: str,
    screen: Screen,
    tmp_path: Path,
) -> None:
    folder_cli = DataFolder(tmp_path, headless_shell, capsys)
    words = ("login", f"{login_site}/login", "--session", "work")
    with window(folder_cli, statehold(), screen.env, *words) as process:
        log_in(folder_cli, screen, login_site, tmp_path)
        screen.keys("ctrl+shift+w")
        assert ended(process) == "paused"
    with folder_cli.calling() as caller:
        answer = caller.call("browser_snapshot")
        assert "Logged in as ada" in answer
    # The session has a page now, which stays: the address is opened beside it.
    with window(folder_cli, statehold(), screen.env, *words) as process:
        screen.focus()
        until_shown(folder_cli, f"{login_site}/login", tmp_path / "again.png")
        screen.keys("ctrl+shift+w")
        assert ended(process) == "paused"
    tabs = folder_cli.show()["journal"]
    assert [entry["kind"] for entry in tabs].count("call") == 1
    with folder_cli.calling() as caller:
        assert "- 1: (current)" in caller.call("browser_tabs", action="list")


@pytest.mark.parametrize(
    ("words", "message"),
    matrix(
        (("https://x.test", "--session", "new"), "and set storage_state = FILE here"),
        (("https://x.test",), "name the session that logs in: --session NAME"),
        (("file:///etc/passwd", "--session", "new"), "file: URLs may not be opened"),
    ),
)
def test_an_impossible_login_is_refused_and_creates_no_session(
    headless_shell: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    folder_cli = DataFolder(tmp_path, headless_shell, capsys)
    assert main(["login", *words, *folder_cli.flags]) != OK
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert folder_cli.json("list", "--all")["sessions"] == []


def test_a_session_in_the_tabs_of_a_persons_browser_gets_no_other_window(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":none")
    attached = {"cdp_endpoint": "http://127.0.0.1:9", "attach": "tabs"}
    folder_cli = commands.DataFolder(tmp_path, capsys, {"browser": attached})
    assert main(["login", "https://x.test", "--session", "new", *folder_cli.flags]) == FAILURE
    err = capsys.readouterr().err
    assert "the tabs of the browser at http://127.0.0.1:9: use its own window" in err
    assert folder_cli.json("list", "--all")["sessions"] == []


@pytest.mark.thorough
def test_window_takes_no_memory_of_other_services_away(
    tmp_path: Path,
    headless_shell: str,
    chromium: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fork_server: ForkServer,
) -> None:
    monkeypatch.setenv("DISPLAY", ":none")
    folder_cli = DataFolder(
        tmp_path, headless_shell, capsys, counter=fork_server.service(UPSTREAMS / "counter.py")
    )
    with folder_cli.calling() as caller:
        caller.call("browser_navigate", url="about:blank")
        caller.call("inc")
        code, out, err = folder_cli.on("open")
        assert (code, out, err.count("\n")) == (BUSY, "", 1)
        assert "which would be lost; --force gives that up" in err
        assert folder_cli.show()["status"] == "idle"
        assert caller.call("inc").startswith("2")
        # Forced it gets as far as the screen, which is none, and leaves the session to its next call.
        code, out, err = folder_cli.on("open", "--force")
        assert (code, out) == (FAILURE, "")
        assert "The browser did not start" in err
        assert caller.call("inc").startswith("1")


@pytest.mark.thorough
def test_command_that_is_interrupted_or_killed_gives_the_session_back(
    folder_cli: DataFolder, caller: Caller, login_site: str, screen: Screen
) -> None:
    caller.log_in(login_site)
    assert folder_cli.on("pause")[0] == OK
    with window(folder_cli, statehold(), screen.env) as process:
        process.send_signal(signal.SIGINT)
        assert ended(process) == "paused"
    assert "Logged in as ada" in caller.call("browser_snapshot")
    # The real program: a forked one ends a moment after the process that is killed here.
    with window(folder_cli, STATEHOLD, screen.env) as process:
        process.kill()
        process.wait(10)
    assert "Logged in as ada" in caller.call("browser_snapshot")
