"""The work of a call that goes on without a request: its questions, which anyone who may answer it finds, and its end.

A call that was handed over has one in the process that runs it, and in the next one, which waits for its answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio

from ..concurrency import LazyEvent
from ..errors import NotAllowed, SessionError
from ..json_codec import JSON
from ..services import CallerOptions


@dataclass(eq=False)
class OpenQuestion:
    """A question and its answer, which is there once `answered` is set."""

    request: JSON
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: JSON = field(default_factory=dict[str, object])


@dataclass(eq=False)
class OpenWork:
    """The work of one call. It lives until that has ended; cancelling `scope` cancels the call."""

    now: Callable[[], float]
    on_changed: Callable[[], None] = lambda: None
    """Called when it asks, and when it has ended; it must not block."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    turn: LazyEvent = field(default_factory=LazyEvent)
    """Set while it has a question, and at its end."""
    done: LazyEvent = field(default_factory=LazyEvent)
    message: str | None = None
    """Its last progress message."""
    updated_at: float = 0.0
    blocked: Callable[[], SessionError] | None = None
    """Set while a person has to act elsewhere: returns the error that says so."""
    _questions: dict[str, OpenQuestion] = field(default_factory=dict[str, OpenQuestion])

    @property
    def questions(self) -> dict[str, JSON]:
        """The requests of the open questions by their keys."""
        return {key: question.request for key, question in self._questions.items()}

    @property
    def question(self) -> str | None:
        """The text of the open questions, each with the address that it asks to open; None without one."""
        params = [each["params"] for each in self.questions.values()]
        texts = [f"{each.get('message', '')} {each.get('url', '')}".rstrip() for each in params]
        return "\n".join(texts) if texts else None

    async def ask(self, method: str, params: JSON) -> JSON:
        """Put a question to whoever answers it; return the answer."""
        # SEP-2663: no key is used again, also not by the next process.
        key = f"q{secrets.token_hex(8)}"
        question = self._questions[key] = OpenQuestion({"method": method, "params": params})
        self.updated_at = self.now()
        self.turn.set()
        self.on_changed()
        try:
            await question.answered.wait()
            return question.answer
        finally:
            self._questions.pop(key, None)

    def answer(self, answers: Mapping[str, JSON]) -> None:
        """Answer open questions; answers to others are ignored."""
        for key in self._questions.keys() & answers.keys():
            question = self._questions.pop(key)
            question.answer = answers[key]
            question.answered.set()
        self.updated_at = self.now()
        if not self._questions and not self.done.is_set():
            self.turn = LazyEvent()

    def note(self, progress: float, total: float | None, message: str | None) -> None:
        """Keep the last progress message."""
        parts = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self.message, self.updated_at = message or parts, self.now()

    def end(self) -> None:
        self.done.set()
        self.turn.set()
        self.on_changed()


@dataclass(eq=False)
class InterruptedCaller:
    """The context of a call of an earlier process; see CallContext. Without `work` nobody answers its questions."""

    work: OpenWork | None
    options: CallerOptions = field(default_factory=CallerOptions)
    capabilities: JSON = field(default_factory=dict[str, object])
    wants_facts: bool = False
    reachable: bool = True
    operation_id: str | None = None
    note_upstream_task: Callable[[str], Awaitable[None]] | None = None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self.work is not None:
            self.work.note(progress, total, message)

    async def log(self, params: JSON) -> None:
        """Drop the message: no request waits for it."""

    async def ask(self, method: str, params: JSON) -> JSON:
        if self.work is None:
            raise NotAllowed("The call goes on without its caller, and nobody answers.")
        return await self.work.ask(method, params)
