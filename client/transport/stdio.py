"""A Statehold in a child process, over its stdin and stdout. If it dies, the next request starts it again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from ...sessions.errors import (
    ConnectionLost,
    OutcomeUnknown,
    RequestRefused,
    ServiceUnavailable,
    SessionError,
)
from ...tools.upstream.known_secrets import Secrets
from ...tools.upstream.negotiation import EraPlan
from ...tools.upstream.transports.json_rpc import JsonRpcConnection
from ...tools.upstream.transports.stdio import open_stdio
from .base import JsonRpcError, ProgressCallback, TransportBroken
from .http import encode, report_progress
from .owner import running_loop

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON

START_SECONDS: Final = 60.0
"""Seconds that a server may take until its first answer."""


class StdioTransport:
    """The transport over the stdin and stdout of a process, which ends with the transport."""

    breaks = True

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | None
    ) -> None:
        self._command = list(command)
        self._env = dict(os.environ if env is None else env)
        self._cwd = cwd
        self._opening = anyio.Lock()
        self._start: anyio.CancelScope | None = None
        self._connection: JsonRpcConnection | None = None
        self._closed = False
        self._progress: dict[int, ProgressCallback] = {}

    async def open(self) -> None:
        if self._connection is not None and self._connection.usable:
            return
        running_loop()
        async with self._opening:
            if self._connection is not None and self._connection.usable:
                return
            if self._closed:
                raise TransportBroken("it was closed", sent=False)
            if self._connection is not None:
                await self._connection.aclose()
            self._connection = JsonRpcConnection(
                self._channel, self, service="statehold", secrets=Secrets(())
            )
            try:
                with anyio.move_on_after(START_SECONDS) as self._start:
                    await self._connection.open(EraPlan(("modern",), "Statehold speaks it"))
            except ServiceUnavailable as error:
                raise TransportBroken(error.message.rstrip("."), sent=False) from None
            if self._start.cancelled_caught:
                await self._connection.aclose()
                raise TransportBroken(
                    f"it did not begin to answer in {START_SECONDS:g} s", sent=False
                )

    def _channel(self) -> Any:
        command, *args = self._command
        start = partial(open_stdio, command, args, service="statehold")
        return start(env=self._env, cwd=self._cwd)

    async def request(
        self,
        method: str,
        params: JSON,
        *,
        headers: Mapping[str, str] | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> JSON:
        encode(params)  # raises for a value that is not JSON, as over HTTP
        await self.open()
        connection = self._connection
        assert connection is not None
        number = next(connection.numbers)
        if progress_callback is not None:
            params["_meta"]["progressToken"] = number
            self._progress[number] = progress_callback
        try:
            return await connection.request(method, params, number=number)
        except RequestRefused as error:
            raise JsonRpcError(error.rpc_code, error.message, error.data) from None
        except (ConnectionLost, OutcomeUnknown) as error:
            raise TransportBroken(
                error.message.rstrip("."), sent=isinstance(error, OutcomeUnknown)
            ) from error
        except SessionError as error:
            raise TransportBroken(error.message.rstrip("."), sent=True) from error
        finally:
            self._progress.pop(number, None)

    async def aclose(self) -> None:
        self._closed = True
        if self._start is not None:
            self._start.cancel()
        with anyio.CancelScope(shield=True):
            async with self._opening:
                if self._connection is not None:
                    await self._connection.aclose()

    async def on_request(self, method: str, params: JSON, number: int | None) -> JSON:
        """Refuse the request: a server of this revision sends none."""
        from mcp.shared.exceptions import MCPError

        raise MCPError(code=-32601, message="Method not found")

    def on_notify(self, method: str, params: JSON, number: int | None) -> None:
        callback = self._progress.get(params.get("progressToken", 0))
        if (
            method == "notifications/progress"
            and callback is not None
            and self._connection is not None
        ):
            import contextvars

            self._connection.spawn(
                contextvars.copy_context(), partial(report_progress, callback, params)
            )

    def on_lost(self, reason: str) -> None:
        """Do nothing: the requests in flight fail by themselves, and the next request starts another process."""


__all__ = ["StdioTransport"]
