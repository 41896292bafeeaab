"""Arguments that connect() refuses at once, in both clients, and programs without asyncio."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import service

from statehold.client import Question, connect, sync
from statehold.client.errors import ConfigError, ServerUnreachable
from statehold.client.transport.owner import ContextOwner
from statehold.client.transport.stdio import StdioTransport


class Desk:
    async def answer(self, question: Question) -> None: ...
    def answer_at_once(self, question: Question) -> None: ...
    async def __call__(self, question: Question) -> None: ...


async def answer(question: Question) -> None: ...
def answer_at_once(question: Question) -> None: ...


@pytest.mark.parametrize("client", [connect, sync.connect], ids=["async", "sync"])
@pytest.mark.parametrize("command", ["statehold", b"as bytes"])
def test_a_command_is_a_list(client: Any, command: Any) -> None:
    with pytest.raises(TypeError, match="stdio is a list"):
        client(stdio=command)


@pytest.mark.parametrize(
    "callback",
    [answer_at_once, Desk().answer_at_once, functools.partial(answer_at_once)],
    ids=["function", "method", "partial"],
)
def test_the_async_client_takes_no_plain_callback(callback: Any) -> None:
    with pytest.raises(TypeError, match="elicitation_callback needs an `async def`"):
        connect(services={}, elicitation_callback=callback)
    sync.connect(services={}, elicitation_callback=callback)


@pytest.mark.parametrize(
    "callback",
    [answer, Desk().answer, functools.partial(answer), Desk()],
    ids=["function", "method", "partial", "object"],
)
def test_the_blocking_client_takes_no_async_callback(callback: Any) -> None:
    with pytest.raises(TypeError, match="elicitation_callback needs a plain function"):
        sync.connect(services={}, elicitation_callback=callback)
    connect(services={}, elicitation_callback=callback)


def test_a_function_that_returns_an_awaitable_counts_as_async() -> None:
    @functools.wraps(answer_at_once)
    async def wrapper(question: Question) -> None: ...

    @functools.wraps(answer)
    def decorated(question: Question) -> Awaitable[None]:
        return answer(question)

    callbacks: list[Any] = [wrapper, decorated, lambda question: answer(question)]  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    for callback in callbacks:
        connect(services={}, elicitation_callback=callback)


def test_without_asyncio_it_says_what_it_needs() -> None:
    """Run the code behind connect() as under another event library, without an event loop of asyncio."""
    piped = StdioTransport(["statehold"], env=None, cwd=None)
    for opening in (ContextOwner(nullcontext()).start, piped.open):
        with pytest.raises(RuntimeError, match="needs asyncio"):
            opening().send(None)


async def test_an_error_about_a_missing_program_has_whole_sentences() -> None:
    with pytest.raises(ServerUnreachable) as caught:
        async with connect(stdio=["no-such-program-of-statehold"]):
            raise AssertionError
    assert "no-such-program-of-statehold" in caught.value.message
    assert ".." not in caught.value.message


async def test_the_file_of_a_client_is_read_with_paths_relative_to_it(
    tmp_path: Path,
) -> None:
    entry = service("quick", env={"A": "1"}, envFile="x.env", disabledTools=["fail"])
    file = tmp_path / "there" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"quick": entry}}))
    (file.parent / "x.env").write_text("B=2\n")
    async with connect(services=file) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert "inc" in names
        assert "fail" not in names
    (file.parent / "x.env").unlink()
    with pytest.raises(ConfigError, match="envFile: there is no file"):
        async with connect(services=file) as client:
            await client.list_tools()


def test_with_instead_of_async_with_names_the_client_that_has_it() -> None:
    with pytest.raises(TypeError, match=r"statehold\.client\.sync"):
        connect("http://127.0.0.1:9").__enter__()  # type: ignore[attr-defined]
