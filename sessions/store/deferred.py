"""A store that is built when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from .base import Store


class DeferredStore:
    """A `Store` that imports and builds its implementation when it is opened, and passes every call to it.

    So a process can list its tools before it imports a database library. Opening it raises what `build` raises.
    """

    def __init__(self, build: Callable[[], Store]) -> None:
        self._build = build

    async def __aenter__(self) -> Self:
        self._store = self._build()
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._store.__aexit__(*exc)

    def __getattr__(self, name: str) -> Any:
        if name == "_store":
            raise AttributeError("the store is not open")
        value = getattr(self._store, name)
        if callable(value):
            # The next call reaches the method without this one; a property has to be read again.
            setattr(self, name, value)
        return value


__all__ = ["DeferredStore"]
