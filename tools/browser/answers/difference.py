"""The difference between two snapshots of a page."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Change: TypeAlias = tuple[range, range]
"""The numbers of the old lines that are replaced, and of the new lines in their place."""

MAX_LINES: Final = 100
"""The most lines that are compared with each other: the time of that grows with the square of their number."""


def difference(before: str, after: str) -> str | None:
    """Return the difference between two snapshots: removed lines with `-`, new ones with `+`, with neighbouring lines.

    None if so much changed that the snapshot itself is clearer. Takes time in proportion to the length of the snapshots.
    """
    old, new = before.splitlines(), after.splitlines()
    changes = list(_changes(old, new, range(len(old)), range(len(new))))
    if sum(len(added) for _, added in changes) * 2 > len(new) + 10:
        return None
    lines: list[str] = []
    end = 0
    """The number of the first new line that is not shown yet."""
    for number, (removed, added) in enumerate(changes):
        if lines and added.start > end + 1:
            lines.append("@@")
        lines += [f" {line}" for line in new[max(end, added.start - 1) : added.start]]
        lines += [f"-{old[n]}" for n in removed] + [f"+{new[n]}" for n in added]
        following = changes[number + 1][1].start if number + 1 < len(changes) else len(new)
        end = min(added.stop + 1, following)
        lines += [f" {line}" for line in new[added.stop : end]]
    return "\n".join(lines)


def _changes(old: list[str], new: list[str], before: range, after: range) -> Iterator[Change]:
    """Yield the changes between ranges of lines, in order.

    Almost every line of a snapshot has a ref, and occurs once; such lines divide the ranges into small ones.
    """
    before, after = _different(old, new, before, after)
    if not before and not after:
        return
    anchors = _anchors(old, new, before, after)
    if not anchors:
        yield from _small_changes(old, new, before, after)
        return
    starts = [(before.start, after.start), *((i + 1, j + 1) for i, j in anchors)]
    for (i, j), (end, other_end) in zip(starts, [*anchors, (before.stop, after.stop)], strict=True):
        if i < end or j < other_end:
            yield from _small_changes(old, new, range(i, end), range(j, other_end))


def _different(old: list[str], new: list[str], before: range, after: range) -> Change:
    """Return the ranges without the lines that are equal at their beginnings and ends."""
    start = _count_equal((old[i], new[j]) for i, j in zip(before, after, strict=False))
    before, after = before[start:], after[start:]
    pairs = zip(reversed(before), reversed(after), strict=False)
    end = _count_equal((old[i], new[j]) for i, j in pairs)
    return before[: len(before) - end], after[: len(after) - end]


def _count_equal(pairs: Iterable[tuple[str, str]]) -> int:
    """Return the number of leading pairs of equal lines."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _anchors(old: list[str], new: list[str], before: range, after: range) -> list[tuple[int, int]]:
    """Return the numbers of lines that occur once in both ranges, as many as are in the same order."""
    old_counts, new_counts = Counter(old[i] for i in before), Counter(new[j] for j in after)
    places = {new[j]: j for j in after if new_counts[new[j]] == 1}
    pairs = [(i, places[old[i]]) for i in before if old_counts[old[i]] == 1 and old[i] in places]
    # The longest increasing subsequence of the places in the new text.
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect.bisect_left(ends, place)
        previous.append(last[length - 1] if length else -1)
        ends[length : length + 1], last[length : length + 1] = [place], [number]
    anchors: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        anchors.append(pairs[number])
        number = previous[number]
    return anchors[::-1]


def _small_changes(old: list[str], new: list[str], before: range, after: range) -> Iterator[Change]:
    before, after = _different(old, new, before, after)
    if max(len(before), len(after)) > MAX_LINES or not before or not after:
        if before or after:
            yield before, after
        return
    import difflib  # here because the start of a process would pay for it

    matcher = difflib.SequenceMatcher(
        None, [old[i] for i in before], [new[j] for j in after], autojunk=False
    )
    for kind, i, end, j, other_end in matcher.get_opcodes():
        if kind != "equal":
            yield before[i:end], after[j:other_end]
