"""`statehold tools`, `skill` and `completion`, and what a quick command imports."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.terminal import program_in_terminal
from support.tool_commands import Commands

from statehold.server.exit_codes import ASKS, OK, USAGE

HEAVY = {"click", "asyncio", "typing", "pathlib", "pydantic", "dataclasses", "inspect", "tempfile"}
SKILL_TOKENS = 750


def test_a_call_imports_little(commands: Commands) -> None:
    commands.output("call", "imports", "get")
    line = commands.line("call", "imports", "get", configured=False)
    program = (
        "import sys; from statehold.shell.entry import main; code = main(); "
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    )
    words = line[line.index("statehold") + 1 :]
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program, *words], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "0\n"
    assert HEAVY & set(ran.stderr.split()) == set()


def test_tools_are_one_line_each_and_one_has_its_arguments(commands: Commands) -> None:
    lines = commands.output("tools").splitlines()
    assert "inc  inc of the quick server" in lines
    assert all(len(line) <= 110 for line in lines)
    assert commands.output("tools", "--grep", "SLOW").splitlines()[0].startswith("slow")
    assert commands.output("tools", "inc") == (
        "inc\n  inc of the quick server\n  n (whole number, optional, default 1)\n"
    )
    assert json.loads(commands.output("tools", "inc", "--json"))[0]["name"] == "inc"
    ran = commands("tools", "SLOWW")
    assert ran.returncode == USAGE
    assert "Did you mean slow?" in ran.stderr
    assert "statehold tools --grep" in ran.stderr


def completed(commands: Commands, *words: str) -> list[str]:
    return commands.output("complete", "--", *words).split("\n")[:-1]


def test_words_are_completed(commands: Commands) -> None:
    commands.output("call", "$(touch x)", "get")
    assert {"call", "completion", "console"} == set(completed(commands, "c"))
    assert completed(commands, "call", "$(") == ["$(touch x)"]
    assert "inc" in completed(commands, "call", "s", "i")
    assert completed(commands, "call", "s", "inc", "") == ["n="]
    assert "--json" in completed(commands, "call", "--j")
    assert completed(commands, "sessions", "pau") == ["pause"]
    assert {"--status", "--since"} <= set(completed(commands, "sessions", "list", "--s"))
    for before in (("sessions", "pause"), ("sessions", "pause", "x"), ("call", "--timeout", "5")):
        assert completed(commands, *before, "$(") == ["$(touch x)"]
    assert all(word.startswith("sh_") for word in completed(commands, "sessions", "show", "sh_"))
    assert completed(commands, "sessions", "show", "sh_")
    # The shell completes files there.
    assert completed(commands, "call", "s", "inc", "-o", "") == []
    for none in (("export", "s"), ("import",), ("list",), ("nosuch",)):
        assert completed(commands, "sessions", *none, "") == []


def test_the_id_of_a_task_and_the_fields_of_its_question_are_completed(commands: Commands) -> None:
    commands.output("call", "asking", "get")
    assert commands("call", "asking", "ask").returncode == ASKS
    [task] = completed(commands, "answer", "sh_")
    assert completed(commands, "answer", task, "") == ["answer="]
    assert completed(commands, "tasks", "w") == ["wait"]
    for words in (("wait",), ("cancel",), ("answer",)):
        assert completed(commands, "tasks", *words, "sh_") == [task]
    assert completed(commands, "tasks", "answer", task, "") == ["answer="]


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("$", r"\$\(touch\ x\)"),
        (r"\$", r"\$\(touch\ x\)"),
        (r"\$\(to", r"\$\(touch\ x\)"),
        ("'$", "'$(touch x)'"),
    ],
)
def test_bash_completes_a_name_without_evaluating_it(
    commands: Commands, tmp_path: Path, typed: str, shown: str
) -> None:
    commands.output("call", "$(touch x)", "get")
    program = tmp_path / "statehold"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(commands.line(configured=False))} "$@"\n')
    program.chmod(0o755)
    rc = tmp_path / "rc"
    rc.write_text(
        f"PS1='ready> ' PATH={tmp_path}:$PATH\ncd {tmp_path}\n{commands.output('completion', 'bash')}"
    )
    with program_in_terminal(["bash", "--rcfile", str(rc), "-i"], columns=150) as terminal:
        terminal.wait_for_text("ready>")
        terminal.press(f"statehold call {typed}\t")
        terminal.wait_for_text(f"ready> statehold call {shown}")
        terminal.press("get\r")
        terminal.wait_for(lambda lines: "0" in lines, "the answer")
    assert not (tmp_path / "x").exists()


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
@pytest.mark.parametrize(
    ("typed", "shown", "is_installed"),
    [
        ("call zeb", "call zebra get", False),
        ("call 'zeb", "call 'zebra' get", False),
        ("sessions pause zeb", "sessions pause zebra get", True),
    ],
)
def test_zsh_completes_a_word_as_a_whole(
    commands: Commands, tmp_path: Path, typed: str, shown: str, is_installed: bool
) -> None:
    """`is_installed`: zsh finds the script in its folder of functions, as a wheel installs it."""
    commands.output("call", "zebra", "get")
    program = tmp_path / "statehold"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(commands.line(configured=False))} "$@"\n')
    program.chmod(0o755)
    script = commands.output("completion", "zsh")
    if is_installed:
        (tmp_path / "_statehold").write_text(script)
    (tmp_path / ".zshrc").write_text(
        f"PS1='ready> ' path=({tmp_path} $path) fpath=({tmp_path} $fpath)\n"
        f"autoload -Uz compinit; compinit -u -D\n{'' if is_installed else script}"
    )
    line = ["env", f"ZDOTDIR={tmp_path}", "zsh", "-o", "noglobalrcs", "-i"]
    with program_in_terminal(line, columns=150) as terminal:
        terminal.wait_for_text("ready>")
        terminal.press(f"statehold {typed}\t")
        terminal.wait_for_text("zebra")
        terminal.press("get")
        terminal.wait_for_text(f"ready> statehold {shown}")


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_sessions_and_arguments(commands: Commands, tmp_path: Path) -> None:
    commands.output("call", "perch", "get")
    program = tmp_path / "statehold"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(commands.line(configured=False))} "$@"\n')
    program.chmod(0o755)
    for typed, word in (
        ("call per", "perch"),
        ("sessions pause per", "perch"),
        ("call perch inc ", "n="),
    ):
        script = f"{commands.output('completion', 'fish')}\ncomplete -C 'statehold {typed}'"
        ran = subprocess.run(
            ["env", f"HOME={tmp_path}", "fish", "-c", f"set -p PATH {tmp_path}\n{script}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.split() == [word]


def test_nothing_is_started_to_complete_a_word(own_commands: Commands) -> None:
    assert completed(own_commands, "call", "") == []
    assert own_commands.shared.servers() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_valid(commands: Commands, shell: str) -> None:
    script = commands.output("completion", shell)
    assert "statehold complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def allowed_by(text: str) -> str:
    return text.partition("allowed-tools: ")[2].partition("\n")[0]


def test_the_skill_allows_the_calls_that_a_person_allows(
    commands: Commands, tmp_path: Path
) -> None:
    text = commands.output("skill")
    assert "call" not in allowed_by(text)
    assert "Bash(statehold tools:*)" in allowed_by(text)
    commands.output("skill", "--install", str(tmp_path), "--allow", "browser_")
    installed = (tmp_path / "statehold" / "SKILL.md").read_text()
    assert allowed_by(installed).endswith(", Bash(statehold call * browser_*)")
    assert commands("skill", "--allow", "*").returncode == USAGE
    # A word and a sign are a token at least.
    assert len(re.findall(r"\w+|[^\w\s]", text)) < SKILL_TOKENS


def test_settings_may_stand_before_the_command(commands: Commands) -> None:
    line = commands.line("call", "before", "get")
    assert line.index("--config") < line.index("call")
    assert commands("call", "before", "get").returncode == OK
    behind = ["tools", "inc", f"--config={commands.shared.config}"]
    assert commands(*behind, configured=False).returncode == OK
