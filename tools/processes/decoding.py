"""The JSON-RPC messages in the lines of a child process, also in lines that are not quite valid."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import suppress
from typing import Final, cast

from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

_ANSWER_ID: Final = re.compile(
    rb'^\s*\{(?:"jsonrpc":\s*"2.0",\s*)?"id":\s*(\d+)|"id":\s*(\d+)\s*\}\s*$'
)
"""The id at the beginning or the end of an answer that is not valid JSON. Our ids are numbers."""


_ANSWER_START: Final = re.compile(
    rb"""\{(?<![ \t=:,>(\["'`]\{)\s*"(?:jsonrpc|id|result|error)"\s*:"""
)
"""The beginning of an answer. After a blank or one of these signs it may be a quotation, as in the log of a proxy.

The brace comes first, so that the search skips long lines without one.
"""
QUOTED_START: Final = re.compile(rb"""\{\s*"(?:jsonrpc|id|result|error)"\s*:""")
"""The same, also of a quotation."""
_ANSWER_MEMBERS: Final = frozenset({"jsonrpc", "result", "error"})
GLUED_STARTS: Final = 8
"""Places in a line that may be the beginning of an answer; later ones are not tried."""

_DECODER: Final = json.JSONDecoder()


def decode(line: bytes) -> JSONRPCMessage | None:
    """Return the message of a line, None if the line is not JSON-RPC.

    Text after a message and before an answer is dropped: some servers print without a newline. An answer that a line of a
    log may quote is none; see find_quoted(). An invalid answer becomes an error answer, so that its caller does not wait for
    ever. Half of a surrogate pair, which JavaScript servers send when they truncate a text, becomes a replacement character.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _repair(line) if line.lstrip()[:1] == b"{" else _find_answer(line)


def _repair(line: bytes) -> JSONRPCMessage | None:
    number: object = None
    try:
        value, rest = _first_value(line)
    except (ValueError, RecursionError):
        is_answer = _ANSWER_START.match(line.lstrip()) and b'"method"' not in line[:200]
        if is_answer and (match := _ANSWER_ID.search(line)):
            number = int(match[1] or match[2])
    else:
        if (answer := _find_answer(rest.encode())) is not None:
            return answer
        with suppress(ValueError):
            return _message_of(value)
        members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        if "method" not in members and members.keys() & _ANSWER_MEMBERS:
            number = members.get("id")
    if isinstance(number, bool) or not isinstance(number, int | str):
        return None
    fault = ErrorData(code=INTERNAL_ERROR, message="The server sent an answer that is no JSON-RPC.")
    return JSONRPCError(jsonrpc="2.0", id=number, error=fault)


def _find_answer(line: bytes) -> JSONRPCMessage | None:
    """Return the answer in a line that begins with text. Nothing else: a log may quote our own requests."""
    for start in itertools.islice(_ANSWER_START.finditer(line), GLUED_STARTS):
        with suppress(ValueError, RecursionError):
            message = _message_of(_first_value(line[start.start() :])[0])
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                return message
    return None


def find_quoted(line: bytes) -> tuple[bytes, JSONRPCResponse | JSONRPCError] | None:
    """Return the text of a line and the answer at its end, which the text may quote or may be printed before."""
    for start in itertools.islice(QUOTED_START.finditer(line), GLUED_STARTS):
        with suppress(ValueError, RecursionError):
            value, rest = _first_value(line[start.start() :])
            message = None if rest.strip() else _message_of(value)
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                return line[: start.start()], message
    return None


def _first_value(line: bytes) -> tuple[object, str]:
    """Return the JSON value at the beginning of a line, and the text after it."""
    text = line.decode("utf-8", "replace").lstrip()
    value, end = _DECODER.raw_decode(text)
    return value, text[end:]


def _message_of(value: object) -> JSONRPCMessage:
    repaired = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return jsonrpc_message_adapter.validate_json(repaired, by_name=False)
