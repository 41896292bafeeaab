"""The database servers of the tests, here with every write on the disk before it is acknowledged."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from .plan import DATABASES


@contextmanager
def running(kind: str) -> Generator[str | None]:
    """Yield the URL of a new database on a server that runs as long as the block, None where it is not installed."""
    spec = spec_from_file_location("databases", DATABASES)
    assert spec is not None
    assert spec.loader is not None
    databases: Any = module_from_spec(spec)
    spec.loader.exec_module(databases)
    server_class = {"postgresql": databases.PostgreSQL, "mariadb": databases.MariaDB}[kind]
    if not server_class.installed():
        yield None
        return
    server = server_class(durable=True)
    try:
        yield server.fresh()
    finally:
        server.stop()
