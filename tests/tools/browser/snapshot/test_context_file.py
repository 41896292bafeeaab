"""The file that says what a kept context holds beside its browser."""

from __future__ import annotations

import os
from pathlib import Path

from statehold.tools.browser.snapshot.adoption import ContextFile, ContextRecord


def test_only_this_user_can_read_the_file_of_a_context(tmp_path: Path) -> None:
    path = tmp_path / "contexts" / "a.json"
    mask = os.umask(0)
    try:
        file = ContextFile(path)
        for tab in ("one", "two"):
            file.write(ContextRecord(tabs=[tab]))
            assert path.stat().st_mode & 0o777 == 0o600
            assert ContextFile(path).read().tabs == [tab]
            # A process that was killed leaves this one.
            path.with_suffix(".new").touch(0o644)
    finally:
        os.umask(mask)
