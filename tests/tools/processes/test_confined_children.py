"""Children in a sandbox: those of the keeper, and the rules that follow from a command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.kept_children import Nodes, adopt, die, next_note, start
from support.process_exit import until_gone

from statehold.keeper.confinement import landlock_abi
from statehold.tools.processes.child_process import ChildProcess
from statehold.tools.processes.sandbox import ProcessSandbox, SandboxError

pytestmark = pytest.mark.skipif(landlock_abi() < 6, reason="needs Landlock of Linux 6.12")

TRIES = """
import subprocess
try:
    seen = open({file!r}).read()
except PermissionError:
    seen = "refused"
command = ["setsid", "env", "-i", "/bin/sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"]
left = subprocess.run(command, capture_output=True, check=True).stdout
note(seen=seen, left=int(left))
sys.stdin.read()
"""


def sandbox(folder: Path, *private: Path, read: tuple[Path, ...] = ()) -> ProcessSandbox:
    return ProcessSandbox(
        abi=landlock_abi(),
        folders=[folder],
        read=[str(path) for path in read],
        write=[],
        ports=[],
        private=[str(path) for path in private],
    )


async def test_a_child_of_the_keeper_is_confined_and_ends_with_all_that_it_started(
    nodes: Nodes, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("seen")
    client = nodes.client()
    rules = sandbox(tmp_path / "own")
    child = await start(nodes, TRIES.format(file=str(secret)), client=client, sandbox=rules)
    note = await next_note(child)
    assert child.kept is not None
    assert note["seen"] == "refused"
    await die(client, child)
    adopted = await adopt(nodes, epoch=2)
    await adopted.aclose()
    left = note["left"]
    assert isinstance(left, int)
    await until_gone(adopted.pid, left)


async def output_of(rules: ProcessSandbox, *words: str, cwd: Path) -> str:
    """Run a Python script in a sandbox and return what it wrote to stderr."""
    child = await ChildProcess.start(
        [sys.executable, *words], service="s", cwd=str(cwd), sandbox=rules
    )
    await child.wait_for_exit(10)
    await child.aclose()
    return child.stderr


async def test_a_program_reads_its_scripts_and_the_files_of_its_command_line(
    tmp_path: Path,
) -> None:
    project, own, given = tmp_path / "project", tmp_path / "own", tmp_path / "given"
    project.mkdir()
    own.mkdir()
    (project / "main.py").write_text(
        "import beside, sys\nsys.stderr.write(open(sys.argv[1]).read())"
    )
    (project / "beside.py").touch()
    given.write_text("given")
    script = str(project / "main.py")
    assert await output_of(sandbox(own), script, str(given), cwd=own) == "given"
    # Not a word of the command line alone.
    code = f"open({str(given)!r})"
    assert "Permission denied" in await output_of(sandbox(own), "-c", code, cwd=own)


async def test_a_link_in_a_folder_of_the_program_leads_nowhere(tmp_path: Path) -> None:
    own, secret = tmp_path / "own", tmp_path / "secret"
    (own / "cwd").mkdir(parents=True)
    secret.write_text("secret")
    (own / "main.py").symlink_to(secret)
    (own / "out").symlink_to(tmp_path)
    code = f"open({str(secret)!r})"
    for cwd in (own / "cwd", own / "out"):
        output = await output_of(sandbox(own), "-c", code, str(own / "main.py"), cwd=cwd)
        assert "Permission denied" in output


async def test_a_folder_with_private_files_is_readable_but_for_these(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "part").mkdir(parents=True)
    for path, text in {"part/open": "open ", "tokens": "secret "}.items():
        (project / path).write_text(text)
    code = "import sys\nprint(open('part/open').read(), file=sys.stderr)\nopen('tokens')"
    rules = sandbox(tmp_path / "own", project / "tokens")
    output = await output_of(rules, "-c", code, cwd=project)
    assert output.startswith("open ")
    assert "Permission denied: 'tokens'" in output


async def test_a_path_of_the_settings_that_is_missing_is_an_error(tmp_path: Path) -> None:
    rules = sandbox(tmp_path / "own", read=(tmp_path / "gone",))
    with pytest.raises(SandboxError, match=r"sandbox.read: .*/gone cannot be opened"):
        await output_of(rules, "-c", "", cwd=tmp_path)
