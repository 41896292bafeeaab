"""The README and the pages in docs/ agree with the code; the example in the README runs as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import anyio
import pytest
from support.fork_server import ForkServer
from support.gateway_process import Way, serving

from statehold.server.cli.commands import parse_command_line
from statehold.server.config.load import load
from statehold.server.config.messages import setting_names
from statehold.server.config.sections import TimeoutSettings
from statehold.sessions import errors
from statehold.sessions.lifecycle import TABLE, Status
from statehold.tools.own.definition import format_duration
from statehold.tools.upstream.config import Recipe, Step, UpstreamConfig

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOK = ROOT / "examples" / "notebook.toml"
OURS = ("session_", "state_")
"""How the names of our own tools begin."""
PORT = "8931"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)


def rows(name: str, head: str) -> list[list[str]]:
    """Return the cells of the table below a head."""
    lines = page(name).split(f"\n{head}\n")[1].splitlines()[1:]
    table = lines[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table]


def quoted(text: str) -> list[str]:
    """Return the text in backticks, except in code blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def environ() -> dict[str, str]:
    """Make `python` the one of this environment, as `uv run` does."""
    return {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


async def test_the_example_of_the_readme_runs_as_printed(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    assert f"serve --config {NOTEBOOK.relative_to(ROOT)}" in "".join(blocks("README.md", "console"))
    [program], [printed, *_] = blocks("README.md", "python"), blocks("README.md", "text")
    with serving(NOTEBOOK, tmp_path / "data", env=environ(), as_installed=True) as running:
        assert program.count(f"127.0.0.1:{PORT}") == 1
        example = tmp_path / "example.py"
        example.write_text(program.replace(PORT, running.url.rpartition(":")[2]))
        with anyio.fail_after(40):
            done = await anyio.run_process(fork_server.command(str(example)), check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout.decode() == printed
        way = Way("http", "modern", NOTEBOOK, tmp_path, url=running.url)
        async with way.connect() as client:
            listed = (await client.list_tools()).tools
    names = {
        name for row in rows("README.md", "| tool | what it does |") for name in quoted(row[0])
    }
    assert names == {tool.name for tool in listed if tool.name.startswith(OURS)}


def test_every_command_of_the_readme_can_be_parsed() -> None:
    commands = [
        line.partition("#")[0].split()
        for block in blocks("README.md", "console")
        for line in block.splitlines()
    ]
    assert ["uv", "run", "pytest"] in commands
    ours = [command[3:] for command in commands if command[:3] == ["uv", "run", "statehold"]]
    assert ["demo"] in ours
    for arguments in ours:
        parse_command_line(arguments)
        for argument in arguments:
            if argument.startswith("examples/"):
                assert (ROOT / argument).is_file()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_statehold_command_of_the_pages_can_be_parsed(path: Path) -> None:
    for block in blocks(str(path.relative_to(ROOT)), "console"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["statehold"]:
                parse_command_line(words[1:])


@pytest.mark.parametrize("name", ["docs/security.md", "docs/store.md"])
def test_the_settings_of_the_page_can_be_loaded(name: str, tmp_path: Path) -> None:
    [settings] = blocks(name, "toml")
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("3f1d0c6e9a7b4d2f8e5c1a0b9d8e7f6a alice\n")
    tokens.chmod(0o600)
    path = tmp_path / "statehold.toml"
    path.write_text(settings)
    load(config=path, environ={"BROWSER_KEY": "k" * 32, "STORE_PASSWORD": "secret"})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", path.read_text(encoding="utf-8"))
    for link, anchor in links:
        if link.startswith("https://"):
            continue
        target = (path.parent / link) if link else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.M)
            known = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings}
            assert anchor in known, (link, anchor)


def test_the_default_times_are_those_of_the_settings() -> None:
    defaults = TimeoutSettings()
    notice = {
        row[0]: row[1]
        for row in rows("README.md", "| state | what it means | left after (default) |")
    }
    left = {
        row[0]: row[2]
        for row in rows("README.md", "| state | what it means | left after (default) |")
    }
    assert set(quoted(" ".join(notice))) == {status.value for status in Status}
    assert left["`creating`"] == format_duration(defaults.connect)
    assert left["`idle`"].startswith(f"{format_duration(defaults.idle)}: ")
    assert left["`active`"].startswith(format_duration(defaults.call))
    assert left["`paused`"].startswith(f"{format_duration(defaults.paused)}: ")
    assert (defaults.paused_named, defaults.lifetime) == (0, 0)
    assert "A session with a name stays until you close it" in page("README.md")
    for row in rows(
        "docs/sessions.md", "| setting | default | a caller may choose, with `session_create` |"
    ):
        name = quoted(row[0])[0].removeprefix("timeouts.")
        assert row[1] == format_duration(getattr(defaults, name)), name


def test_the_table_of_states_is_that_of_the_lifecycle() -> None:
    notice: set[tuple[str, str, str]] = set()
    for code, sources, target, _ in rows("docs/sessions.md", "| # | from | to | when |"):
        notice |= {
            (code, source, source if target == "the same" else target)
            for source in sources.split(", ")
        }
    known = {(t.code, t.source or "", t.target or "") for t in TABLE.values()}
    assert notice == {(code, str(source), str(target)) for code, source, target in known}


def test_every_error_code_is_documented_and_no_other() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    known = {
        kind.code: kind
        for kind in kinds
        if issubclass(kind, errors.SessionError) and kind is not errors.SessionError
    }
    table = rows("docs/sessions.md", "| code | when | what to do |")
    assert [quoted(row[0])[0] for row in table] == list(known)
    for row in table:
        recovery = known[quoted(row[0])[0]].recovery
        for tool in re.findall(r"session_[a-z]+", row[2]):
            assert tool in recovery, (row, recovery)


def test_every_setting_that_the_pages_name_exists() -> None:
    known = set(setting_names())
    for path in PAGES:
        for name in quoted(path.read_text(encoding="utf-8")):
            if re.fullmatch(r"(timeouts|limits|recovery|server|log)\.[a-z_]+", name):
                assert name in known, (path.name, name)
    for name in ("redact", "on_idle", "auto_resume"):
        assert name in known


def test_the_page_of_services_names_every_option() -> None:
    text = page("docs/services.md")
    written = set(quoted(text)) | {
        key
        for block in blocks("docs/services.md", "toml")
        for key in re.findall(r"^(\w+) =", block, re.M)
    }
    for model in (UpstreamConfig, Recipe, Step):
        missing = set(model.model_fields) - written - {"cwd", "type", "disabled", "recipe"}
        assert not missing, missing


def test_the_settings_of_the_page_of_services_can_be_loaded(tmp_path: Path) -> None:
    first, recipe = blocks("docs/services.md", "toml")
    notebook = tomllib.loads(recipe)["services"]["notebook"]
    assert (
        notebook["recipe"]["save"]
        == tomllib.loads(NOTEBOOK.read_text())["services"]["notebook"]["recipe"]["save"]
    )
    path = tmp_path / "statehold.toml"
    path.write_text(first + '[services.notebook]\ncommand = "python"\n' + recipe)
    config = load(config=path, environ={"DOCS_TOKEN": "nobody's"})
    assert list(config.upstreams()) == ["memory", "docs", "notebook"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.*")), ids=lambda path: path.name
)
def test_no_example_sets_a_variable_that_we_refuse(path: Path) -> None:
    named = re.findall(r"\$\{(?:env:)?(STATEHOLD_\w+)", path.read_text(encoding="utf-8"))
    load(environ={name: str(NOTEBOOK) for name in named})


def test_every_example_configuration_can_be_loaded() -> None:
    for path in (ROOT / "examples").glob("*.toml"):
        assert load(config=path, environ={}).upstreams()


def test_every_file_that_the_page_for_contributors_names_exists() -> None:
    named = [
        name for name in quoted(page("CONTRIBUTING.md")) if re.fullmatch(r"[\w./]+/[\w./]*", name)
    ]
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).exists(), name


def test_the_demo_is_the_first_command() -> None:
    """A new user meets the demo first; tests/server/cli/demo/test_demo.py shows that it works."""
    assert blocks("README.md", "console")[0].startswith("uv run statehold demo ")
    done = subprocess.run(
        [sys.executable, "-m", "statehold.server", "demo", "--help"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert "A tour of one minute" in done.stdout
