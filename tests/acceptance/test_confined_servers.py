"""Real servers in a sandbox: those of npm and PyPI, also from cold caches, and a browser that one of them starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statehold.keeper.confinement import landlock_abi
from statehold.tools.upstream.config import SandboxSettings, UpstreamConfig
from statehold.tools.upstream.sandbox import ServiceSandboxes
from statehold.tools.upstream.service import UpstreamService

pytestmark = [
    pytest.mark.peer,
    pytest.mark.thorough,
    pytest.mark.skipif(landlock_abi() < 6, reason="needs Landlock of Linux 6.12"),
]


def confined(data: Path, command: Sequence[str], **options: Any) -> UpstreamService:
    settings = SandboxSettings(mode="landlock")
    config = UpstreamConfig(
        command=command[0],
        args=[*command[1:]],
        sandbox=settings,
        first_connect_seconds=100,
        **options,
    )
    caches = data / "caches"
    sandboxes = ServiceSandboxes("peer", settings, caches=caches, private=[data])
    return UpstreamService("peer", config, data=data, sandboxes=sandboxes)


@pytest.mark.parametrize("server", ["everything_command", "memory_command"])
async def test_a_server_of_npm_works(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    command: list[str] = request.getfixturevalue(server)
    env = {"MEMORY_FILE_PATH": "{dir}/memory.json"}
    check = await confined(tmp_path, command, env=env).check()
    assert check.ok, check.error
    assert check.tools > 5


@pytest.mark.parametrize(
    "command",
    [
        ["npx", "-y", "@modelcontextprotocol/server-memory@2026.8.31"],
        ["uvx", "mcp-server-time"],
    ],
    ids=["npx", "uvx"],
)
@pytest.mark.timeout(240)
async def test_a_launcher_fills_a_cold_cache_of_its_service(
    command: list[str], npm_peers: Path, tmp_path: Path
) -> None:
    service = confined(tmp_path, command)
    check = await service.check()
    assert check.ok, check.error
    assert os.listdir(tmp_path / "caches" / "peer")
    # Another start finds it there.
    check = await service.check()
    assert check.ok, check.error
