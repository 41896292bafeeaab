"""Finds out whether an upstream still has our session, after a request that was refused or got no answer.

The protocol asks for HTTP 404, but servers and the proxies before them answer 400, 401, 503, a page, or 200 with a JSON-RPC
error. So an upstream has forgotten the session if it refuses `ping` or `tools/list` in it and answers that in a new one.
It is gone if it answers `ping` in no way, several times.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import anyio
from mcp_types import METHOD_NOT_FOUND

from ....sessions.errors import ConnectionLost, OutcomeUnknown, SessionError
from ....sessions.json_codec import JSON
from ..errors import UpstreamMisbehaved, UpstreamRefused
from .http_errors import TOO_MUCH, HttpRefused
from .json_rpc import JsonRpcConnection

CHECK_SECONDS: Final = 10.0
"""Seconds that a check may take; without a result by then, the session counts as known."""

PAUSES: Final = (0.2, 0.6, 1.6)
"""Seconds before each further `ping` to an upstream that did not answer; a proxy before it may be starting again."""

FORGOTTEN: Final = "the server no longer knows this session"

Refusal: TypeAlias = UpstreamRefused | HttpRefused | UpstreamMisbehaved


class OpenConnection(Protocol):
    @property
    def rpc(self) -> JsonRpcConnection: ...

    async def aclose(self) -> None: ...


OpenAnother: TypeAlias = Callable[[], Awaitable[OpenConnection]]
"""Opens another connection to the same upstream."""


class SessionCheck:
    """Looks behind the failed requests of one connection. Concurrent failures share one check after the other."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._lock = anyio.Lock()
        self._refusal: Refusal | None = None
        """The answer of an upstream that has forgotten the session."""

    async def explain(
        self, error: Refusal, rpc: JsonRpcConnection, open_another: OpenAnother | None
    ) -> SessionError:
        """Return the error of a refused request: its own, or the loss of a session that the upstream has forgotten.

        A connection without its session is given up as lost. ConnectionLost says that the request did not run, and
        OutcomeUnknown that it may have run before its server or a proxy lost the session.
        """
        if open_another is None or not rpc.transport.has_session or not _is_suspicious(error):
            return error
        with anyio.move_on_after(CHECK_SECONDS), suppress(SessionError):
            await self._ask_for_session(rpc, open_another, names_session=_names_session(error))
        if self._refusal is None:
            return error
        message = f"The connection to {self._service} is gone: {FORGOTTEN}."
        if error.did_not_run:
            return ConnectionLost(message)
        if _answer(error) != _answer(self._refusal):
            return error
        return ConnectionLost(message) if _names_session(error) else OutcomeUnknown(message)

    async def check_result(
        self, result: JSON, rpc: JsonRpcConnection, open_another: OpenAnother | None
    ) -> None:
        """Give the connection up if a tool's own error is about a session, and the upstream has forgotten ours."""
        if open_another is None or not rpc.transport.has_session:
            return
        blocks: list[JSON] = result.get("content") or []
        if not any(_SESSION_WORDS.search(block.get("text") or "") for block in blocks):
            return
        with anyio.move_on_after(CHECK_SECONDS), suppress(SessionError):
            await self._ask_for_session(rpc, open_another, names_session=True)

    async def check_after_silence(
        self, rpc: JsonRpcConnection, open_another: OpenAnother | None
    ) -> None:
        """Give the connection up if its upstream is gone or has forgotten our session, after a request without an answer."""
        if open_another is None or not rpc.usable:
            return
        with anyio.move_on_after(CHECK_SECONDS):
            for pause in (*PAUSES, None):
                try:
                    await self._ask_for_session(rpc, open_another)
                    break
                except (ConnectionLost, OutcomeUnknown):
                    if pause is not None:
                        await anyio.sleep(pause)
                    elif rpc.usable:
                        await rpc.give_up(rpc.last_break)
                except SessionError:
                    # It refuses our session and opens no other: something before it is down.
                    break

    async def _ask_for_session(
        self, rpc: JsonRpcConnection, open_another: OpenAnother, *, names_session: bool = False
    ) -> None:
        """Give the connection up if its upstream has forgotten our session. Raises as find_refusal() does."""
        async with self._lock:
            if not rpc.usable:
                return
            questions = ("ping", "tools/list") if names_session else ("ping",)
            self._refusal = await find_refusal(rpc, open_another, questions)
            if self._refusal is not None:
                await rpc.give_up(FORGOTTEN)


async def find_refusal(
    rpc: JsonRpcConnection, open_another: OpenAnother, questions: Sequence[str] = ("ping",)
) -> Refusal | None:
    """Return the refusal of one of `questions` if the upstream has forgotten our session, None if it knows it.

    Raises:
        SessionError: The upstream refuses our session and opens no new one, or it does not answer.
    """
    for question in questions:
        if await _ask(rpc, question) is None or not rpc.transport.has_session:
            continue
        other = await open_another()
        try:
            is_refused_anywhere = await _ask(other.rpc, question) is not None
        finally:
            await other.aclose()
        # Again: the upstream may have been down before, and have its sessions still.
        if not is_refused_anywhere and (refusal := await _ask(rpc, question)) is not None:
            return refusal
    return None


async def _ask(rpc: JsonRpcConnection, method: str) -> Refusal | None:
    """Send a request without an effect, and return its refusal; None if the answer came from our session."""
    peer = rpc.peer
    params: JSON = {"_meta": peer.meta({})} if peer.modern else {}
    headers = peer.headers(method, params) if rpc.http else None
    try:
        await rpc.request(method, params, number=next(rpc.numbers), headers=headers)
    except (UpstreamRefused, HttpRefused, UpstreamMisbehaved) as error:
        return error if _is_suspicious(error) else None
    return None


_SESSION_WORDS: Final = re.compile(r"(?i)session|initiali[sz]")


def _names_session(error: Refusal) -> bool:
    """Return whether a refusal is the one of the protocol, or its words are about sessions.

    Some servers answer `ping` in any session.
    """
    status = 200 if error.refusal is None else error.refusal.status
    return status == 404 or _SESSION_WORDS.search(error.words) is not None


def _is_suspicious(error: Refusal) -> bool:
    """Return whether a refusal may say that the session is unknown, in whatever words."""
    if isinstance(error, HttpRefused):
        return error.refusal.status not in TOO_MUCH
    # A server without this method says so in any session that it knows.
    return not isinstance(error, UpstreamRefused) or error.rpc_code != METHOD_NOT_FOUND


def _answer(error: Refusal) -> tuple[int, str]:
    """Return the parts of a refusal that are the same for all requests in a forgotten session."""
    status = 200 if error.refusal is None else error.refusal.status
    # The words of an HTTP error may number it.
    return status, "" if isinstance(error, HttpRefused) else error.words
