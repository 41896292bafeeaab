"""The wait of a call for a person: to log in at the service, or to decide about the call.

A client that can be asked is asked, such as to open the address of the login. The call goes on when the person has done it,
also by other means than the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from ..concurrency import RaceLost, race
from ..errors import NotAllowed, PendingLogin
from ..services import CallContext
from .hand_over import HandOver


async def wait_for_person(
    ask: Callable[[], Awaitable[bool]],
    wait: Callable[[], Awaitable[bool]],
    hand_over: HandOver | None = None,
    record: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Ask the person of a caller, and return the result of `wait`. `ask` returns whether the person may do it.

    `record` makes a call with `hand_over` durable. A call that was handed over needs no answer to its question; any other
    one does, since its result goes with the request that answers (SEP-2322).

    Raises:
        RaceLost: `ask` returned False, or raised NotAllowed before the call was handed over.
        SessionError: As `wait` raises it.
    """
    may_go_on = anyio.Event()

    async def take() -> None:
        if record is not None:
            await record()
        may_go_on.set()

    async def put_question() -> None:
        try:
            is_open = await ask()
        except NotAllowed:
            is_open = may_go_on.is_set()  # Its request has ended, but not the call.
        if is_open:
            may_go_on.set()
            await anyio.sleep_forever()

    async def finish() -> bool:
        is_done = await wait()
        if is_done:
            await may_go_on.wait()
        return is_done

    if hand_over is not None:
        hand_over.offer(take)
    return await race(put_question, finish)


async def log_in(
    context: CallContext,
    service: str,
    login: PendingLogin,
    hand_over: HandOver | None = None,
    record: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Wait for a login. Return False if the person cannot be asked, declines, or takes too long.

    For `hand_over` and `record` see wait_for_person().
    """
    message = f"Log in at {service}: the call goes on then."
    params = context.options.ask_to_open(login.address, message)

    async def ask() -> bool:
        answer = await context.ask("elicitation/create", params)
        return answer.get("action") == "accept"

    try:
        return await wait_for_person(ask, login.wait, hand_over, record)
    except RaceLost:
        return False
