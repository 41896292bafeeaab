"""Upgrading the schema of a database to the revision of this program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, insert, inspect, select

from ..errors import StoreUnavailable
from .dialect import database_name
from .file.store_folder import DatabaseDamaged
from .schema import HEAD, metadata, version

FIRST: Final = "0110"
"""The first schema that is read. A database of an earlier one is refused."""
_TABLES: Final = [table.name for table in metadata.sorted_tables if table is not version]


def revision(connection: Connection) -> str | None:
    """Return the revision of a database, None for an empty or incomplete one. Changes nothing.

    Raises:
        StoreUnavailable: when the database belongs to another program, or its schema is older than FIRST.
    """
    return _revision(connection, inspect(connection).get_table_names())


def complete_revision(connection: Connection) -> str | None:
    """Return the revision of a database that is always created with all of its tables in one transaction.

    Raises:
        StoreUnavailable: when the database belongs to another program, or its schema is older than FIRST.
        DatabaseDamaged: when a table of its revision is missing.
    """
    tables = inspect(connection).get_table_names()
    if version.name not in tables and set(_TABLES) <= set(tables):
        raise DatabaseDamaged(f"it has no table {version.name}")
    revision_found = _revision(connection, tables)
    if revision_found == HEAD and (missing := sorted(set(_TABLES) - set(tables))):
        raise DatabaseDamaged(f"it has no table {', '.join(missing)}")
    return revision_found


def _revision(connection: Connection, tables: Sequence[str]) -> str | None:
    if version.name in tables:
        found = connection.scalar(select(version.c.version_num))
        if found is not None and found < FIRST:
            raise StoreUnavailable(
                f"{database_name(connection)} was written by an earlier Statehold (schema {found}), which this program "
                "does not read. To bring its sessions along, write each with the program that wrote it (statehold sessions "
                "export NAME FOLDER/NAME.json --secrets), then read them here (statehold sessions import FOLDER). "
                f"{_elsewhere(connection)}"
            )
        return found
    if tables:
        raise StoreUnavailable(
            f"{database_name(connection)} is of another program. {_elsewhere(connection)}"
        )
    return None


def _elsewhere(connection: Connection) -> str:
    if connection.dialect.name == "sqlite":
        return "Move it away, or choose another data folder."
    return "Name one in store.url that is Statehold's alone."


def upgrade(connection: Connection, old_revision: str | None) -> None:
    """Bring a database from a revision to HEAD, in the transaction of the connection.

    Raises:
        StoreUnavailable: when it was written by a newer program.
    """
    if old_revision == HEAD:
        return
    if old_revision is None:
        _create(connection)
        return
    migrate(connection, old_revision)


def _create(connection: Connection) -> None:
    """Create missing tables and indexes. Where no transaction covers all of it, an ended process may have left a part."""
    is_incomplete = inspect(connection).has_table(version.name)
    # The version table comes first, to mark the tables as ours; its row comes last, to mark them as complete.
    version.create(connection, checkfirst=True)
    metadata.create_all(connection)
    if is_incomplete:
        for index in (index for table in metadata.sorted_tables for index in table.indexes):
            index.create(connection, checkfirst=True)
    connection.execute(insert(version).values(version_num=HEAD))


def migrate(connection: Connection, old_revision: str) -> None:
    """Run the migrations after a revision.

    Raises:
        StoreUnavailable: when this program does not know the revision.
    """
    # Loading Alembic takes longer than everything else at start, and most starts have nothing to migrate.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    folder = Path(__file__).parent / "migrations"
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        ScriptDirectory.from_config(config).get_revision(old_revision)
    except CommandError as error:
        raise StoreUnavailable(
            f"{database_name(connection)} was written by a newer Statehold (schema {old_revision}, "
            f"this program knows {HEAD}). Upgrade Statehold, or choose another one."
        ) from error
    command.upgrade(config, HEAD)
