"""Bounded maps: of one owner, and of several, where the entries of one of them displace none of others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMap(dict[K, V]):
    """A dict of at most `most` entries. One that is set with [] is the newest, and one more displaces the oldest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]


class OwnedMap(Generic[K, V]):
    """A map of at most `total` entries, each of which belongs to an owner.

    One entry more takes the place of the oldest entry of the owner that has the most, who is the new entry's own owner among
    equals. `most` is a fixed maximum for one owner, 0 for none: beyond it, its own oldest entry goes. Every method is
    synchronous, and takes the same time however many entries and owners there are.
    """

    def __init__(self, total: int, *, most: int = 0) -> None:
        self._total = total
        self._most = most
        self._entries: dict[K, tuple[Hashable, V]] = {}
        self._keys: dict[Hashable, dict[K, None]] = {}
        """The keys of each owner, the oldest first."""
        self._owners: dict[int, dict[Hashable, None]] = {}
        """The owners by the number of their entries."""
        self._highest = 0
        """The highest of these numbers."""

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def entries(self) -> Iterator[tuple[Hashable, K, V]]:
        """Return the entries with their owners, the oldest first."""
        for key, (owner, value) in self._entries.items():
            yield owner, key, value

    def replace(self, key: K, value: V) -> None:
        """Set the value of an entry that there is, which stays as old as it is."""
        self._entries[key] = self._entries[key][0], value

    def put(self, owner: Hashable, key: K, value: V) -> Hashable | None:
        """Set an entry, which is the newest one of its owner then. Return the owner whose oldest entry it displaced."""
        self.pop(key)
        own = self._keys.setdefault(owner, {})
        own[key] = None
        self._entries[key] = owner, value
        self._count(owner, len(own) - 1, len(own))
        victim = None
        if self._most and len(own) > self._most:
            victim = owner
        elif len(self._entries) > self._total:
            has_most = 1 < len(own) == self._highest
            victim = owner if has_most else next(iter(self._owners[self._highest]))
        if victim is not None:
            self.pop(next(iter(self._keys[victim])))
        return victim

    def pop(self, key: K) -> V | None:
        """Remove an entry, and return its value; None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        owner, value = entry
        own = self._keys[owner]
        del own[key]
        self._count(owner, len(own) + 1, len(own))
        if not own:
            del self._keys[owner]
        return value

    def __len__(self) -> int:
        return len(self._entries)

    def _count(self, owner: Hashable, before: int, after: int) -> None:
        if before:
            same = self._owners[before]
            del same[owner]
            if not same:
                del self._owners[before]
        if after:
            self._owners.setdefault(after, {})[owner] = None
        if after > self._highest or self._highest not in self._owners:
            self._highest = after
