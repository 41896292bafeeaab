"""Answering dialogs and file choosers, and which files may be given away."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from support.browsing import Browse, opened, section

from statehold.sessions.json_codec import JSON
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session import uploads
from statehold.tools.upstream.resource_updates import InternalContext

pytestmark = pytest.mark.peer


async def test_a_dialog_is_part_of_the_answer_and_has_to_be_answered_first(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    text = await browse.text("click", target="text=Confirm")
    dialog = '["confirm" dialog with message "Really?"]: can be handled by browser_handle_dialog'
    assert section(text, "Modal state") == f"- {dialog}"
    for tool, arguments in (("snapshot", {}), ("click", {"target": "e4"}), ("file_upload", {})):
        assert dialog in section(await browse.error(tool, **arguments), "Modal state")
    assert "(current)" in await browse.text("tabs", action="list")
    text = await browse.text("handle_dialog", accept=False)
    assert "### Modal state" not in text
    assert "confirm: false" in await browse.text("snapshot")


@pytest.mark.thorough
async def test_tools_without_the_page_work_while_a_dialog_is_open(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    await browse.text("click", target="text=Confirm")
    with anyio.fail_after(5):
        await browse.text("cookie_set", name="a", value="1")
        for tool, arguments, line in (
            ("cookie_list", {}, "a=1"),
            ("cookie_get", {"name": "a"}, "a=1"),
            ("cookie_delete", {"name": "a"}, ""),
            ("cookie_clear", {}, ""),
            ("console_messages", {}, "Total messages"),
            ("network_requests", {"static": True}, "/dialogs"),
            ("get_config", {}, "settle_seconds"),
        ):
            text = await browse.text(tool, **arguments)
            assert line in text, tool
            assert "Really?" in section(text, "Modal state")
    await browse.text("handle_dialog", accept=True)


async def test_without_a_dialog_there_is_nothing_to_handle(browse: Browse) -> None:
    assert "No dialog is open" in await browse.error("handle_dialog", accept=True)
    assert "No file chooser is open" in await browse.error("file_upload", paths=[])


@pytest.mark.thorough
async def test_closing_is_possible_while_a_dialog_is_open(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    await browse.text("click", target="button >> text=/^Alert$/")
    assert "No open tabs" in await browse.text("close")
    assert "about:blank" in await browse.text("snapshot")


@pytest.mark.thorough
async def test_a_guard_against_leaving_does_not_keep_the_page(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    await browse.text("click", target="text=Guard this page")
    text = await browse.text("navigate", url=f"{lab}/frame")
    if "Modal state" in text:
        text = await browse.text("handle_dialog", accept=True)
    assert "Frame plain" in await browse.text("snapshot")


async def test_files_of_the_session_are_uploaded(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/chooser")
    files = browse.connection.session.files
    await files.write("one.txt", b"1")
    await files.write("two 2.txt", b"22")
    text = await browse.text("click", target="text=Choose files")
    assert "[File chooser]: can be handled by browser_file_upload" in section(text, "Modal state")
    text = await browse.text(
        "file_upload", paths=["one.txt", "session://sh_x/browser/files/two%202.txt"]
    )
    assert "one.txt: 1 bytes two 2.txt: 2 bytes" in section(text, "Snapshot")


async def test_a_chooser_for_one_file_stays_open_when_given_two(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/chooser")
    await browse.connection.session.files.write("one.txt", b"1")
    await browse.text("click", target="text=Choose a file")
    text = await browse.error("file_upload", paths=["one.txt", "one.txt"])
    assert "takes one file" in section(text, "Error")
    assert "[File chooser]" in section(text, "Modal state")
    text = await browse.text("file_upload")
    assert "### Modal state" not in text


async def test_nothing_outside_of_the_allowed_folders_is_uploaded(
    service: BrowserService, tmp_path: Path, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "file.txt").write_text(folder.name)
    (allowed / "link.txt").symlink_to(other / "file.txt")
    settings = {"uploads": [str(allowed)]}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/chooser")
        await browse.text("click", target="text=Choose a file")
        own = browse.connection.session.files
        await own.write("mine.txt", b"mine")
        (own.folder / "link.txt").symlink_to(other / "file.txt")
        for path in (
            other / "file.txt",
            allowed / "link.txt",
            allowed / "missing.txt",
            allowed / ".." / "other" / "file.txt",
            allowed,
            "link.txt",
            "missing.txt",
            "../other/file.txt",
            "../../../other/file.txt",
            f"files/{'../' * 9}etc/passwd",
            "mine\0.txt",
        ):
            text = await browse.error("file_upload", paths=[str(path)])
            assert f"in a folder for uploads: {allowed}." in section(text, "Error")
            assert str(own.folder) not in text
        (allowed / "hard.txt").hardlink_to(other / "file.txt")
        assert "hard link" in await browse.error("file_upload", paths=[str(allowed / "hard.txt")])
        text = await browse.text("file_upload", paths=[str(allowed / "file.txt")])
        assert "file.txt: 7 bytes" in text
        (allowed / "below").mkdir()
        (allowed / "below" / "deep.txt").write_text("deep")
        for name, size in (("below/deep.txt", 4), ("file.txt", 7)):
            await browse.text("click", target="text=Choose a file")
            assert f": {size} bytes" in await browse.text("file_upload", paths=[name])


class Roots(InternalContext):
    """A caller whose client says that all files of this machine belong to its work."""

    capabilities: JSON = {"roots": {}}  # noqa: RUF012 a constant of the tests

    async def ask(self, method: str, params: JSON) -> JSON:
        assert method == "roots/list"
        return {"roots": [{"uri": "file:///"}]}


async def test_roots_of_a_client_elsewhere_are_no_folders_for_uploads(
    browse: Browse, lab: str, tmp_path: Path
) -> None:
    (tmp_path / "file.txt").write_text("file")
    browse.ctx = Roots()
    await browse.text("navigate", url=f"{lab}/chooser")
    await browse.text("click", target="text=Choose a file")
    text = await browse.error("file_upload", paths=[str(tmp_path / "file.txt")])
    assert "no file of this session" in section(text, "Error")


async def test_a_folder_is_uploaded_where_its_page_wants_one(
    service: BrowserService, tmp_path: Path, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed / "photos" / "2024", other):
        folder.mkdir(parents=True)
        (folder / "one.txt").write_text("1")
    photos = str(allowed / "photos")
    settings = {"uploads": [str(allowed)], "download_bytes": 3000}
    monkeypatch.setattr(service, "config", service.config.model_copy(update=settings))
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/chooser")
        await browse.text("click", target="#folder")

        async def refused(path: Path | str) -> str:
            text = await browse.error("file_upload", paths=[str(path)])
            assert "[File chooser]: can be handled" in section(text, "Modal state")
            assert "### Ran Playwright code" not in text
            return section(text, "Error")

        one = allowed / "photos" / "2024" / "one.txt"
        assert "requires passing a path to a directory" in await refused(one)
        for path in (other, allowed, allowed / "none", "none", "..", tmp_path):
            assert "no file of this session" in await refused(path)
        (allowed / "photos" / "link").symlink_to(other)
        assert "a link in it, 'link'" in await refused(photos)
        (allowed / "photos" / "link").unlink()
        os.mkfifo(allowed / "photos" / "pipe")
        assert "no file, 'pipe'" in await refused(photos)
        (allowed / "photos" / "pipe").unlink()
        (allowed / "photos" / "large").write_bytes(bytes(12_000))
        assert "more than 12000 bytes" in await refused(photos)
        (allowed / "photos" / "large").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(uploads, "MAX_FOLDER_ENTRIES", 1)
            assert "more than 1 files" in await refused(photos)
        text = await browse.text("file_upload", paths=["photos"])
        assert "photos/2024/one.txt: 1 bytes" in section(text, "Snapshot")
        await browse.text("click", target="text=Choose a file")
        assert "not taken" in await refused(photos)
        assert "### Modal state" not in await browse.text("file_upload")


@pytest.mark.thorough
async def test_a_chooser_whose_page_is_gone_asks_no_longer(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/chooser")
    await browse.connection.session.files.write("one.txt", b"1")
    await browse.text("click", target="text=Choose a file")
    await browse.page.goto(f"{lab}/frame")
    text = await browse.error("file_upload", paths=["one.txt"])
    assert "The files were not taken" in section(text, "Error")
    assert "### Modal state" not in text
