"""The work of `sessions import`: a document, or each session of a folder of documents or of another system, once.

It opens the sessions in its own process, beside a server too: reading a large document would keep a server from its calls
for seconds.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ....server.config.model import Config
from ....server.exit_codes import FAILURE, OK
from ....server.gateway.gateway import Gateway
from ....server.operate.sessions import parse_owner, read_pages
from ....sessions.actions.document import Document, read_document
from ....sessions.actions.import_ import IMPORTED_FROM, cause_of_import
from ....sessions.clock import SystemClock
from ....sessions.errors import InvalidArgument, SessionError
from ....sessions.json_codec import JSON
from ....sessions.lifecycle import OPEN, Status
from ....sessions.node import Node
from ....sessions.one_line import plural
from ....sessions.records import LOCAL, HistoryFilter, Principal, SessionFilter, SessionRecord
from ....sessions.registry import Registry
from ....sessions.store.sql import SQLStore
from ....sessions.transitions.create import CreationOptions, timeouts_of
from ....sessions.wording import SHELL, next_step
from ....tools.foreign_file import read_foreign
from ....tools.processes.ledger import Ledger
from ...output import CommandError, plain, say, say_json
from ...parser import CommandLine
from ...progress import ProgressBar
from .agentscope import read_agentscope
from .agno import read_agno
from .foreign import DIGEST, FIRST_VERSION, Importable, Sessions, Unreadable

MAX_SESSIONS: Final = 1_000_000
MAX_BYTES: Final = 1 << 30
"""The most bytes of a document that is imported."""
REPORT: Final = {
    "imported": "imported",
    "updated": "imported again",
    "unchanged": "imported before",
    "skipped": "skipped",
}
"""The lists of a report, and their words for people."""


ADVICE: Final = {
    None: "name another folder",
    "agno": "name a database of agno's SqliteDb",
    "agentscope": "name a folder of JSONSession, or a database of SqliteSession",
}


async def import_session(config: Config, store: SQLStore, arguments: CommandLine) -> int:
    """Create a session from a file."""
    file = str(arguments.file)
    text = await anyio.to_thread.run_sync(_read_file, file)
    owner = Principal.of_key(parse_owner(arguments.owner) or LOCAL.key)
    with ProgressBar(f"importing {file}", is_json=arguments.json) as bar:
        async with _importing_registry(config, store) as registry:
            try:
                document = await anyio.to_thread.run_sync(read_document, text)
                imported_session = await registry.porting.import_session(
                    owner,
                    document,
                    name=arguments.name,
                    strict=not arguments.lenient,
                    report=bar.update,
                )
            except SessionError as error:
                advice = next_step(error.recovery, SHELL).replace("strict=false", "--lenient")
                message = f"{file}: {error.message} {advice}".strip()
                raise CommandError(error.code, message) from None
    record, origin = imported_session.record, document.session.id
    if arguments.json:
        summary: JSON = {
            "session_id": record.id,
            "name": record.name,
            "status": record.status.value,
        }
        say_json({**summary, "imported_from": origin, "left_out": imported_session.left_out})
        return OK
    name = f" ({plain(record.name)})" if record.name else ""
    say(f"{record.id}{name} is {record.status.value}, imported from {plain(origin)}")
    for part in imported_session.left_out:
        say(f"  left out: {plain(part)}")
    return OK


def _read_file(file: str) -> bytes:
    try:
        if file != "-":
            return read_foreign(Path(file), MAX_BYTES, any_kind=True)
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise OSError(0, f"it has more than {MAX_BYTES} bytes")
        return content
    except OSError as error:
        raise CommandError.usage(f"{file}: {error.strerror}; name another file") from None


async def import_foreign(config: Config, store: SQLStore, arguments: CommandLine) -> int:
    """Create a session for each session of another system, or each document of a folder, that has none yet."""
    if arguments.name is not None or (arguments.lenient and arguments.source is not None):
        raise CommandError.usage("--name is for one document, --lenient for documents")
    if (arguments.users or arguments.user) and arguments.source != "agentscope":
        raise CommandError.usage("--users and --user are for --from agentscope")
    if "://" in arguments.file:
        raise CommandError.usage("an import reads no database at an address; name a file or folder")
    source = Path(arguments.file)
    try:
        count, sessions = await anyio.to_thread.run_sync(_read, source, arguments)
    except (OSError, sqlite3.Error) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        advice = ADVICE[arguments.source]
        raise CommandError.usage(f"{source}: {problem}; {advice}") from None
    owner = Principal.of_key(parse_owner(arguments.owner) or LOCAL.key)
    async with _importing_registry(config, store) as registry:
        importer = _Importer(config, store, registry, owner, arguments)
        await importer.find_earlier_ones()
        importer.check_room(count, str(await anyio.Path(source).resolve()))
        done = 0
        with ProgressBar(f"importing {arguments.file}", is_json=arguments.json) as bar:
            async for session in _in_thread(sessions):
                await importer.add(session)
                done += 1
                bar.update(done, count)
    return _print(importer.report, count, arguments)


@asynccontextmanager
async def _importing_registry(config: Config, store: SQLStore) -> AsyncGenerator[Registry]:
    """Open the sessions of a store in this process, whose only work is the import: a document may take seconds to read.

    The registry sees no error of the block: its task group would wrap it.
    """
    address, stack = f"command line, pid {os.getpid()}", AsyncExitStack()
    try:
        membership = Node(store, config.data, address=address, clock=SystemClock().now)
        node = await stack.enter_async_context(membership)
        gateway = Gateway(config, store, node, Ledger(config.data, node=node.id))
        yield await stack.enter_async_context(gateway.registry)
    finally:
        await stack.aclose()


def _read(source: Path, arguments: CommandLine) -> tuple[int, Sessions]:
    if arguments.source is None:
        return _read_documents(source)
    source.stat()  # SQLite says of a missing file only that it cannot open it.
    if arguments.source == "agno":
        return read_agno(source)
    return read_agentscope(source, users=bool(arguments.users), named=arguments.user or ())


def _read_documents(folder: Path) -> tuple[int, Sessions]:
    """Return how many documents a folder has, and the sessions in the order of their creation, as export names the files.

    Raises:
        OSError: the folder cannot be read, or has none.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    if not files:
        raise OSError(0, "has no documents of sessions; for those of another system add --from")
    return len(files), _documents(files)


def _documents(files: list[Path]) -> Iterator[Importable | Unreadable]:
    for file in files:
        try:
            content = read_document(read_foreign(file, MAX_BYTES))
            about = content.session
            digest = about.metadata.get(DIGEST)
            yield Importable(file.name, about.id, about.name, digest, partial(_itself, content))
        except OSError as error:
            yield Unreadable(file.name, error.strerror or str(error))
        except (InvalidArgument, RecursionError) as error:
            yield Unreadable(file.name, str(error))


def _itself(content: Document, *_: object) -> Document:
    return content


async def _in_thread(sessions: Sessions) -> AsyncGenerator[Importable | Unreadable]:
    """Yield sessions, which are read from files, without blocking the event loop."""
    while (session := await anyio.to_thread.run_sync(next, sessions, None)) is not None:
        yield session


class _Importer:
    """Imports sessions one after the other, and reports each."""

    def __init__(
        self,
        config: Config,
        store: SQLStore,
        registry: Registry,
        owner: Principal,
        arguments: CommandLine,
    ) -> None:
        self.report: dict[str, list[JSON]] = {key: [] for key in REPORT}
        self._store = store
        self._registry = registry
        self._system = str(arguments.source)
        self._update = bool(arguments.update)
        self._is_strict = not arguments.lenient
        self._owner = owner
        self._policy = config.policy()
        self._clock = SystemClock()
        self._open = 0
        self._earlier: dict[object, SessionRecord] = {}

    async def find_earlier_ones(self) -> None:
        """Find the sessions that were imported before, closed ones too."""
        records, _ = await read_pages(
            self._store, SessionFilter(owner=self._owner.key), MAX_SESSIONS
        )
        # An open one counts before a closed one of the same origin.
        records.sort(key=lambda record: record.status in OPEN)
        self._open = sum(record.status in OPEN for record in records)
        self._earlier = {record.metadata.get(IMPORTED_FROM): record for record in records}

    def check_room(self, count: int, place: str) -> None:
        """Check that the owner may have `count` sessions of a place besides those that are open.

        Raises:
            CommandError: the limit would refuse some of them.
        """
        limits = self._registry.core.limits.of(self._owner.key)
        opened = [record for record in self._earlier.values() if record.status in OPEN]
        # Documents do not say where they were.
        here = sum(place in str(record.metadata.get(self._system, place)) for record in opened)
        needed = self._open + max(0, count - here)
        if limits.sessions and needed > limits.sessions:
            raise CommandError(
                "session_limit",
                f"{plural(self._open, 'session')} of the owner are open and {count - here} would come: {needed} are more "
                f"than {limits.name('sessions')} = {limits.sessions}; nothing was imported, raise that first",
            )

    async def add(self, session: Importable | Unreadable) -> None:
        """Import a session that was not imported before."""
        if isinstance(session, Unreadable):
            self._skip(session.source, session.reason)
            return
        earlier = self._earlier.get(session.origin)
        try:
            if earlier is None:
                await self._import(session, self.report["imported"])
            else:
                await self._compare(session, earlier)
        except SessionError as error:
            self._skip(session.source, error.message)
        except RecursionError:
            self._skip(session.source, "it is nested too deeply")

    async def _import(self, session: Importable, report: list[JSON]) -> None:
        timeouts = timeouts_of(self._policy, CreationOptions(name=session.name))
        now = self._clock.now()
        namespace = self._policy.namespace
        document = await anyio.to_thread.run_sync(session.document, timeouts, now, namespace)
        if document.fork is not None and document.fork.parent in self._earlier:
            document.fork.parent = self._earlier[document.fork.parent].id
        result = await self._registry.porting.import_session(
            self._owner, document, strict=self._is_strict
        )
        self._earlier[session.origin] = result.record
        report.append(
            {
                "source": session.source,
                **_identity(result.record),
                "left_out": [*session.left_out, *result.left_out],
            }
        )

    async def _compare(self, session: Importable, earlier: SessionRecord) -> None:
        if earlier.metadata.get(DIGEST) == session.digest:
            self.report["unchanged"].append({"source": session.source, **_identity(earlier)})
            return
        reason = f"it has changed since it was imported as {earlier.id}"
        if not await self._is_untouched(earlier):
            self._skip(session.source, f"{reason}, which was used here; delete that first")
        elif not self._update:
            self._skip(session.source, f"{reason}; add --update to import it again")
        else:
            changes = self._registry.rename_delete
            await changes.rename(self._owner, earlier.id, None)
            try:
                await self._import(session, self.report["updated"])
            except BaseException:
                await changes.rename(self._owner, earlier.id, earlier.name)
                raise
            await changes.delete(self._owner, earlier.id)

    async def _is_untouched(self, record: SessionRecord) -> bool:
        """Return whether an imported session was not used, renamed or closed since."""
        last = await self._store.history(record.id, HistoryFilter(limit=1))
        state = await self._store.state(record.id)
        origin = str(record.metadata.get(IMPORTED_FROM))
        return (
            record.status is Status.PAUSED
            and record.used_at <= record.status_at
            and (state is None or state.version == FIRST_VERSION)
            and bool(last)
            and cause_of_import(origin) in str(last[-1].request)
        )

    def _skip(self, source: str, reason: str) -> None:
        self.report["skipped"].append({"source": source, "reason": reason})


def _identity(record: SessionRecord) -> JSON:
    return {"session_id": record.id, "name": record.name, "namespace": record.namespace}


def _print(report: dict[str, list[JSON]], count: int, arguments: CommandLine) -> int:
    code = FAILURE if report["skipped"] else OK
    if arguments.json:
        say_json({"from": arguments.source or "statehold", **report})
        return code
    parts = [f"{len(report['imported'])} of {plural(count, 'session')} imported"]
    parts += [f"{len(report[key])} {REPORT[key]}" for key in list(REPORT)[1:] if report[key]]
    say(f"{plain(arguments.file)}: {', '.join(parts)}")
    for each in (*report["imported"], *report["updated"]):
        if each["left_out"]:
            say(f"  {plain(each['source'])}: without {plain(', '.join(each['left_out']))}")
    for each in report["skipped"]:
        say(f"  {plain(each['source'])} was skipped: {plain(each['reason'])}")
    return code
