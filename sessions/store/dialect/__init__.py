"""Everything that differs between databases. Another one gets a file here, and nothing elsewhere.

`statements` has the statements that the store runs on any of them, `errors` their outcome. Code for one database is in its
own file; only that of SQLite is loaded before it is needed.
"""

from __future__ import annotations

from .errors import (
    FULL,
    blames_database,
    blames_disk,
    conflicted,
    explain,
    lost,
    system_remedy,
    usable,
    violated,
)
from .remote import RemoteDatabase, interrupt
from .sqlite import FILE_NAME, WRITES, damaged, make_engine, set_durable, sync, use_wal
from .statements import (
    accumulate,
    alone,
    among,
    check_storage,
    database_name,
    earlier,
    execute_many,
    fetch,
    packed,
    transaction,
    upsert,
)

__all__ = [
    "FILE_NAME",
    "FULL",
    "WRITES",
    "RemoteDatabase",
    "accumulate",
    "alone",
    "among",
    "blames_database",
    "blames_disk",
    "database_name",
    "check_storage",
    "conflicted",
    "damaged",
    "earlier",
    "execute_many",
    "explain",
    "fetch",
    "interrupt",
    "lost",
    "make_engine",
    "packed",
    "set_durable",
    "sync",
    "system_remedy",
    "transaction",
    "upsert",
    "usable",
    "use_wal",
    "violated",
]
