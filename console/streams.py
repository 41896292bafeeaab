"""The responses that send until the client leaves or its login ends, and server-sent events of sessions and notices."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..server.asgi import cancel_when_left
from ..server.cluster.node_messages import encode
from ..server.gateway.gateway import Gateway
from ..server.operate.change_log import SessionChange, SessionChangeLog
from ..server.operate.nodes import ANSWER_SECONDS
from ..server.operate.requests import OperatorRequest, ProcessUnavailable
from ..server.sockets.request import Refused
from ..sessions.calls.approval import title_of
from ..sessions.errors import SessionLimit, SessionNotFound, StoreUnavailable
from ..sessions.json_codec import JSON
from ..sessions.one_line import plain_name, plural
from ..sessions.records import SessionRecord, ShareRights
from ..sessions.store.base import ApprovalState
from ..sessions.store.events.records import REASONS, Reason
from .logins import CHECK_SECONDS, ConsoleUser, Login, Logins
from .owner_calls import OwnerCalls
from .routes import ApiCall, error_response, route
from .server_documents import count_changes
from .session_documents import ConsoleSessions

SendPart = Callable[[bytes], Awaitable[None]]
Check = Callable[[], Awaitable[bool]]

COLLECT_SECONDS: Final = 0.1
"""Seconds from a change to its event: the effects of one action come together."""
INTERVAL_SECONDS: Final = 0.4
"""Shortest time between two reads of changed sessions by one stream, and so between two events of a session."""
OTHER_NODES_SECONDS: Final = 2.0
"""Seconds between two questions to the other nodes, and between two reads of the shares of a person."""
COMMENT_SECONDS: Final = 15.0
NOTICE_SECONDS: Final = 2.0
"""Seconds between two reads of the notices for a person."""
MAX_NOTICES: Final = 20
"""Notices of one reason for a person."""


class LoginStream(Response):
    """A response of unknown length. It ends at the latest when the login expires.

    A subclass sends the parts; the response ends when it returns, or earlier with the client or the login. `owner` is the
    key of the owner of a guest's session. A person with too many streams gets `session_limit` instead.
    """

    def __init__(
        self,
        media_type: str,
        logins: Logins,
        login: Login,
        owner: str,
        check: Check | None = None,
    ) -> None:
        """`check` tells whether the user may still have it, and is asked all the time; without one, it may."""
        super().__init__(media_type=media_type)
        self._check = check
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._logins = logins
        self._login = login
        self._owner = owner
        self._seconds = login.expires_at - logins.clock()

    async def send_parts(self, send: SendPart) -> None:
        """Send the parts of the body."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._logins.stream(self._login, self._owner))
            except SessionLimit as error:
                await error_response(error)(scope, receive, send)
                return
            await self.answer(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""

        async def send_part(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
            tasks.start_soon(self._cancel_when_ended, tasks.cancel_scope)
            if self._check is not None:
                tasks.start_soon(_cancel_when_refused, self._check, tasks.cancel_scope)
            await self.send_parts(send_part)
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cancel_when_ended(self, scope: anyio.CancelScope) -> None:
        with anyio.move_on_after(self._seconds):
            await self._login.ended.wait()
        scope.cancel()


async def _cancel_when_refused(check: Check, scope: anyio.CancelScope) -> None:
    while True:
        if not await check():
            scope.cancel()
        await anyio.sleep(CHECK_SECONDS)


class EventHandlers:
    """The streams of events. Nothing runs while nobody follows one."""

    def __init__(
        self, gateway: Gateway, sessions: ConsoleSessions, calls: OwnerCalls, logins: Logins
    ) -> None:
        self._sessions = sessions
        self._logins = logins
        self._notices = PersonNotices(gateway)
        self._log = SessionChangeLog(gateway.registry)
        self._other_nodes = OtherNodes(gateway, calls, self._log)

    @route(
        "GET",
        "/events",
        "Follow changes of sessions as server-sent events",
        audience="guest",
        answer="events",
    )
    async def events(self, call: ApiCall) -> Response:
        login = call.require_login()
        user, owner = login.user, login.user.owner or ""
        if user.session_id is not None:
            owner = (await self._sessions.find(user, user.session_id)).owner
        changes = FollowedSessions(self._log, self._sessions, user)
        read = None if user.is_guest else partial(self._notices.read, user)
        return EventStream(changes, self._other_nodes, read, self._logins, login, owner)


class PersonNotices:
    """The notices for each person who follows streams, read once for all of them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._reading = anyio.Lock()
        self._found: dict[tuple[str | None, bool], tuple[float, list[JSON]]] = {}
        """By owner and role, those that were read within NOTICE_SECONDS."""

    async def read(self, user: ConsoleUser) -> list[JSON]:
        """Return the notices for a user: calls that wait for approval, logins that need their person, changed tools.

        Raises:
            StoreUnavailable: they cannot be read.
        """
        key = (user.owner, user.has_role("operator"))
        async with self._reading:
            now = anyio.current_time()
            recent = self._found.items()
            self._found = {each: one for each, one in recent if now - one[0] < NOTICE_SECONDS}
            if key not in self._found:
                self._found[key] = (now, await self._read(*key))
            return self._found[key][1]

    async def _read(self, owner: str | None, is_operator: bool) -> list[JSON]:
        store, now = self._gateway.store, self._gateway.registry.core.clock.now()
        approvals = await store.access.open_approvals(owner, now)
        waiting = [each for each in approvals if each.state == ApprovalState.PENDING][:MAX_NOTICES]
        notices = [
            _notice("approval_needed", each.id, title_of(each), f"approvals/{each.id}")
            for each in reversed(waiting)
        ]
        for login in await store.logins.that_need_human(owner, MAX_NOTICES):
            key = f"{login.owner} {login.name} {login.since}"
            notices.append(_notice("login_needed", key, plain_name(login.name), "logins"))
        if is_operator:
            for service, count in (await count_changes(self._gateway)).items():
                words = f"{service}: {plural(count, 'change')}"
                notices.append(_notice("tool_changed", f"{service} {count}", words, "services"))
        return notices


def _notice(reason: Reason, key: str, words: str, page: str) -> JSON:
    return {
        "reason": reason,
        "key": f"{reason} {key}",
        "text": REASONS[reason],
        "words": words,
        "page": page,
    }


class OtherNodes:
    """Notes the changes of the sessions of other nodes in a log, once for all streams of this process."""

    def __init__(self, gateway: Gateway, calls: OwnerCalls, log: SessionChangeLog) -> None:
        self._gateway = gateway
        self._calls = calls
        self._log = log
        self._numbers: dict[str, int] = {}
        """The number of the last change that each node has told."""
        self._asking = anyio.Lock()
        self._asked_at = -math.inf

    async def keep_asking(self) -> None:
        """Ask until cancelled."""
        while True:
            await anyio.sleep(OTHER_NODES_SECONDS)
            await self.ask()

    async def ask(self) -> None:
        """Ask the other nodes, unless another stream did within OTHER_NODES_SECONDS."""
        async with self._asking:
            if anyio.current_time() - self._asked_at < OTHER_NODES_SECONDS:
                return
            self._asked_at = anyio.current_time()
            # The next time the store may tell which there are.
            with suppress(StoreUnavailable):
                nodes = [node.id for node in await self._gateway.store.nodes()]
                self._numbers = {each: n for each, n in self._numbers.items() if each in nodes}
                for node in nodes:
                    if node != self._gateway.node.id:
                        await self._ask(node)

    async def _ask(self, node: str) -> None:
        arguments = {"since": self._numbers.get(node)}
        request = OperatorRequest(tool="operator_changes", arguments=arguments)
        try:
            answer = await self._calls.ask_node(node, request, seconds=ANSWER_SECONDS)
        except (Refused, ProcessUnavailable):
            return
        self._numbers[node] = int(answer["number"])
        for change in answer["changes"]:
            self._log.note(str(change["session_id"]), str(change["owner"]))


class FollowedSessions:
    """The changes of the sessions that exist for one user, on all nodes, since it was made."""

    def __init__(self, log: SessionChangeLog, sessions: ConsoleSessions, user: ConsoleUser) -> None:
        self._log = log
        self._sessions = sessions
        self._user = user
        _, self._number = log.read(None)
        self._read_at = -math.inf
        self._shared: set[str] = set()
        """The sessions of others that are shared with the user."""
        self._shared_at = -math.inf

    async def next(self) -> list[JSON]:
        """Wait for changes, and return the summaries of the sessions that changed, as far as they exist for the user.

        Raises:
            StoreUnavailable: they cannot be read; the next call returns them.
        """
        await self._log.wait(self._number)
        due_at = self._read_at + INTERVAL_SECONDS
        await anyio.sleep(max(COLLECT_SECONDS, due_at - anyio.current_time()))
        self._read_at = anyio.current_time()
        changes, number = self._log.read(self._number)
        summaries: list[JSON] = []
        records: list[SessionRecord] = []
        for change in changes:
            if not await self._may_exist(change):
                continue
            try:
                record = await self._sessions.find(self._user, change.session_id, ShareRights.VIEW)
                records.append(record)
            except SessionNotFound:
                self._shared.discard(change.session_id)
                summaries.append({"session_id": change.session_id, "status": "deleted"})
        if records:
            documents = await self._sessions.documents.describe_all(records)
            for record, document in zip(records, documents, strict=True):
                is_shared = self._user.owner not in (None, record.owner)
                summaries.append({**document, "shared": is_shared})
        self._number = number
        return summaries

    async def _may_exist(self, change: SessionChange) -> bool:
        """Whether a session exists for the user, or was shared with it a moment ago."""
        user = self._user
        if user.session_id is not None:
            return user.session_id == change.session_id
        if user.owner in (None, change.owner) or change.session_id in self._shared:
            return True
        if self._read_at - self._shared_at >= OTHER_NODES_SECONDS:
            self._shared = await self._sessions.shared_ids(user)
            self._shared_at = self._read_at
        return change.session_id in self._shared


class EventStream(LoginStream):
    """The response that sends the changes."""

    def __init__(
        self,
        changes: FollowedSessions,
        other_nodes: OtherNodes,
        read_notices: Callable[[], Awaitable[list[JSON]]] | None,
        logins: Logins,
        login: Login,
        owner: str,
    ) -> None:
        super().__init__("text/event-stream", logins, login, owner)
        self._changes = changes
        self._other_nodes = other_nodes
        self._read_notices = read_notices
        self._sending = anyio.Lock()

    async def send_parts(self, send: SendPart) -> None:
        async def send_whole(block: bytes) -> None:
            async with self._sending:
                await send(block)

        await self._other_nodes.ask()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._other_nodes.keep_asking)
            if self._read_notices is not None:
                tasks.start_soon(self._send_notices, self._read_notices, send_whole)
            block = b": open\n\n"
            while True:
                await send_whole(block)
                block = await self._next_block(anyio.current_time() + COMMENT_SECONDS)

    async def _send_notices(
        self, read: Callable[[], Awaitable[list[JSON]]], send: SendPart
    ) -> None:
        """Send the notices whenever they are others than before."""
        sent: list[JSON] = []
        while True:
            with suppress(StoreUnavailable):
                notices = await read()
                if notices != sent:
                    await send(b"event: notices\ndata: " + encode({"notices": notices}) + b"\n")
                    sent = notices
            await anyio.sleep(NOTICE_SECONDS)

    async def _next_block(self, deadline: float) -> bytes:
        """Return the next events, or a comment if there is none by a time of the event loop."""
        block = b""
        with anyio.CancelScope(deadline=deadline):
            while not block:
                # The next read may find the store again.
                with suppress(StoreUnavailable):
                    summaries = await self._changes.next()
                    events = (b"event: session\ndata: " + encode(one) + b"\n" for one in summaries)
                    block = b"".join(events)
        return block or b": still there\n\n"
