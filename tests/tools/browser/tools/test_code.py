"""Code of the caller's outside of the page, where the configuration lets it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from support.browsing import Browse, opened, running, section

from statehold.sessions.errors import InvalidArgument
from statehold.tools.browser.process import node_js
from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.peer


async def test_it_is_not_there_unless_it_was_turned_on(browse: Browse) -> None:
    assert "browser_run_code_unsafe" not in [tool.name for tool in await browse.service.tools()]
    with pytest.raises(InvalidArgument, match="no tool"):
        await browse.call("run_code_unsafe", code="async page => 1")


@pytest.fixture(scope="module")
async def unsafe(
    service: BrowserService, shell: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[BrowserService]:
    """The service of all tests whose sessions may run code."""
    data, uploads = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("uploads")
    (uploads / "code.js").write_text("async page => 'from a folder'")
    async with running(data, shell, caps=["unsafe"], uploads=[str(uploads)]) as unsafe:
        yield unsafe


async def test_code_works_on_the_page_of_the_session(unsafe: BrowserService, lab: str) -> None:
    async with opened(unsafe) as browse:
        specs = {tool.name: tool.definition for tool in await unsafe.tools()}
        assert "Unsafe:" in specs["browser_run_code_unsafe"]["description"]
        code = f"""async page => {{ await page.goto('{lab}/counter');
            await page.getByRole('button', {{name: 'Increment'}}).click(); return await page.title(); }}"""
        text = await browse.text("run_code_unsafe", code=code)
        assert section(text, "Result") == '"Counter - Lab"'
        assert 'status [ref=e11]: "1"' in section(text, "Snapshot")
        assert section(text, "Ran Playwright code").startswith("```js\nawait (async page =>")
        text = await browse.text("run_code_unsafe", code="async () => ({a: [1, 'b']})")
        assert section(text, "Result") == '{"a":[1,"b"]}'
        for uploaded in (f"{unsafe.config.uploads[0]}/code.js", "code.js", "./code.js"):
            text = await browse.text("run_code_unsafe", filename=uploaded)
            assert section(text, "Result") == '"from a folder"'
        for name in ("../x.js", "/etc/hostname"):
            assert "is no file of this session" in await browse.error(
                "run_code_unsafe", filename=name
            )
        assert "Give the code" in await browse.error("run_code_unsafe")


@pytest.mark.thorough
async def test_code_comes_from_a_file_and_its_errors_are_reported(
    unsafe: BrowserService, lab: str
) -> None:
    async with opened(unsafe) as other, opened(unsafe) as browse:
        await other.text("navigate", url=f"{lab}/frame?name=other")
        await browse.text("navigate", url=f"{lab}/counter")
        text = await browse.error("run_code_unsafe", code="async () => { throw new Error('no') }")
        assert section(text, "Error") == "no"
        await browse.connection.session.files.write("code.js", b"async page => page.url()")
        text = await browse.text("run_code_unsafe", filename="code.js")
        assert section(text, "Result") == f'"{lab}/counter"'
        assert "Frame other" in await other.text("snapshot")


@pytest.mark.thorough
async def test_sessions_of_one_browser_run_code_at_the_same_time(
    unsafe: BrowserService, lab: str
) -> None:
    async with opened(unsafe) as ann, opened(unsafe) as bob:

        async def run(browse: Browse, name: str) -> None:
            await browse.text("navigate", url=f"{lab}/frame?name={name}")
            text = await browse.text("run_code_unsafe", code="async page => page.url()")
            assert section(text, "Result") == f'"{lab}/frame?name={name}"'

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, ann, "ann")
            tasks.start_soon(run, bob, "bob")


@pytest.mark.thorough
async def test_code_does_not_get_the_browser_to_read_files(
    unsafe: BrowserService, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    async with opened(unsafe) as browse:
        await browse.text("navigate", url="about:blank")
        # The second context is none of the session's.
        for page in ("page", "await (await page.context().browser().newContext()).newPage()"):
            code = f"""async page => {{ const other = {page}; await other.goto('{secret.as_uri()}');
                return await other.content(); }}"""
            text = await browse.error("run_code_unsafe", code=code)
            assert "ERR_BLOCKED_BY_CLIENT" in text
            assert "a secret" not in text


def _nowhere() -> str:
    return "nowhere"


async def test_invalid_code_is_refused_without_loading_playwright(
    unsafe: BrowserService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_js, "_package", _nowhere)
    async with opened(unsafe) as browse:
        text = await browse.error("run_code_unsafe", code="async page => {")
        assert "Unexpected token" in section(text, "Error")


@pytest.mark.thorough
async def test_code_that_never_ends_is_stopped(data: Path, shell: str) -> None:
    async with (
        running(data, shell, caps=["unsafe"], script_seconds=2.5) as service,
        opened(service) as browse,
    ):
        text = await browse.error("run_code_unsafe", code="async page => { for (;;); }")
        assert "did not end within 2.5 seconds" in section(text, "Error")
        assert "about:blank" in await browse.text("snapshot")
