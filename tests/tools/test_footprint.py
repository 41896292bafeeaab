"""The bytes of the files that services keep for sessions."""

from __future__ import annotations

from pathlib import Path

from statehold.tools.processes.workdir import bytes_of_files


def test_files_of_a_session_count_and_no_others(tmp_path: Path):
    def write(path_below: str, size: int) -> None:
        path = tmp_path / path_below
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)

    write("work/sh_a/notes/deep/file", 1000)
    write("browser/files/sh_a/download.pdf", 200)
    write("browser/files/sh_b/other.pdf", 50_000)
    write("elsewhere", 70_000)
    (tmp_path / "work/sh_a/link").symlink_to(tmp_path / "elsewhere")
    link = len(str(tmp_path / "elsewhere"))
    assert bytes_of_files(tmp_path, ["sh_a", "sh_none"]) == 1200 + link
