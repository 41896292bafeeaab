"""Sessions as the API shows them: the list, one session, its journal, its state, its files."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from ..server.cluster.node_messages import encode
from ..server.gateway.gateway import Gateway
from ..server.operate.nodes import ANSWER_SECONDS
from ..server.operate.requests import OperatorRequest
from ..server.operate.sessions import SessionDocuments
from ..server.sockets.request import Refused
from ..sessions.actions.history import show_in_session
from ..sessions.errors import SessionError, SessionNotFound
from ..sessions.json_codec import JSON
from ..sessions.lifecycle import Event, Status
from ..sessions.live.session import LiveSession
from ..sessions.records import (
    HistoryFilter,
    JournalKind,
    JournalRecord,
    SessionDriver,
    SessionFilter,
    SessionOrder,
    SessionRecord,
    ShareRights,
)
from .logins import ConsoleUser
from .owner_calls import OwnerCalls
from .requests import ListQuery, TimelineQuery, parse_statuses
from .routes import SESSION, VIEW, ApiCall, json_response, not_found, route

PAGE_BYTES: Final = 48_000
"""Bytes of the items of a page."""
METADATA_BYTES: Final = 2_000
"""Metadata beyond this is left out of a list."""
ENTRY_BYTES: Final = 8_000
"""Members of a larger entry of a timeline are left out, those with more than MEMBER_BYTES."""
MEMBER_BYTES: Final = 1_000
MAX_OTHER_ENTRIES: Final = 1000
FAILURES: Final = frozenset({Event.CONNECTION_LOST, Event.OPEN_FAILED, Event.RECOVERY_FAILED})
"""The events of a session that the failures of its timeline include."""
MAX_SHARED: Final = 100
"""Most sessions of others that are listed."""
MAX_FORKS: Final = 50
"""Most siblings and most children that are listed."""
FORK_MEMBERS: Final = ("session_id", "name", "status", "created_at", "closed_at", "control")
LAST_ENTRIES: Final = 10
"""Entries of the journal that are shown with a session."""


class ConsoleSessions:
    """The sessions of the store, as far as they exist for the user of a request."""

    def __init__(self, gateway: Gateway, calls: OwnerCalls) -> None:
        self._store = gateway.store
        self._registry = gateway.registry
        self._calls = calls
        closes_idle = gateway.config.on_idle == "close"
        self.documents = SessionDocuments(
            gateway.store, gateway.config.data, closes_idle=closes_idle, send=self._ask_node
        )

    async def _ask_node(self, node: str, request: OperatorRequest) -> JSON:
        return await self._calls.ask_node(node, request, seconds=ANSWER_SECONDS)

    async def find(
        self, user: ConsoleUser, session_id: str, shared: ShareRights | None = None
    ) -> SessionRecord:
        """Return a session that exists for a user; with `shared`, also one that is shared with it with this right.

        Raises:
            SessionNotFound: unknown or foreign; nobody can tell them apart.
        """
        record = await self._store.get(session_id, user.owner)
        if record is None and shared is not None and user.grantees:
            owner = await self._registry.sharing.owner(session_id, user.grantees, shared)
            record = None if owner is None else await self._store.get(session_id, owner.key)
        elif record is None or not user.may_see(record):
            record = None
        if record is None or (
            record.owner in self._registry.core.revoked and not user.is_machine_user
        ):
            raise SessionNotFound
        return record

    async def find_for(self, call: ApiCall) -> SessionRecord:
        """Return the session of a request, as far as its route and its user allow.

        Raises:
            SessionNotFound: as find().
        """
        return await self.find(call.user, call.session_id, call.route.shared)

    async def shared(self, user: ConsoleUser) -> list[JSON]:
        """Return the sessions that others share with a user."""
        if not user.grantees:
            return []
        return await self._registry.sharing.shared_with(user.grantees, MAX_SHARED)

    async def shared_ids(self, user: ConsoleUser) -> set[str]:
        return {str(session["session_id"]) for session in await self.shared(user)}

    async def access(self, user: ConsoleUser, record: SessionRecord) -> str:
        """Return `owner`, or the right of a share by which a user sees a session. A link is as good as its login."""
        if user.owner in (None, record.owner):
            return "owner"
        sharing, grantees = self._registry.sharing, user.grantees
        is_used = await sharing.owner(record.id, grantees, ShareRights.USE) is not None
        return (ShareRights.USE if is_used else ShareRights.VIEW).value

    def find_here(self, session_id: str) -> LiveSession | None:
        """Return a session that this process owns."""
        sessions = self._registry.owned_sessions()
        return next((session for session in sessions if session.id == session_id), None)

    @route("GET", "/sessions", "List sessions", audience="guest")
    async def sessions(self, call: ApiCall, query: ListQuery) -> Response:
        user = call.user
        statuses = parse_statuses(query.status)
        order = SessionOrder(query.sort.removeprefix("-"))
        if user.session_id is not None:
            records, cursor = [await self.find(user, user.session_id)], None
        else:
            # Only the process that holds a session knows that it is active.
            stored = statuses | {Status.IDLE} if Status.ACTIVE in statuses else statuses
            session_filter = SessionFilter(
                owner=user.owner,
                statuses=sorted(stored),
                query=query.query,
                driver=None if query.driver is None else SessionDriver(query.driver),
                order=order,
                reverse=query.sort.startswith("-"),
                limit=query.limit,
                cursor=query.cursor,
            )
            records, cursor = await self._store.list_sessions(session_filter)
        documents = await self.documents.describe_all(records)
        page, is_cut = _fit(documents, statuses)
        if is_cut:
            cursor = _cursor_after(records[len(page) - 1], order)
        shown = [document for document in page if document["status"] in statuses]
        return json_response({"sessions": shown, "next_cursor": cursor})

    @route("GET", SESSION, "Show a session", audience="guest", shared=VIEW)
    async def session(self, call: ApiCall) -> Response:
        record = await self.find_for(call)
        document = await self.documents.show_record(record, LAST_ENTRIES)
        access = await self.access(call.user, record)
        if access != "owner" or call.user.is_guest:
            del document["shares"]
        if call.user.is_guest:
            access = "use" if call.user.rights == "control" else "view"
        try:
            held: JSON = await self._calls.call(record, "operator_processes")
            held |= await self._calls.call(record, "call_list")
        except (SessionError, Refused):
            # Its process does not answer; the document says so.
            held = {"processes": [], "calls": []}
        return json_response({**document, "access": access, "node": record.node, **held})

    @route("GET", f"{SESSION}/forks", "List its parent, its siblings and its children")
    async def forks(self, call: ApiCall) -> Response:
        record = await self.find_for(call)
        parent = (
            None if record.parent is None else await self._store.get(record.parent, record.owner)
        )
        siblings = [] if record.parent is None else await self._find_forks(record, record.parent)
        children = await self._find_forks(record, record.id)
        records = [each for each in (parent, *siblings, *children) if each is not None]
        documents = {
            str(document["session_id"]): {name: document[name] for name in FORK_MEMBERS}
            for document in await self.documents.describe_all(records)
        }
        return json_response(
            {
                "parent_id": record.parent,
                "parent": None if parent is None else documents[parent.id],
                "siblings": [documents[each.id] for each in siblings[:MAX_FORKS]],
                "children": [documents[each.id] for each in children[:MAX_FORKS]],
                "more": max(len(siblings), len(children)) > MAX_FORKS,
            }
        )

    async def _find_forks(self, record: SessionRecord, parent: str) -> list[SessionRecord]:
        """Return the other sessions that were forked from one."""
        forks = SessionFilter(
            owner=record.owner,
            parent=parent,
            order=SessionOrder.CREATED,
            limit=MAX_FORKS + 2,
        )
        records, _ = await self._store.list_sessions(forks)
        return [each for each in records if each.id != record.id][: MAX_FORKS + 1]

    @route(
        "GET", f"{SESSION}/timeline", "Read its journal, newest last", audience="guest", shared=VIEW
    )
    async def timeline(self, call: ApiCall, query: TimelineQuery) -> Response:
        record = await self.find_for(call)
        if query.failed:
            entries = await self._read_failures(record, query.before, query.limit + 1)
        else:
            kinds = None if query.kind is None else [query.kind]
            entries = await self.read(
                record, HistoryFilter(before=query.before, kinds=kinds, limit=query.limit + 1)
            )
        page: list[JSON] = []
        room = PAGE_BYTES
        for entry in reversed(entries[-query.limit :]):
            document = self._show_entry(record, entry)
            size = len(encode(document))
            if size > ENTRY_BYTES:
                document = _shorten(document)
                size = len(encode(document))
            room -= size
            if room < 0 and page:
                break
            page.insert(0, document)
        before = page[0]["seq"] if page and len(page) < len(entries) else None
        return json_response({"session_id": record.id, "entries": page, "next_before": before})

    @route(
        "GET",
        f"{SESSION}/timeline/{{seq}}",
        "Read one entry in full",
        audience="guest",
        shared=VIEW,
    )
    async def entry(self, call: ApiCall) -> Response:
        record = await self.find_for(call)
        seq = call.parameter("seq")
        newest = HistoryFilter(before=int(seq) + 1, limit=1) if _is_position(seq) else None
        entries = await self.read(record, newest) if newest else []
        if not entries or entries[0].seq != int(seq):
            raise not_found()
        return json_response(self._show_entry(record, entries[0]))

    async def read(
        self, record: SessionRecord, history_filter: HistoryFilter
    ) -> list[JournalRecord]:
        """Return entries of a session's journal, after those that wait in this process are written."""
        if self.find_here(record.id) is not None:
            await self._store.flush()
        return await self._store.history(record.id, history_filter)

    async def _read_failures(
        self, record: SessionRecord, before: int | None, limit: int
    ) -> list[JournalRecord]:
        """Return failed calls and runs, and the transitions of a lost or failed connection."""
        calls = await self.read(
            record,
            HistoryFilter(before=before, kinds=[JournalKind.CALL], failed=True, limit=limit),
        )
        other = HistoryFilter(
            before=before, kinds=[JournalKind.TRANSITION, JournalKind.RUN], limit=MAX_OTHER_ENTRIES
        )
        others = await self.read(record, other)
        # Below the oldest of a full page there may be more.
        start = others[0].seq if len(others) == MAX_OTHER_ENTRIES else 0
        found = [*calls, *(entry for entry in others if _has_failed(entry))]
        found.sort(key=lambda entry: entry.seq)
        return [entry for entry in found if entry.seq >= start][-limit:]

    def _show_entry(self, record: SessionRecord, entry: JournalRecord) -> JSON:
        facts: JSON = {} if entry.facts is None else {"facts": entry.facts}
        return {**show_in_session(entry, record, self.find_here(record.id)), **facts}

    @route(
        "GET", f"{SESSION}/stderr", "Read the stderr of its programs", audience="guest", shared=VIEW
    )
    async def stderr(self, call: ApiCall) -> Response:
        record = await self.find_for(call)
        return json_response(await self._calls.call(record, "operator_stderr"))

    @route("GET", f"{SESSION}/files", "List its files", audience="guest", shared=VIEW)
    async def files(self, call: ApiCall) -> Response:
        record = await self.find_for(call)
        return json_response(await self._calls.call(record, "operator_files"))

    @route(
        "GET",
        f"{SESSION}/files/{{name}}",
        "Read one of its files",
        audience="guest",
        shared=VIEW,
        answer="file",
    )
    async def file(self, call: ApiCall) -> Response:
        record = await self.find_for(call)
        name = call.parameter("name")
        listed = await self._calls.call(record, "operator_files")
        if name not in [file["name"] for file in listed["files"]]:
            raise not_found()
        content = await self._calls.call(record, "operator_file", name=name)
        # A page of a file must not run as one of ours.
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
        data = base64.b64decode(content["data"])
        return Response(data, media_type=str(content["mime"]), headers=headers)


def _fit(documents: Sequence[JSON], statuses: set[Status]) -> tuple[list[JSON], bool]:
    """Return the first documents that fit into a page, and whether there are more of them."""
    page: list[JSON] = []
    room = PAGE_BYTES
    for document in documents:
        if len(encode(document["metadata"])) > METADATA_BYTES:
            document = document | {"metadata": dict[str, str](), "metadata_cut": True}
        if document["status"] in statuses:
            room -= len(encode(document))
        if room < 0 and page:
            return page, True
        page.append(document)
    return page, False


def _cursor_after(record: SessionRecord, order: SessionOrder) -> str:
    # Imported here: the process starts before it needs the database library.
    from ..sessions.store.session_queries import cursor_after

    return cursor_after(record, order)


def _shorten(entry: JSON) -> JSON:
    """Return an entry without its large members, and their names as `cut`."""
    cut = [name for name, value in entry.items() if len(encode({"": value})) > MEMBER_BYTES]
    return {**{name: value for name, value in entry.items() if name not in cut}, "cut": cut}


def _has_failed(entry: JournalRecord) -> bool:
    if entry.kind is JournalKind.RUN:
        return entry.status == "error"
    return entry.request.get("event") in FAILURES


def _is_position(text: str) -> bool:
    return text.isdecimal() and len(text) < 19
