"""Keys of services: `${login:NAME}` in headers and environments, from files, commands and the store."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    UPSTREAMS,
    Running,
    Way,
    code_of,
    meta_of,
    opened_session,
    service,
    serving,
    statehold,
    structured,
    text_of,
    toml,
)
from support.listening import run_listening
from support.token_file import write_tokens
from support.waiting import until

CANARY = "canary/7f3a+kd83\u00e9"[:16] + "Q9x2"
OTHER = "canary-0123456789-rotated"
ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"


@dataclass
class Keyed:
    """A server that asks for a key in a header, and the configuration that names it."""

    folder: Path
    url: str
    settings: JSON = field(default_factory=dict[str, Any])

    @property
    def config(self) -> Path:
        config = self.folder / "statehold.toml"
        headers = {"X-Api-Key": "Key ${login:notes/key}"}
        notes = {"url": self.url, "headers": headers, "era": "modern"}
        config.write_text(toml({"services": {"notes": notes}, **self.settings}))
        return config

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def valid(self) -> Path:
        return self.folder / "valid"

    def run(self, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        group = [] if words[0] in ("services", "audit") else ["logins"]
        command = [*statehold(), *group, *words, "--config", str(self.config)]
        return subprocess.run(
            [*command, "--data", str(self.data)],
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def add(self, key: str, *words: str) -> None:
        done = self.run("add", "notes/key", "--key", *words, typed=f"{key}\n")
        assert done.returncode == 0, done.stderr
        assert key not in done.stdout + done.stderr

    def way(self, running: Running) -> Way:
        return Way("http", "modern", self.config, self.data, url=running.url)


@contextmanager
def keyed(folder: Path, fork_server: ForkServer, **settings: Any) -> Generator[Keyed]:
    valid = folder / "valid"
    valid.write_text(CANARY)
    program = fork_server.command(str(UPSTREAMS / "keyed.py"), str(valid))
    with run_listening(program) as port:
        yield Keyed(folder, f"http://127.0.0.1:{port}/mcp", settings)


async def digits(client: Client, session: str) -> int:
    result = await client.call_tool("digits", {"session_id": session})
    return structured(result)["result"]


def stored_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_a_stored_key_is_used_by_the_next_request_and_a_missing_one_is_told(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with keyed(tmp_path, fork_server) as notes:
        assert "The key notes/key is not stored" in notes.run("services", "check").stdout
        notes.add(CANARY)
        checked = notes.run("services", "check")
        assert (checked.returncode, CANARY in checked.stdout) == (0, False), checked.stdout
        with serving(notes.config, notes.data) as running:
            async with notes.way(running).connect() as client:
                session = await opened_session(client)
                assert await digits(client, session) == len(CANARY)
                notes.valid.write_text(OTHER)
                notes.add(OTHER)
                assert await digits(client, session) == len(OTHER)
                notes.valid.write_text("another one")
                refused = await client.call_tool("digits", {"session_id": session})
                assert code_of(refused) == "login_unavailable"
                assert "refused the key notes/key" in text_of(refused)
                assert "refused the key notes/key" in notes.run("services", "check").stdout
                assert notes.run("forget", "notes/key").returncode == 0

                async def is_missing() -> bool:
                    missing = await client.call_tool("digits", {"session_id": session})
                    assert meta_of(missing)["statehold/error"]["code"] == "login_unavailable"
                    return "notes needs a key. The key notes/key is not stored." in text_of(missing)

                async def is_there() -> bool:
                    result = await client.call_tool("digits", {"session_id": session})
                    return not result.is_error

                await until(is_missing)
                notes.valid.write_text(CANARY)
                notes.add(CANARY)
                await until(is_there)


async def test_a_key_of_a_command_is_read_anew_when_it_is_refused_and_not_more_often(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    source, runs = tmp_path / "source", tmp_path / "runs"
    source.write_text(CANARY)
    command = ["sh", "-c", f"echo run >> {runs}; cat {source}"]
    logins = {"notes/key": {"kind": "key", "command": command}}
    with (
        keyed(tmp_path, fork_server, logins=logins) as notes,
        serving(notes.config, notes.data) as running,
    ):
        async with notes.way(running).connect() as client:
            sessions = [await opened_session(client) for _ in range(4)]
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(digits, client, session)
            before = len(runs.read_text().split())
            assert before <= 2
            source.write_text(OTHER)
            notes.valid.write_text(OTHER)

            async def is_rotated() -> bool:
                result = await client.call_tool("digits", {"session_id": sessions[0]})
                return not result.is_error

            await until(is_rotated)
            assert len(runs.read_text().split()) == before + 1


async def test_a_file_and_a_command_that_give_no_key_are_told_without_their_words(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    logins = {"notes/key": {"kind": "key", "command": ["sh", "-c", f"echo {CANARY} >&2; exit 3"]}}
    with (
        keyed(tmp_path, fork_server, logins=logins) as notes,
        serving(notes.config, notes.data) as running,
    ):
        async with notes.way(running).connect() as client:
            session = await opened_session(client)
            refused = await client.call_tool("digits", {"session_id": session})
            assert "cannot be read: it ended with exit code 3" in text_of(refused)
        notes.settings["logins"] = {"notes/key": {"kind": "key", "file": "none"}}
    assert CANARY not in running.log


async def test_a_key_is_its_principals_own(tmp_path: Path, fork_server: ForkServer) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{BEN} ben\n")
    with keyed(tmp_path, fork_server, server={"tokens": str(tokens)}, audit="on") as notes:
        notes.valid.write_text(f"{CANARY}\n{OTHER}\n")
        notes.add(CANARY)  # that of the operator, by which the tools are known
        notes.add(OTHER, "--subject", "alice")
        with serving(notes.config, notes.data) as running:
            way = notes.way(running)
            async with (
                way.connect(headers={"authorization": f"Bearer {ALICE}"}) as alice,
                way.connect(headers={"authorization": f"Bearer {BEN}"}) as ben,
            ):
                assert await digits(alice, await opened_session(alice)) == len(OTHER)
                session = await opened_session(ben)
                refused = await ben.call_tool("digits", {"session_id": session})
                assert code_of(refused) == "login_unavailable"
                for client in (alice, ben):
                    names = {tool.name for tool in (await client.list_tools()).tools}
                    assert ("of_1" in names, "of_2" in names) == (True, False)
        entries = notes.run("audit", "export").stdout
    assert '"login.grant"' in entries
    assert '"login.use"' in entries
    assert '"login.refuse"' in entries
    assert OTHER not in entries


async def test_what_a_server_repeats_of_its_key_is_hidden(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    words: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        words.append(message or "")

    with keyed(tmp_path, fork_server) as notes:
        notes.add(CANARY)
        with serving(notes.config, notes.data, "--log-level", "debug") as running:
            async with notes.way(running).connect() as client:
                session = await opened_session(client)
                given = {"session_id": session}
                echoed = await client.call_tool("echo", given, progress_callback=note)
                words.append(text_of(echoed))
                notes.valid.write_text(OTHER)
                words.append(text_of(await client.call_tool("echo", given)))
                history = await client.call_tool("session_history", given)
                words.append(json.dumps(structured(history)))
        listed = notes.run("list"), notes.run("show", "notes/key"), notes.run("list", "--json")
    assert "state: ok" in listed[1].stdout
    assert "used at: " in listed[1].stdout
    assert words[0] == "called with [login]"
    assert words[1].startswith("[login] ")
    everywhere = "\n".join([*words, running.log, *(each.stdout + each.stderr for each in listed)])
    assert_hidden(everywhere.encode() + stored_bytes(notes.data))


async def test_a_process_gets_a_key_in_its_environment_alone(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "key").write_text(f"{CANARY}\n")
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    settings = service("shell") | {"env": {"TOKEN": "${login:shell}"}}
    logins = {"shell": {"kind": "key", "file": "key"}}
    config.write_text(toml({"services": {"shell": settings}, "logins": logins}))
    with serving(config, data, "--log-level", "debug") as running:
        async with Way("http", "modern", config, data, url=running.url).connect() as client:
            session = await opened_session(client)

            async def run(command: str) -> str:
                result = await client.call_tool("run", {"session_id": session, "command": command})
                return text_of(result)

            assert await run('printf %s "$TOKEN" | wc -c') == f"{len(CANARY)}\n"
            echoed = await run('echo "$TOKEN"; printf %s "$TOKEN" | base64; echo "$TOKEN" >&2')
            assert echoed.startswith("[login]\n")
            listed = await anyio.run_process(["ps", "-eww", "-o", "args"])
            (tmp_path / "key").write_text(OTHER)
            structured(await client.call_tool("session_restart", {"session_id": session}))
            assert await run('printf %s "$TOKEN" | wc -c') == f"{len(OTHER)}\n"
    assert_hidden(echoed.encode() + listed.stdout + running.log.encode() + stored_bytes(data))


def test_keys_stand_in_headers_and_environments_only(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    settings = {"command": sys.executable, "args": ["${login:shell}"]}
    config.write_text(toml({"strict": True, "services": {"shell": settings}}))
    done = subprocess.run(
        [*statehold(), "services", "list", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "services.shell.args: is seen by others" in done.stderr


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("a key", CANARY, "letters, digits"),
        ("a", "", "it is empty"),
        ("a", f"{CANARY}\0", "NUL"),
    ],
)
def test_a_key_that_cannot_be_stored_is_refused_without_its_value(
    tmp_path: Path, name: str, typed: str, said: str
) -> None:
    done = Keyed(tmp_path, "http://127.0.0.1:9/mcp").run("add", name, "--key", typed=typed)
    assert done.returncode == 2
    assert said in done.stderr
    assert CANARY not in done.stdout + done.stderr


def assert_hidden(data: bytes) -> None:
    encoded = b64encode(CANARY.encode()).rstrip(b"=")[:-1]
    for form in (CANARY.encode(), encoded, json.dumps(CANARY)[1:-1].encode()):
        found = re.search(re.escape(form), data)
        assert found is None, data[max(0, found.start() - 60) : found.end() + 60]
