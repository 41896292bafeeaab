"""Tokens that are added, replaced, removed and that expire while a server runs, by the commands of a person."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from support.console_client import console_client
from support.gateway_process import Running, Way, opened_session, serving, statehold, toml
from support.waiting import until

from statehold.sessions.times import format_time

WAYS: list[tuple[str, str]] = []
PROMPT = 1.5
"""Seconds after which a server has noticed a change: a second, and half of one on a busy machine."""


class TokenCommands:
    """A server, and `statehold tokens` on its file."""

    def __init__(self, folder: Path) -> None:
        self.tokens, self.config = folder / "tokens", folder / "statehold.toml"
        services = {"browser": {"disabled": True}}
        self.config.write_text(toml({"server": {"tokens": "tokens"}, "services": services}))
        self.keeper = self.add("keeper")
        """A token that is never removed."""

    def run(self, *words: str, code: int = 0) -> str:
        command = [*statehold(), "tokens", *words, "--config", str(self.config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def add(self, *words: str) -> Any:
        return self.json("add", *words)

    def remove(self, token: Any) -> None:
        self.json("remove", token["id"])


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> TokenCommands:
    return TokenCommands(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def guarded(
    commands: TokenCommands, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    with serving(commands.config, tmp_path_factory.mktemp("data")) as running:
        yield running


def bearer(token: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {token['token']}"}


async def status_of(running: Running, token: Any) -> int:
    """Return the status of a request that needs a token: 401, or that of a body that is no message."""
    async with httpx2.AsyncClient(base_url=running.url, timeout=60) as raw:
        answer = await raw.post("/mcp", headers=bearer(token), content="{}")
        return answer.status_code


async def wait_status(running: Running, token: Any, status: int) -> None:
    async def is_reached() -> bool:
        return await status_of(running, token) == status

    await until(is_reached)


async def test_a_token_is_replaced_without_a_restart(
    commands: TokenCommands, guarded: Running
) -> None:
    former = commands.add("ada", "--name", "laptop")
    await wait_status(guarded, former, 400)
    newer = commands.add("ada", "--expires", "90d", "--role", "operator")
    await wait_status(guarded, newer, 400)
    assert await status_of(guarded, former) == 400
    listed = {token["id"]: token for token in commands.json("list")["tokens"]}
    assert listed[former["id"]]["name"] == "laptop"
    assert [listed[token["id"]]["role"] for token in (former, newer)] == ["user", "operator"]
    assert listed[newer["id"]]["expires"] > format_time(time.time() + 89 * 86_400)
    commands.remove(former)
    await wait_status(guarded, former, 401)
    assert await status_of(guarded, newer) == 400


async def test_the_streams_and_logins_of_a_removed_token_end(
    commands: TokenCommands, guarded: Running
) -> None:
    token = commands.add("ben")
    await wait_status(guarded, token, 400)
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        ended: dict[str, float] = {}
        opened: dict[str, anyio.Event] = {name: anyio.Event() for name in ("sse", "listen")}
        raw = await stack.enter_async_context(httpx2.AsyncClient(base_url=guarded.url, timeout=60))

        async def read_sse(path: str, who: Any) -> None:
            async with raw.stream("GET", path, headers=bearer(who)) as stream:
                async for _ in stream.aiter_bytes():
                    opened["sse"].set()
            ended["sse"] = time.monotonic()

        async def listen() -> None:
            way = Way("http", "modern", commands.config, guarded.data, url=guarded.url)
            async with way.connect(headers=bearer(token)) as client:
                await follow(client)

        async def follow(client: Client) -> None:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    opened["listen"].set()
                    async for _ in events:
                        pass
            except Exception:
                pass
            ended["listen"] = time.monotonic()

        console = await stack.enter_async_context(console_client(guarded.url))
        await console.log_in(token=token["token"])
        with anyio.fail_after(60):
            tasks.start_soon(read_sse, "/sse", token)
            tasks.start_soon(listen)
            for event in opened.values():
                await event.wait()
            async with console.events() as events:
                commands.remove(token)
                removed_at = time.monotonic()
                while await events.line() is not None:
                    pass
                ended["console"] = time.monotonic()
            await until(lambda: len(ended) == 3)
            assert max(ended.values()) - removed_at < PROMPT
            assert (await console.refused("GET", "/me"))["status"] == 401
            tasks.cancel_scope.cancel()


async def test_the_log_names_the_owner_of_a_new_session_and_its_address(
    commands: TokenCommands, guarded: Running
) -> None:
    token = commands.add("dora", "--issuer", "https://id.example")
    await wait_status(guarded, token, 400)
    way = Way("http", "modern", commands.config, guarded.data, url=guarded.url)
    async with way.connect(headers=bearer(token)) as client:
        session = await opened_session(client)
        await client.call_tool("session_close", {"session_id": session})
    owner = f'session {session} of "https://id.example/dora"'
    await until(lambda: f"{owner} created from 127.0.0.1" in guarded.log)
    await until(lambda: f"{owner} closed" in guarded.log)


@pytest.mark.thorough
async def test_a_token_that_expires_is_refused_and_named_in_the_log(
    commands: TokenCommands, guarded: Running
) -> None:
    token = commands.add("cid", "--issuer", "https://id.example")
    text, soon = commands.tokens.read_text(), format_time(time.time() + 4)
    digest = next(line for line in text.splitlines() if token["id"] in line)
    commands.tokens.write_text(text.replace(digest, f"{digest} expires={soon}"))
    await wait_status(guarded, token, 400)
    async with httpx2.AsyncClient(base_url=guarded.url, timeout=60) as raw:
        with anyio.fail_after(30):
            async with raw.stream("GET", "/sse", headers=bearer(token)) as stream:
                async for _ in stream.aiter_bytes():
                    pass
    assert format_time(time.time()) >= soon

    async def is_named() -> bool:
        # A line of its kind is written every ten seconds at most.
        assert await status_of(guarded, token) == 401
        return "expired token of https://id.example/cid from 127.0.0.1" in guarded.log

    await wait_status(guarded, token, 401)
    await until(is_named)
    assert token["token"] not in guarded.log
    listed = commands.run("list")
    assert re.search(rf"{token['id']} .*expired", listed)
    assert digest.split()[0].removeprefix("sha256:") not in listed


async def test_a_bad_file_keeps_the_former_tokens(
    commands: TokenCommands, guarded: Running
) -> None:
    text = commands.tokens.read_text()
    commands.tokens.write_text(f"{text}a-plain-token-0123456789 dan\n")
    await until(lambda: "the former tokens stay valid" in guarded.log)
    assert "a-plain-token" not in guarded.log
    assert await status_of(guarded, commands.keeper) == 400
    assert "holds a token itself" in commands.run("add", "eve", code=2)
    commands.tokens.write_text(text)


def test_a_new_file_is_private_and_a_file_keeps_its_comments_and_mode(tmp_path: Path) -> None:
    commands = TokenCommands(tmp_path)
    assert commands.tokens.stat().st_mode & 0o777 == 0o600
    commands.tokens.write_text(f"# of the team\n{commands.tokens.read_text()}# end")
    commands.tokens.chmod(0o400)
    added = commands.add("ada b", "--expires", "2099-01-31")
    assert added["expires"] == "2099-01-31T00:00:00Z"
    text = commands.tokens.read_text()
    assert text.startswith("# of the team\n")
    assert "# end\nsha256:" in text
    assert added["token"] not in text
    assert commands.tokens.stat().st_mode & 0o777 == 0o400
    for token in (added, commands.keeper):
        commands.remove(token)
    assert "sha256:" not in commands.tokens.read_text()
    assert commands.json("list") == {"tokens": []}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        (("add", "ada", "--expires", "soon"), 2, "should be a date or a time"),
        (("add", "ada", "--expires", "2001-01-01"), 2, "is over"),
        (("add", ""), 2, "empty"),
        (("add", "a\nb"), 2, "control characters"),
        (("remove", "ffffffffffff"), 3, "no token"),
        (("remove", ""), 3, "no token"),
        (("list", "--token-file", "/nowhere/tokens"), 2, "No such file"),
        (("add", "ada", "--token-file", "/nowhere/tokens"), 2, "cannot be changed"),
    ],
)
def test_a_command_that_cannot_be_run_says_why(
    commands: TokenCommands, words: tuple[str, ...], code: int, found: str
) -> None:
    assert found in commands.run(*words, code=code)


def test_commands_without_a_file_say_how_to_name_one() -> None:
    done = subprocess.run(
        [*statehold(), "tokens", "list"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "--token-file FILE" in done.stderr
