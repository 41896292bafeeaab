"""A service that cannot start is unavailable with its reason, and the others run."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from shutil import copy

import pytest
from mcp import Client
from support.gateway_process import (
    JSON,
    UPSTREAMS,
    Running,
    code_of,
    count,
    meta_of,
    opened_session,
    service,
    serving,
    structured,
    text_of,
    toml,
)
from support.waiting import until

from statehold.server.config.load import load
from statehold.server.exit_codes import USAGE
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from statehold.shell.main import main


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
        # The cause is mended: the next call checks it again.
        (folder / "later").mkdir()
        answer = await client.call_tool("folder_inc", {"session_id": session})
        assert structured(answer)["count"] == 1


async def test_a_session_outlasts_a_server_that_cannot_be_started_again(tmp_path: Path) -> None:
    """It is paused with the reason, what it keeps is at hand, and the next call opens the server at once when it is back."""
    program = tmp_path / "quick.py"
    copy(UPSTREAMS / "quick.py", program)
    settings: JSON = {
        "recovery": {"attempts": 2, "backoff": [0.0]},
        "services": {"quick": {"command": sys.executable, "args": ["-S", "-E", str(program)]}},
    }
    config = tmp_path / "statehold.toml"
    config.write_text(toml(settings))
    with serving(config, tmp_path / "data") as running:
        async with Client(running.url + "/mcp", cache=None) as client:
            session = await opened_session(client, state={"n": 1})
            one: JSON = {"session_id": session}
            counted = structured(await client.call_tool("inc", one))
            program.rename(tmp_path / "gone.py")
            os.kill(counted["pid"], signal.SIGKILL)

            async def paused() -> JSON | None:
                info = structured(await client.call_tool("session_info", one))
                return info if info["status"] == "paused" else None

            info = await until(paused)
            assert info is not None
            assert info["reason"].startswith("connection_lost: quick: ")
            [listed] = structured(await client.call_tool("session_list", {}))["sessions"]
            assert (listed["status"], listed["reason"]) == ("paused", info["reason"])
            changed = await client.call_tool("state_update", {**one, "values": {"n": 2}})
            assert structured(changed)["version"] == 1
            assert structured(await client.call_tool("state_get", one))["value"] == {"n": 2}
            failed = await client.call_tool("inc", one)
            assert code_of(failed) == "service_unavailable"
            failed = await client.call_tool("inc", one)
            assert code_of(failed) == "service_unavailable"
            assert "quick" in text_of(failed)
            (tmp_path / "gone.py").rename(program)
            answer = await client.call_tool("inc", one)
            assert structured(answer)["count"] == 1
            assert "generation 1 to 2" in meta_of(answer)["statehold/notice"]
            info = structured(await client.call_tool("session_info", one))
            assert (info["status"], info["reason"]) == ("idle", None)


@pytest.mark.thorough
async def test_a_browser_that_cannot_start_has_the_heading_of_the_peer(tmp_path: Path) -> None:
    settings = {"services": {"browser": {"executable": "/bin/false"}}}
    config = tmp_path / "statehold.toml"
    config.write_text(toml(settings))
    loaded = load(config=config, services=None, flags={"data": str(tmp_path / "data")})
    async with (
        open_gateway(loaded, address="test") as gateway,
        Client(StateholdServer(gateway, version="0", pinned_name="p")) as client,
    ):
        result = await client.call_tool("browser_snapshot", {})
    assert code_of(result) == "service_unavailable"
    assert text_of(result).startswith("### Error\nservice_unavailable: ")
