"""Questions of tools, and the callback that answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from support.gateway_process import Running

from statehold.client import Answer, Client, Question, connect
from statehold.client.protocol.elicitation import AnswerLike

Connect: TypeAlias = Callable[..., Client]


async def test_a_question_is_answered_declined_or_cancelled(way: Connect) -> None:
    questions: list[Question] = []
    answers: list[AnswerLike] = [{"answer": "42"}, None, Answer("cancel")]

    async def answer(question: Question) -> AnswerLike:
        questions.append(question)
        return answers.pop(0)

    async with way(elicitation_callback=answer) as client, client.session(services=["quick"]) as s:
        texts = [(await s.call("ask")).text for _ in range(3)]
        assert ["accept" in texts[0], "decline" in texts[1], "cancel" in texts[2]] == [True] * 3
        assert questions[0].message == "quick asks: What is the answer?"
        assert questions[0].schema is not None
        answers.extend([{"answer": "a"}, {"answer": "b"}])
        assert "b" in (await s.call("ask_twice")).text


async def test_an_exception_of_a_callback_reaches_the_caller(server: Running) -> None:
    questions: list[Question] = []

    async def answer(question: Question) -> None:
        questions.append(question)
        raise LookupError("no answer")

    async with (
        connect(server.url, elicitation_callback=answer) as client,
        client.session(services=["quick"]) as s,
    ):
        with pytest.raises(LookupError):
            await s.call("ask_twice")
        assert len(questions) == 1
        # The server no longer waits for an answer.
        assert (await s.info()).in_flight == 0
