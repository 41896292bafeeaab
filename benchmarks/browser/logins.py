"""(m) logins: a login that goes from a session of one node to that of another, and calls of a session that has one."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from ..asking import Asking
from ..gateways import http_server, statehold
from ..plan import Plan
from ..processes import free_port
from ..report import Table, Target
from ..samples import median, quantile, ratio, undisturbed
from ..servers import running
from .bare import shell
from .browsers import CONFIG, possible

from support.lent_logins import StoredLogin, keyring_of  # isort: skip - found by ..servers
from support.login_site import LoginSite, serve_logins  # isort: skip
from statehold.sessions.store.sql import SQLStore

KEY = "a-key-of-the-benchmarks-with-32-characters"
HAND_OVER_MS = 150.0
MORE_MS = 10.0
ANSWERS = 3
"""Answers that the page of a holder gets before the login goes on."""
SETTINGS = """\
[sealing]
keys = ["{key}"]
[store]
url = "{url}"
[cluster]
enabled = true
keys = ["{key}"]
[logins.shop]
kind = "browser"
sites = ["{site}"]
"""


class _Session(NamedTuple):
    asking: Asking
    id: str

    async def call(self, tool: str, **arguments: object) -> float:
        """Call a tool and return how many seconds it took."""
        began = time.perf_counter()
        await self.asking.call(tool, {"session_id": self.id, **arguments})
        return time.perf_counter() - began


async def measure(plan: Plan) -> Table:
    table = Table(
        "(m) logins: ms of a hand-over between two nodes, and of calls with and without one"
    )
    if (reason := possible("statehold http")) is not None:
        table.notes.append(f"left out: {reason}")
        return table
    with running("postgresql") as url, serve_logins("reuse") as site:
        if url is None:
            table.notes.append("PostgreSQL is not installed: python tests/peers/install.py")
            return table
        async with _sessions(plan.folder, url, site) as sessions:
            await _hand_overs(table, plan.hand_overs, site, sessions)
            await _calls(table, max(2, plan.hand_overs // 10), site, sessions)
    return table


@asynccontextmanager
async def _sessions(folder: Path, url: str, site: LoginSite) -> AsyncGenerator[list[_Session]]:
    """A session on each of two nodes."""
    site.log_in()
    async with AsyncExitStack() as stack:
        sessions: list[_Session] = []
        for name in ("a", "b"):
            node, port = folder / f"logins-{name}", free_port()
            node.mkdir()
            config = node / "statehold.toml"
            settings = SETTINGS.format(key=KEY, url=url, site=site.address)
            config.write_text(f"{CONFIG.format(shell=shell())}{settings}", encoding="utf-8")
            command = statehold(node / "data", config, "serve", "--port", str(port))
            stack.enter_context(http_server(command, node))
            asking = await stack.enter_async_context(Asking(port))
            created = await asking.first("session_create", {})
            sessions.append(_Session(asking, created["session_id"]))
        async with SQLStore.remote(url, keyring=keyring_of(KEY)) as store:
            await StoredLogin(store, site).save()
        yield sessions


async def _hand_overs(table: Table, times: int, site: LoginSite, sessions: list[_Session]) -> None:
    """Hand the login over while the pages of both sessions ask every 20 ms."""
    taken: list[float] = []
    holder = sessions[-1]
    for each in sessions[::-1]:
        if each is not holder:
            await holder.call("login_release", login="shop")
        await each.call("login_use", login="shop", wait_seconds=10)
        await each.call("browser_navigate", url=f"{site.address}/poll")
        holder = each
    with undisturbed():
        for _, session in zip(range(times), cycle(sessions[::-1]), strict=False):
            await site.wait_answers(ANSWERS)
            released = await holder.call("login_release", login="shop")
            taken.append(released + await session.call("login_use", login="shop", wait_seconds=10))
            holder = session
    await holder.call("login_release", login="shop")
    refused = site.statuses.count(401)
    _add(table, "hand-over", "of two nodes", taken, refused)
    table.targets.append(Target("hand-over", median(taken) * 1000, HAND_OVER_MS, "ms"))
    table.targets.append(Target("hand-over: answers with 401", refused, 0, "answers"))


async def _calls(table: Table, times: int, site: LoginSite, sessions: list[_Session]) -> None:
    """Call tools in turns: in one session the site of the login, in the other one that of none."""
    site.policy = "rotates"
    lent, other = sessions
    with serve_logins("rotates") as plain:
        await lent.call("login_use", login="shop", wait_seconds=10)
        await lent.call("browser_navigate", url=f"{site.address}/")
        await other.call("browser_navigate", url=f"{plain.address}/in")
        for what, tool in (
            ("no cookie changes", "browser_snapshot"),
            ("one does", "browser_navigate"),
        ):
            seconds: dict[str, list[float]] = {"with a login": [], "without": []}
            with undisturbed():
                for _ in range(times):
                    for (session, address), taken in zip(
                        ((lent, site.address), (other, plain.address)),
                        seconds.values(),
                        strict=True,
                    ):
                        more = {"url": f"{address}/"} if tool == "browser_navigate" else {}
                        taken.append(await session.call(tool, **more))
            for whose, taken in seconds.items():
                _add(table, f"{tool}: {what}", whose, taken)
            mine, others = seconds.values()
            if tool == "browser_snapshot":
                value, low, high = ratio(mine, others)
                table.targets.append(
                    Target("a call, no cookie changes", value, 1.0, "x", between=(low, high))
                )
            else:
                more_ms = (median(mine) - median(others)) * 1000
                table.targets.append(Target("a call that changes one", more_ms, MORE_MS, "ms more"))


def _add(
    table: Table, what: str, where: str, taken: list[float], refused: int | None = None
) -> None:
    table.rows.append(
        {
            "what": what,
            "session": where,
            "p50": median(taken) * 1000,
            "p95": quantile(taken, 0.95) * 1000,
            "times": len(taken),
            "401": refused,
        }
    )
