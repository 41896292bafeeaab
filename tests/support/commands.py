"""The command line on a data folder, run in this process."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statehold.server.exit_codes import OK
from statehold.shell.main import main

from .gateway_process import JSON, Way, service, serving, toml


class DataFolder:
    """A data folder with its configuration, and `statehold sessions` on it."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], services: JSON | None = None
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.config = folder / "statehold.toml"
        self.config.write_text(toml({"services": services or {"quick": service("quick")}}))
        self._capsys = capsys

    @property
    def flags(self) -> list[str]:
        return ["--config", str(self.config), "--data", str(self.data)]

    def run(self, *words: str, with_config: bool = True) -> tuple[int, str, str]:
        """Return the exit code and the text of both output streams."""
        self._capsys.readouterr()
        code = main(["sessions", *words, *self.flags[0 if with_config else 2 :]])
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def json(self, *words: str) -> Any:
        """Return the JSON output of a command that has to succeed."""
        code, out, err = self.run(*words, "--json")
        assert code == OK, err
        return json.loads(out)

    @contextmanager
    def serving(self) -> Generator[Way]:
        """Have a server beside it, which has to end in order."""
        with serving(self.config, self.data) as running:
            yield Way("http", "modern", self.config, self.data, url=running.url)
            assert running.stop() == 0


__all__ = ["DataFolder"]
