"""The answer of a user's model that sums up a session, cut and cleaned to what can be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from ..ids import NOT_IN_NAMES, is_name

TEXT: Final = 20_000
"""Characters kept of a summary."""
MAX_TOPICS: Final = 50
TOPIC: Final = 100
"""Characters kept of a topic, or a name."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A summary, its topics, and a name for the session. A model's topics and names are used as far as they can be."""

    text: str
    topics: list[str]
    name: str | None

    @classmethod
    def of(cls, answer: object) -> ModelAnswer:
        """Read `{"summary": ..., "topics": [...], "name": ...}`, of which only the first is required.

        Raises:
            ValueError: it has no summary.
        """
        fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        text, topics, name = (fields.get(key) for key in ("summary", "topics", "name"))
        if not isinstance(text, str) or not text.strip():
            raise ValueError('the answer has no text under "summary"')
        words = cast("list[object]", topics) if isinstance(topics, list) else []
        found = [_encodable(word).strip()[:TOPIC] for word in words if isinstance(word, str)]
        return cls(
            text=_encodable(text).strip()[:TEXT],
            topics=list(filter(None, found))[:MAX_TOPICS],
            name=_name_of(name) if isinstance(name, str) else None,
        )


def _name_of(text: str) -> str | None:
    name = " ".join(NOT_IN_NAMES.sub(" ", _encodable(text)).split())[:TOPIC].strip()
    return name if is_name(name) else None


def _encodable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which models write in JSON."""
    return text.encode(errors="replace").decode()
