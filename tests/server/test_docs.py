"""The documentation and the examples agree with the code. Run this file to rewrite the reference parts."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import shorten

import click
import pytest

from statehold.server.config import reference
from statehold.server.config.client_files import read_client_file
from statehold.server.config.load import load
from statehold.server.config.mistakes import FLAGS, setting_names
from statehold.server.exit_codes import EXIT_CODES
from statehold.sessions.lifecycle import OPEN, TABLE, Transition
from statehold.shell import commands as command_reference
from statehold.shell.commands import SETTINGS, build_commands, parse_command_line
from statehold.shell.parser import Group, ParserSetting, help_of, spell, walk

ROOT = Path(__file__).resolve().parents[2]
MAN_PAGE = ROOT / "shell" / "share" / "statehold.1"


def state_diagrams() -> str:
    """Return the state machine as two diagrams, the open session and its end: in one, the arrows hide each other."""
    rows = TABLE.values()
    same = [row for row in rows if row.source is row.target]
    events = ", ".join(dict.fromkeys(f"`{row.event}`" for row in same))
    statuses = " and ".join(f"`{row.source}`" for row in same)
    opening = _diagram("TB", (row for row in rows if row.target in OPEN and row not in same))
    ending = _diagram("LR", (row for row in rows if row.target not in OPEN))
    return (
        "The arrows show the events of an open session, which the table of transitions below explains. "
        f"The event {events}\nleaves {statuses} as they are.\n\n{opening}\nSessions end so:\n\n{ending}"
    )


def _diagram(direction: str, rows: Iterable[Transition]) -> str:
    arrows: dict[str, list[str]] = {}
    for row in rows:
        arrow = f"{row.source or '[*]'} --> {row.target or '[*]'}"
        arrows.setdefault(arrow, []).append(row.event)
    lines = [f"    {arrow}: {'<br>'.join(events)}" for arrow, events in arrows.items()]
    head = ["```mermaid", "stateDiagram-v2", f"    direction {direction}"]
    return "\n".join([*head, *lines, "```\n"])


def files() -> str:
    """Return all files of the sources by folder, each with the first sentence of its own text."""
    lines: list[str] = []
    for folder in ("access", "client", "console", "keeper", "server", "sessions", "shell", "tools"):
        for path in sorted((ROOT / folder).rglob("*"), key=lambda path: (path.parent, path)):
            if path.suffix in (".py", ".js") and not path.stem.startswith("__"):
                head = f"{path.parent.relative_to(ROOT).as_posix()}/"
                lines += [] if head in lines else [head]
                name = path.stem if path.suffix == ".py" else path.name
                sentence = shorten(_first_sentence(path), 100, placeholder=" ...")
                lines.append(f"  {name:<22} {sentence}".rstrip())
    return "\n".join(["```text", *lines, "```"])


def _first_sentence(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    pattern = r'"""(.*?)(?:"""|\.?\n\n|\.\s)' if path.suffix == ".py" else r"//(.*?)(?:\.|$)"
    match = re.search(pattern, text, re.DOTALL | re.MULTILINE)
    return match[1] if match else ""


def man_page() -> str:
    """Return shell/share/statehold.1: all commands with their arguments, the settings and the exit codes, in roff."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    root = build_commands()
    lines = [".TH STATEHOLD 1", ".nh", ".SH NAME", f"statehold \\- {_roff(project['description'])}"]
    lines += [".SH SYNOPSIS", r"\fBstatehold\fR [\fISETTINGS\fR] [\fICOMMAND\fR ...]"]
    lines += [".SH DESCRIPTION", _roff(root.help), ".SH COMMANDS"]
    for path, command in walk(root):
        own = [param for param in command.params if not isinstance(param, ParserSetting)]
        if isinstance(command, Group):
            continue
        arguments = " ".join(spell(param) for param in own if isinstance(param, click.Argument))
        lines += [f'.SS "{_roff(f"{path} {arguments}".strip())}"', _roff(command.help)]
        lines += _params(own)
        lines += [".PP", f"Example: {_roff(command.example)}"]
    lines += [
        ".SH SETTINGS",
        "Every command takes these, before or after its name.",
        *_params(SETTINGS),
    ]
    lines.append(".SH EXIT STATUS")
    for code, text in EXIT_CODES.items():
        lines += [".TP", f".B {code}", _roff(text)]
    return "\n".join(lines) + "\n"


def _params(params: Iterable[click.Parameter]) -> Iterable[str]:
    for param in params:
        yield from (".TP", f".B {_roff(spell(param))}", _roff(help_of(param)))


def _roff(text: str | None) -> str:
    text = (text or "").replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return rf"\&{text}" if text.startswith((".", "'")) else text


WRITTEN: list[tuple[str, str, Callable[[], str]]] = [
    ("reference/configuration.md", "settings", reference.markdown),
    ("reference/cli.md", "commands", command_reference.markdown),
    ("use/sessions.md", "states", state_diagrams),
    ("../CONTRIBUTING.md", "files", files),
]


def parts(page: str, name: str) -> tuple[str, str, str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    match = re.fullmatch(
        rf"(.*<!-- {name}: [^\n]* -->\n)(.*)(<!-- end of {name} -->\n.*)", text, re.DOTALL
    )
    assert match, f"docs/{page} has no place for its {name}"
    return match[1], match[2], match[3]


@pytest.mark.parametrize(("page", "name", "write"), WRITTEN)
def test_reference_in_the_documentation_is_the_one_of_the_code(
    page: str, name: str, write: Callable[[], str]
) -> None:
    assert parts(page, name)[1] == f"\n{write()}\n", "run: python tests/server/test_docs.py"


def test_the_man_page_is_the_one_of_the_commands() -> None:
    assert MAN_PAGE.read_text(encoding="utf-8") == man_page(), (
        "run: python tests/server/test_docs.py"
    )


def test_every_setting_has_a_type_and_a_text() -> None:
    documented: list[str] = []
    for table, settings in reference.reference():
        for setting in settings:
            name = table.strip("[]")
            tables = (
                "services",
                "logins",
                "auth.issuers",
                "auth.facade.clients",
                "policies",
                "notify",
            )
            below = f"{name}." if name.startswith(tables) else ""
            documented.append(f"{below}{setting.key}")
            assert setting.kind, setting
            assert setting.text.endswith("."), setting
    sections = {"timeouts", "limits", "history", "store", "cluster", "keeper", "recovery", "server"}
    sections |= {"http", "auth", "log", "metrics", "services", "logins", "summary", "sealing"}
    inner = (
        ".restore.",
        *(f"policies.{name}." for name in ("rate", "tool_rates", "match", "approve")),
    )
    names = (name for name in setting_names() if not any(part in name for part in inner))
    known = set(names) - sections
    assert sorted(documented) == sorted(known)


def test_every_command_and_exit_code_has_a_line_and_every_argument_a_help() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for path, command in walk(build_commands()):
        assert isinstance(command, Group) or f"\n| `{path}` | {command.help} |" in page
        for param in command.params:
            assert help_of(param), (path, param)
    for code in EXIT_CODES:
        assert f"| `{code}` |" in page


def test_every_example_of_a_command_can_be_parsed() -> None:
    for path, command in walk(build_commands()):
        program, *words = shlex.split(command.example)
        assert program == "statehold"
        parsed = parse_command_line(words)
        assert [parsed.command, parsed.action] == [*path.split()[1:], None, None][:2] or (
            path
            in [
                f"statehold {name}"
                for name in (
                    "sessions",
                    "services",
                    "approvals",
                    "logins",
                    "nodes",
                    "tokens",
                    "principals",
                    "audit",
                )
            ]
        )


def test_every_flag_of_a_setting_is_on_the_command_line() -> None:
    flags = {setting.opts[0] for setting in SETTINGS}
    assert set(FLAGS.values()) | {"--config", "--services", "--shared"} == flags
    assert set(FLAGS) <= set(setting_names())


def test_example_configuration_is_valid() -> None:
    config = load(config=ROOT / "examples" / "statehold.toml", environ={})
    assert list(config.upstreams()) == ["everything", "memory"]


@pytest.mark.parametrize("path", [ROOT / "mcp.json", *sorted(ROOT.glob("examples/*.json"))])
def test_client_example_is_a_file_that_we_read_and_starts_statehold(path: Path) -> None:
    file = read_client_file(path, "--services")
    assert (file.services, len(file.notes)) == ({}, 1)
    statehold = json.loads(path.read_text(encoding="utf-8"))["mcpServers"]["statehold"]
    assert statehold["command"] == "uv"
    *run, program = statehold["args"][:4]
    assert run == ["run", "--directory", "/path/to/statehold"]
    assert program == "statehold"
    parse_command_line(statehold["args"][4:])


def test_toml_in_the_documentation_is_toml() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    blocks = re.findall(r"```toml\n(.*?)```", "\n".join(pages), re.DOTALL)
    assert len(blocks) > 10
    for block in blocks:
        tomllib.loads(block)


def write_all() -> None:
    for page, name, write in WRITTEN:
        before, _, after = parts(page, name)
        (ROOT / "docs" / page).write_text(f"{before}\n{write()}\n{after}", encoding="utf-8")
        sys.stdout.write(f"docs/{page}\n")
    MAN_PAGE.write_text(man_page(), encoding="utf-8")


if __name__ == "__main__":
    write_all()
