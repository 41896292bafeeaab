"""Services from the file of a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
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
        {"command": "python", "env": {"KEY": SECRET}},
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
        {"url": "https://x.example/mcp", "type": "http"},
    ),
    "Gemini CLI": (
        '{"mcpServers": {"s": {"httpUrl": "https://x.example/mcp", "trust": true}}}',
        {"url": "https://x.example/mcp", "type": "http"},
    ),
    "langchain-mcp-adapters": (
        '{"mcpServers": {"s": {"transport": "streamable_http", "url": "https://x.example/mcp"}}}',
        {"url": "https://x.example/mcp", "type": "http"},
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_file_of_a_client_is_read_unchanged(tmp_path: Path, client: str) -> None:
    text, expected = CLIENTS[client]
    config = load(services=client_file(tmp_path, text), environ={"KEY": SECRET})
    upstream = config.upstreams()["s"].model_dump()
    assert {key: upstream[key] for key in expected} == expected


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
