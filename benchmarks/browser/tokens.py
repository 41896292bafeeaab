"""(o) tokens: the size of what a model gets, of ours and of the peer; a token is four characters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from typing import NamedTuple

import anyio.to_thread

from ..plan import Plan
from ..report import Row, Table, Target
from .browsers import Answer, Remote, peer_command, possible, remote, statehold_command
from .documents import BUTTON, ERRORS, TYPES, WHOLE
from .listing import list_tools
from .site import served

OURS, PEER = "statehold stdio", "peer stdio"
NO_SNAPSHOT = "no snapshot"

UNPINNED, PINNED = "tools/list", "tools/list of a pinned session"
LONG, CONSOLE, FAILED = (
    "navigate to a page of 200,000 tokens",
    "navigate to a page with 60 console errors",
    "failed click, without snapshots",
)
FRAME = 200
"""Tokens that an answer may take besides the part that has a budget: its headings, the code and the page's address."""
MOST = {LONG: 4000 + FRAME, CONSOLE: 500 + FRAME, FAILED: 1000 + FRAME}
TIMES_PEER = {PINNED: 1.1, UNPINNED: 1.5}

Steps = Callable[[Remote, str], Awaitable[list[Answer]]]


class Size(NamedTuple):
    """Tokens of answers, and of the files that they name."""

    tokens: int
    files: int


async def measure(plan: Plan) -> Table:
    table = Table("(o) tokens: what a model gets (characters / 4), and the files that answers name")
    if (reason := possible(PEER, small=True)) is not None:
        table.notes.append(f"left out: {reason}")
        return table
    found = await _answers(plan)
    peer = await _listed(peer_command(None), plan)
    folder = plan.folder / "lists"
    command = statehold_command(folder, None)
    found[UNPINNED] = await _listed(command, plan), peer
    found[PINNED] = await _listed([*command, "--session", "work"], plan), peer
    table.rows = [_row(name, *sizes) for name, sizes in found.items()]
    table.targets += _targets(found)
    return table


async def _answers(plan: Plan) -> dict[str, tuple[Size, Size]]:
    found: dict[str, tuple[Size, Size]] = {}
    with served() as site:
        async with AsyncExitStack() as stack:

            async def start(name: str) -> Remote:
                folder = plan.folder / name.replace(" ", "-")
                return await stack.enter_async_context(remote(name, folder))

            usual = [await start(name) for name in (OURS, PEER)]
            silent = [await start(f"{name} {NO_SNAPSHOT}") for name in (OURS, PEER)]
            for name, steps, servers in (
                (LONG, _navigate(WHOLE), usual),
                *((_document(path), _work(path), usual) for path in list(TYPES)[: plan.documents]),
                (CONSOLE, _navigate(ERRORS), usual),
                (FAILED, _fail(next(iter(TYPES))), silent),
            ):
                ours, peer = [_size(await steps(server, site)) for server in servers]
                found[name] = ours, peer
    return found


def _document(path: str) -> str:
    return f"navigate, click and snapshot, {path.rpartition('/')[2]}"


def _navigate(path: str) -> Steps:
    async def steps(server: Remote, site: str) -> list[Answer]:
        return [await _done(server, "browser_navigate", {"url": site + path})]

    return steps


def _work(path: str) -> Steps:
    async def steps(server: Remote, site: str) -> list[Answer]:
        return [
            await _done(server, "browser_navigate", {"url": site + path}),
            await _done(server, "browser_click", {"target": BUTTON, "element": "the button"}),
            await _done(server, "browser_snapshot", {}),
        ]

    return steps


def _fail(path: str) -> Steps:
    async def steps(server: Remote, site: str) -> list[Answer]:
        await _done(server, "browser_navigate", {"url": site + path})
        missing = {"target": "#missing", "element": "a button that is not there"}
        answer = await server.answer("browser_click", missing)
        assert answer.is_error, f"{server.name}: {answer.text}"
        return [answer]

    return steps


async def _done(server: Remote, tool: str, arguments: dict[str, str]) -> Answer:
    answer = await server.answer(tool, arguments)
    assert not answer.is_error, f"{server.name}: {tool}: {answer.text}"
    return answer


def _size(answers: list[Answer]) -> Size:
    return Size(
        sum(len(answer.text) for answer in answers) // 4,
        sum(len(answer.files) for answer in answers) // 4,
    )


async def _listed(command: list[str], plan: Plan) -> Size:
    listing = await anyio.to_thread.run_sync(list_tools, command, plan.folder)
    return Size(len(listing.text) // 4, 0)


def _row(name: str, ours: Size, peer: Size) -> Row:
    return {
        "what": name,
        "ours": ours.tokens,
        "ours, files": ours.files,
        "peer": peer.tokens,
        "peer, files": peer.files,
        "x peer": ours.tokens / peer.tokens,
        "x peer, with files": sum(ours) / sum(peer),
    }


def _targets(found: dict[str, tuple[Size, Size]]) -> Generator[Target]:
    for name, bound in MOST.items():
        yield Target(name, found[name][0].tokens, bound, "tokens")
    for name, times in TIMES_PEER.items():
        ours, peer = found[name]
        yield Target(f"{name} against the peer's", ours.tokens / peer.tokens, times, "x")
