"""The README and the pages in docs/ agree with the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import reduce
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from support.gateway_process import Way, serving
from support.page_server import serve_pages
from support.token_file import write_tokens

from statehold.server.config.load import load
from statehold.server.config.mistakes import setting_names
from statehold.server.config.model import Config
from statehold.server.config.sections import TimeoutSettings
from statehold.sessions import errors
from statehold.sessions.lifecycle import TABLE, Status
from statehold.sessions.times import format_duration
from statehold.shell.commands import parse_command_line
from statehold.tools.upstream.config import Recipe, RecipeStep, UpstreamConfig

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    ROOT / "benchmarks" / "README.md",
    ROOT / "examples" / "team" / "README.md",
]
NOTEBOOK = ROOT / "examples" / "notebook.toml"
OURS = ("session_", "state_")
"""How the names of our own tools begin."""


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


async def test_the_table_of_tools_has_those_of_a_server(tmp_path: Path) -> None:
    command = f"statehold serve --config {NOTEBOOK.relative_to(ROOT)}"
    assert command in "".join(blocks("docs/use/client.md", "console"))
    with serving(NOTEBOOK, tmp_path / "data", env=environ(), as_installed=True) as running:
        way = Way("http", "modern", NOTEBOOK, tmp_path, url=running.url)
        async with way.connect() as client:
            listed = (await client.list_tools()).tools
    table = rows("docs/use/sessions.md", "| tool | effect |")
    names = {name for row in table for name in quoted(row[0])}
    assert names == {tool.name for tool in listed if tool.name.startswith(OURS)}


@asynccontextmanager
async def desktop_client(folder: Path) -> AsyncGenerator[Client]:
    """Start the program of the README's lines for a desktop client, by this interpreter instead of `uv run`."""
    [lines] = blocks("README.md", "json")
    entry = json.loads(lines)["mcpServers"]["statehold"]
    assert (entry["command"], entry["args"][:4]) == (
        "uv",
        ["run", "--directory", "/path/to/statehold", "statehold"],
    )
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "statehold", *entry["args"][4:]],
        env={**os.environ, "STATEHOLD_DATA": str(folder)},
    )
    with anyio.fail_after(60):
        async with Client(stdio_client(parameters)) as client:
            yield client


@pytest.fixture
def shared_data(tmp_path: Path) -> Generator[Path]:
    """A data folder whose background server ends with the test."""
    yield tmp_path / "data"
    stop = [sys.executable, "-m", "statehold", "stop", "--all", "--data"]
    subprocess.run([*stop, str(tmp_path / "data")], check=True, timeout=40)


async def test_a_desktop_client_finds_its_session_after_a_new_start(shared_data: Path) -> None:
    async with desktop_client(shared_data) as client:
        await client.call_tool("session_create", {"name": "work"})
    async with desktop_client(shared_data) as client:
        listed = (await client.call_tool("session_list", {})).structured_content
    assert listed is not None
    assert [session["name"] for session in listed["sessions"]] == ["work"]


@pytest.mark.thorough
async def test_a_desktop_client_finds_its_page_after_a_new_start(
    shared_data: Path, headless_shell: str, login_site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEHOLD_SERVICES__BROWSER__EXECUTABLE", headless_shell)
    async with desktop_client(shared_data) as client:
        await client.call_tool("session_create", {"name": "work"})
        page = {"session_id": "work", "url": login_site}
        await client.call_tool("browser_navigate", page)
        held = {"session_id": "work", "function": "() => { window.held = 'held'; }"}
        await client.call_tool("browser_evaluate", held)
    async with desktop_client(shared_data) as client:
        tabs = await client.call_tool("browser_tabs", {"session_id": "work", "action": "list"})
        assert login_site in str(tabs.content)
        ask = {"session_id": "work", "function": "() => window.held"}
        answer = await client.call_tool("browser_evaluate", ask)
    assert "held" in str(answer.content)
    assert "Note from Statehold" not in str(answer.content)


class ExampleSite(BaseHTTPRequestHandler):
    """The page at https://example.com."""

    def do_GET(self) -> None:
        page = b"""<!doctype html><title>Example Domain</title><div><h1>Example Domain</h1><p>This domain is for use in
            documentation examples without needing permission.<p>
            <a href="https://iana.org/domains/example">Learn more</a></div>"""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def example_site() -> Generator[str]:
    with serve_pages(ExampleSite) as address:
        yield address


@pytest.mark.thorough
def test_the_transcript_of_a_shell_is_what_the_commands_print(
    shared_data: Path, headless_shell: str, example_site: str, tmp_path: Path
) -> None:
    [transcript] = [text for text in blocks("README.md", "console") if text.startswith("$ ")]
    environment = {
        **os.environ,
        "STATEHOLD_DATA": str(shared_data),
        "STATEHOLD_SERVICES__BROWSER__EXECUTABLE": headless_shell,
    }
    program = shlex.join([sys.executable, "-m", "statehold"])
    printed = ""
    commands = [line for line in transcript.splitlines() if line.startswith("$ ")]
    assert len(commands) == 4
    for line in commands:
        command = line.removeprefix("$ ").replace("uv run statehold", program)
        ran = subprocess.run(
            command.replace("https://example.com", example_site),
            shell=True,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=True,
        )
        printed += f"{line}\n{ran.stdout}"
    session = r"sh_[a-z0-9]{26}"
    assert re.sub(session, "ID", printed) == re.sub(session, "ID", transcript)
    assert (tmp_path / "example.png").read_bytes().startswith(b"\x89PNG")


def test_every_command_of_the_readme_can_be_parsed() -> None:
    lines = [line for block in blocks("README.md", "console") for line in block.splitlines()]
    lines += [text for text in quoted(page("README.md")) if text.startswith("uv run statehold ")]
    lines = [line.removeprefix("$ ").partition(" | ")[0] for line in lines]
    commands = [line.partition("#")[0].split() for line in lines]
    assert "uv run pytest" in quoted(page("README.md"))
    ours = [command[3:] for command in commands if command[:3] == ["uv", "run", "statehold"]]
    assert ["demo"] in ours
    for arguments in ours:
        parse_command_line(arguments)
        for argument in arguments:
            if argument.startswith("examples/"):
                assert (ROOT / argument).is_file()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_statehold_command_of_the_pages_can_be_parsed(path: Path) -> None:
    for block in blocks(str(path.relative_to(ROOT)), "console"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["statehold"]:
                parse_command_line(words[1:])


async def test_the_seven_settings_of_the_page_are_served(tmp_path: Path) -> None:
    named = [
        quoted(row[0])[0]
        for row in rows("docs/reference/configuration.md", "| setting | default | meaning |")
    ]
    assert len(named) == 7
    settings = blocks("docs/reference/configuration.md", "toml")[0]
    tokens = tmp_path / "tokens.txt"
    write_tokens(tokens, "3f1d0c6e9a7b4d2f8e5c1a0b9d8e7f6a alice\n")
    path = tmp_path / "statehold.toml"
    path.write_text(settings)
    config, plain = load(config=path, environ={}), Config()
    for name in named:
        keys = name.split(".")
        assert reduce(getattr, keys, config) != reduce(getattr, keys, plain), name
    assert default_of("timeouts.idle") == format_duration(plain.timeouts.idle)
    assert default_of("limits.live_sessions") == str(plain.limits.live_sessions)
    assert default_of("server.port") == str(plain.server.port)
    assert default_of("log.level") == plain.log.level
    with serving(path, tmp_path / "data") as running:
        headers = {"Authorization": "Bearer 3f1d0c6e9a7b4d2f8e5c1a0b9d8e7f6a"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=40) as http,
            Client(streamable_http_client(f"{running.url}/mcp", http_client=http)) as client,
        ):
            assert "count" in {tool.name for tool in (await client.list_tools()).tools}


def default_of(setting: str) -> str:
    """Return the default of one of the seven settings, as the page has it."""
    table = rows("docs/reference/configuration.md", "| setting | default | meaning |")
    return next(row[1] for row in table if row[0] == f"`{setting}`")


@pytest.mark.parametrize(
    "name",
    [
        "docs/operate/security.md",
        "docs/operate/store.md",
        "docs/operate/auth.md",
        "docs/operate/policies.md",
    ],
)
def test_the_settings_of_the_page_can_be_loaded(name: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.txt"
    write_tokens(tokens, "3f1d0c6e9a7b4d2f8e5c1a0b9d8e7f6a alice\n")
    variables = ("BROWSER_KEY", "SEALING_KEY", "STORE_PASSWORD", "INTROSPECTION_SECRET")
    for settings in blocks(name, "toml"):
        path = tmp_path / "statehold.toml"
        path.write_text(settings)
        load(config=path, environ=dict.fromkeys(variables, "k" * 32))


@pytest.mark.parametrize("path", [*PAGES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", text)
    links += [(picture, "") for picture in re.findall(r'src="([^"#]+)"', text)]
    for link, anchor in links:
        if link.startswith("https://"):
            continue
        target = (path.parent / link) if link else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.M)
            known = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings}
            assert anchor in known, (link, anchor)


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / link).resolve()
        for link in re.findall(r"\]\(([^)#]+)\)", index.read_text("utf-8"))
    }
    assert set(PAGES) - linked == {index}


def test_the_default_times_are_those_of_the_settings() -> None:
    defaults = TimeoutSettings()
    table = rows("docs/use/sessions.md", "| status | meaning | left after (default) |")
    left = {row[0]: row[2] for row in table}
    assert set(quoted(" ".join(left))) == {status.value for status in Status}
    assert left["`creating`"] == format_duration(defaults.connect)
    assert left["`idle`"].startswith(f"{format_duration(defaults.idle)}: ")
    assert left["`active`"].startswith(format_duration(defaults.call))
    assert left["`paused`"].startswith(f"{format_duration(defaults.paused)}: ")
    assert (defaults.paused_named, defaults.lifetime) == (0, 0)
    assert "A session with a name stays until it is closed" in page("docs/use/sessions.md")
    for row in rows(
        "docs/use/sessions.md", "| setting | default | a caller may choose, with `session_create` |"
    ):
        name = quoted(row[0])[0].removeprefix("timeouts.")
        assert row[1] == format_duration(getattr(defaults, name)), name


def test_the_table_of_states_is_that_of_the_lifecycle() -> None:
    notice: set[tuple[str, str, str]] = set()
    for code, sources, target, _ in rows("docs/use/sessions.md", "| # | from | to | when |"):
        notice |= {
            (code, source, source if target == "the same" else target)
            for source in sources.split(", ")
        }
    known = {(t.code, t.source or "", t.target or "") for t in TABLE.values()}
    assert notice == {(code, str(source), str(target)) for code, source, target in known}


def test_every_error_code_is_documented_and_no_other() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    known = {
        kind.code: kind
        for kind in kinds
        if issubclass(kind, errors.SessionError) and kind is not errors.SessionError
    }
    table = rows("docs/use/sessions.md", "| code | when | what to do |")
    assert [quoted(row[0])[0] for row in table] == list(known)
    for row in table:
        recovery = known[quoted(row[0])[0]].recovery
        for tool in re.findall(r"session_[a-z]+", row[2]):
            assert tool in recovery, (row, recovery)


def test_every_setting_that_the_pages_name_exists() -> None:
    known = set(setting_names())
    for path in PAGES:
        for name in quoted(path.read_text(encoding="utf-8")):
            if re.fullmatch(r"(timeouts|limits|recovery|server|auth|log)\.[a-z_]+", name):
                assert name in known, (path.name, name)
    for name in ("redact", "on_idle", "auto_resume"):
        assert name in known


def test_the_page_of_services_names_every_option() -> None:
    text = page("docs/use/services.md")
    written = set(quoted(text)) | {
        key
        for block in blocks("docs/use/services.md", "toml")
        for key in re.findall(r"^(\w+) =", block, re.M)
    }
    for model in (UpstreamConfig, Recipe, RecipeStep):
        missing = set(model.model_fields) - written - {"cwd", "type", "disabled", "recipe"}
        assert not missing, missing


def test_the_settings_of_the_page_of_services_can_be_loaded(tmp_path: Path) -> None:
    first, recipe, sandboxes, container, _, keys, approvals = blocks("docs/use/services.md", "toml")
    notebook = tomllib.loads(recipe)["services"]["notebook"]
    assert (
        notebook["recipe"]["save"]
        == tomllib.loads(NOTEBOOK.read_text())["services"]["notebook"]["recipe"]["save"]
    )
    path = tmp_path / "statehold.toml"
    path.write_text(first + '[services.notebook]\ncommand = "python"\n' + recipe + keys + approvals)
    config = load(config=path, environ={"DOCS_TOKEN": "nobody's"})
    assert list(config.upstreams()) == ["memory", "docs", "notebook", "issues", "mail", "bank"]
    assert list(config.logins) == ["mail/token"]
    path.write_text(sandboxes + container)
    config = load(config=path, environ={})
    assert config.upstreams()["books"].sandbox.ports == [443, 5432]
    assert config.upstreams()["shell"].sandbox.mode == "off"


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


def test_the_tree_of_the_page_for_contributors_has_every_folder_of_the_sources() -> None:
    [tree] = [text for text in blocks("CONTRIBUTING.md", "text") if text.startswith("sessions/")]
    named, inside, parent = set[str](), set[str](), ""
    for indent, name, text in re.findall(r"^(|  )(\w+)/(.*)$", tree, re.M):
        parent = parent if indent else name
        path = f"{parent}/{name}" if indent else name
        named.add(path)
        inside |= {f"{path}/{folder}" for folder in re.findall(r"(\w+)/", text)}
    assert [path for path in named if not (ROOT / path).is_dir()] == []
    sources = {"shell", "console", "client", "server", "access", "tools", "sessions", "keeper"}
    folders = {
        f"{source}/{path.name}"
        for source in sources
        for path in (ROOT / source).iterdir()
        if any(path.glob("*.py"))
    }
    assert (sources | folders) - named - inside == set()


def test_the_demo_is_the_first_command() -> None:
    """A new user meets the demo first; tests/shell/demo/test_demo.py shows that it works."""
    assert len(page("README.md").splitlines()) <= 120
    assert blocks("README.md", "console")[0].startswith("uv run statehold demo ")
    done = subprocess.run(
        [sys.executable, "-m", "statehold", "demo", "--help"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert "A tour of 20 seconds" in done.stdout
