"""connect(), for programs that block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..connect import Path
from ..connect import connect as connect_async
from ..protocol.elicitation import Answered, Question
from .client import Client
from .portal import in_thread

if TYPE_CHECKING:
    from ...server.config.model import Config

Elicitation: TypeAlias = Callable[[Question], Answered]
"""Answers a question, in a thread of its own: a mapping that fits its schema, None to decline, or an Answer."""


def connect(
    url: str | None = None,
    *,
    stdio: Sequence[str] | None = None,
    config: Config | Path | None = None,
    services: Mapping[str, Any] | Path | None = None,
    data: Path | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    namespace: str = "",
    elicitation: Elicitation | None = None,
    retry_seconds: float = 60.0,
) -> Client:
    """Return a client; `with` it to connect. Everything else is as in statehold.client.connect.

    Raises:
        ConfigError: `config` or `services` are wrong.
        TypeError: an argument does not apply to this transport.
    """
    inner = connect_async(
        url,
        stdio=stdio,
        config=config,
        services=services,
        data=data,
        headers=headers,
        token=token,
        env=env,
        cwd=cwd,
        namespace=namespace,
        elicitation=None if elicitation is None else in_thread(elicitation, "elicitation"),
        retry_seconds=retry_seconds,
    )
    return Client(inner)


__all__ = ["Elicitation", "connect"]
