"""The shares of one session: with people and groups, and with guests by one-time links of some minutes."""

from __future__ import annotations

import logging
from typing import Final

import anyio
from starlette.responses import Response

from ..server.gateway.gateway import Gateway
from ..server.sockets.request import Refused
from ..sessions.errors import InvalidArgument, SessionError, StoreUnavailable
from ..sessions.journal.entries import LinkEvent
from ..sessions.json_codec import JSON
from ..sessions.records import CredentialRecord, SessionRecord
from ..sessions.times import timestamp
from ..sessions.views import describe_share
from .logins import Login, Logins, Rights, guest_key
from .owner_calls import OwnerCalls
from .requests import ShareBody, tool_arguments
from .routes import SESSION, ApiCall, json_response, not_found, route
from .session_documents import ConsoleSessions

MAX_NAME_LENGTH: Final = 200
"""Characters of the name of a person in an entry."""

logger = logging.getLogger("statehold.server")


class LinkJournal:
    """The links in the journals of the sessions that they lead to. The node that owns a session writes its journal."""

    def __init__(self, sessions: ConsoleSessions, calls: OwnerCalls) -> None:
        self._sessions = sessions
        self._calls = calls

    async def record_opened(self, login: Login) -> None:
        """Record that a guest opened the link of a login. Does nothing for a login without a link.

        Raises:
            SessionError, Refused: the journal could not be written.
        """
        user = login.user
        if user.session_id is not None and user.link is not None:
            record = await self._sessions.find(user, user.session_id)
            await self.note(record, "opened", user.name, user.rights, user.link)

    async def note(
        self, record: SessionRecord, event: LinkEvent, by: str, rights: str, link: str
    ) -> None:
        """Record an event of a link. The control of its guest ends with `revoked`.

        Raises:
            SessionError, Refused: the journal could not be written.
        """
        await self._calls.call(
            record,
            "operator_record_link",
            event=event,
            link=link,
            by=by[:MAX_NAME_LENGTH],
            rights=rights,
            guest=guest_key(link),
        )


class ShareHandlers:
    """The handlers of the shares of a session: those with people and groups, for which they call the tools that an agent
    calls, and links for guests. A session has the same shares for all its users.
    """

    def __init__(
        self,
        gateway: Gateway,
        sessions: ConsoleSessions,
        calls: OwnerCalls,
        logins: Logins,
        journal: LinkJournal,
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._calls = calls
        self._logins = logins
        self._journal = journal

    @route("GET", f"{SESSION}/shares", "List its shares with people and groups, and its links")
    async def shares(self, call: ApiCall) -> Response:
        record = await self._sessions.find_for(call)
        now = self._gateway.registry.core.clock.now()
        shares = await self._gateway.store.access.shares(record.id, now)
        links = await self._logins.links(record.id)
        described = [{"id": each.grantee.digest, **describe_share(each)} for each in shares]
        return json_response({"shares": [*described, *map(_describe_link, links)]})

    @route(
        "POST",
        f"{SESSION}/shares",
        "Share it with a person or a group, or make a one-time link to it",
        rights="control",
    )
    async def create_share(self, call: ApiCall, body: ShareBody) -> Response:
        record = await self._sessions.find_for(call)
        arguments = tool_arguments(body)
        if not arguments.pop("link", False):
            return json_response(await self._calls.call(record, "session_share", **arguments))
        if arguments.keys() & {"subject", "group", "issuer"}:
            raise InvalidArgument("link: it is for no subject, group or issuer.")
        if body.rights == "embed" and not self._gateway.config.server.embed_origins:
            raise InvalidArgument("rights: server.embed_origins names no page that may embed it.")
        rights: Rights = "control" if body.rights == "use" else body.rights
        link, code = await self._logins.create_link(
            record.id, rights, body.expires_in_seconds, call.user.name
        )
        try:
            await self._journal.note(record, "created", call.user.name, link.rights, link.id)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._logins.revoke(record.id, link.id)
            raise
        logger.info("console: %s made a link to %s (%s)", call.user.name, record.id, link.rights)
        page = "/console/embed.html" if body.rights == "embed" else "/console"
        return json_response({**_describe_link(link), "code": code, "path": f"{page}#code={code}"})

    @route("DELETE", f"{SESSION}/shares/{{share_id}}", "End a share or a link", rights="control")
    async def revoke_share(self, call: ApiCall) -> Response:
        record, share_id = await self._sessions.find_for(call), call.parameter("share_id")
        if await self._gateway.store.access.delete_share(record.id, share_id):
            return json_response({})
        link = await self._logins.revoke(record.id, share_id)
        if link is None:
            raise not_found()
        logger.info("console: %s revoked a link to %s", call.user.name, record.id)
        try:
            await self._journal.note(record, "revoked", call.user.name, link.rights, link.id)
        except (SessionError, Refused, StoreUnavailable) as error:
            logger.warning("console: the journal of %s has no such entry: %s", record.id, error)
        return json_response({})

    @route("GET", "/shared", "List the sessions that others share with you")
    async def shared(self, call: ApiCall) -> Response:
        return json_response({"sessions": await self._sessions.shared(call.user)})


def _describe_link(link: CredentialRecord) -> JSON:
    return {
        "id": link.id,
        "link": True,
        "rights": "use" if link.rights == "control" else link.rights,
        "created_by": link.created_by,
        "expires_at": timestamp(link.expires_at),
        "used": link.used_at is not None,
    }
