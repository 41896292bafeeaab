"""(A) access: the cost of a token that was verified before, of the audit log per call, and of a check of its chain."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from statehold.access.config.auth import AuthSettings, IssuerSettings
from statehold.access.tokens import StaticTokens
from statehold.access.verifier import Verifier
from statehold.sessions.principals.audit_log import FIRST_HASH, AuditEntry, AuditEvent, chain_hash
from statehold.sessions.records import Principal
from statehold.sessions.store.sql import SQLStore

from ..gateways import statehold, statehold_config
from ..hop import Scenario, in_turns
from ..plan import TESTS, Plan
from ..report import Row, Table, Target
from ..route import open_route
from ..samples import median, quantile, undisturbed

# The tests are no part of the installed package.
sys.path.append(str(TESTS))

from support.hostile_issuer import AUDIENCE, INTROSPECTOR, hostile_issuer
from support.token_file import write_tokens

STATIC: Final = "static-token-0123456789"
TOKEN_US: Final = 15.0
VERIFY_SECONDS: Final = 2.0
BATCHES, LOOKUPS = 300, 50
OFF, ON, REQUIRED = "statehold", "audit on", "audit required"
FACTOR: Final = 3
"""More rounds and calls than other parts: the difference to measure is small."""


async def measure(plan: Plan) -> Table:
    table = Table("(A) access: tokens in us per call, audit in us of CPU and in ms per call (p10)")
    await _measure_tokens(table, plan.folder)
    await _measure_audit(table, plan)
    await _measure_check(table, plan)
    return table


async def _measure_tokens(table: Table, folder: Path) -> None:
    with hostile_issuer() as issuer, hostile_issuer() as asked:
        asked.opaque["opaque-token-0123456789"] = asked.claims(active=True)
        client_id, client_secret = INTROSPECTOR
        settings = AuthSettings(
            issuers=[
                IssuerSettings(issuer=issuer.url),
                IssuerSettings.model_validate(
                    {
                        "issuer": asked.url,
                        "introspection_endpoint": f"{asked.url}/introspect",
                        "client_id": client_id,
                        "client_secret": client_secret,
                    }
                ),
            ],
            audience=[AUDIENCE],
        )
        static = StaticTokens.read(write_tokens(folder / "tokens", f"{STATIC} alice\n"))
        tokens = {
            "JWT": issuer.token(more="x" * 600),
            "opaque": "opaque-token-0123456789",
            "static": STATIC,
        }
        for kind, token in tokens.items():
            # A server with static tokens alone has no issuers.
            has_issuers = kind != "static"
            verifier = Verifier(
                None if has_issuers else static, settings if has_issuers else AuthSettings()
            )
            await verifier.verify(token)
            times = await _lookups(verifier, token)
            name = f"verifying a cached token ({kind})"
            row: Row = {"what": name, "us": median(times) * 1e6}
            # All rows have the columns of the first.
            table.rows.append({**row, "p10, ms": None, "more than off, ms": None})
            table.targets.append(Target(name, median(times) * 1e6, TOKEN_US, "us"))


async def _lookups(verifier: Verifier, token: str) -> list[float]:
    """Return the seconds of processor time of a lookup, as the check of each request does it."""
    times: list[float] = []
    with undisturbed():
        for _ in range(BATCHES):
            begin = time.thread_time()
            for _ in range(LOOKUPS):
                _ = verifier.known(token) or await verifier.verify(token)
            times.append((time.thread_time() - begin) / LOOKUPS)
    return times


async def _measure_audit(table: Table, plan: Plan) -> None:
    longer = replace(plan, rounds=plan.rounds * FACTOR, calls=plan.calls * FACTOR)
    async with AsyncExitStack() as stack:
        routes = [
            await stack.enter_async_context(
                open_route(name, "http", "modern", plan.folder / name.replace(" ", "-"))
            )
            for name in (OFF, ON, REQUIRED)
        ]
        for at_once in (1, 8):
            scenario = Scenario("small", at_once, "inc", {}, longer.calls)
            results = await in_turns(routes, scenario, longer, random.Random(1))
            off = quantile(results[OFF].latencies, 0.1)
            for name, result in results.items():
                p10 = quantile(result.latencies, 0.1)
                table.rows.append(
                    {
                        "what": f"a call with {'audit off' if name == OFF else name}, {at_once} at once",
                        "us": median(result.gateway) * 1e6,
                        "p10, ms": p10 * 1e3,
                        "more than off, ms": (p10 - off) * 1e3,
                    }
                )


async def _measure_check(table: Table, plan: Plan) -> None:
    """Measure the command, with its start."""
    folder = plan.folder / "audit"
    data = folder / "data"
    data.mkdir(parents=True, mode=0o700)
    async with SQLStore.sqlite(data):
        pass
    write_entries(data / "statehold.db", plan.audit_entries)
    command = statehold(data, statehold_config(folder), "audit", "verify", "--json")
    times: list[float] = []
    for _ in range(5):
        begin = time.monotonic()
        done = await anyio.run_process(command)
        times.append(time.monotonic() - begin)
        assert json.loads(done.stdout)["entries"] == plan.audit_entries, done.stdout
    name = f"audit verify of {plan.audit_entries:,} entries"
    table.rows.append({"what": name, "us": None, "p10, ms": min(times) * 1e3})
    table.targets.append(Target(f"{name}, with the start", median(times), VERIFY_SECONDS, "s"))


def write_entries(path: Path, count: int) -> None:
    """Write a log of calls, each with a request and a result, into a database without entries."""
    rows: list[tuple[int, str, str]] = []
    previous = FIRST_HASH
    for seq in range(1, count + 1):
        entry = AuditEntry(
            at=1e9 + seq,
            event=AuditEvent.REQUEST if seq % 2 else AuditEvent.RESULT,
            actor=Principal(issuer="https://login.example.org", subject=f"user-{seq % 50}"),
            operation="tools/call",
            tool="inc",
            session_id="sh_" + "a" * 26,
            call=f"{seq:016x}",
            outcome=None if seq % 2 else "ok",
            transport="http",
            address="192.0.2.1",
        )
        document = entry.document("node")
        previous = chain_hash(seq, document, previous)
        rows.append((seq, document, previous))
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO audit (seq, document, hash) VALUES (?, ?, ?)", rows)
        database.execute(
            "INSERT INTO audit_head (id, seq, hash) VALUES (1, ?, ?)", (count, previous)
        )
        database.commit()


__all__ = ["measure", "write_entries"]
