"""Elicitation: the questions of a server during a call, and the callback that answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..results import object_of

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a tool, which it needs answer_all to go on."""

    message: str
    schema: JSON | None = None
    """The JSON Schema of the answer; None where there is a page to open instead."""
    url: str | None = None
    """The page on which the answer is to be given."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, for cases other than a mapping (accepted) or None (declined)."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None


AnswerLike: TypeAlias = Mapping[str, Any] | Answer | None
ElicitationCallback: TypeAlias = Callable[[Question], Awaitable[AnswerLike]]
"""Answers a question: a mapping that fits its schema, None to decline, or an Answer."""


class ElicitationRound:
    """The questions of one call, put to a callback one after the other.

    When the callback fails, this and every later question is answer_all with `cancel`, so that the call ends at the server;
    the caller raises `failure` then.
    """

    def __init__(self, answer: ElicitationCallback) -> None:
        self._callback = answer
        self.failure: Exception | None = None

    async def answer_all(self, asked: Mapping[str, Any]) -> JSON:
        """Return the answers by the keys of the questions."""
        return {key: await self._answer_or_cancel(request) for key, request in asked.items()}

    async def _answer_or_cancel(self, request: JSON) -> JSON:
        if self.failure is None:
            try:
                return await self._answer_one(request)
            except Exception as error:
                self.failure = error
        return {"action": "cancel"}

    async def _answer_one(self, request: JSON) -> JSON:
        if request.get("method") != "elicitation/create":
            # Other requests are not declared as supported.
            return {"action": "decline"}
        params = object_of(request.get("params"))
        question = Question(
            str(params.get("message", "")), params.get("requestedSchema"), params.get("url")
        )
        found = await self._callback(question)
        if found is None:
            return {"action": "decline"}
        if not isinstance(found, Answer):
            return {"action": "accept", "content": dict(found)}
        answer: JSON = {"action": found.action}
        if found.content is not None:
            answer["content"] = dict(found.content)
        return answer


__all__ = ["Answer", "AnswerLike", "ElicitationCallback", "ElicitationRound", "Question"]
