"""The work of `statehold sessions import --from`: each session is imported once, however often the command runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio.to_thread

from .....sessions.actions.import_ import IMPORTED_FROM
from .....sessions.clock import SystemClock
from .....sessions.errors import SessionError
from .....sessions.json_codec import JSON
from .....sessions.lifecycle import OPEN
from .....sessions.plural import plural
from .....sessions.records import LOCAL, Principal, SessionFilter, SessionRecord
from .....sessions.registry import Registry
from .....sessions.store.sql import SQLStore
from .....sessions.transitions.create import CreationOptions, timeouts_of
from ....config.model import Config
from ....control.sessions import parse_owner, read_pages
from ....exit_codes import FAILURE, OK
from ...command_line import CommandLine
from ...errors import CommandError
from ...output import plain, say, say_json
from ...progress import ProgressBar
from ..tool_calls import ToolCaller
from .agentscope import read_agentscope
from .agno import read_agno
from .foreign import DIGEST, ForeignSession, Sessions, Unreadable

MOST = 1_000_000


@dataclass(slots=True)
class _Report:
    imported: list[JSON] = field(default_factory=list[JSON])
    unchanged: list[JSON] = field(default_factory=list[JSON])
    skipped: list[JSON] = field(default_factory=list[JSON])


async def import_foreign(config: Config, store: SQLStore, arguments: CommandLine) -> int:
    """Create a session for each session of another system that has none yet."""
    if arguments.name is not None or arguments.lenient:
        raise CommandError.usage("--name and --lenient are for one document, not with --from")
    if arguments.users and arguments.source != "agentscope":
        raise CommandError.usage("--users is for --from agentscope")
    source = Path(arguments.file)
    read = (
        partial(read_agentscope, source, users=bool(arguments.users))
        if arguments.source == "agentscope"
        else partial(read_agno, source)
    )
    count, sessions = await anyio.to_thread.run_sync(read)
    owner = Principal.of_key(parse_owner(arguments.owner) or LOCAL.key)
    async with ToolCaller(config, store) as caller:
        importer = _Importer(config, await caller.open_registry({}), owner)
        await importer.find_earlier_ones(store)
        done = 0
        with ProgressBar(f"importing {arguments.file}", is_json=arguments.json) as bar:
            async for session in _in_thread(sessions):
                await importer.add(session)
                done += 1
                bar.update(done, count)
    return _print(importer.report, count, arguments)


async def _in_thread(sessions: Sessions) -> AsyncGenerator[ForeignSession | Unreadable]:
    """Yield sessions, which are read from files, without blocking the event loop."""
    while (session := await anyio.to_thread.run_sync(next, sessions, None)) is not None:
        yield session


class _Importer:
    """Imports sessions one after the other, and reports each."""

    def __init__(self, config: Config, registry: Registry, owner: Principal) -> None:
        self.report = _Report()
        self._registry = registry
        self._owner = owner
        self._policy = config.policy()
        self._clock = SystemClock()
        self._earlier: dict[object, SessionRecord] = {}

    async def find_earlier_ones(self, store: SQLStore) -> None:
        """Find the sessions that were imported before, closed ones too."""
        records, _ = await read_pages(store, SessionFilter(owner=self._owner.key), MOST)
        # An open one counts before a closed one of the same origin.
        records.sort(key=lambda record: record.status in OPEN)
        self._earlier = {record.metadata.get(IMPORTED_FROM): record for record in records}

    async def add(self, session: ForeignSession | Unreadable) -> None:
        """Import a session that was not imported before."""
        if isinstance(session, Unreadable):
            self._skip(session.source, session.reason)
            return
        earlier = self._earlier.get(session.origin)
        try:
            if earlier is None:
                await self._import(session)
            else:
                self._compare(session, earlier)
        except SessionError as error:
            self._skip(session.source, error.message)
        except RecursionError:
            self._skip(session.source, "it is nested too deeply")

    async def _import(self, session: ForeignSession) -> None:
        timeouts = timeouts_of(self._policy, CreationOptions(name=session.name))
        now = self._clock.now()
        document = await anyio.to_thread.run_sync(session.document, timeouts, now)
        result = await self._registry.porting.import_session(self._owner, document)
        self.report.imported.append(
            {
                "source": session.source,
                **_identity(result.record),
                "left_out": [*session.left_out, *result.left_out],
            }
        )

    def _compare(self, session: ForeignSession, earlier: SessionRecord) -> None:
        if earlier.metadata.get(DIGEST) == session.digest:
            self.report.unchanged.append({"source": session.source, **_identity(earlier)})
            return
        reason = (
            f"it has changed since it was imported as {earlier.id}; delete that to import it again"
        )
        self._skip(session.source, reason)

    def _skip(self, source: str, reason: str) -> None:
        self.report.skipped.append({"source": source, "reason": reason})


def _identity(record: SessionRecord) -> JSON:
    return {"session_id": record.id, "name": record.name, "namespace": record.namespace}


def _print(report: _Report, count: int, arguments: CommandLine) -> int:
    code = FAILURE if report.skipped else OK
    if arguments.json:
        say_json(
            {
                "from": arguments.source,
                "imported": report.imported,
                "unchanged": report.unchanged,
                "skipped": report.skipped,
            }
        )
        return code
    parts = [f"{len(report.imported)} of {plural(count, 'session')} imported"]
    if report.unchanged:
        parts.append(f"{len(report.unchanged)} imported before")
    if report.skipped:
        parts.append(f"{len(report.skipped)} skipped")
    say(f"{plain(arguments.file)}: {', '.join(parts)}")
    for each in report.imported:
        if each["left_out"]:
            say(f"  {plain(each['source'])}: without {plain(', '.join(each['left_out']))}")
    for each in report.skipped:
        say(f"  {plain(each['source'])} was skipped: {plain(each['reason'])}")
    return code


__all__ = ["import_foreign"]
