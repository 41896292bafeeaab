"""The definitions of tables in the words of PostgreSQL, without a server."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import postgresql as dialects
from sqlalchemy.schema import CreateIndex

from statehold.sessions.store import schema

psycopg = pytest.importorskip("psycopg")


def definition(name: str) -> str:
    # Loading the dialect gives it the conditions of SQLite's partial indices.
    from statehold.sessions.store.dialect import postgresql as _  # noqa: F401

    index = next(index for index in schema.session.indexes if index.name == name)
    return str(CreateIndex(index).compile(dialect=dialects.dialect()))


def test_only_open_sessions_have_unique_names() -> None:
    text = definition("session_name")
    assert text.startswith("CREATE UNIQUE INDEX session_name ON session (owner, namespace, name)")
    assert "WHERE" in text
    assert "closed" in text.partition("WHERE")[2]


@pytest.mark.parametrize("name", ["session_open", "session_due", "session_node", "session_user_id"])
def test_an_index_covers_only_the_sessions_that_are_looked_for(name: str) -> None:
    assert " WHERE " in definition(name)


def test_an_index_of_all_sessions_has_no_condition() -> None:
    assert " WHERE " not in definition("session_used")
