"""Real servers of PostgreSQL and MariaDB, each in a temporary folder and reachable only through a socket in it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar

from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from .waiting import until_blocking

START_SECONDS = 30


class DatabaseServer:
    """A server that is started when it is first needed, and stopped by `stop`.

    `durable` lets it wait for the disk, as a server that is not for tests does.
    """

    accounts: tuple[str, ...]
    """Accounts that may run the server when the tests run as root, because it refuses to run as root."""
    program: str
    driver: str
    signal = "TERM"
    """The signal that ends the server when the tests are killed."""
    options: ClassVar[dict[str, object]] = {}

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._shared: str | None = None

    @property
    def folder(self) -> Path:
        assert self._folder is not None, "it was not started"
        return self._folder

    @property
    def _environment(self) -> dict[str, str]:
        # MariaDB, when it starts, removes the temporary tables of every other one that has the same folder for them.
        return {**os.environ, "TMPDIR": str(self.folder)}

    @classmethod
    def installed(cls) -> bool:
        return _find_program(cls.program) is not None

    def start(self) -> None:
        """Make its files, unless there are some, run it and wait until it answers. Idempotent."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="statehold-db-"))
            self._give_away(self._folder)
            result = subprocess.run(
                self._as_account(self._making()),
                capture_output=True,
                cwd="/",
                env=self._environment,
                check=False,
            )
            assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
        if self._process is None:
            self._run()

    def _run(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_account(self._running()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self._environment,
            )
        process = self._process
        until_blocking(lambda: self._answers() or process.poll() is not None, within=START_SECONDS)
        assert process.poll() is None, (self.folder / "log").read_text()

    def _answers(self) -> bool:
        try:
            with self._admin():
                return True
        except OperationalError:
            return False

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            # PostgreSQL ends its own children on SIGQUIT, at once and without tidying up.
            self._process.send_signal(3 if self.driver.startswith("postgresql") else 9)
            self._process.wait(10)
            self._process = None

    def stop(self) -> None:
        """End it and remove its files. Idempotent."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def disconnect(self) -> None:
        """Close all client connections, as a server does with those that are idle for long."""
        with self._admin() as connection:
            for number in connection.execute(text(self._others)).scalars().all():
                connection.execute(text(self._disconnecting.format(int(number))))

    def fresh(self) -> str:
        """Return the URL of a new database."""
        self.start()
        name = f"test_{next(self._numbers)}"
        with self._admin() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        return self.url(name)

    def emptied(self) -> str:
        """Return the URL of the one database that tests share, without the rows of the test before."""
        if self._shared is None:
            self._shared = self.fresh()
            return self._shared
        with self.connection(self._shared) as connection:
            for name in self._tables(connection):
                if name != "alembic_version":
                    connection.execute(text(f"DELETE FROM {name}"))
        return self._shared

    @contextmanager
    def connection(self, url: str) -> Generator[Connection]:
        """A connection of our own to a database, every statement of which counts at once."""
        scheme, _, rest = url.partition("://")
        engine = create_engine(
            f"{scheme}+{self.driver.partition('+')[2]}://{rest}",
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args=self.options,
        )
        with engine.connect() as connection:
            yield connection

    def _tables(self, connection: Connection) -> list[str]:
        schema = "current_schema()" if self.driver.startswith("postgresql") else "DATABASE()"
        query = f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}"
        return [str(name) for name in connection.execute(text(query)).scalars()]

    @contextmanager
    def _admin(self) -> Generator[Connection]:
        with self.connection(self.url(self._first)) as connection:
            yield connection

    def _give_away(self, folder: Path) -> None:
        if os.geteuid() == 0:
            account = self._account()
            os.chown(folder, account.pw_uid, account.pw_gid)

    def _account(self) -> pwd.struct_passwd:
        accounts = {account.pw_name: account for account in pwd.getpwall()}
        return next(accounts[name] for name in (*self.accounts, "nobody") if name in accounts)

    def _as_account(self, command: list[str]) -> list[str]:
        if os.geteuid() != 0:
            return command
        account = self._account()
        ids = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        ending = [f"--pdeathsig={self.signal}"] if sys.platform == "linux" else []
        return ["setpriv", *ids, *ending, *command]

    # Differences between the servers.

    _first: str
    """A database that is there from the beginning."""
    _others: str
    """The query for all connections except the one that asks."""
    _disconnecting: str

    def url(self, database: str) -> str:
        raise NotImplementedError

    def _making(self) -> list[str]:
        raise NotImplementedError

    def _running(self) -> list[str]:
        raise NotImplementedError


class PostgreSQL(DatabaseServer):
    accounts = ("postgres",)
    program = "initdb"
    driver = "postgresql+psycopg"
    signal = "INT"
    _first = "postgres"
    _others = (
        "SELECT pid FROM pg_stat_activity WHERE usename = 'statehold' AND pid <> pg_backend_pid()"
    )
    _disconnecting = "SELECT pg_terminate_backend({}, 5000)"

    def url(self, database: str) -> str:
        return f"postgresql://statehold@/{database}?host={self.folder}"

    def _making(self) -> list[str]:
        options = ["--auth=trust", "--username=statehold", "--encoding=UTF8", "--locale=C"]
        return [program_path("initdb"), "-D", f"{self.folder}/data", "--no-sync", *options]

    def _running(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "32MB",
            "fsync": "on" if self._durable else "off",
            "autovacuum": "on" if self._durable else "off",
        }
        arguments = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [program_path("postgres"), "-D", f"{self.folder}/data", *arguments]


class MariaDB(DatabaseServer):
    accounts = ("mysql",)
    program = "mariadbd"
    driver = "mysql+pymysql"
    options: ClassVar[dict[str, object]] = {"ssl_disabled": True}
    _first = "mysql"
    _others = "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()"
    _disconnecting = "KILL {}"

    def url(self, database: str) -> str:
        return f"mysql://root@localhost/{database}?unix_socket={self.folder}/socket"

    def _answers(self) -> bool:
        # PyMySQL leaves its socket open when no server listens.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(f"{self.folder}/socket") == 0 and super()._answers()

    def _making(self) -> list[str]:
        options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        return [
            *(program_path("mariadb-install-db"), "--no-defaults", *options),
            f"--datadir={self.folder}/data",
        ]

    def _running(self) -> list[str]:
        return [
            *(program_path("mariadbd"), "--no-defaults", f"--datadir={self.folder}/data"),
            *("--skip-networking", f"--socket={self.folder}/socket"),
            *(f"--pid-file={self.folder}/pid", "--skip-log-bin", "--innodb-buffer-pool-size=32M"),
            f"--innodb-flush-log-at-trx-commit={1 if self._durable else 2}",
        ]


def program_path(name: str) -> str:
    path = _find_program(name)
    assert path is not None, f"there is no {name}; python tests/peers/install.py installs it"
    return path


def _find_program(name: str) -> str | None:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        paths = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        path = str(paths[-1]) if paths else None
    return path
