"""The endpoint of a browser, which no file has that Playwright writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browsing import opened, process_of, running, running_in_hosts

pytestmark = pytest.mark.anyio

COUNT = """async () => {
  const { readdirSync, readFileSync } = process.getBuiltinModule("fs");
  const entries = FOLDERS.flatMap(folder => readdirSync(folder, { recursive: true, withFileTypes: true }));
  const files = entries.filter(entry => entry.isFile()).map(entry => `${entry.parentPath}/${entry.name}`);
  return files.filter(file => readFileSync(file).includes("ws://127.0.0.1:"));
}"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return home


async def test_no_file_has_the_endpoint_of_a_browser_in_a_host(
    home: Path, data: Path, shell: str
) -> None:
    async with running_in_hosts(data, shell) as service, opened(service) as browse:
        folder = process_of(browse).folder
        assert folder is not None
        assert folder.stat().st_mode & 0o777 == 0o700
        files = [path for each in (home, folder) for path in each.rglob("*") if path.is_file()]
        assert not [path for path in files if b"ws://127.0.0.1:" in path.read_bytes()]
        assert not (home / ".cache" / "ms-playwright").exists()


@pytest.mark.thorough
async def test_no_file_has_the_endpoint_of_a_browser_while_code_runs(
    home: Path, data: Path, shell: str
) -> None:
    async with running(data, shell, caps=["unsafe"]) as service, opened(service) as browse:
        code = COUNT.replace("FOLDERS", str([str(home), str(process_of(browse).folder)]))
        assert "### Result\n[]" in await browse.text("run_code_unsafe", code=code)


@pytest.mark.thorough
async def test_a_cache_that_cannot_be_written_stops_no_browser(
    tmp_path: Path, data: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with running_in_hosts(data, shell) as service, opened(service) as browse:
        await browse.text("navigate", url="about:blank")
