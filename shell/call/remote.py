"""The connection of a command to a server elsewhere, at the address of --url, over the transport of the client.

The types of texts are found here, by the list of the tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import anyio

from ...client.errors import ServerUnreachable
from ...client.sync.portal import Portal
from ...client.transport.base import AccessDenied, JsonRpcError, TransportBroken
from ...client.transport.http import NO_ANSWER, HttpTransport
from ...server.protocol.text_arguments import typed_params
from ...server.sockets.command import TEXT_ARGUMENTS
from ...server.sockets.request import as_list, as_object
from ...sessions.errors import InvalidArgument
from .connection import Failure, OutOfTime, RequestFailed, ServerLost, request_message
from .words import Words, WrongUsage

ANY_SESSION = "-"
"""The session whose tools are listed when the command line names none; a list creates no session."""
_TOKEN_CHARACTERS = 1 << 16
_SEE_URL = "See that --url is the address that `statehold serve` printed there, and that it runs."


class RemoteConnection:
    """A connection to a server that an address names; see LocalConnection. It ends with close()."""

    is_new = False

    def __init__(self, words: Words, session: str | None, *, pinned: bool = True) -> None:
        """`pinned`: the tools are those of one session, without an argument session_id."""
        if words.has("--new") or words.has("--exists"):
            raise WrongUsage("--new and --exists do not go with --url")
        url = urlsplit(words.options["--url"])
        if url.scheme not in ("http", "https") or url.hostname is None:
            raise WrongUsage("--url should be http://HOST:PORT")
        self._place = url.netloc
        prefix = url.path.removesuffix("/").removesuffix("/mcp")
        place = f"/s/{quote(session or ANY_SESSION, safe='')}" if pinned else ""
        token = _read_token(words.options.get("--token-file"))
        self._has_token = token is not None
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._portal = Portal()
        try:
            self._transport = HttpTransport(
                f"{url.scheme}://{url.netloc}{prefix}{place}/mcp", headers
            )
        except ServerUnreachable as error:
            raise Failure(str(error)) from None

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result, as LocalConnection.request() does. Ctrl-C cancels it."""
        if method in ("tools/call", "tasks/update"):
            params = self._typed(params)
        if not self._portal.is_started:
            self._portal.start(self)
        try:
            return self._portal.run(self._send, method, params, on_progress, seconds)
        except TimeoutError:
            raise OutOfTime from None
        except AccessDenied as error:
            if self._has_token:
                raise Failure(
                    f"{self._place} does not know the token of --token-file, it has ended, or it does not allow this "
                    f"({error}): `statehold tokens list` there shows those that are valid, and `statehold tokens add NAME` "
                    "makes one"
                ) from None
            raise Failure(
                f"{self._place} asks for a token: name the file that holds it with --token-file"
            ) from None
        except JsonRpcError as error:
            if error.code == NO_ANSWER:
                raise Failure(f"{self._place}: {error.message}. {_SEE_URL}") from None
            raise RequestFailed(error.code, error.message) from None
        except TransportBroken as error:
            if error.sent:
                raise ServerLost(str(error)) from None
            raise Failure(f"{self._place} cannot be reached: {error}. {_SEE_URL}") from None

    def close(self) -> None:
        if self._portal.is_started:
            self._portal.run(self._transport.aclose)
            self._portal.stop()

    async def _send(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Callable[[dict[str, Any]], None] | None,
        seconds: float | None,
    ) -> dict[str, Any]:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            assert on_progress is not None
            on_progress({"progress": progress, "total": total, "message": message})

        params = request_message(0, method, params, has_progress=False)["params"]
        callback = None if on_progress is None else report
        with anyio.fail_after(seconds):
            return await self._transport.request(method, params, progress_callback=callback)

    def _typed(self, params: dict[str, Any]) -> dict[str, Any]:
        schema: dict[str, Any] | None = None
        if TEXT_ARGUMENTS in params["_meta"]:
            tools = map(as_object, as_list(self.request("tools/list", {}).get("tools")))
            tool = next((each for each in tools if each.get("name") == params["name"]), None)
            schema = None if tool is None else as_object(tool.get("inputSchema"))
        try:
            return typed_params(params, schema)
        except InvalidArgument as error:
            raise Failure(error.message, error.code, error.recovery) from None


def _read_token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            token = file.readline(_TOKEN_CHARACTERS).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(
            f"--token-file: {path}: {getattr(error, 'strerror', 'is no text')}"
        ) from None
    if not token or len(token.split()) != 1 or not token.isascii():
        raise WrongUsage(
            f"--token-file: {path} should begin with a line that is a token; `statehold tokens add NAME` prints one"
        )
    return token
