"""Sessions of a store as JSON documents, as the processes that hold them report them."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ...sessions.errors import InvalidArgument, SessionError, SessionNotFound, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import OPEN, Status
from ...sessions.records import LABELS, LOCAL, JournalRecord, SessionFilter, SessionRecord
from ...sessions.times import timestamp
from ...sessions.views import describe, describe_binding, describe_share, expiry
from ...sessions.wording import did_you_mean
from ...tools.own.own_tool import parse_time
from ..sockets.local_socket import send_content, send_error
from .nodes import LiveNodes, Send

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

PAGE: Final = 500
SECONDS: Final = 30.0
"""Seconds that a document may take."""

logger = logging.getLogger("statehold.server")


class SessionDocuments:
    """The documents of one store. `data` is the data folder of the processes that are asked, unless `send` asks them."""

    def __init__(
        self, store: SQLStore, data: Path, *, closes_idle: bool, send: Send | None = None
    ) -> None:
        self._store = store
        self._data = data
        self._closes_idle = closes_idle
        self._send = send

    async def list(self, arguments: Mapping[str, Any]) -> JSON:
        """Return the sessions that fit the arguments of `statehold sessions list`, those that were used last first.

        Raises:
            InvalidArgument: an argument is malformed.
        """
        wanted = [Status(name) for name in arguments.get("status") or ()]
        statuses = set(wanted)
        if not statuses and not arguments.get("all"):
            statuses = {*OPEN, Status.CLOSING}
        if Status.ACTIVE in statuses:
            # Only the process that holds a session knows that it is active.
            statuses.add(Status.IDLE)
        session_filter = SessionFilter(
            owner=parse_owner(arguments.get("owner")),
            statuses=sorted(statuses) or None,
            **filter_fields(arguments),
        )
        records, has_more = await read_pages(
            self._store, session_filter, int(arguments.get("limit") or PAGE)
        )
        sessions = await self.describe_all(records)
        if wanted:
            sessions = [session for session in sessions if session["status"] in wanted]
        return {"sessions": sessions, "more": has_more}

    async def describe_all(self, records: Sequence[SessionRecord]) -> list[JSON]:
        """Return the descriptions of some sessions in a list, with what their owners report."""
        live = LiveNodes(self._data, await self._store.nodes(), self._send)
        await live.ask((record.node for record in records), [record.id for record in records])
        return [self._describe(live.merge_report(record), live) for record in records]

    async def show(self, ref: str, last: int) -> JSON:
        """Return one session with its services, the end of its journal, and the stderr of its programs.

        Raises:
            SessionNotFound: there is none with this id or name.
            InvalidArgument: several have the name.
        """
        return await self.show_record(await find_record(self._store, ref), last)

    async def show_record(self, record: SessionRecord, last: int) -> JSON:
        """Return one session as show() does."""
        live = LiveNodes(self._data, await self._store.nodes(), self._send)
        await live.ask([record.node], [record.id])
        record = live.merge_report(record)
        entries = await self._store.journal(record.id, last=last)
        bindings = live.bindings(record.id)
        if bindings is None:
            stored_bindings = await self._store.bindings(record.id)
            bindings = [describe_binding(binding) for binding in stored_bindings]
        state = await self._store.state(record.id)
        shares = await self._store.access.shares(record.id, time.time())
        return {
            **self._describe(record, live),
            "services": bindings,
            "state_version": state.version if state else 0,
            "shares": [describe_share(share) for share in shares],
            "journal": [_describe_entry(entry) for entry in entries],
            "stderr": await live.stderr(record),
        }

    def _describe(self, record: SessionRecord, live: LiveNodes) -> JSON:
        return {
            **describe_for_user(record, closes_idle=self._closes_idle),
            "services": record.services,
            "open_services": live.open_services(record),
            "open_in": live.describe_node(record.node),
        }


def describe_for_user(record: SessionRecord, *, closes_idle: bool) -> JSON:
    """Return a record as the user of the processes sees it: with its owner, and the moments of its clocks."""
    # A call does not store its changes of the status.
    is_idle = record.status is Status.IDLE
    since = max(record.status_at, record.used_at) if is_idle else record.status_at
    if record.status is Status.CLOSED:
        ends_at = record.due_at
    else:
        ends_at = expiry(record, record.status, record.used_at, closes_idle=closes_idle)
    return {
        **describe(record, record.status, record.used_at, closes_idle=closes_idle),
        "since": timestamp(since),
        "ends_at": timestamp(ends_at),
        "owner": show_owner(record),
    }


def _describe_entry(entry: JournalRecord) -> JSON:
    times = {"started_at": timestamp(entry.started_at), "ended_at": timestamp(entry.ended_at)}
    return {**entry.model_dump(mode="json"), **times}


class SessionsVerb:
    """The handler of the verb `sessions` of a local socket: `{"action": "list" | "show", "arguments": {...}}`."""

    def __init__(self, documents: SessionDocuments) -> None:
        self._documents = documents

    async def __call__(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                with anyio.fail_after(SECONDS):
                    content = await self._read(members)
            except SessionError as error:
                await send_error(connection, error.code, error.message, error.recovery)
            except (StoreUnavailable, TimeoutError) as error:
                await send_error(
                    connection, "store_unavailable", str(error) or "It took too long.", ""
                )
            else:
                await send_content(connection, content)

    async def _read(self, members: JSON) -> JSON:
        arguments: object = members.get("arguments")
        given = cast("JSON", arguments) if isinstance(arguments, dict) else {}
        if members.get("action") == "show":
            return await self._documents.show(str(given.get("ref")), int(given.get("last") or 10))
        return await self._documents.list(given)


def filter_fields(arguments: Mapping[str, Any]) -> JSON:
    """Return the fields of a list's filter.

    Raises:
        InvalidArgument: a field is malformed.
    """
    flags = {label: arguments.get(label.removesuffix("_id")) for label in LABELS}
    labels = {label: value for label, value in flags.items() if value is not None}
    metadata = arguments.get("metadata")
    return {
        "name_prefix": arguments.get("name"),
        "labels": labels or None,
        "metadata": None if metadata is None else parse_metadata(metadata),
        "updated_since": parse_time(arguments.get("since"), "--since"),
        "query": arguments.get("query"),
    }


def parse_metadata(text: str) -> JSON:
    """Read the value of --metadata.

    Raises:
        InvalidArgument: it is no JSON object.
    """
    try:
        metadata: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"--metadata: this is not JSON ({error}); quote it") from None
    if not isinstance(metadata, dict):
        raise InvalidArgument("--metadata: should be an object, in braces")
    return cast("JSON", metadata)


def show_owner(record: SessionRecord) -> str:
    """Return an owner for display: the subject alone, unless it has an issuer."""
    return record.owner.removeprefix(":")


def parse_owner(text: str | None) -> str | None:
    """Return the key of an owner that is given as show_owner() returns it."""
    if text is None or re.match(r":|\d+\.\d+:", text):
        return text
    return f":{text}"


async def read_pages(
    store: SQLStore, session_filter: SessionFilter, limit: int
) -> tuple[list[SessionRecord], bool]:
    """Return the first `limit` sessions of a filter, and whether there are more."""
    records: list[SessionRecord] = []
    cursor: str | None = None
    while len(records) < limit:
        size = min(PAGE, limit - len(records))
        page = session_filter.model_copy(update={"limit": size, "cursor": cursor})
        page_records, cursor = await store.list_sessions(page)
        records += page_records
        if cursor is None:
            break
    return records, cursor is not None


MAX_NAMES: Final = 1000
"""Sessions whose names are compared with an unknown one."""


async def find_record(store: SQLStore, ref: str) -> SessionRecord:
    """Return the session with an id or a name. Of several with the name: the open one, of the local user if possible.

    Raises:
        SessionNotFound: there is none.
        InvalidArgument: the name is ambiguous.
    """
    record = await store.get(ref)
    if record is not None:
        return record
    matches, _ = await read_pages(store, SessionFilter(name_prefix=ref), 10_000)
    matches = [record for record in matches if record.name == ref]
    for choice in (
        [r for r in matches if r.status is not Status.CLOSED and r.owner == LOCAL.key],
        [r for r in matches if r.status is not Status.CLOSED],
        matches,
    ):
        if len(choice) == 1:
            return choice[0]
        if choice:
            ids = ", ".join(r.id for r in choice[:5])
            raise InvalidArgument(
                f"{ref} is the name of {len(choice)} sessions; give the id: {ids}"
            )
    records, _ = await read_pages(store, SessionFilter(), MAX_NAMES)
    hint = did_you_mean(ref, [record.name for record in records if record.name])
    raise SessionNotFound(f"There is no session {ref:.128}.{hint}")
