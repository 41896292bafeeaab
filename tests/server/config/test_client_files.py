"""Services from the file of a client."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.selection import matrix
from support.settings import SECRET, client_file, refused, toml

from statehold.server.config.load import load

CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Claude Desktop": (
        '{"mcpServers": {"s": {"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}}}, "theme": 1}',
        {"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}},
    ),
    "Claude Code": (
        (
            '{"mcpServers": {"s": {"type": "http", "url": "${BASE:-https://x.example}/mcp",'
            ' "headers": {"Authorization": "Bearer ${KEY}"}}}}'
        ),
        {
            "type": "http",
            "url": "https://x.example/mcp",
            "headers": {"Authorization": f"Bearer {SECRET}"},
        },
    ),
    "Cursor": (
        (
            '{"mcpServers": {"s": {"command": "python", "args": ["${workspaceFolder}/server.py"],'
            ' "env": {"KEY": "${env:KEY}"}, "envFile": ".env"}}}'
        ),
        {"command": "python", "env": {"KEY": SECRET, "OF_FILE": "1"}},
    ),
    "VS Code": (
        (
            '{\n// local\n"inputs": [], "servers": {"s": {"type": "stdio", "command": "node", /* the\nserver */\n'
            '"args": ["a//b", "/*c*/",], "env": {"PORT": 3000, "NONE": null}, "dev": {"watch": "**"}},},}'
        ),
        {
            "type": "stdio",
            "command": "node",
            "args": ["a//b", "/*c*/"],
            "env": {"PORT": "3000"},
        },
    ),
    "VS Code user settings": (
        '{"editor.fontSize": 12, "mcp": {"servers": {"s": {"command": "ls"}}}}',
        {"command": "ls"},
    ),
    "Windsurf": (
        '{"mcpServers": {"s": {"serverUrl": "https://x.example/sse", "disabled": false}}}',
        {"url": "https://x.example/sse", "type": None},
    ),
    "Cline": (
        (
            '{"mcpServers": {"s": {"type": "streamableHttp", "url": "https://x.example/mcp", "timeout": 60,'
            ' "autoApprove": ["a"]}}}'
        ),
        {"url": "https://x.example/mcp", "type": "http", "call_seconds": 60.0},
    ),
    "Gemini CLI": (
        (
            '{"mcpServers": {"s": {"httpUrl": "https://x.example/mcp", "trust": true, "timeout": 900,'
            ' "includeTools": ["a", "b(x)"], "excludeTools": ["c"], "headers": {"K": "Bearer $KEY", "P": "$GONE $1"}}}}'
        ),
        {
            "url": "https://x.example/mcp",
            "type": "http",
            "call_seconds": 0.9,
            "include": ["a", "b"],
            "exclude": ["c"],
            "headers": {"K": f"Bearer {SECRET}", "P": "$GONE $1"},
        },
    ),
    "Zed": (
        (
            '{\n// Zed\n"context_servers": {"s": {"source": "custom", "command": {"path": "node", "args": ["x"],'
            ' "env": {"A": "1"}}, "timeout": 30000,}, "e": {"source": "extension", "settings": {}}}}'
        ),
        {"command": "node", "args": ["x"], "env": {"A": "1"}, "call_seconds": 30.0},
    ),
    "opencode": (
        (
            '{"mcp": {"s": {"type": "local", "command": ["bun", "x", "y"], "environment": {"K": "{env:KEY}"},'
            ' "enabled": true, "timeout": 5000}}}'
        ),
        {
            "command": "bun",
            "args": ["x", "y"],
            "env": {"K": SECRET},
            "connect_seconds": 5.0,
            "call_seconds": 300.0,
        },
    ),
    "opencode 2": (
        (
            '{"mcp": {"timeout": {"startup": 5000, "request": 7000}, "servers": {'
            '"s": {"type": "local", "command": ["bun", "x"], "environment": {"K": "{env:KEY}"}}, '
            '"t": {"type": "remote", "url": "https://x.example", "disabled": true}}}}'
        ),
        {
            "command": "bun",
            "args": ["x"],
            "env": {"K": SECRET},
            "connect_seconds": 5.0,
            "call_seconds": 7.0,
        },
    ),
    "Copilot CLI": (
        '{"mcpServers": {"s": {"type": "local", "command": "ls", "args": [1, true, 2.5], "tools": ["*"]}}}',
        {"command": "ls", "args": ["1", "true", "2.5"], "include": None},
    ),
    "Roo Code": (
        (
            '{"mcpServers": {"s": {"command": "ls", "disabledTools": ["d"], "alwaysAllow": ["a"],'
            ' "env": {"DEBUG": true, "N": 1}}}}'
        ),
        {"command": "ls", "exclude": ["d"], "env": {"DEBUG": "true", "N": "1"}},
    ),
    "mcp-remote": (
        (
            '{"mcpServers": {"s": {"command": "npx", "args": ["--header", "Authorization:${AUTH}"],'
            ' "env": {"AUTH": "Bearer ${KEY}"}}}}'
        ),
        {
            "args": ["--header", f"Authorization:Bearer {SECRET}"],
            "env": {"AUTH": f"Bearer {SECRET}"},
        },
    ),
    "langchain-mcp-adapters": (
        '{"mcpServers": {"s": {"transport": "streamable_http", "url": "https://x.example/mcp"}}}',
        {"url": "https://x.example/mcp", "type": "http"},
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_file_of_a_client_is_read_unchanged(tmp_path: Path, client: str) -> None:
    text, expected = CLIENTS[client]
    (tmp_path / ".env").write_text("OF_FILE=1")
    config = load(services=client_file(tmp_path, text), environ={"KEY": SECRET})
    upstream = config.upstreams()["s"].model_dump()
    assert {key: upstream[key] for key in expected} == expected


OTHER_FORMATS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Codex": (
        "config.toml",
        """
        model = "x"
        [mcp_servers.s]
        command = "npx"
        args = ["-y", "x"]
        env_vars = ["HOME", {name = "KEY", source = "local"}]
        startup_timeout_sec = 20
        tool_timeout_sec = 45.5
        enabled_tools = ["a"]
        disabled_tools = ["b"]
        [mcp_servers.s.env]
        A = "1"
        [mcp_servers.r]
        url = "https://x.example/mcp"
        bearer_token_env_var = "KEY"
        http_headers = {X = "1"}
        env_http_headers = {Y = "KEY"}
        """,
        {
            "s": {
                "command": "npx",
                "args": ["-y", "x"],
                "env": {"A": "1"},
                "inherit_env": ["HOME", "KEY"],
                "connect_seconds": 20.0,
                "call_seconds": 45.5,
                "include": ["a"],
                "exclude": ["b"],
            },
            "r": {
                "url": "https://x.example/mcp",
                "headers": {"X": "1", "Y": SECRET, "Authorization": f"Bearer {SECRET}"},
            },
        },
    ),
    "Goose": (
        "config.yaml",
        """
        GOOSE_MODEL: x
        extensions:
          developer: {type: builtin, enabled: true, name: developer}
          s:
            type: stdio
            enabled: true
            cmd: uvx
            args: [x, 1]
            envs: {A: yes, B: 012, C: 3.10, D: 22:22, E: 2026-01-02, F: true}
            env_keys: [KEY]
            timeout: 300
            available_tools: [a]
          r: {type: streamable_http, uri: "https://x.example/mcp", enabled: false, headers: {}}
        """,
        {
            "s": {
                "command": "uvx",
                "args": ["x", "1"],
                "env": {
                    "A": "yes",
                    "B": "012",
                    "C": "3.10",
                    "D": "22:22",
                    "E": "2026-01-02",
                    "F": "true",
                    "KEY": SECRET,
                },
                "call_seconds": 300.0,
                "include": ["a"],
            }
        },
    ),
    "Continue": (
        "config.yml",
        "mcpServers:\n  - name: s\n    command: uvx\n    args: [x]\n",
        {"s": {"command": "uvx", "args": ["x"]}},
    ),
}


@pytest.mark.parametrize("client", OTHER_FORMATS)
def test_file_of_a_client_that_is_not_json_is_read_unchanged(tmp_path: Path, client: str) -> None:
    name, text, expected = OTHER_FORMATS[client]
    (tmp_path / name).write_text(textwrap.dedent(text))
    config = load(services=tmp_path / name, environ={"KEY": SECRET})
    upstreams = {name: each.model_dump() for name, each in config.upstreams().items()}
    assert {
        name: {key: upstreams[name][key] for key in settings} for name, settings in expected.items()
    } == expected
    assert upstreams.keys() == expected.keys()


@pytest.mark.parametrize(
    ("place", "timeout", "seconds"),
    [
        (".gemini/settings.json", 900, 0.9),
        (".mcp.json", 500, 0.5),
        (".kiro/settings/mcp.json", 60_000, 60.0),
        ("cline_mcp_settings.json", 3600, 3600.0),
        (".roo/mcp.json", 1200, 1200.0),
        ("mcp.json", 60, 60.0),
        ("mcp.json", 60_000, 60.0),
        ("mcp.json", True, None),
        ("mcp.json", "60", None),
        ("mcp.json", 0, None),
    ],
)
def test_a_timeout_is_read_in_the_unit_of_its_client(
    tmp_path: Path, place: str, timeout: object, seconds: float | None
) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {"s": {"command": "ls", "timeout": timeout}}}))
    config = load(services=file, environ={})
    service = config.services["s"]
    assert service.call_seconds == seconds
    assert bool(config.notes) == (seconds is None)


def test_keys_that_are_not_used_are_listed_in_one_line(tmp_path: Path) -> None:
    entries = {
        "s": {"command": "ls", "trust": True, "dev": {"watch": SECRET}, "description": "x"},
        "t": {"command": "ls", "alwaysAllow": ["a"]},
        "u": {"command": "ls"},
    }
    path = client_file(tmp_path, {"mcpServers": entries})
    (note,) = load(services=path, environ={}).notes
    assert "these keys are not used: s: trust, dev; t: alwaysAllow (" in note
    assert SECRET not in note
    assert load(services=client_file(tmp_path, {"mcpServers": {"u": entries["u"]}})).notes == ()


@pytest.mark.parametrize("off", [False, 0, "false", "no"])
def test_a_server_that_is_not_enabled_is_off(tmp_path: Path, off: object) -> None:
    entries = {"a": {"command": "ls", "enabled": off}, "b": {"command": "ls", "enabled": "true"}}
    assert list(load(services=client_file(tmp_path, {"mcpServers": entries})).upstreams()) == ["b"]


@pytest.mark.parametrize("key", ["httpUrl", "serverUrl"])
def test_the_url_key_of_a_client_goes_before_url(tmp_path: Path, key: str) -> None:
    entry = {key: "https://new.example/mcp", "url": f"https://{SECRET}.example/sse"}
    config = load(services=client_file(tmp_path, {"mcpServers": {"s": entry}}))
    assert config.upstreams()["s"].url == "https://new.example/mcp"
    (note,) = config.notes
    assert note.endswith("these keys are not used: s: url")


OTHER_PLACES: dict[str, Any] = {
    "projects./home/x.mcpServers": {"projects": {"/home/x": {"mcpServers": {"p": {"url": "x"}}}}},
    "profiles.work.mcp_servers": {"profiles": {"work": {"mcp_servers": {"p": {"command": "x"}}}}},
    "mcp.servers": {"mcp": {"servers": {"p": {"command": "x"}}}},
}


@pytest.mark.parametrize("place", OTHER_PLACES)
def test_servers_in_other_places_of_a_file_are_named(tmp_path: Path, place: str) -> None:
    entries = {"mcpServers": {"s": {"command": "ls"}}}
    config = load(services=client_file(tmp_path, entries | OTHER_PLACES[place]))
    assert list(config.upstreams()) == ["s"]
    (note,) = config.notes
    assert note.endswith(f"servers in these places are not read: {place}")


def test_a_file_with_servers_in_other_places_only_names_them(tmp_path: Path) -> None:
    vscode = {"mcp": {"servers": {"s": {"command": SECRET}}}}
    path = client_file(tmp_path, {"customizations": {"vscode": vscode}})
    message = refused(services=path)
    assert message.endswith("servers in customizations.vscode.mcp.servers are not read")
    many = {f"p{n}": {"servers": {"s": {"command": "x"}}} for n in range(8)}
    assert refused(services=client_file(tmp_path, many)).endswith(
        "servers in p0.servers, p1.servers, p2.servers, p3.servers, p4.servers and 3 more are not read"
    )


def test_tools_of_a_profile_are_no_servers(tmp_path: Path) -> None:
    profile = {"context_servers": {"s": {"tools": {"x": False}}}}
    document = {"context_servers": {"s": {"command": "ls"}}, "agent": {"write": profile}}
    assert load(services=client_file(tmp_path, document)).notes == ()


def test_an_entry_that_starts_statehold_is_left_out(tmp_path: Path) -> None:
    uv = ["run", "--directory", "/path/to/statehold"]
    ours = {
        "uv": {"command": "uv", "args": [*uv, "statehold", "--shared"]},
        "uvx": {"command": "uvx", "args": ["--from", "x", "statehold"]},
        "wsl": {"command": "wsl", "args": ["--exec", "/bin/uv", *uv, "statehold"]},
        "script": {"command": "/venv/bin/statehold", "args": ["--shared"], "unknown": 1},
        "module": {"command": "python", "args": ["-m", "statehold"]},
    }
    others = {
        "notebook": {
            "command": "uv",
            "args": [*uv, "python", "-m", "statehold.shell.demo.server"],
        },
        "folder": {"command": "uv", "args": ["run", "--directory", "statehold", "server.py"]},
        "elsewhere": {"url": "https://x.example/statehold"},
    }
    config = load(services=client_file(tmp_path, {"mcpServers": ours | others}), environ={})
    assert config.services.keys() == others.keys()
    (note,) = config.notes
    assert note.endswith(f": {', '.join(ours)}")


def test_servers_that_gemini_excludes_are_off(tmp_path: Path) -> None:
    entries = {name: {"command": "ls"} for name in "abc"}
    document = {"mcp": {"allowed": ["a", "b"], "excluded": ["b"]}, "mcpServers": entries}
    assert list(load(services=client_file(tmp_path, document)).upstreams()) == ["a"]


def test_a_file_of_variables_is_read_and_env_wins(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text(f"# c\nA=file\nexport B='{SECRET} x'\nC=${{A}}\nD\n")
    entry = {"command": "ls", "args": ["${B}"], "env": {"A": "own"}, "envFile": "${WHERE}/x.env"}
    path = client_file(tmp_path, {"mcpServers": {"s": entry}})
    settings = load(services=path, environ={"WHERE": str(tmp_path), "B": "outer"}).upstreams()["s"]
    assert settings.env == {"A": "own", "B": f"{SECRET} x", "C": "${A}"}
    assert settings.args == ["outer"]


def test_variables_of_windsurf_and_opencode_read_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    entry = {"serverUrl": "https://x.example/mcp", "headers": {"K": "Bearer ${file:key}"}}
    path = client_file(tmp_path, {"mcpServers": {"s": entry}})
    assert load(services=path).upstreams()["s"].headers == {"K": f"Bearer {SECRET}"}
    opencode = {"type": "remote", "url": "https://x.example", "headers": {"K": "{file:./key}"}}
    path = client_file(tmp_path, {"mcp": {"s": opencode}})
    assert load(services=path).upstreams()["s"].headers == {"K": SECRET}


@pytest.mark.parametrize(
    "entry",
    matrix(
        {"command": "ls", "envFile": "endless"},
        {"command": "ls", "envFile": "pipe"},
        {"serverUrl": "https://x.example/mcp", "headers": {"K": "${file:endless}"}},
        {"serverUrl": "https://x.example/mcp", "headers": {"K": "${file:pipe}"}},
    ),
)
def test_a_file_that_does_not_end_is_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    assert "cannot be read" in refused(services=client_file(tmp_path, {"mcpServers": {"s": entry}}))


def test_workspace_of_an_editor_is_the_folder_above_its_own(tmp_path: Path) -> None:
    folder = tmp_path / ".vscode"
    folder.mkdir()
    text = '{"servers": {"s": {"command": "ls", "args": ["${workspaceFolder}${/}x", "${workspaceFolderBasename}"]}}}'
    config = load(services=client_file(folder, text), environ={})
    assert config.upstreams()["s"].args == [f"{tmp_path}/x", tmp_path.name]


def test_names_of_services_may_be_whatever_clients_allow(tmp_path: Path) -> None:
    names = ["Sequential Thinking", "github.com/a/b", "@org/server", "größe"]
    path = client_file(tmp_path, {"mcpServers": {name: {"command": "ls"} for name in names}})
    assert list(load(services=path, environ={}).services) == names


def test_our_options_stand_beside_a_service_of_the_client_and_win(tmp_path: Path) -> None:
    entry = {"command": "npx", "args": ["old"], "env": {"A": "theirs", "B": "${GONE}", "C": "3"}}
    config = load(
        config=toml(
            tmp_path,
            "[services.s]\nprefix = 'p_'\nargs = ['new']\nenv = {A = 'ours', B = 'b'}\n"
            "[services.mine]\ncommand = 'ls'",
        ),
        services=client_file(tmp_path, {"mcpServers": {"s": entry, "other": {"command": "ls"}}}),
        environ={},
    )
    upstream = config.upstreams()["s"]
    assert (upstream.command, upstream.args, upstream.prefix) == ("npx", ["new"], "p_")
    assert upstream.env == {"A": "ours", "B": "b", "C": "3"}
    assert set(config.services) == {"s", "mine", "other"}


def test_disabled_service_needs_no_variable_and_no_program(tmp_path: Path) -> None:
    entry = {"command": "./none", "env": {"A": "${GONE}"}, "disabled": True}
    path = client_file(tmp_path, {"mcpServers": {"s": entry, "t": {"enabled": False, "x": 1}}})
    assert load(services=path, environ={}).upstreams() == {}
    again = toml(tmp_path, "[services.s]\ndisabled = false")
    assert "GONE" in refused(services=path, config=again)


def test_variables_are_expanded_in_the_toml_as_well(tmp_path: Path) -> None:
    path = toml(
        tmp_path,
        "[services.s]\ncommand = 'sh'\nargs = ['${A}', '${B:-b}', '${EMPTY:-e}', '$${A}', '${A%x}', '$A']\n"
        "env = {H = '${userHome}'}",
    )
    upstream = load(config=path, environ={"A": "a", "EMPTY": ""}).upstreams()["s"]
    assert upstream.args == ["a", "b", "e", "${A}", "${A%x}", "$A"]
    assert upstream.env == {"H": str(Path.home())}


def test_settings_do_not_show_the_secrets_of_services(tmp_path: Path) -> None:
    path = toml(tmp_path, f"[services.s]\ncommand = 'ls'\nenv = {{A = '{SECRET}'}}")
    config = load(config=path, environ={})
    assert SECRET not in repr(config)
    assert SECRET not in str(config)
