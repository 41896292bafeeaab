"""`statehold sessions screenshot`, beside a server that holds the session and beside none."""

from __future__ import annotations

import json
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import commands
from support.gateway_process import (
    Running,
    Way,
    serving,
    text_of,
    toml,
)

from statehold.server.exit_codes import FAILURE, NOT_FOUND, OK, USAGE
from statehold.sessions.json_codec import JSON


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
def test_a_server_is_started_for_the_screenshot_of_an_unheld_session(
    headless_shell: str, capsys: pytest.CaptureFixture[str], login_site: str, tmp_path: Path
) -> None:
    folder_cli = DataFolder(tmp_path, headless_shell, capsys)
    with folder_cli.calling() as caller:
        caller.log_in(login_site)
    before = folder_cli.show()
    assert before["open_in"] is None
    assert folder_cli.on("screenshot", str(tmp_path / "page.png"))[0] == OK
    assert size_of(tmp_path / "page.png") == (1280, 720)
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
    assert code == NOT_FOUND
    assert "is closed" in err
    assert not Path(file).exists()
