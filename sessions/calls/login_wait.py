"""The wait of a call for the login of its person at the service.

A client that can be asked is asked to open the address of the login. The call goes on when the person is logged in, also by
other means than that address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from ..concurrency import RaceLost, race
from ..errors import NotAllowed, PendingLogin
from ..services import CallContext
from .hand_over import HandOver


async def log_in(
    context: CallContext,
    service: str,
    login: PendingLogin,
    hand_over: HandOver | None = None,
    record: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Wait for a login. Return False if the person cannot be asked, declines, or takes too long.

    `record` makes a call with `hand_over` durable. A call that was handed over needs no answer to its question; any other
    one does, since its result goes with the request that answers (SEP-2322).
    """
    may_go_on = anyio.Event()

    async def take() -> None:
        if record is not None:
            await record()
        may_go_on.set()

    async def ask() -> None:
        message = f"Log in at {service}: the call goes on then."
        params = context.options.ask_to_open(login.address, message)
        try:
            answer = await context.ask("elicitation/create", params)
        except NotAllowed:
            is_open = may_go_on.is_set()  # Its request has ended, but not the call.
        else:
            is_open = answer.get("action") == "accept"
        if is_open:
            may_go_on.set()
            await anyio.sleep_forever()

    async def wait() -> bool:
        is_logged_in = await login.wait()
        if is_logged_in:
            await may_go_on.wait()
        return is_logged_in

    if hand_over is not None:
        hand_over.offer(take)
    try:
        return await race(ask, wait)
    except RaceLost:
        return False
