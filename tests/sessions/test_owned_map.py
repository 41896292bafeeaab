"""The entries of one owner displace none of another who has fewer."""

from __future__ import annotations

import random

from statehold.sessions.owned_map import BoundedMap, OwnedMap


def test_one_entry_too_many_displaces_the_one_that_was_set_longest_ago() -> None:
    entries = BoundedMap[str, int](2)
    entries["a"] = entries["b"] = 1
    entries["a"] = 2
    entries["c"] = 3
    assert list(entries.items()) == [("a", 2), ("c", 3)]


def test_a_flood_of_one_owner_displaces_its_own_oldest_entries_only() -> None:
    entries = OwnedMap[str, int](10)
    for number in range(3):
        entries.put("alice", f"alice {number}", number)
    for number in range(1000):
        entries.put("bob", f"bob {number}", number)
    assert [entries.get(f"alice {number}") for number in range(3)] == [0, 1, 2]
    assert len(entries) == 10
    assert entries.get("bob 999") == 999
    assert entries.get("bob 992") is None
    # A newcomer has its place from the one with the most.
    entries.put("carol", "carol", 7)
    assert entries.get("carol") == 7
    assert entries.get("bob 993") is None
    assert entries.get("alice 0") == 0


def test_the_oldest_goes_where_all_owners_have_the_same() -> None:
    entries = OwnedMap[str, int](3)
    for owner in "abc":
        entries.put(owner, owner, 1)
    entries.put("a", "a", 2)
    entries.put("d", "d", 1)
    assert [entries.get(owner) for owner in "abcd"] == [2, None, 1, 1]


def test_the_map_agrees_with_a_slow_one() -> None:
    rng = random.Random(5)
    entries, most, total = OwnedMap[int, int](20, most=8), 8, 20
    slow: dict[int, str] = {}
    for step in range(5000):
        key, owner = rng.randrange(60), rng.choice("aaaabbbcd")
        slow.pop(key, None)
        if rng.random() < 0.2:
            entries.pop(key)
        else:
            entries.put(owner, key, step)
            slow[key] = owner
            counts = {each: list(slow.values()).count(each) for each in slow.values()}
            if counts[owner] > most:
                del slow[next(k for k, each in slow.items() if each == owner)]
            elif len(slow) > total:
                highest = max(counts.values())
                victims = [each for each in counts if counts[each] == highest]
                gone = [k for k in slow if entries.get(k) is None]
                assert len(gone) == 1
                assert slow[gone[0]] == (owner if owner in victims else slow[gone[0]])
                assert slow[gone[0]] in victims
                assert gone[0] == next(k for k, each in slow.items() if each == slow[gone[0]])
                del slow[gone[0]]
        assert len(entries) == len(slow)
        assert all(entries.get(k) is not None for k in slow)
