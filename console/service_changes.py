"""The changed definitions of services at the console: an operator sees each difference, and accepts it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio.to_thread
from pydantic import Field
from starlette.responses import Response

from ..server.gateway.gateway import Gateway
from ..sessions.errors import InvalidArgument
from ..sessions.json_codec import JSON
from ..sessions.one_line import escape_controls, plural
from ..sessions.store.base import PinRecord
from ..sessions.times import timestamp
from ..tools.pins.acceptance import accept_pin, difference
from ..tools.upstream.identity import pins_hash
from ..tools.upstream.service import UpstreamService
from .requests import ApiModel
from .routes import ApiCall, json_response, not_found, route


class AcceptBody(ApiModel):
    changes: Annotated[
        list[str], Field(max_length=1000, description="The `id` of each change, as it was shown")
    ]


class ServiceChanges:
    """The handlers of the pins of one process. They keep nothing."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @route(
        "GET",
        "/services/{service}/changes",
        "List what a service has changed in its tools, prompts and pages, with the differences",
        role="operator",
    )
    async def service_changes(self, call: ApiCall) -> Response:
        changed = await self._changes(call)
        changes = await anyio.to_thread.run_sync(lambda: [_describe(each) for each in changed])
        return json_response({"changes": changes})

    @route(
        "POST",
        "/services/{service}/accept",
        "Accept changes of a service; each as it was shown, or not at all",
        role="operator",
        rights="control",
    )
    async def accept_changes(self, call: ApiCall, body: AcceptBody) -> Response:
        gateway, left = self._gateway, 0
        admit = partial(gateway.audit.admit, call.user.actor(call.address))
        now = gateway.registry.core.clock.now()
        changed = {_id(each): each for each in await self._changes(call)}
        try:
            for each in body.changes:
                pin = changed.get(each)
                if pin is None or not await accept_pin(gateway.store, admit, pin, now):
                    left += 1
        finally:
            gateway.registry.spawn(gateway.accept_pins, call.parameter("service"))
        if left:
            raise InvalidArgument(
                f"{plural(left, 'change')} could not be accepted: changed once more, or accepted elsewhere.",
                recovery="Look at what is left.",
            )
        return json_response({})

    async def _changes(self, call: ApiCall) -> list[PinRecord]:
        """Return the changes of the service of a request.

        Raises:
            ApiError: There is no such service.
            StoreUnavailable: They cannot be read.
        """
        name = call.parameter("service")
        service = self._gateway.services.get(name)
        if not isinstance(service, UpstreamService):
            raise not_found()
        return await self._gateway.store.access.changed_pins(name, pins_hash(service.config))


def _id(pin: PinRecord) -> str:
    return f"{pin.id}.{pin.offered_digest}"


def _describe(pin: PinRecord) -> JSON:
    return {
        "id": _id(pin),
        "kind": pin.kind,
        "name": escape_controls(pin.name),
        "offered_at": None if pin.offered_at is None else timestamp(pin.offered_at),
        "difference": [
            {"part": part, "text": text} for part, text in difference(pin.definition, pin.offered)
        ],
    }
