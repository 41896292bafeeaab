"""The transcripts of docs/use/shell.md are what the commands print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateway_process import STATEHOLD, service, toml
from support.shared_clients import SharedClients

from statehold.server.exit_codes import ASKS, OK

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "use" / "shell.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S)
FIRST, QUESTION = [block for block in BLOCKS if block.startswith("$ ")]
TASK = r"sh_[a-z0-9]{26}\.task-[\w-]+"
CHANGING = [
    (r"sh_[a-z0-9]{26}", "ID"),
    (r"task-[\w-]{24}", "TASK"),
    (r'"pid": \d+', '"pid": PID'),
]
"""Parts of the output that are others in each run."""


def same(text: str) -> str:
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text)
    return text


class Shell:
    """A shell in the clone, in which `statehold` is this one with a data folder of the test's own."""

    def __init__(self, shared: SharedClients) -> None:
        self.program = shlex.join([*STATEHOLD, "--data", str(shared.data)])
        # `python` in a configuration is that of this environment, as with `uv run`.
        self.exports = f"export PATH={Path(sys.executable).parent}:$PATH\n"

    def run(self, command: str) -> tuple[int, str]:
        """Return the exit code of a command, and what a person sees."""
        if command.startswith("export "):
            self.exports += f"{command}\n"
            return OK, ""
        ran = subprocess.run(
            f'{self.exports}statehold() {{ {self.program} "$@"; }}\n{command}',
            shell=True,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return ran.returncode, ran.stdout

    def printed(self, transcript: str) -> str:
        """Run the commands of a transcript, and return the transcript of this run."""
        printed = ""
        task = ""
        for line in transcript.splitlines():
            if line.startswith("$ "):
                command = re.sub(TASK, task, line.removeprefix("$ "))
                code, shown = self.run(command)
                assert code in (OK, ASKS), shown
                task = "".join(re.findall(TASK, shown))
                printed += f"{line}\n{shown}"
        return printed


def test_the_first_transcript_is_what_the_commands_print(tmp_path: Path) -> None:
    shared = SharedClients(ROOT / "examples" / "notebook.toml", tmp_path / "data")
    assert same(Shell(shared).printed(FIRST)) == same(FIRST)
    shared.stop()


def test_a_question_is_what_the_commands_print(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"shop": service("asking", "--era", "legacy")}}))
    shared = SharedClients(config, tmp_path / "data")
    shell = Shell(shared)
    shell.run(f"export STATEHOLD_CONFIG={config}")
    shell.run("statehold call work get")
    assert same(shell.printed(QUESTION)) == same(QUESTION)
    shared.stop()
