"""SQLite answers the requests of sessions through indexes, however many sessions there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from store_making import NODE, Sessions, node_record

from statehold.sessions.lifecycle import Status
from statehold.sessions.records import HistoryFilter, SessionFilter, SessionOrder
from statehold.sessions.store import Write, schema, session_queries
from statehold.sessions.store.sql import SQLStore

LARGE = {"session", *(table.name for table in schema.OF_A_SESSION)}
SHOWN = [status for status in Status if status is not Status.CLOSED]


@contextmanager
def recorded() -> Generator[list[tuple[str, Any]]]:
    """Record the statements of the block with their parameters."""
    ran: list[tuple[str, Any]] = []

    def note(_c: Connection, _cursor: object, text: str, parameters: Any, *_: object) -> None:
        ran.append((text, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield ran
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def plans(folder: Path, ran: list[tuple[str, Any]]) -> list[str]:
    """Return the steps of statements that read tables which grow with the sessions."""
    with closing(sqlite3.connect(folder / "statehold.db")) as connection:
        return [
            row[3]
            for text, parameters in ran
            for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
            if row[3].split()[1] in LARGE
        ]


@pytest.mark.thorough
async def test_no_request_reads_all_sessions(tmp_path: Path) -> None:
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        sessions = Sessions(store)
        record = await sessions.make("sh_a", name="shop", node=None, status=Status.PAUSED)
        with recorded() as ran:
            await sessions.make("sh_b", name="shop 2", per_owner=10)
            claimed = await store.claim("sh_a", NODE, 2.0)
            assert claimed is not None
            await store.write(Write("sh_a", NODE, claimed.session.epoch, {"node": None}))
            await sessions.make("sh_c", "browser", node=NODE)
            assert sorted(await store.adopt([NODE], 2.0)) == ["sh_b", "sh_c"]
            await store.sizes(["sh_a"])
            await store.state_versions(["sh_a"])
            await store.history("sh_a", HistoryFilter())
            await store.due(2.0)
            await store.next_due()
            assert await store.find("local", "", "shop") is not None
            assert await store.find_closed("local", "", "shop") is None
        steps = plans(tmp_path, ran)
        assert [step for step in steps if step.startswith("SCAN")] == []
        assert "SEARCH session USING INDEX session_node (node>?)" in steps
        # By the name, and not by the owner alone; the open sessions are only counted.
        found = [step for step in steps if step.endswith("(owner=?)")]
        assert found == ["SEARCH session USING COVERING INDEX session_status (owner=?)"]
        cursor = session_queries.cursor_after(record, SessionOrder.USED)
        expected = {
            "session_used (owner=?)": {"statuses": SHOWN},
            "session_used (owner=? AND used_at<?)": {"statuses": SHOWN, "cursor": cursor},
            "session_used (owner=? AND used_at>?)": {"updated_since": 1.0},
            "session_status (owner=? AND status=?)": {"statuses": [Status.ERROR]},
            "session_status (owner=? AND status=? AND used_at<?)": {
                "statuses": [Status.PAUSED],
                "cursor": cursor,
            },
            "session_named (owner=? AND name>? AND name<?)": {
                "name_prefix": "shop",
                "statuses": SHOWN,
            },
        }
        for plan, wanted in expected.items():
            with recorded() as ran:
                await store.list_sessions(
                    SessionFilter.model_validate({"owner": "local", **wanted})
                )
            step = plans(tmp_path, ran)[-1]
            assert step == f"SEARCH session USING INDEX {plan}", wanted
