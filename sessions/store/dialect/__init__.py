"""Everything that differs between databases. Another one gets a file here, and nothing elsewhere.

`statements` has the statements that the store runs on any of them, `errors` their outcome. Code for one database is in its
own file; only that of SQLite is loaded before it is needed.
"""

from __future__ import annotations

from .errors import (
    FULL,
    explain,
    is_conflict,
    is_connection_lost,
    is_connection_usable,
    is_database_fault,
    is_disk_fault,
    system_remedy,
    violation_of,
)
from .remote_database import RemoteDatabase, interrupt
from .sqlite import FILE_NAME, WRITES, is_damage, make_engine, set_durable, sync, use_wal
from .statements import (
    accumulate,
    among,
    check_storage,
    database_name,
    earlier,
    execute_many,
    fetch,
    pack_ids,
    rows_with_text,
    transaction,
    upsert,
    wait_for_exclusive,
)
from .values import may_have_text

__all__ = [
    "FILE_NAME",
    "FULL",
    "WRITES",
    "RemoteDatabase",
    "accumulate",
    "wait_for_exclusive",
    "among",
    "is_database_fault",
    "is_disk_fault",
    "database_name",
    "check_storage",
    "is_conflict",
    "is_damage",
    "earlier",
    "execute_many",
    "explain",
    "fetch",
    "interrupt",
    "is_connection_lost",
    "make_engine",
    "may_have_text",
    "pack_ids",
    "rows_with_text",
    "set_durable",
    "sync",
    "system_remedy",
    "transaction",
    "upsert",
    "is_connection_usable",
    "use_wal",
    "violation_of",
]
