"""The callers of the keeper's test: each has a session of its own, and repeats each call until it is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import anyio
import httpx2

from ..asking import Asking

ANSWER_SECONDS: Final = 90.0
REST_SECONDS: Final = (0.01, 0.05)
REPEAT_SECONDS: Final = 0.02
OUTCOME_UNKNOWN: Final = "'outcome_unknown'"
NOTICE: Final = "statehold_notice"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of upstream: the tool that its callers call, which returns how often it ran, and the number of sessions."""

    name: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    sessions: int = 1
    over_http: bool = False
    """Whether the answer of a call in flight at a kill is lost; its outcome is then unknown."""
    logs: bool = True
    """Whether it appends each call to the log of the upstreams before it runs it."""
    preparation: str = ""
    """A function for the page of a browser, which is run once."""


@dataclass(slots=True)
class Caller:
    """One caller and the results of its calls. It makes one call at a time, from run() until stop()."""

    kind: Kind
    tag: str
    port: int
    random: Random
    session: str = ""
    sent: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """The count in each answer, by operation id."""
    unknown: list[str] = field(default_factory=list[str])
    """The operation ids whose outcome is unknown."""
    unanswered: list[str] = field(default_factory=list[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    repeats: int = 0
    notices: int = 0
    """Answers with a notice that the connection was replaced."""
    _stopping: bool = False

    def stop(self) -> None:
        """Let the caller end after its current call."""
        self._stopping = True

    async def open(self, asking: Asking) -> None:
        """Create the session, and make the first call."""
        created = await asking.call("session_create", {"name": self.tag})
        self.session = created["session_id"]
        if self.kind.preparation:
            given = {"session_id": self.session, "function": self.kind.preparation}
            await asking.call("browser_evaluate", given)
        await self.call(asking)

    async def run(self) -> None:
        async with Asking(self.port, ANSWER_SECONDS) as asking:
            while not self._stopping:
                await self.call(asking)
                await anyio.sleep(self.random.uniform(*REST_SECONDS))

    async def call(self, asking: Asking) -> None:
        """Make one call, and repeat it with its operation id until it has an answer."""
        self.sent += 1
        operation = f"{self.tag}-{self.sent}"
        arguments = {**self.kind.arguments, "session_id": self.session}
        if self.kind.logs:
            arguments["operation"] = operation
        with anyio.move_on_after(ANSWER_SECONDS):
            while True:
                try:
                    result = await asking.call(self.kind.tool, arguments, operation)
                except (httpx2.TransportError, ValueError):
                    self.repeats += 1
                except RuntimeError as error:
                    if OUTCOME_UNKNOWN in str(error):
                        self.unknown.append(operation)
                        return
                    self.errors[str(error)[:300]] += 1
                else:
                    self.counts[operation] = _count_of(result)
                    self.notices += NOTICE in result
                    return
                await anyio.sleep(REPEAT_SECONDS)
        self.unanswered.append(operation)

    @property
    def repeated_counts(self) -> int:
        """The number of answers with a count that an earlier answer had: the counter began again."""
        return len(self.counts) - len({*self.counts.values()})

    def double_runs(self, runs: Counter[str]) -> int:
        """Return how many calls ran again, by the log of the upstreams, or by a count beyond the number of calls."""
        if not self.kind.logs:
            return max(0, max(self.counts.values(), default=0) - self.sent)
        return sum(
            count - 1 for operation, count in runs.items() if operation.startswith(f"{self.tag}-")
        )

    def lost(self, runs: Counter[str]) -> list[str]:
        """Return the operations without a result, and those that have one although no upstream ran them.

        Not those of an HTTP upstream whose outcome is unknown: the answer is lost with the exchange.
        """
        unknown = () if self.kind.over_http else self.unknown
        untrue = [name for name in self.counts if self.kind.logs and name not in runs]
        return [*unknown, *self.unanswered, *untrue]


def count_losses(callers: Sequence[Caller], runs: Counter[str]) -> dict[str, int]:
    """Return the losses of some callers, by the columns of a table; each should be 0."""
    return {
        "counters reset": sum(caller.repeated_counts for caller in callers),
        "answers lost": sum(len(caller.lost(runs)) for caller in callers),
        "double runs": sum(caller.double_runs(runs) for caller in callers),
    }


def _count_of(result: dict[str, Any]) -> int:
    """Return the count in an answer. That of a browser is a text, below the heading of its result."""
    if "count" in result:
        return result["count"]
    lines = result["content"][-1]["text"].splitlines()
    return int(lines[lines.index("### Result") + 1])
