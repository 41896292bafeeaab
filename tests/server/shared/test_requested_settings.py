"""The settings that a client asks for, compared with those of a server."""

from __future__ import annotations

from pathlib import Path

from statehold.server.shared.requested_settings import differences, requested_settings


def test_equal_settings_have_no_difference(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text("[timeouts]\nidle = 1\n")
    flags, environ = {"--config": str(config), "--toolsets": "core"}, {"STATEHOLD_LOG": "debug"}
    assert differences(requested_settings(flags, environ), requested_settings(flags, environ)) == []


def test_a_changed_file_flag_or_variable_is_named(tmp_path: Path) -> None:
    config, services = tmp_path / "statehold.toml", tmp_path / "mcp.json"
    config.write_text("[timeouts]\nidle = 1\n")
    services.write_text("{}")
    flags = {"--config": str(config), "--services": str(services), "--toolsets": "core"}
    before = requested_settings(flags, {"STATEHOLD_LOG": "debug"})
    config.write_text("[timeouts]\nidle = 2\n")
    assert differences(before, requested_settings(flags, {"STATEHOLD_LOG": "debug"})) == [
        "--config"
    ]
    services.write_text('{"mcpServers": {}}')
    changed = requested_settings(flags | {"--toolsets": "all"}, {"STATEHOLD_LOG": "info"})
    names = ["--config", "--services", "--toolsets", "STATEHOLD_LOG"]
    assert differences(before, changed) == names


def test_settings_that_are_not_asked_for_are_no_difference() -> None:
    running = requested_settings({"--toolsets": "core"}, {"STATEHOLD_LOG": "debug"})
    assert differences({}, running) == []
    assert differences(running, {}) == ["--toolsets", "STATEHOLD_LOG"]


def test_no_value_leaves_the_process(tmp_path: Path) -> None:
    digests = requested_settings({"--key": "sesame"}, {"STATEHOLD_TOKEN": "sesame"})
    assert "sesame" not in str(digests)
