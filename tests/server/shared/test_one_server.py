"""One server per data folder: commands and clients find the one that runs, `statehold serve` included."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest
from support.gateway_process import Running, service, serving, toml
from support.piped import HELLO, tool_call
from support.shared_clients import SharedClients
from support.tool_commands import Commands

from statehold.server.exit_codes import OK, USAGE


@pytest.fixture
def commands(tmp_path: Path) -> Generator[Commands]:
    """Commands on a data folder of the test's own. Its servers end after the test."""
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("quick")}}))
    shared = SharedClients(config, tmp_path / "data")
    yield Commands(shared, tmp_path / "log")
    shared.stop()


@pytest.fixture
def serve(commands: Commands) -> Generator[Running]:
    with serving(commands.shared.config, commands.shared.data) as running:
        yield running


def call(commands: Commands, *words: str, configured: bool = False) -> int:
    """Call a tool that counts in a session, and return its count."""
    ran = commands("call", *words, "--json", configured=configured)
    assert ran.returncode == OK, ran.stderr
    return json.loads(ran.stdout)["structuredContent"]["count"]


def test_commands_and_clients_use_serve(commands: Commands, serve: Running) -> None:
    assert call(commands, "bob", "inc", "--url", serve.url) == 1
    assert call(commands, "bob", "inc") == 2
    assert "inc  " in commands("tools", configured=False).stdout
    lines = [json.dumps({"jsonrpc": "2.0", **each}) for each in [*HELLO, tool_call(1, "inc")]]
    ran = commands.shared.run("--session", "bob", given="\n".join([*lines, ""]).encode())
    assert (ran.returncode, ran.stderr) == (OK, b"")
    assert json.loads(ran.stdout.splitlines()[-1])["result"]["structuredContent"]["count"] == 3
    assert commands.shared.status_pids() == [serve.process.pid]


def test_a_command_names_settings_that_the_server_does_not_have(
    commands: Commands, serve: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commands("tools").stderr == ""
    monkeypatch.setenv("STATEHOLD_TOOLSETS", '["core"]')
    [line] = commands("tools", "--grep", "inc").stderr.splitlines()
    assert "has other settings than STATEHOLD_TOOLSETS" in line
    assert f"statehold stop --data {commands.shared.data}" in line
    monkeypatch.delenv("STATEHOLD_TOOLSETS")
    # A command that asks for nothing takes the server as it is.
    assert commands("tools", configured=False).stderr == ""


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["flag", "variable", "contents"])
def test_each_way_to_give_a_setting_is_compared(
    commands: Commands, serve: Running, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    words = ["tools"]
    if name == "flag":
        words.append("--log-level=debug")
    elif name == "variable":
        other = commands.shared.config.with_name("other.toml")
        other.write_text("")
        monkeypatch.setenv("STATEHOLD_CONFIG", str(other))
    else:
        with commands.shared.config.open("a") as config:
            config.write("# changed\n")
    ran = commands(*words, configured=name == "contents")
    assert ran.returncode == OK
    assert "has other settings than" in ran.stderr


@pytest.mark.thorough
def test_stop_ends_serve_and_the_next_command_starts_a_server(commands: Commands) -> None:
    with serving(commands.shared.config, commands.shared.data, "--workers", "2") as serve:
        assert call(commands, "bob", "inc") == 1
        stopped = commands.output("stop")
        assert stopped.count("stopped the server") == 1
        assert serve.process.wait(30) == OK
    assert call(commands, "bob", "inc", configured=True) == 1
    assert "background" in json.dumps(commands.shared.status())


@pytest.mark.thorough
def test_a_killed_serve_is_replaced_and_its_sessions_go_on(commands: Commands) -> None:
    with serving(commands.shared.config, commands.shared.data) as serve:
        assert call(commands, "bob", "inc") == 1
        serve.process.send_signal(signal.SIGKILL)
        serve.process.wait(20)
    assert call(commands, "bob", "inc", configured=True) == 2


@pytest.mark.thorough
def test_serve_comes_before_a_background_server_and_names_it(commands: Commands) -> None:
    assert call(commands, "bob", "inc", configured=True) == 1
    background = commands.shared.status_pids()
    with serving(commands.shared.config, commands.shared.data) as serve:
        assert f"shared, pid {background[0]}" in serve.log
        assert commands.shared.status_pids() == [serve.process.pid, *background]
        # The background server holds the session; the call reaches it.
        assert call(commands, "bob", "inc") == 2
        assert call(commands, "new", "inc") == 1
        stopped = commands.output("stop")
        assert stopped.count("stopped the server") == 2
        assert commands.shared.status_pids() == []


@pytest.mark.thorough
def test_stop_ends_a_server_that_answers_nothing(commands: Commands) -> None:
    """As one of a version with another socket."""
    assert call(commands, "bob", "inc", configured=True) == 1
    [pid] = commands.shared.status_pids()
    process = psutil.Process(pid)
    commands.shared.socket.unlink()
    assert f"pid {pid}" in commands.output("stop")
    assert psutil.wait_procs([process], timeout=20)[1] == []


@pytest.mark.thorough
def test_a_client_that_cannot_be_served_is_told_by_serve_too(
    commands: Commands, serve: Running
) -> None:
    hello = json.dumps({"jsonrpc": "2.0", **HELLO[0]}).encode() + b"\n"
    ran = commands.shared.run("--toolsets", "core", given=hello)
    assert ran.returncode == USAGE
    assert "with --toolsets." in json.loads(ran.stdout)["error"]["message"]


@pytest.mark.thorough
def test_code_that_has_changed_since_the_start_is_named(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command takes the server as it is, so only a line can tell of an update."""
    clone = tmp_path / "clone"
    root = Path(__file__).parents[3]
    clone.mkdir()
    packages = [each for each in (root / ".namespace" / "statehold").iterdir() if each.is_symlink()]
    for path in (root / ".namespace", *(package.resolve() for package in packages)):
        subprocess.run(["cp", "-r", path, clone], check=True)
    monkeypatch.setenv("PYTHONPATH", str(clone / ".namespace"))
    assert commands.shared.run().returncode == OK
    with (clone / "server" / "exit_codes.py").open("a") as code:
        code.write("\n")
    assert "runs code from before an update" in commands("tools").stderr
    commands.output("stop")
    assert commands("tools").stderr == ""
