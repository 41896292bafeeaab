"""`statehold setup`: the files of clients before, with and without Statehold."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.client_files import FILES, SECRET
from support.gateway_process import STATEHOLD, toml
from support.holding import Run
from support.terminal import program_in_terminal

from statehold.server.config.client_files import parse_document
from statehold.server.exit_codes import FAILURE, INTERRUPTED, OK, USAGE
from statehold.shell.commands import CLIENT_NAMES
from statehold.shell.setup.client_file import EditableFile, FileChange, Unwritable, write
from statehold.shell.setup.clients import KnownClient, known_clients

WORDS = ["/usr/local/bin/statehold", "--shared", "--services", "services.json"]
CLINE = ".cline/data/settings/cline_mcp_settings.json"
PAGES = Path(__file__).resolve().parents[3] / "docs" / "use" / "clients"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headless_shell: str) -> Path:
    """A home with a file of each client, and settings that name a browser, so that none is installed."""
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"browser": {"executable": headless_shell}}}))
    monkeypatch.setenv("STATEHOLD_CONFIG", str(config))
    home = tmp_path / "home"
    for place, text in FILES.values():
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_bytes(text.encode())
    (home / ".codeium/windsurf/mcp_config.json").unlink()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    return home


def contents(home: Path) -> dict[str, tuple[bytes, int]]:
    """Return the files of a home with their modes."""
    return {
        str(path.relative_to(home)): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }


def clients(home: Path) -> dict[str, KnownClient]:
    return {client.name: client for client in known_clients({}, home)}


def apply(change: FileChange) -> None:
    write(change.path, change.before, change.after, change.copy)


def entry_of(home: Path, name: str) -> Any:
    client = clients(home)[name]
    path = client.find()
    assert path is not None
    document: Any = parse_document(path, path.read_text("utf-8-sig"))
    for key in client.table_keys(document):
        document = document[key]
    return document


def test_files_of_clients_come_out_of_setup_and_remove_as_they_were(
    statehold: Run, home: Path, data: Path
) -> None:
    before = contents(home)
    output = statehold("setup", "--yes", "--move-servers")
    assert output.code == OK, output.err
    assert SECRET not in output.out + output.err
    assert "With Statehold, create a session named work" in output.out
    for name in CLIENT_NAMES:
        assert "statehold" in entry_of(home, name)
    services = data / "services.json"
    assert stat.S_IMODE(services.stat().st_mode) == 0o600
    moved = json.loads(services.read_text())["mcpServers"]
    assert moved["notes"]["env"] == {"KEY": SECRET}
    assert moved["browser"] == {}
    assert entry_of(home, "claude-code").keys() == {"statehold", "docs"}
    assert entry_of(home, "vscode").keys() == {"statehold", "asks"}
    assert entry_of(home, "devin-desktop").keys() == {"statehold", "off"}
    assert entry_of(home, "goose").keys() == {"statehold", "developer"}

    with_statehold = contents(home)
    assert statehold("setup", "--yes").code == OK
    assert contents(home) == with_statehold

    output = statehold("setup", "--remove", "--yes")
    assert output.code == OK, output.err
    assert SECRET not in output.out + output.err
    assert contents(home) == before
    assert not services.exists()


def test_setup_changes_nothing_where_it_cannot_ask(statehold: Run, home: Path, data: Path) -> None:
    before = contents(home)
    output = statehold("setup")
    assert output.code == FAILURE
    assert '"statehold": {' in output.out
    assert SECRET not in output.out + output.err
    assert statehold("setup", "--dry-run", "--move-servers").code == OK
    assert statehold("setup", "--client", "curser").code == USAGE
    assert contents(home) == before
    assert not data.exists()


def test_the_page_of_a_client_has_the_entry_that_setup_writes(tmp_path: Path) -> None:
    known = clients(tmp_path)
    assert list(known) == list(CLIENT_NAMES)
    for name, client in known.items():
        change = EditableFile(client, tmp_path / client.files[0].name).add(
            ["/home/YOU/.local/bin/statehold", "--shared"], []
        )
        assert change.after is not None
        page = (PAGES / f"{name}.md").read_text("utf-8")
        assert f"\n{change.after.decode()}```\n" in page, name
        headings = [line for line in page.splitlines() if line.startswith("#")]
        assert headings == [f"# {client.title}", "## File", "## Entry", "## Say", "## Tried"]


def written(tmp_path: Path, name: str, text: str | None) -> tuple[KnownClient, Path]:
    client = clients(tmp_path)[name]
    path = tmp_path / client.files[0].name
    if text is not None:
        path.write_bytes(text.encode())
    return client, path


def servers_of(client: KnownClient, path: Path) -> list[str]:
    base = EditableFile(client, path).base
    names: list[str] = []
    for name in base.servers():
        try:
            base.cut(name)
        except Unwritable:
            continue
        names.append(name)
    return names


def round_trip(client: KnownClient, path: Path, moved: Sequence[str]) -> None:
    """Put Statehold into a file, bring its entry up to date, and take it out again."""
    before = path.read_bytes() if path.exists() else None
    names = {each.name for each in path.parent.iterdir()}
    apply(EditableFile(client, path).add(WORDS, moved))
    file = EditableFile(client, path)
    assert file.own == "statehold"
    assert list(file.moved) == list(moved)
    assert not file.add(WORDS, moved).is_change
    apply(file.add(["/opt/new/statehold", *WORDS[1:]], moved))
    file = EditableFile(client, path)
    assert client.settings(file.now.table["statehold"])["command"] == "/opt/new/statehold"
    apply(file.remove())
    assert (path.read_bytes() if path.exists() else None) == before
    assert {each.name for each in path.parent.iterdir()} == names


@pytest.mark.thorough
@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize(
    "form", ["as it is", "crlf", "bom", "no last line end", "missing", "empty"]
)
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_file_of_any_form_comes_back(tmp_path: Path, name: str, form: str, move: bool) -> None:
    text = FILES[name][1]
    forms = {
        "crlf": text.replace("\r\n", "\n").replace("\n", "\r\n"),
        "bom": "\ufeff" + text.removeprefix("\ufeff"),
        "no last line end": text.rstrip(),
        "missing": None,
        "empty": "",
    }
    client, path = written(tmp_path, name, forms.get(form, text))
    round_trip(client, path, servers_of(client, path) if move else [])


@pytest.mark.thorough
@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_other_changes_stay_when_statehold_is_removed(
    tmp_path: Path, name: str, move: bool
) -> None:
    client, path = written(tmp_path, name, FILES[name][1])
    before = EditableFile(client, path).now
    apply(EditableFile(client, path).add(WORDS, servers_of(client, path) if move else []))
    document = EditableFile(client, path).now.document
    text = path.read_bytes()
    if path.suffix in (".toml", ".yaml"):
        end, pair = (b"\n", b"later = 1") if path.suffix == ".toml" else (b"", b"later: 1")
        changed = text + pair + b"\n" if path.suffix == ".yaml" else pair + end + text
    else:
        changed = text.replace(b"{", b'{"later": 1, ', 1)
    path.write_bytes(changed)
    assert EditableFile(client, path).now.document == {**document, "later": 1}
    apply(EditableFile(client, path).remove())
    after = EditableFile(client, path).now
    assert after.table == before.table
    assert after.document["later"] == 1
    assert {**after.document, client.key: None} == {**before.document, client.key: None, "later": 1}
    for comment in (b"// all projects", b"# how it looks", b"// at night", b"# Goose"):
        assert (comment in path.read_bytes()) == (comment in FILES[name][1].encode())
    assert not list(tmp_path.glob("*.before-statehold"))


@pytest.mark.thorough
def test_a_server_that_its_user_deletes_stays_away(statehold: Run, home: Path, data: Path) -> None:
    path = home / ".cursor/mcp.json"
    document = {"mcpServers": {"old": {"command": "old"}, "new": {"command": "new"}}}

    def delete(name: str) -> None:
        document = json.loads(path.read_text())
        del document["mcpServers"][name]
        path.write_text(json.dumps(document, indent=2))

    path.write_text(json.dumps(document, indent=2))
    assert statehold("setup", "--yes", "--client=cursor").code == OK
    delete("old")
    assert statehold("setup", "--yes", "--client=cursor").code == OK
    assert not (data / "services.json").exists()
    assert statehold("setup", "--yes", "--client=cursor", "--move-servers").code == OK
    assert entry_of(home, "cursor").keys() == {"statehold"}
    assert json.loads((data / "services.json").read_text())["mcpServers"].keys() == {
        "browser",
        "new",
    }
    (data / "services.json").unlink()
    assert statehold("setup", "--yes", "--client=cursor", "--remove").code == OK
    assert entry_of(home, "cursor") == {"new": {"command": "new"}}


@pytest.mark.thorough
def test_servers_come_back_where_our_entry_was_deleted(tmp_path: Path) -> None:
    client, path = written(tmp_path, "cursor", FILES["cursor"][1])
    apply(EditableFile(client, path).add(WORDS, ["notes"]))
    path.write_text('{"mcpServers": {}}')
    apply(EditableFile(client, path).remove())
    assert EditableFile(client, path).now.table.keys() == {"notes", "search"}
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.thorough
def test_a_client_may_write_its_file_anew(tmp_path: Path) -> None:
    client, path = written(tmp_path, "claude-code", FILES["claude-code"][1])
    before = EditableFile(client, path).now
    apply(EditableFile(client, path).add(WORDS, ["notes"]))
    document = {**EditableFile(client, path).now.document, "numStartups": 42}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=True))
    file = EditableFile(client, path)
    assert not file.add(WORDS, file.moved).is_change
    apply(file.remove())
    assert EditableFile(client, path).now.document == {**before.document, "numStartups": 42}


def refusals(path: Path) -> dict[str, str | None]:
    return {
        "not parsed": '{"mcpServers": {',
        "no table": "[1]",
        "servers are a list": '{"mcpServers": [1]}',
        "another of our name": '{"mcpServers": {"statehold": {"command": "other"}}}',
        "two values": '{"mcpServers": {}} {}',
    }


@pytest.mark.thorough
@pytest.mark.parametrize("kind", refusals(Path()))
def test_a_file_that_cannot_be_changed_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    client, path = written(tmp_path, "cursor", refusals(tmp_path)[kind])
    before = path.read_bytes()
    with pytest.raises(Unwritable):
        apply(EditableFile(client, path).add(WORDS, []))
    assert path.read_bytes() == before


@pytest.mark.thorough
def test_a_bad_file_holds_up_no_other(statehold: Run, home: Path) -> None:
    (home / ".cursor/mcp.json").write_text("{bad")
    (home / ".gemini/settings.json").chmod(0o444)
    (home / ".config/zed/settings.json").write_bytes(b"\xff\xfe{")
    before = contents(home)
    output = statehold("setup", "--yes")
    assert output.code == FAILURE
    for title in ("Cursor", "Gemini CLI", "Zed"):
        assert f"{title}: " in output.err
    assert "statehold" in entry_of(home, "codex")
    statehold("setup", "--remove", "--yes")
    assert contents(home) == before


@pytest.mark.thorough
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    client, path = written(tmp_path, "cursor", None)
    target = tmp_path / "dotfiles" / "cursor.json"
    target.parent.mkdir()
    target.write_text(FILES["cursor"][1])
    target.chmod(0o640)
    path.symlink_to(target)
    apply(EditableFile(client, path).add(WORDS, []))
    assert path.is_symlink()
    assert "statehold" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    apply(EditableFile(client, path).remove())
    assert path.is_symlink()
    assert target.read_text() == FILES["cursor"][1]


@pytest.mark.thorough
def test_a_file_that_changed_after_the_diff_is_not_written(tmp_path: Path) -> None:
    client, path = written(tmp_path, "cursor", FILES["cursor"][1])
    changes = [EditableFile(client, path).add(WORDS, moved) for moved in ([], ["notes"])]
    apply(changes[0])
    after = path.read_bytes()
    with pytest.raises(Unwritable):
        apply(changes[1])
    assert path.read_bytes() == after


@pytest.mark.thorough
def test_setup_asks_in_a_terminal(statehold: Run, home: Path, data: Path) -> None:
    command = [*STATEHOLD, "setup", "--client", "cursor"]
    before = contents(home)
    with program_in_terminal(command, columns=120, rows=60) as terminal:
        terminal.wait_for_text("Put them behind Statehold", "[y/N]")
        terminal.press("\n")
        terminal.wait_for_text("Change 1 file? [y/N]")
        terminal.press("n\n")
        assert terminal.wait_for_end() == OK
        assert any("nothing is changed" in line for line in terminal.lines)
    with program_in_terminal(command, columns=120, rows=60) as terminal:
        terminal.wait_for_text("[y/N]")
        terminal.press("\x03")
        assert terminal.wait_for_end() == INTERRUPTED
    assert contents(home) == before
    assert not data.exists()
    with program_in_terminal(command, columns=120, rows=60) as terminal:
        terminal.wait_for_text("Put them behind Statehold", "[y/N]")
        terminal.press("y\n")
        terminal.wait_for_text("Change 1 file? [y/N]")
        terminal.press("y\n")
        assert terminal.wait_for_end() == OK
        assert any("With Statehold, create a session" in line for line in terminal.lines)
        assert SECRET.encode() not in terminal.received
    assert entry_of(home, "cursor").keys() == {"statehold"}
    assert statehold("stop").code == OK
    assert statehold("setup", "--remove", "--yes").code == OK
    assert contents(home) == before


@pytest.mark.thorough
def test_two_runs_at_once_leave_whole_files(statehold: Run, home: Path, data: Path) -> None:
    before = contents(home)
    names = (["cursor", "codex"], ["goose", "zed"], ["cursor", "cline"])
    runs = [
        subprocess.Popen(
            [*STATEHOLD, "setup", "--yes", "--move-servers", *(f"--client={n}" for n in each)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for each in names
    ]
    outputs = [run.communicate(timeout=90)[0].decode() for run in runs]
    assert statehold("stop").code == OK
    for each, run, output in zip(names, runs, outputs, strict=True):
        assert run.returncode == OK or "run setup again" in output
        if run.returncode != OK:
            assert (
                statehold("setup", "--yes", "--move-servers", *(f"--client={n}" for n in each)).code
                == OK
            )
    moved = json.loads((data / "services.json").read_text())["mcpServers"]
    assert {"search", "notes"} <= moved.keys()
    for name in ("cursor", "codex", "goose", "zed", "cline"):
        assert "statehold" in entry_of(home, name)
    assert statehold("setup", "--yes", "--remove").code == OK
    assert contents(home) == before
    assert not (data / "services.json").exists()


@pytest.mark.thorough
def test_an_entry_made_by_hand_stays(statehold: Run, home: Path, data: Path) -> None:
    words = [sys.executable, "-m", "statehold", "--shared", "--session", "work", f"--data={data}"]
    entry = {"command": words[0], "args": words[1:]}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"mine": entry}}))
    before = contents(home)
    assert statehold("setup", "--yes", "--client", "cursor").code == OK
    assert statehold("setup", "--yes", "--client", "cursor", "--remove").code == OK
    assert contents(home) == before


@pytest.mark.thorough
def test_servers_of_one_name_get_numbers_and_equal_ones_are_one(
    statehold: Run, home: Path, data: Path
) -> None:
    def servers(command: str) -> str:
        return json.dumps(
            {"mcpServers": {"x": {"command": command}, "browser": {"command": "b"}}}, indent=1
        )

    for place, command in ((".cursor/mcp.json", "a"), (".gemini/settings.json", "a")):
        (home / place).write_text(servers(command))
    (home / ".config/Claude/claude_desktop_config.json").write_text(servers("other"))
    chosen = [f"--client={name}" for name in ("cursor", "gemini-cli", "claude-desktop")]
    before = contents(home)
    assert statehold("setup", "--yes", "--move-servers", *chosen).code == OK
    moved = json.loads((data / "services.json").read_text())["mcpServers"]
    assert {name: each.get("command") for name, each in moved.items()} == {
        "browser": None,
        "browser-2": "b",
        "x": "other",
        "x-2": "a",
    }
    # A client whose own servers are back goes on with the file that its entry names.
    (home / CLINE).write_text("{}")
    assert statehold("setup", "--yes", "--client=cline").code == OK
    # The servers that another client still needs stay.
    assert statehold("setup", "--yes", "--remove", "--client=cursor").code == OK
    assert len(json.loads((data / "services.json").read_text())["mcpServers"]) == 4
    assert statehold("setup", "--yes", "--remove", *chosen[1:]).code == OK
    assert json.loads((data / "services.json").read_text()) == {"mcpServers": {"browser": {}}}
    assert statehold("setup", "--yes", "--client=cline").code == OK
    assert statehold("setup", "--yes", "--remove").code == OK
    (home / CLINE).write_bytes(before.pop(CLINE)[0])
    after = contents(home)
    del after[CLINE]
    assert after == before
    assert not (data / "services.json").exists()


@pytest.mark.thorough
def test_a_server_that_statehold_cannot_take_stays(statehold: Run, home: Path) -> None:
    servers = {
        "denied": {"command": "a"},
        "sandboxed": {"command": "a", "sandbox": True},
        "workspace": {"command": "a", "args": ["${workspaceFolder}"]},
        "relative": {"command": "./a"},
        "login": {"url": "https://x.example/mcp"},
        "off": {"command": "a", "disabled": True},
        "variable": {"command": "a", "env": {"K": "${SURELY_NOT_SET}"}},
    }
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"permissions": {"deny": ["mcp__denied__x"]}}')
    (home / ".claude.json").write_text(json.dumps({"mcpServers": servers}, indent=2))
    output = statehold("setup", "--dry-run", "--move-servers", "--client", "claude-code")
    assert output.code == OK
    for name in servers:
        assert f"Claude Code: {name} stays there: " in output.out


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name != "statehold")
ENTRIES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"command": st.text(max_size=5), "env": VALUES}
)
SERVERS = st.dictionaries(NAMES, ENTRIES, max_size=3)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    others=st.dictionaries(st.text(max_size=6), VALUES, max_size=3),
    servers=st.none() | SERVERS,
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    is_first=st.booleans(),
    has_comments=st.booleans(),
)
def test_any_json_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    others: dict[str, Any],
    servers: dict[str, Any] | None,
    indent: Any,
    newline: str,
    is_first: bool,
    has_comments: bool,
) -> None:
    table = {} if servers is None else {"mcpServers": servers}
    document = {**table, **others} if is_first else {**others, **table}
    if not isinstance(document.get("mcpServers"), dict | None):
        return
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    if has_comments and indent is not None:
        text = text.replace(",\n", ', // "a": {\n').replace("}\n", "} /* } */\n")
    client, path = written(tmp_path_factory.mktemp("json"), "cursor", text.replace("\n", newline))
    if os.path.exists(path) and EditableFile(client, path).now.document != document:
        return
    round_trip(client, path, [])
    round_trip(client, path, servers_of(client, path))
