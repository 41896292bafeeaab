"""connect() and its three transports: HTTP, stdio and embedded."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from .client import Client
from .protocol.elicitation import ElicitationCallback
from .protocol.retry import RetryingRequests, RetryPolicy
from .transport.base import Transport

if TYPE_CHECKING:
    from ..server.config.model import Config

StrPath: TypeAlias = str | os.PathLike[str]


def connect(
    url: str | None = None,
    *,
    stdio: Sequence[str] | None = None,
    config: Config | StrPath | None = None,
    services: Mapping[str, Any] | StrPath | None = None,
    data: StrPath | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    max_connections: int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    namespace: str = "",
    elicitation_callback: ElicitationCallback | None = None,
    retry_seconds: float = 60.0,
) -> Client:
    """Return a client; `async with` it to connect.

    `url` connects to the Statehold that serves there. `stdio` is a command that starts one; it ends with the client. With
    neither, a whole Statehold runs in this process, without a port or a process of its own: with `config` (a Config or a
    TOML file) and `services` (a client's `mcpServers` table or file). It stores its data in the folder `data`, else where
    `config` says (`data`, `ephemeral`, `[store]`), else in memory only.

    `headers` and a bearer `token` go with every request to a `url`, over at most `max_connections` (64) at once. `env` and
    `cwd` are those of the `stdio` process.
    `elicitation_callback` answers questions of tools. The client tries to reach a lost server again for `retry_seconds`.

    Raises:
        ConfigError: `config` or `services` are wrong. The first call after the services started raises it when two
            services have a tool of the same name.
        TypeError: an argument does not apply to this transport.
    """
    _require_matching(
        (
            "url",
            url is not None,
            {"headers": headers, "token": token, "max_connections": max_connections},
        ),
        ("stdio", stdio is not None, {"env": env, "cwd": cwd}),
        ("", url is None and stdio is None, {"config": config, "services": services, "data": data}),
    )
    if isinstance(stdio, str | bytes | os.PathLike):
        raise TypeError("stdio is a list of a program and its arguments, such as ['statehold']")
    if elicitation_callback is not None and _is_plain(elicitation_callback):
        raise TypeError(
            "elicitation_callback needs an `async def` function; plain ones are for statehold.client.sync"
        )
    transport: Transport
    if url is not None:
        from .transport.http import MAX_CONNECTIONS, HttpTransport

        most = MAX_CONNECTIONS if max_connections is None else max_connections
        transport = HttpTransport(_endpoint(url), _headers(headers, token), max_connections=most)
    elif stdio is not None:
        from .transport.stdio import StdioTransport

        transport = StdioTransport(stdio, env=env, cwd=None if cwd is None else os.fspath(cwd))
    else:
        from .transport.embedded import EmbeddedTransport, load_config

        transport = EmbeddedTransport(load_config(config, services, data))
    requests = RetryingRequests(
        transport, policy=RetryPolicy(retry_seconds), elicitation_callback=elicitation_callback
    )
    client = Client(requests)
    return client.namespace(namespace) if namespace else client


def _require_matching(*transports: tuple[str, bool, Mapping[str, object]]) -> None:
    chosen = [name for name, is_chosen, _ in transports if is_chosen]
    if len(chosen) > 1:
        raise TypeError("connect() takes a url or stdio, not both")
    for name, is_chosen, options in transports:
        wrong = [option for option, value in options.items() if value is not None]
        if wrong and not is_chosen:
            requirement = (
                f"needs {name}" if name else "is for an embedded Statehold, without url and stdio"
            )
            raise TypeError(f"{wrong[0]} {requirement}")


def _is_plain(callback: Callable[..., object]) -> bool:
    """Return whether a function is certainly not async. A lambda may return an awaitable."""
    while isinstance(callback, partial):
        callback = callback.func
    function = inspect.unwrap(callback)
    return (
        (inspect.isfunction(function) or inspect.ismethod(function))
        and function.__name__ != "<lambda>"
        and not any(map(inspect.iscoroutinefunction, (callback, function)))
    )


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{url!r} is no address of a server; it should look like http://127.0.0.1:8931"
        )
    path = parts.path.rstrip("/")
    if path.startswith("/s/"):
        raise ValueError(
            "a session's own URL is for clients that know no sessions; give the server's"
        )
    return urlunsplit(
        (*parts[:2], path if path.endswith("/mcp") else f"{path}/mcp", parts.query, "")
    )


def _headers(headers: Mapping[str, str] | None, token: str | None) -> dict[str, str]:
    merged = dict(headers or {})
    if token is not None:
        merged["authorization"] = f"Bearer {token}"
    return merged


__all__ = ["connect"]
