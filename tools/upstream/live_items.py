"""Tools and prompts that a service lists only in some of its sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar
from weakref import WeakSet

from .connection import UpstreamConnection

ItemT = TypeVar("ItemT")


class LiveItems(Generic[ItemT]):
    """Items, by name, that live connections list and a fresh connection does not."""

    def __init__(self) -> None:
        self.connections = WeakSet[UpstreamConnection]()
        """The connections of sessions."""
        self._items: dict[str, ItemT] = {}
        self._listed_by: dict[str, WeakSet[UpstreamConnection]] = {}
        """The connections that listed each item when they were last asked."""

    def learn(self, connection: UpstreamConnection, items: Mapping[str, ItemT]) -> None:
        """Add the items that a live connection lists now.

        An item that it no longer lists is dropped, unless another open connection listed it when it was last asked.
        """
        for name in [name for name in self._items if name not in items]:
            self._listed_by[name].discard(connection)
            if not any(other.is_open for other in self._listed_by[name]):
                del self._items[name], self._listed_by[name]
        for name, item in items.items():
            self._items[name] = item
            self._listed_by.setdefault(name, WeakSet()).add(connection)

    def beyond(self, names: Collection[str]) -> tuple[ItemT, ...]:
        """Return the items whose names are not in `names`."""
        return tuple(item for name, item in self._items.items() if name not in names)
