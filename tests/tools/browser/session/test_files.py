"""The files of a session, without a browser: their names, their content, and the errors when they fail."""

from __future__ import annotations

import base64
import re
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from changing import Changing
from support.browsing import Browse, again, opened, section, text_of
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import InvalidArgument
from statehold.tools.browser.errors import BrowserToolFailed
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session import files as module
from statehold.tools.browser.session.files import Files, reason
from statehold.tools.browser.session.recording.video import Videos

MIB = 2**20


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "of-session", largest=100 * MIB)


@pytest.mark.parametrize(
    ("wanted", "begins", "ends"),
    [
        ("漢" * 100 + ".txt", "漢漢", "漢.txt"),
        ("a" * 500 + ".tar.gz", "aaa", "a.gz"),
        ("a." + "b" * 500, "a.b", "b"),
        ("é" * 500, "é", "é"),
        ("../../x/report.pdf", "report.pdf", "report.pdf"),
        ("...", "file", "file"),
    ],
)
async def test_every_name_becomes_one_that_a_system_takes(
    files: Files, wanted: str, begins: str, ends: str
) -> None:
    for _ in range(2):
        path = await files.path(wanted)
        assert path.parent == files.folder
        assert len(path.name.encode()) < 200
    first, second = sorted(await files.names(), key=len)
    assert first.startswith(begins)
    assert first.endswith(ends)
    assert second == f"{Path(first).stem}-2{Path(first).suffix}"


@pytest.mark.thorough
async def test_files_are_kept_while_others_are_removed(files: Files) -> None:
    for number in range(300):
        await files.write(f"{number}.txt", b"")

    async def come_and_go() -> None:
        while True:
            await files.drop(await files.path("last.txt"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come_and_go)
        for _ in range(60):
            await files.write("more.txt", b"")
        tasks.cancel_scope.cancel()


async def test_a_list_of_templates_is_empty_and_no_error(files: Files) -> None:
    assert await files.answer("resources/templates/list", {}) == {"resourceTemplates": []}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
async def test_a_file_that_does_not_fit_on_the_disk_leaves_nothing(files: Files) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * MIB, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            await files.write("page.png", bytes(6 * MIB))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert await files.names() == []
    assert (await files.write("page.png", bytes(6 * MIB))).name == "page.png"


async def test_a_file_is_read_as_text_or_as_a_blob(files: Files) -> None:
    await files.write("a.txt", "grün".encode())
    await files.write("b.txt", b"\xff")
    text = await files.contents("files/a.txt")
    assert text == {"uri": "files/a.txt", "mimeType": "text/plain", "text": "grün"}
    blob = await files.contents("files/b.txt")
    assert base64.b64decode(blob["blob"]) == b"\xff"
    with pytest.raises(InvalidArgument):
        await files.answer("resources/read", {"uri": "files/c.txt"})


@pytest.mark.parametrize(
    ("name", "data", "mime"),
    [
        ("console.log", "grün\n".encode(), "text/plain"),
        ("notes", ("é" * 5000).encode(), "text/plain"),
        ("odd", b"x" + ("é" * 5000).encode(), "text/plain"),
        ("bytes", b"\xff\xfe", "application/octet-stream"),
        ("zeros.log", b"a\0b", "application/octet-stream"),
        ("some.bin", b"text", "application/octet-stream"),
        ("page.json", b"{}", "application/json"),
    ],
)
async def test_a_text_is_known_as_one_where_its_name_does_not_tell(
    files: Files, name: str, data: bytes, mime: str
) -> None:
    await files.write(name, data)
    contents = await files.contents(f"files/{name}")
    assert contents["mimeType"] == mime
    assert ("text" in contents) == (mime != "application/octet-stream")
    assert (await files.resource(name))["mimeType"] == mime
    assert (await files.read(f"files/{name}"))[1] == mime


async def test_a_file_that_is_too_large_to_be_sent_says_where_it_is(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 1000)
    await files.write("some.bin", b"x" * 1000)
    await files.write("large.bin", b"x" * 1001)
    answer = await files.answer("resources/read", {"uri": "files/some.bin"})
    assert len(base64.b64decode(answer["contents"][0]["blob"])) == 1000
    with pytest.raises(InvalidArgument) as caught:
        await files.answer("resources/read", {"uri": "files/large.bin"})
    message = caught.value.message
    assert "1001 bytes" in message
    assert "1000 bytes" in message
    assert message.endswith("browser/files/of-session/large.bin")
    assert str(files.folder.parent) not in message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(36, "File name too long", "/secret/folder"), "File name too long"),
        (OSError("there is no room"), "there is no room"),
        (
            Exception("Error: ENOSPC: no space left, copyfile '/secret/a' -> '/secret/b'"),
            "ENOSPC: no space left",
        ),
    ],
)
def test_a_reason_names_no_folder(error: Exception, words: str) -> None:
    assert reason(error) == words


class Windows:
    """A context with one page."""

    def __init__(self) -> None:
        self.pages = [object()]

    def remove_listener(self, event: str, listener: object) -> None: ...


async def test_a_video_without_a_place_for_its_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    films = Videos(
        cast("Any", Windows()),
        Files(file / "files", largest=MIB),
        set(),
        spawn=lambda *_: None,
        add_event=lambda _: None,
        is_hidden=lambda _: False,
    )
    with pytest.raises(BrowserToolFailed) as caught:
        await films.start("video")
    assert str(file) not in str(caught.value)
    assert not films.pause_hold.is_active


@pytest.mark.thorough
@pytest.mark.peer
async def test_a_download_with_a_long_name_is_kept(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    code = """() => {
        const link = document.createElement("a")
        link.download = "漢".repeat(100) + ".txt"
        link.href = URL.createObjectURL(new Blob(["here"]))
        link.click()
    }"""
    texts = [await browse.text("evaluate", function=code)]

    async def is_over() -> bool:
        if "Downloaded" not in texts[-1] and "failed" not in texts[-1]:
            texts.append(await browse.text("wait_for", time=0.1))
        return "Downloaded" in texts[-1] or "failed" in texts[-1]

    await until(is_over)
    (name,) = await browse.connection.session.files.names()
    assert name.endswith("漢.txt")
    assert f'Downloaded file {name} to "' in texts[-1]


@pytest.mark.parametrize(
    "opens",
    matrix(
        "<a href=/file target=_blank>get</a>",
        "<button onclick=\"window.open('/file')\">get</button>",
        "<form action=/file target=_blank><button>get</button></form>",
    ),
)
async def test_a_tab_that_opens_for_a_download_is_closed_when_it_is_over(
    browse: Browse, opens: str
) -> None:
    with Changing() as site:
        site.pages |= {"/": opens, "/file": "a,b"}
        site.headers["/file"] = {"Content-Disposition": "attachment; filename=report.csv"}
        await browse.text("navigate", url=site.url)
        text = await browse.text("click", target="text=get")
        assert "Downloaded file report.csv" in section(text, "Events")
        # A full browser closes the tab by itself.
        closed = (
            "A tab that had opened for a download was closed.",
            "A tab opened and closed again.",
        )
        assert any(line in section(text, "Events") for line in closed)
        assert "A new tab opened" not in text
        assert "### Open tabs" not in text
        assert len(browse.connection.session.tabs) == 1


async def test_files_are_copied_to_the_output_folder(
    service: BrowserService, tmp_path: Path, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "shots" / "today"
    settings = {"output_dir": str(output), "image_responses": "omit"}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    monkeypatch.setattr(service, "_has_local_callers", True)
    async with opened(service) as browse, opened(service) as other:
        for one in (browse, other):
            await one.text("navigate", url=f"{lab}/frame")
        result = await browse.call("take_screenshot")
        assert [block["type"] for block in result.payload["content"]] == ["text", "resource_link"]
        assert f"/files/page.png) (copied to {output}/page.png)" in text_of(result)
        text = await other.text("take_screenshot")
        assert f"/files/page.png) (copied to {output}/page-2.png)" in text
        text = await browse.text(
            "evaluate", function=f"() => {{ location.href = '{lab}/file/report' }}"
        )
        assert f"(copied to {output}/report.txt)" in section(text, "Events")
        await service.forget(browse.view.id)
        names = ["page-2.png", "page.png", "report.txt"]
        assert sorted(path.name for path in output.iterdir()) == names
    (output / ".hidden").write_bytes(b"x" * 1000)
    settings |= {"output_max_size": 500}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    expected = {
        "a": ["a.json", "report.txt"],
        "b": ["a.json", "b.json", "report.txt"],
        "c": ["b.json", "c.json"],
        "d": ["d.json"],
    }
    async with opened(service) as browse:
        for name, size in (("a", 200), ("b", 200), ("c", 200), ("d", 900)):
            code = f"() => 'x'.repeat({size})"
            await browse.text("evaluate", function=code, filename=f"{name}.json")
            left = sorted(path.name for path in output.iterdir())
            assert left == [".hidden", *expected[name]]
        assert "d.json" in await browse.connection.session.files.names()
    (tmp_path / "file").touch()
    settings = {"output_dir": str(tmp_path / "file")}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    monkeypatch.setattr(service, "_has_local_callers", False)
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/frame")
        text = await browse.text("take_screenshot")
        assert "(not copied to `output_dir`: File exists)" in section(text, "Result")


async def test_a_log_has_the_calls_of_a_session_without_secrets(
    service: BrowserService, tmp_path: Path, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"save_session": True}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/form")
        await browse.text("type", target="[name=secret]", text="tr0ub4dor")
        await browse.text("evaluate", function="() => 'http://ada:tr0ub4dor@a.test'")
        for number in range(30):
            await browse.text("cookie_set", name=f"a{number}", value=f"tr0ub4dor-{number}")
        await browse.text("cookie_list")
        with pytest.raises(InvalidArgument):
            await browse.call("navigate")
        linked = await browse.text("snapshot", filename="Session.md")
        assert "/files/file-Session.md" in linked
        async with again(browse) as later:
            await later.error("click", target="#gone")
        data, mime = await later.connection.session.files.read("files/session.md")
        assert mime == "text/markdown"
        log = data.decode()
        names = ["navigate", "type", "evaluate", *["cookie_set"] * 30, "cookie_list", "navigate"]
        names += ["snapshot", "click"]
        assert re.findall("^### Tool call: browser_(.*)$", log, re.MULTILINE) == names
        assert f'"url": "{lab}/form"' in log
        assert '"Page": "- Page URL: ' in log
        assert '"isError": true' in log
        assert "tr0ub4dor" not in log
    settings |= {"output_dir": str(tmp_path / "out")}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    async with opened(service) as browse:
        await browse.text("snapshot")
        [path] = (tmp_path / "out").iterdir()
        assert path.name == f"session-{browse.view.id}.md"
        assert path.stat().st_mode & 0o777 == 0o600


async def test_logs_of_open_sessions_are_not_removed_and_leave_room_for_other_files(
    service: BrowserService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"save_session": True, "output_dir": str(tmp_path), "output_max_size": 5000}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))

    def left() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    async with opened(service) as browse, opened(service) as other:
        logs = {f"session-{one.view.id}.md" for one in (browse, other)}
        await other.text("cookie_list")
        for _ in range(5):
            await browse.text("evaluate", function="() => 'x'.repeat(100)")
        await browse.text("evaluate", function="() => 'x'.repeat(4900)", filename="a.json")
        assert left() == {*logs, "a.json"}
        assert sum((tmp_path / log).stat().st_size for log in logs) <= 1000
        await browse.text("evaluate", function="() => 'x'.repeat(3000)", filename="b.json")
        assert left() == {*logs, "b.json"}
        (tmp_path / "later").write_bytes(b"x" * 4000)
        await other.text("cookie_list")
        assert left() == {*logs, "later"}
    async with opened(service) as browse:
        await browse.text("evaluate", function="() => 'x'.repeat(4900)", filename="c.json")
        assert left() == {f"session-{browse.view.id}.md", "c.json"}
