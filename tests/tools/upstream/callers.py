"""A caller that records messages and answers questions, and other shared parts of these tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from statehold.sessions.errors import NotAllowed
from statehold.sessions.records import LOCAL
from statehold.sessions.services import CallerOptions, SessionView
from statehold.tools.processes.child_process import ProcessLimits
from statehold.tools.upstream.service import UpstreamService

NOTHING: dict[str, Any] = {}
UPSTREAMS = Path(__file__).resolve().parents[2] / "upstreams"
SHORT = ProcessLimits(
    line_bytes=4 * 2**20, stderr_bytes=4096, eof_grace=0.5, term_grace=0.3, kill_grace=2.0
)


class Caller:
    """The context of a call, as StateholdServer would pass it."""

    def __init__(self, **options: Any) -> None:
        self.options = CallerOptions(
            options.get("meta", {}),
            options.get("progress", False),
            options.get("log_level"),
            options.get("input_responses"),
            options.get("request_state"),
            options.get("modern", False),
            is_owner=options.get("owner", True),
        )
        self.capabilities: dict[str, Any] = options.get("capabilities", {})
        self.wants_facts: bool = options.get("facts", False)
        self.operation_id: str | None = None
        self.note_upstream_task: Callable[[str], Awaitable[None]] | None = None
        self.reachable: bool = True
        self.answer: Callable[[str, dict[str, Any]], Any] | None = options.get("answer")
        self.progress_reports: list[tuple[float, float | None, str | None]] = []
        self.logs: list[dict[str, Any]] = []
        self.questions: list[tuple[str, dict[str, Any]]] = []

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress_reports.append((progress, total, message))

    async def log(self, params: dict[str, Any]) -> None:
        self.logs.append(params)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.questions.append((method, params))
        if self.answer is None:
            raise NotAllowed(f"This caller cannot answer {method}.")
        return await self.answer(method, params)


def view(
    session_id: str = "sh_one",
    *,
    generation: int = 1,
    name: str | None = None,
    owner: str = LOCAL.key,
    namespace: str = "",
) -> SessionView:
    return SessionView(
        id=session_id, name=name, namespace=namespace, owner=owner, generation=generation
    )


def text_of(result: Any) -> str:
    return result.payload["content"][0]["text"]


class Serving(Protocol):
    def __call__(self, name: str, *arguments: str, **settings: Any) -> UpstreamService: ...
