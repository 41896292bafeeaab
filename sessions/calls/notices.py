"""Notes about replaced connections in results, placed so that every client shows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ..attribution import NOTE, NOTICE_MEMBER, NOTICE_META
from ..errors import ConnectionLost
from ..json_codec import JSON
from ..live.binding import Binding
from ..live.session import LiveSession
from ..services import ToolResult, ToolSpec

STRUCTURED_ONLY: Final = frozenset(
    {
        "claude-code",
        "codex-mcp-client",
        "cursor-vscode",
        "opencode",
        "Visual Studio Code",
        "Visual Studio Code - Insiders",
    }
)
"""The clients that show their model structured content alone where a result has it, by their name in the handshake."""

_OPEN: Final = frozenset(
    {"$schema", "$id", "$defs", "$comment", "definitions", "type", "title", "description"}
    | {"properties", "required", "additionalProperties", "default", "examples", "minProperties"}
)
"""Keywords at the root of a schema that leave it open for one more member."""


MAX_NOTES: Final = 20
"""Notes about one service that are kept; the oldest go first."""


class ServiceNotes:
    """Notes about services: each principal gets each one once, in the next result over the service.

    They live as long as their process, and no receipt keeps them.
    """

    def __init__(self) -> None:
        self._notes: dict[str, deque[tuple[str, set[str]]]] = {}
        """The notes about each service, with the principals that have them."""

    def add(self, service: str, sentence: str) -> None:
        notes = self._notes.setdefault(service, deque(maxlen=MAX_NOTES))
        notes.append((f"{NOTE}: {sentence}", set()))

    def take(
        self, service: str, principal: str, client: str | None, spec: ToolSpec | None
    ) -> str | None:
        """Return what the result of a tool carries, if its client would show it; None without a note."""
        notes = self._notes.get(service)
        if notes is None or not (shows_content(client) or accepts_notice(spec)):
            return None
        due = [each for each in notes if principal not in each[1]]
        for _, principals in due:
            principals.add(principal)
        return "\n".join(text for text, _ in due) or None


def shows_content(client: str | None) -> bool:
    """Return whether a client, by its name in the handshake, shows content also where a result has structured content."""
    return client not in STRUCTURED_ONLY


def accepts_notice(spec: ToolSpec | None) -> bool:
    """Return whether a tool's output schema allows a member of ours in its structured content."""
    output_schema: object = None if spec is None else spec.definition.get("outputSchema")
    if output_schema is None:
        return True
    if not isinstance(output_schema, dict):
        return False
    schema = cast("Mapping[str, Any]", output_schema)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    return (
        schema.get("type", "object") == "object"
        and schema.keys() <= _OPEN
        and schema.get("additionalProperties", True) in (True, {})
        and NOTICE_MEMBER not in properties
    )


def with_notice(result: ToolResult) -> JSON:
    """Return the payload of a result for its receipt: with its notice, and with nothing else under that name."""
    payload = result.payload
    meta: object = payload.get("_meta")
    fields = cast("JSON", meta) if isinstance(meta, dict) else {}
    if result.notice is not None:
        return {**payload, "_meta": {**fields, NOTICE_META: result.notice}}
    if NOTICE_META not in fields:
        return payload
    return {**payload, "_meta": {key: fields[key] for key in fields if key != NOTICE_META}}


def without_notice(payload: JSON) -> ToolResult:
    """Return the result that a receipt keeps, with its notice separated."""
    meta: object = payload.get("_meta")
    notice: object = cast("JSON", meta).get(NOTICE_META) if isinstance(meta, dict) else None
    if not isinstance(notice, str):
        return ToolResult(payload)
    rest = {key: value for key, value in cast("JSON", meta).items() if key != NOTICE_META}
    plain = {key: value for key, value in payload.items() if key != "_meta"}
    return ToolResult({**plain, "_meta": rest} if rest else plain, notice=notice)


@dataclass(frozen=True, slots=True)
class NoticePart:
    """The notice of one replaced connection, with the values of the binding that are needed to repeat it."""

    binding: Binding
    notice: str
    unreported_losses: str
    generation: int
    reported_before: int


class Delivery:
    """The notice that one answer carries. It counts as delivered unless the transport calls revert()."""

    def __init__(self, session: LiveSession, general: str | None, parts: list[NoticePart]) -> None:
        self.session = session
        self._general = general
        self._parts = parts
        self._is_reverted = False
        self.text = "\n".join(filter(None, [general, *(part.notice for part in parts)]))

    @property
    def bindings(self) -> list[Binding]:
        """The bindings whose notices it carries."""
        return [part.binding for part in self._parts]

    def revert(self) -> bool:
        """Make the notice due again, ahead of newer ones; return False when it was reverted before."""
        if self._is_reverted:
            return False
        self._is_reverted = True
        self.session.notice = _join("\n", self._general, self.session.notice)
        for part in self._parts:
            binding = part.binding
            binding.notice = _join("\n", part.notice, binding.notice)
            binding.unreported_losses = (
                _join(", ", part.unreported_losses, binding.unreported_losses) or ""
            )
            if binding.record.told_generation == part.generation:
                binding.update(told_generation=part.reported_before)
        return True


class CallDeferred(ConnectionLost):
    """Raised instead of running a call whose client would not show the note about a replaced connection in its result."""

    recovery = "The call was not run, because its result could not carry this note: call again."

    def __init__(self, delivery: Delivery) -> None:
        super().__init__(delivery.text, session_id=delivery.session.id)
        self.delivery = delivery
        """The notice that this error carries."""


def take_notices(session: LiveSession, *bindings: Binding) -> Delivery | None:
    """Take the notices of the session and of replaced connections for the next result; None when none is due."""
    general, session.notice = session.notice, None
    parts: list[NoticePart] = []
    for binding in bindings:
        if binding.notice is not None:
            record = binding.record
            reported_before = record.told_generation
            parts.append(
                NoticePart(
                    binding,
                    binding.notice,
                    binding.unreported_losses,
                    record.generation,
                    reported_before,
                )
            )
            binding.notice, binding.unreported_losses = None, ""
            binding.update(told_generation=record.generation)
    return Delivery(session, general, parts) if general is not None or parts else None


def _join(separator: str, *texts: str | None) -> str | None:
    return separator.join(dict.fromkeys(text for text in texts if text)) or None
