"""A service that cannot start is unavailable with its reason, and the others run."""

from __future__ import annotations

import json
from pathlib import Path

from mcp import Client
from support.gateway_process import (
    JSON,
    Running,
    count,
    opened_session,
    service,
    serving,
    structured,
    text_of,
)

from statehold.server.cli.exit_codes import USAGE
from statehold.server.cli.main import main


async def test_wrong_services_are_unavailable_and_the_others_serve(tmp_path: Path) -> None:
    missing = tmp_path / "later"
    entries: JSON = {
        "unset": service("quick", env={"K": "${GONE_FOR_THE_TEST}"}),
        "folder": service("quick", cwd=str(missing)),
        "program": {"command": str(tmp_path / "none")},
        "typed": {"command": 3},
        "good": service("quick", excludeTools=["fail"], trust=True),
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    config = tmp_path / "statehold.toml"
    config.write_text(
        "toolsets = ['core', 'lifecycle', 'admin']\n[services.unset]\nprefix = 'unset_'\n"
        "[services.browser]\ninit_script = ['my, folder/none.js']\n"
    )
    with serving(config, tmp_path / "data", "--services", str(file)) as running:
        await use(running, tmp_path)
    assert running.log.count("service unset is not available: ") == 1
    assert running.log.count("these keys are not used: good: trust") == 1
    assert "service good is available: " in running.log
    flags = ["--config", str(config), "--services", str(file), "--data", str(tmp_path / "data")]
    assert main(["serve", "--strict", "--port", "0", *flags]) == USAGE


async def use(running: Running, folder: Path) -> None:
    async with Client(running.url + "/mcp", cache=None) as client:
        session = await opened_session(client)
        assert await count(client, session) == 1
        listed = structured(await client.call_tool("service_list", {}))["services"]
        services = {each["service"]: each for each in listed}
        assert services["good"]["status"] == "available"
        reasons = {
            "unset": "GONE_FOR_THE_TEST is not set",
            "folder": "its working folder cannot be used",
            "program": "there is no program",
            "typed": "services.typed.command: should be a valid string",
            "browser": "init_script: there is no file none.js; ",
        }
        for name, reason in reasons.items():
            assert services[name]["status"] == "unavailable"
            assert reason in services[name]["problem"]
            # Callers need not know the folders of a machine.
            assert str(folder) not in services[name]["problem"]
        failed = await client.call_tool("unset_inc", {"session_id": session})
        assert "GONE_FOR_THE_TEST is not set" in text_of(failed)
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "inc" in names
        assert "fail" not in names
        excluded = await client.call_tool("fail", {"session_id": session})
        assert "There is no tool 'fail' now." in text_of(excluded)
