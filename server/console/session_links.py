"""One-time links by which another person sees or controls one session for some minutes."""

from __future__ import annotations

import logging

from starlette.responses import Response

from ...sessions.json_codec import JSON
from ...sessions.records import CredentialRecord
from ...sessions.views import timestamp
from .calls import ApiCall, Handler
from .errors import json_response, not_found
from .logins import Logins
from .requests import LinkBody
from .session_documents import ConsoleSessions

logger = logging.getLogger("statehold.server")


class LinkHandlers:
    """The handlers of links. The links of a session are those of all its users."""

    def __init__(self, sessions: ConsoleSessions, logins: Logins) -> None:
        self._sessions = sessions
        self._logins = logins

    def handlers(self) -> dict[str, Handler]:
        return {
            "links": self._list,
            "create_link": self._create,
            "revoke_link": self._revoke,
        }

    async def _list(self, call: ApiCall) -> Response:
        record = await self._sessions.find(call.user, call.session_id)
        links = await self._logins.links(record.id)
        return json_response({"links": [_describe(link) for link in links]})

    async def _create(self, call: ApiCall) -> Response:
        body = call.body
        assert isinstance(body, LinkBody)
        record = await self._sessions.find(call.user, call.session_id)
        link, code = await self._logins.create_link(
            record.id, body.rights, body.seconds, call.user.name
        )
        logger.info("console: %s made a link to %s (%s)", call.user.name, record.id, body.rights)
        # The code is in the fragment of the address, which no log gets.
        return json_response({**_describe(link), "code": code, "path": f"/console#code={code}"})

    async def _revoke(self, call: ApiCall) -> Response:
        record = await self._sessions.find(call.user, call.session_id)
        if await self._logins.revoke(record.id, call.parameter("link_id")) is None:
            raise not_found()
        logger.info("console: %s revoked a link to %s", call.user.name, record.id)
        return json_response({})


def _describe(link: CredentialRecord) -> JSON:
    return {
        "id": link.id,
        "session_id": link.session_id,
        "rights": link.rights,
        "created_by": link.created_by,
        "expires_at": timestamp(link.expires_at),
        "used": link.used_at is not None,
    }


__all__ = ["LinkHandlers"]
