"""The MCP conversation of one client, which outlives the servers that it is led with.

The pipe of the client passes each line through a Conversation. When a server ends, this knows the requests without an
answer, and the lines with which the next server gets to the same state.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias, cast

from ...sessions.errors import OutcomeUnknown, ServiceUnavailable, SessionError

Message: TypeAlias = "dict[str, Any]"
Id: TypeAlias = "str | int"

_START: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":(-?\d+|"[^"\\]*"),"(?:result|error)":')
"""The beginning of an answer as our server writes it."""
_NEXT: Final = b'"next_process":true'
_REFUSAL_BYTES: Final = 4096
"""Bytes of an answer in which a refusal says that the next server takes the request."""
VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION_META: Final = "io.modelcontextprotocol/subscriptionId"
ERROR_META: Final = "statehold/error"
INVALID_PARAMS: Final = -32602
CONNECTION_CLOSED: Final = -32000
_INITIALIZE, _LISTEN = "initialize", "subscriptions/listen"
_LEVEL, _SUBSCRIBE, _UNSUBSCRIBE = (
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
)
_LISTS: Final = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}
"""The requests for lists whose changes a server notifies of, with the capability for that."""
_REPEATABLE: Final = frozenset(
    {
        _INITIALIZE,
        _LISTEN,
        _LEVEL,
        _SUBSCRIBE,
        _UNSUBSCRIBE,
        "completion/complete",
        "ping",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "server/discover",
        "skills/get",
        "skills/list",
        "tools/list",
    }
)
"""Requests without an effect on sessions. The next server gets them again, once."""


class NotResumed(ServiceUnavailable):
    """Raised when the next server does not accept the conversation."""


class _Request:
    """A request of the client without an answer. Not a dataclass: the module takes a tenth of the start of a client."""

    def __init__(self, method: str, is_modern: bool, line: bytes, is_repeatable: bool) -> None:
        self.method = method
        self.is_modern = is_modern
        self.line = line
        self.is_repeatable = is_repeatable
        """Whether the next server gets it too: it has no effect, or the last one ended and did not begin it."""
        self.is_repeated = False
        self.is_acknowledged = False
        """Whether the client knows that this subscription is open."""


class Conversation:
    """The state of a conversation that the next server needs.

    Between begin() and end(), one thread may call the methods for the lines of the client, and another one those for the
    lines of the server. The other methods are called while neither is.
    """

    def __init__(self) -> None:
        self._requests: dict[Id, _Request] = {}
        self._last: _Request | None = None
        """The request in the last line for the server; None if that line was another one, or was not sent whole."""
        self._initialize: bytes = b""
        """The request whose answer opened the conversation; empty before that, and in the era without one."""
        self._version: object = None
        self._initialized: bytes = b""
        self._level: Message | None = None
        self._subscriptions: dict[str, Message] = {}
        self._capabilities: Message = {}
        self._lists: dict[str, Message] = {}
        """The lists that the client knows: the results by the method of the request, which needs no parameters."""
        self._replays: dict[Id, Message] = {}
        """Requests that this class sent itself, or sent again. The client gets no answer to them."""
        self._questions: dict[Id, Id] = {}
        """The open questions of the server, by the id that the client knows: their own ids."""
        self._servers = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for the answer to a request. A subscription has none."""
        return any(request.method != _LISTEN for request in self._requests.values())

    def begin(self) -> list[bytes]:
        """Begin with the next server; returns the lines that it gets first."""
        self._servers += 1
        self._last = None
        if self._servers == 1:
            return []
        lines: list[bytes] = []
        if self._initialize:
            request = _parse(self._initialize) or {}
            self._replays[request["id"]] = request
            lines += [self._initialize, self._initialized]
            requests = [] if self._level is None else [(_LEVEL, self._level)]
            requests += [(_SUBSCRIBE, params) for params in self._subscriptions.values()]
            requests += [(method, {}) for method in self._lists]
            for method, params in requests:
                number = f"statehold-{self._servers}-{len(self._replays)}"
                request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                self._replays[number] = request
                lines.append(_encode(request))
        return lines + [request.line for request in self._requests.values()]

    def end(self, *, is_last_unread: bool = False) -> list[bytes]:
        """Note the end of the server; returns lines for the client.

        A request that may have run is answered, and an open question withdrawn. Requests that may be repeated stay, and the
        one in the last line if the server did not read that.
        """
        if is_last_unread and self._last is not None:
            self._last.is_repeatable, self._last.is_repeated = True, False
        self._replays.clear()
        error = OutcomeUnknown("The background server ended during the call.")
        lines = [_cancellation(number) for number in self._questions]
        self._questions.clear()
        for number, request in list(self._requests.items()):
            if request.method == _LISTEN or (request.is_repeatable and not request.is_repeated):
                request.is_repeated = True
            else:
                del self._requests[number]
                lines.append(_refusal(number, request, error))
        return lines

    def abandon(self, error: SessionError) -> list[bytes]:
        """Return the answers to the requests that are still without one, because no server takes them."""
        lines = [_refusal(number, request, error) for number, request in self._requests.items()]
        self._requests.clear()
        return lines

    def refuse(self, line: bytes, error: SessionError) -> bytes:
        """Return the answer to a line of the client that was not sent; empty if it needs none."""
        message = _parse(line)
        request = None if message is None else _request_of(message, line)
        if message is None or request is None:
            return b""
        return _refusal(message["id"], request, error)

    def from_client(self, line: bytes) -> bytes:
        """Return a line of the client as the server gets it; empty if it gets none."""
        self._last, message = None, _parse(line)
        if message is None:
            return line
        self._last = request = _request_of(message, line)
        if request is not None:
            self._requests[message["id"]] = request
        elif "method" not in message:
            return self._answer_question(message, line)
        elif message.get("method") == "notifications/initialized":
            self._initialized = line
        elif message.get("method") == "notifications/cancelled":
            # A cancelled request is not answered.
            self._requests.pop(_id(_params(message).get("requestId")), None)
        return line

    def take_back(self, line: bytes) -> None:
        """Undo from_client() for a line that was not sent whole, so that the server did not read it."""
        self._last, message = None, _parse(line)
        if message is not None and _request_of(message, line) is not None:
            self._requests.pop(message["id"], None)

    def _answer_question(self, message: Message, line: bytes) -> bytes:
        own_id = self._questions.pop(_id(message.get("id")), None)
        if own_id is None:
            # The answer to a server that has ended. The next one may have asked something else under this id.
            return line if self._servers == 1 else b""
        return line if own_id == message["id"] else _encode({**message, "id": own_id})

    def from_server(self, line: bytes) -> bytes:
        """Return a line of the server as the client gets it: another one, several, or none.

        Raises:
            NotResumed: the server did not accept the conversation.
        """
        start = _START.match(line)
        if start is not None:
            number: Id = json.loads(start[1])
            request = self._requests.get(number)
            is_replayed = number in self._replays or (request is not None and request.is_repeatable)
            if not is_replayed and line.find(_NEXT, 0, _REFUSAL_BYTES) < 0:
                # Most lines are answers to calls, and may be long.
                self._requests.pop(number, None)
                return line
        message = _parse(line)
        if message is None:
            return line
        method = message.get("method")
        if method is None:
            return self._take_answer(message, line)
        if "id" in message:
            return self._ask(message, line)
        if method == "notifications/cancelled":
            return self._withdraw(message, line)
        if method == "notifications/subscriptions/acknowledged":
            return self._acknowledge(message, line)
        return line

    def _take_answer(self, message: Message, line: bytes) -> bytes:
        number = _id(message.get("id"))
        replay = self._replays.pop(number, None)
        if replay is not None:
            return self._take_replayed(replay, message)
        request = self._requests.get(number)
        if request is not None and request.is_repeatable and _is_closed(message):
            # The server ends. The request stays, for the next one.
            return b""
        if request is not None and _goes_to_next(message):
            request.is_repeatable, request.is_repeated = True, False
            return b""
        self._requests.pop(number, None)
        if request is None or not request.is_repeatable or "result" not in message:
            return line
        params = _params(_parse(request.line) or {})
        if request.method == _INITIALIZE:
            self._initialize = request.line
            result = _members(message["result"])
            self._version = result.get("protocolVersion")
            self._capabilities = _members(result.get("capabilities"))
        elif request.method == _LEVEL:
            self._level = params
        elif request.method == _SUBSCRIBE:
            self._subscriptions[str(params.get("uri"))] = params
        elif request.method == _UNSUBSCRIBE:
            self._subscriptions.pop(str(params.get("uri")), None)
        elif self._notifies_of(request.method):
            self._lists[request.method] = _members(message["result"])
        return line

    def _notifies_of(self, method: str) -> bool:
        capability = _members(self._capabilities.get(_LISTS.get(method, "")))
        return bool(capability.get("listChanged"))

    def _take_replayed(self, request: Message, answer: Message) -> bytes:
        """Return the changes that the client may have missed."""
        method = request["method"]
        if method == _SUBSCRIBE:
            return _notification("resources/updated", {"uri": _params(request).get("uri")})
        version = _members(answer.get("result")).get("protocolVersion")
        if method == _INITIALIZE and version != self._version:
            raise NotResumed(
                "The next server does not speak the version of this client.",
                recovery="Start this client again.",
            )
        known = self._lists.get(method)
        if known is None or known == answer.get("result") or _is_closed(answer):
            return b""
        # Only a real change is worth this: some clients read no more while they ask for the list.
        return _notification(f"{_LISTS[method]}/list_changed")

    def _acknowledge(self, message: Message, line: bytes) -> bytes:
        params = _params(message)
        meta = {SUBSCRIPTION_META: _meta(params).get(SUBSCRIPTION_META)}
        request = self._requests.get(_id(meta[SUBSCRIPTION_META]))
        if request is None or not request.is_acknowledged:
            if request is not None:
                request.is_acknowledged = True
            return line
        honored = _members(params.get("notifications"))
        changes = [
            _notification(f"{kind}/list_changed", {"_meta": meta})
            for kind in ("tools", "prompts", "resources")
            if honored.get(f"{kind}ListChanged")
        ]
        changes += [
            _notification("resources/updated", {"uri": uri, "_meta": meta})
            for uri in honored.get("resourceSubscriptions") or ()
        ]
        return b"".join(changes)

    def _ask(self, message: Message, line: bytes) -> bytes:
        """Give a question of a later server an id of its own: the client may still answer one of an earlier server."""
        shown = self._shown_id(message["id"])
        self._questions[shown] = message["id"]
        return line if shown == message["id"] else _encode({**message, "id": shown})

    def _withdraw(self, message: Message, line: bytes) -> bytes:
        own_id = _id(_params(message).get("requestId"))
        shown = self._shown_id(own_id)
        self._questions.pop(shown, None)
        if shown == own_id:
            return line
        return _encode({**message, "params": {**_params(message), "requestId": shown}})

    def _shown_id(self, own_id: Id) -> Id:
        return own_id if self._servers == 1 else f"{self._servers}:{json.dumps(own_id)}"


def _request_of(message: Message, line: bytes) -> _Request | None:
    method, number = message.get("method"), message.get("id")
    if not isinstance(method, str) or not isinstance(number, str | int):
        return None
    is_modern = VERSION_META in _meta(_params(message))
    return _Request(method, is_modern, line, method in _REPEATABLE)


def _refusal(number: Id, request: _Request, error: SessionError) -> bytes:
    """Return the answer to a request that failed, in the form in which the server answers with such an error."""
    answer: Message = {"jsonrpc": "2.0", "id": number}
    if request.method == "tools/call":
        text = f"{error.code}: {error.message}\n{error.recovery}"
        answer["result"] = {
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "_meta": {ERROR_META: error.details()},
            **({"resultType": "complete"} if request.is_modern else {}),
        }
    else:
        message = f"{error.code}: {error.message} {error.recovery}"
        answer["error"] = {"code": INVALID_PARAMS, "message": message, "data": error.details()}
    return _encode(answer)


def _cancellation(number: Id) -> bytes:
    params = {"requestId": number, "reason": "The server that asked has ended."}
    return _notification("cancelled", params)


def _notification(name: str, params: Message | None = None) -> bytes:
    message: Message = {"jsonrpc": "2.0", "method": f"notifications/{name}"}
    return _encode(message if params is None else {**message, "params": params})


def _is_closed(answer: Message) -> bool:
    """Whether a server answers so because it ends."""
    return _members(answer.get("error")).get("code") == CONNECTION_CLOSED


def _goes_to_next(answer: Message) -> bool:
    """Whether a server that ends says that it did not begin a request, which the next one takes."""
    result = _members(answer.get("result"))
    details = _members(answer.get("error")).get("data") or _meta(result).get(ERROR_META)
    return _members(details).get("next_process") is True


def _encode(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _parse(line: bytes) -> Message | None:
    try:
        message: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast(Message, message) if isinstance(message, dict) else None


def _id(value: object) -> Id:
    """Return an id of a request; an empty text, which nobody uses, for anything else."""
    return value if isinstance(value, str | int) else ""


def _params(message: Message) -> Message:
    return _members(message.get("params"))


def _meta(params: Message) -> Message:
    return _members(params.get("_meta"))


def _members(value: object) -> Message:
    return cast(Message, value) if isinstance(value, dict) else {}
