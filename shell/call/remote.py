"""The connection of a command to a server elsewhere, at the address of --url: one HTTP request of 2026-07-28 for each call.

The types of texts are found here, by the list of the tools.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from ...server.protocol.text_arguments import typed_params
from ...server.sockets.command import TEXT_ARGUMENTS
from ...server.sockets.request import as_list, as_object
from ...sessions.errors import InvalidArgument
from ...sessions.wording import connection_failure
from .connection import PROTOCOL, Failure, OutOfTime, RequestFailed, ServerLost, request_message
from .words import Words, WrongUsage

ANY_SESSION = "-"
"""The session whose tools are listed when the command line names none; a list creates no session."""
CONNECT_SECONDS = 20.0
UNAUTHORIZED = 401
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
        self._url = url
        prefix = url.path.removesuffix("/").removesuffix("/mcp")
        place = f"/s/{quote(session or ANY_SESSION, safe='')}" if pinned else ""
        self._path = f"{prefix}{place}/mcp"
        self._token = _read_token(words.options.get("--token-file"))
        self._connection: http.client.HTTPConnection | None = None
        self._number = 0

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result, as LocalConnection.request() does. close() cancels it."""
        if method == "tools/call":
            params = self._typed(params)
        self._number += 1
        message = request_message(
            self._number, method, params, has_progress=on_progress is not None
        )
        connection = self._connect()
        try:
            response = self._send(connection, message, seconds)
            return self._result(response, on_progress)
        except TimeoutError:
            self.close()
            raise OutOfTime from None
        except KeyboardInterrupt:
            self.close()
            raise
        except (http.client.HTTPException, OSError):
            self.close()
            self._require_scheme()
            raise ServerLost from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            is_https = self._url.scheme == "https"
            kind = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
            connection = kind(self._url.hostname or "", self._url.port, timeout=CONNECT_SECONDS)
            try:
                connection.connect()
            except OSError as error:
                reason = connection_failure(error) or error.strerror or str(error)
                raise Failure(
                    f"{self._url.netloc} cannot be reached: {reason}. {_SEE_URL}"
                ) from None
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
        return self._connection

    def _require_scheme(self) -> None:
        """Raise Failure if the server speaks TLS and --url begins with http: nothing ran then."""
        if self._url.scheme == "https":
            return
        # Imported here: only an error needs it.
        import ssl

        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = (self._url.hostname or "", self._url.port or 80)
        try:
            with socket.create_connection(address, timeout=CONNECT_SECONDS) as plain:
                context.wrap_socket(plain, server_hostname=self._url.hostname).close()
        except (OSError, ValueError):
            return
        raise Failure(f"{self._url.netloc} speaks TLS: --url should begin with https://")

    def _send(
        self, connection: http.client.HTTPConnection, message: dict[str, Any], seconds: float | None
    ) -> http.client.HTTPResponse:
        connection.sock.settimeout(seconds)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
            "Mcp-Method": message["method"],
        }
        if message["method"] in ("tools/call", "resources/read"):
            params = message["params"]
            headers["Mcp-Name"] = str(params.get("name") or params.get("uri"))
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection.request("POST", self._path, json.dumps(message).encode(), headers)
        return connection.getresponse()

    def _result(
        self,
        response: http.client.HTTPResponse,
        on_progress: Callable[[dict[str, Any]], None] | None,
    ) -> dict[str, Any]:
        if response.status == UNAUTHORIZED:
            response.read()
            if self._token is not None:
                raise Failure(
                    f"{self._url.netloc} does not know the token of --token-file, or it has ended: `statehold tokens list` "
                    "there shows those that are valid, and `statehold tokens add NAME` makes one"
                )
            raise Failure(
                f"{self._url.netloc} asks for a token: name the file that holds it with --token-file"
            )
        if response.getheader("Content-Type", "").startswith("text/event-stream"):
            return self._stream_result(response, on_progress)
        body = response.read()
        try:
            message = as_object(json.loads(body))
        except ValueError:
            message = {}
        if not isinstance(message.get("error"), dict) and "result" not in message:
            # The members of RFC 6749: the server refuses the token, or what the token allows.
            words = message.get("error_description") or message.get("error")
            if isinstance(words, str):
                raise Failure(f"{self._url.netloc} answers {response.status}: {words[:300]}")
            raise Failure(
                f"{self._url.netloc} answers {response.status}, which is no MCP. {_SEE_URL}"
            )
        return _result_of(message)

    def _stream_result(
        self,
        response: http.client.HTTPResponse,
        on_progress: Callable[[dict[str, Any]], None] | None,
    ) -> dict[str, Any]:
        for line in response:
            if not line.startswith(b"data:"):
                continue
            message = as_object(json.loads(line[5:] or b"{}"))
            if message.get("method") == "notifications/progress" and on_progress is not None:
                on_progress(as_object(message.get("params")))
            elif message.get("id") == self._number and "method" not in message:
                response.read()
                return _result_of(message)
        raise ServerLost


def _result_of(message: dict[str, Any]) -> dict[str, Any]:
    if "error" in message:
        error = as_object(message["error"])
        raise RequestFailed(int(error.get("code", 0)), str(error.get("message")))
    return as_object(message.get("result"))


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
