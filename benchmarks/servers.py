"""The database servers of the tests, here with each write on the disk before it is acknowledged; and their task client."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from .plan import TESTS

# The tests are no part of the installed package.
sys.path.append(str(TESTS))

from support.databases import DatabaseServer, MariaDB, PostgreSQL, program_path
from support.task_client import TaskClient, task_client

SERVERS: dict[str, type[DatabaseServer]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}


@contextmanager
def running(kind: str) -> Generator[str | None]:
    """Yield the URL of a new database on a server that runs as long as the block, None where it is not installed."""
    server_class = SERVERS[kind]
    if not server_class.installed():
        yield None
        return
    server = server_class(durable=True)
    try:
        yield server.fresh()
    finally:
        server.stop()


__all__ = ["PostgreSQL", "TaskClient", "program_path", "running", "task_client"]
