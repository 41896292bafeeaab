"""What services have changed in their definitions, at the console: an operator sees the difference and accepts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from ..server.gateway.gateway import Gateway
from ..sessions.errors import InvalidArgument
from ..sessions.json_codec import JSON
from ..sessions.records import LOCAL
from ..sessions.store.base import PinRecord
from ..sessions.times import timestamp
from ..tools.pins.acceptance import accept_pin, difference
from .requests import ApiModel
from .routes import ApiCall, json_response, route


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
        changed = await self._gateway.pins.changes(call.parameter("service"))
        return json_response({"changes": [_describe(each) for each in changed]})

    @route(
        "POST",
        "/services/{service}/accept",
        "Accept changes of a service; each as it was shown, or not at all",
        role="operator",
        rights="control",
    )
    async def accept_changes(self, call: ApiCall, body: AcceptBody) -> Response:
        gateway, service = self._gateway, call.parameter("service")
        actor, now = call.user.principal or LOCAL, gateway.registry.core.clock.now()
        changed = {_id(each): each for each in await gateway.pins.changes(service)}
        shown: Sequence[PinRecord | None] = [changed.get(each) for each in body.changes]
        for pin in filter(None, shown):
            await accept_pin(
                gateway.store, gateway.audit_log, pin, now, actor=actor, name=call.user.name
            )
        if None in shown:
            raise InvalidArgument(
                "A definition has changed once more.", recovery="Look at it again."
            )
        gateway.registry.spawn(gateway.accept_pins, service)
        return json_response({})


def _id(pin: PinRecord) -> str:
    return f"{pin.id}.{pin.offered_digest}"


def _describe(pin: PinRecord) -> JSON:
    return {
        "id": _id(pin),
        "kind": pin.kind,
        "name": pin.name,
        "since": timestamp(pin.since),
        "offered_at": None if pin.offered_at is None else timestamp(pin.offered_at),
        "difference": [
            {"part": part, "text": text} for part, text in difference(pin.definition, pin.offered)
        ],
    }
