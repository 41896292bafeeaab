"""Restrictions in a client's file hold, or their server is unusable and the message names the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.selection import matrix
from support.settings import client_file, toml

from statehold.server.config.load import load
from statehold.server.config.model import Config

COMMAND = {"command": "ls"}


def read(path: Path, entry: dict[str, Any], **outside: Any) -> Config:
    document = {**outside, "mcpServers": {"s": {**COMMAND, **entry}, "other": COMMAND}}
    return load(services=client_file(path, document), environ={})


@pytest.mark.parametrize("key", matrix("isActive", "start_on_launch", "startup", "isEnabled"))
@pytest.mark.parametrize("value", [False, "false"])
def test_an_off_switch_of_any_client_is_obeyed(tmp_path: Path, key: str, value: object) -> None:
    assert list(read(tmp_path, {key: value}).upstreams()) == ["other"]
    assert list(read(tmp_path, {key: True}).upstreams()) == ["s", "other"]


FILTERS: dict[str, tuple[dict[str, Any], list[str] | None, list[str]]] = {
    "snake case": ({"disabled_tools": ["danger"]}, None, ["danger"]),
    "allow list": ({"allowedTools": ["safe"]}, ["safe"], []),
    "switches": (
        {"tools": {"danger": {"enabled": False}, "safe": {"enabled": True}}},
        None,
        ["danger"],
    ),
    "short switches": ({"tools": {"danger": False, "wipe": "off"}}, None, ["danger", "wipe"]),
    "switch of all": ({"tools": {"*": False, "safe": True}}, ["safe"], []),
    "blocking filter": (
        {"options": {"toolFilter": {"mode": "block", "list": ["danger"]}}},
        None,
        ["danger"],
    ),
    "allowing filter": ({"toolFilter": {"mode": "allow", "list": ["safe"]}}, ["safe"], []),
    "lists of a proxy": (
        {"_extensions": {"tools": {"allow": ["safe", "danger"], "deny": ["danger"]}}},
        ["safe", "danger"],
        ["danger"],
    ),
}


@pytest.mark.parametrize("case", matrix(*FILTERS, quick=4))
def test_a_filter_of_tools_is_obeyed(tmp_path: Path, case: str) -> None:
    entry, include, exclude = FILTERS[case]
    config = read(tmp_path, entry)
    assert (config.upstreams()["s"].include, config.upstreams()["s"].exclude) == (include, exclude)
    assert config.notes == ()


OUTSIDE: dict[str, tuple[dict[str, Any], list[str] | None, list[str]]] = {
    "Claude Code": (
        {"permissions": {"deny": ["mcp__s__danger", "mcp__s2__x", "Bash(ls)"]}},
        None,
        ["danger"],
    ),
    "opencode": (
        {"tools": {"s_danger": False, "s_safe": True, "others_*": False}},
        None,
        ["danger"],
    ),
    "permission of opencode": (
        {"permission": {"s_danger": "deny", "bash": "deny", "s_x": "ask"}},
        None,
        ["danger"],
    ),
    "Amazon Q": ({"tools": ["@s/safe", "@other", "fs_read"]}, ["safe"], []),
    "Vibe": ({"enabled_tools": ["s_safe", "other_*"]}, ["safe"], []),
    "Zed": (
        {
            "agent": {
                "default_profile": "mine",
                "profiles": {
                    "mine": {"context_servers": {"s": {"tools": {"danger": False, "safe": True}}}},
                    "write": {"context_servers": {"s": {"tools": {"safe": False}}}},
                },
            }
        },
        None,
        ["danger"],
    ),
}


@pytest.mark.parametrize("case", matrix(*OUTSIDE, quick=2))
def test_a_restriction_outside_of_the_entry_is_obeyed(tmp_path: Path, case: str) -> None:
    outside, include, exclude = OUTSIDE[case]
    config = read(tmp_path, {}, **outside)
    assert (config.upstreams()["s"].include, config.upstreams()["s"].exclude) == (include, exclude)
    assert (config.upstreams()["other"].include, config.upstreams()["other"].exclude) == (None, [])


@pytest.mark.parametrize(
    "outside",
    matrix(
        {"disabledMcpjsonServers": ["s"]},
        {"permissions": {"deny": ["mcp__s"]}},
        {"permissions": {"deny": ["mcp__s__*"]}},
        {"tools": {"s_*": False}},
        {"tools": ["@other", "fs_read"]},
        {"enabled_tools": ["other_*"]},
    ),
)
def test_a_server_that_is_off_outside_of_its_entry_is_off(
    tmp_path: Path, outside: dict[str, Any]
) -> None:
    assert list(read(tmp_path, {}, **outside).upstreams()) == ["other"]


UNKNOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sandboxEnabled": ({"sandboxEnabled": True}, {}),
    "include_tags": ({"include_tags": ["safe"]}, {}),
    "sandbox": ({"sandbox": {"network": "none"}}, {}),
    "readAllowed": ({"readAllowed": False}, {}),
    "options.blockList": ({"options": {"blockList": ["x"]}}, {}),
    "tools.s_d*": ({}, {"tools": {"s_d*": False}}),
    "disabled_tools": ({}, {"disabled_tools": ["re:^s_.*"]}),
    "headersHelper": ({"headersHelper": "get-token"}, {}),
}


@pytest.mark.parametrize("key", matrix(*UNKNOWN, quick=2))
def test_a_restriction_that_cannot_be_obeyed_leaves_its_server_out(
    tmp_path: Path, key: str
) -> None:
    entry, outside = UNKNOWN[key]
    config = read(tmp_path, entry, **outside)
    assert key in config.unusable_services()["s"]
    own = toml(tmp_path, "[services.s]\nexclude = ['danger']")
    document = {**outside, "mcpServers": {"s": {**COMMAND, **entry}}}
    chosen = load(services=client_file(tmp_path, document), config=own, environ={})
    assert chosen.upstreams()["s"].exclude == ["danger"]


@pytest.mark.parametrize(
    "entry",
    [
        {"sandboxEnabled": False},
        {"include_tags": []},
        {"alwaysAllow": ["x"]},
        {"allowSampling": True},
        {"disableCache": False},
    ],
)
def test_a_key_that_takes_nothing_away_leaves_its_server_usable(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    assert "s" in read(tmp_path, entry).upstreams()


def test_a_file_of_crush_has_seconds_and_variables(tmp_path: Path) -> None:
    entries = {
        "a": {"type": "stdio", "command": "ls", "timeout": 1200, "disabled_tools": ["x"]},
        "b": {"type": "http", "url": "https://h.example", "headers": {"K": "Bearer $KEY"}},
        "c": {"type": "sse", "url": "https://h.example", "headers": {"K": "$(echo x)"}},
    }
    path = client_file(tmp_path, {"mcp": entries})
    config = load(services=path, environ={"KEY": "value"})
    upstreams = config.upstreams()
    assert (upstreams["a"].call_seconds, upstreams["a"].exclude) == (1200.0, ["x"])
    assert upstreams["b"].headers == {"K": "Bearer value"}
    assert list(config.unusable_services()) == ["c"]


@pytest.mark.parametrize(
    ("document", "name"),
    matrix(
        ({"s": COMMAND, "t": {"url": "https://h.example"}}, "servers without a key above them"),
        ({"amp.mcpServers": {"s": COMMAND}}, "Amp"),
        ({"mcpServers": {"s": {"baseUrl": "https://h.example"}}}, "Cherry"),
        ({"mcp": {"s": {"type": "local", "command": ["ls", "-l"], "timeout": 9000}}}, "opencode"),
    ),
)
def test_a_file_is_read_as_the_client_whose_shape_it_has(
    tmp_path: Path, document: dict[str, Any], name: str
) -> None:
    assert "s" in load(services=client_file(tmp_path, document), environ={}).upstreams(), name


def test_credentials_are_read_where_clients_write_them(tmp_path: Path) -> None:
    entries = {
        "vibe": {
            "url": "https://h.example",
            "api_key_env": "KEY",
            "api_key_header": "X-Key",
            "api_key_format": "{token}",
        },
        "static": {"url": "https://h.example", "auth": {"type": "static", "api_key_env": "KEY"}},
        "continue": {"url": "https://h.example", "requestOptions": {"headers": {"X-Key": "k"}}},
        "copilot": {"command": "ls", "env": {"A": "COPILOT_MCP_A", "B": "$COPILOT_MCP_A"}},
    }
    path = client_file(tmp_path, json.dumps({"mcpServers": entries}))
    upstreams = load(services=path, environ={"KEY": "k", "COPILOT_MCP_A": "a"}).upstreams()
    assert upstreams["vibe"].headers == {"X-Key": "k"}
    assert upstreams["static"].headers == {"Authorization": "Bearer k"}
    assert upstreams["continue"].headers == {"X-Key": "k"}
    assert upstreams["copilot"].env == {"A": "a", "B": "a"}
