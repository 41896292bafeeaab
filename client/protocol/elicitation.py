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
    """A question that a tool asks during a call. The call goes on when it is answered."""

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

    When the callback fails, this and every later question is answered with `cancel`, so that the call ends at the server;
    the caller raises `failure` then.
    """

    def __init__(self, answer: ElicitationCallback) -> None:
        self._callback = answer
        self.failure: Exception | None = None

    async def answer_all(self, questions: Mapping[str, Any]) -> JSON:
        """Return the answers by the keys of the questions."""
        return {key: await self._answer_or_cancel(request) for key, request in questions.items()}

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
        reply = await self._callback(question)
        if reply is None:
            return {"action": "decline"}
        if not isinstance(reply, Answer):
            return {"action": "accept", "content": dict(reply)}
        answer: JSON = {"action": reply.action}
        if reply.content is not None:
            answer["content"] = dict(reply.content)
        return answer


__all__ = ["Answer", "AnswerLike", "ElicitationCallback", "ElicitationRound", "Question"]
