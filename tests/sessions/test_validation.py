"""Valid and invalid labels, from every caller."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from support.counting import Counting
from support.engine import Build
from support.selection import matrix

from statehold.sessions.errors import InvalidArgument
from statehold.sessions.records import LOCAL
from statehold.sessions.validation import label


@pytest.mark.parametrize("end", matrix(0x3000, sys.maxunicode + 1))
def test_a_label_has_every_character_but_those_that_control(end: int) -> None:
    controls = set[str]()
    for char in map(chr, range(end)):
        try:
            assert label("it", char) == char
        except InvalidArgument:
            controls.add(char)
    assert {unicodedata.category(char) for char in controls} == {"Cc"}
    assert len(controls) == 65


async def test_no_caller_gives_a_label_that_cannot_be_kept(build: Build) -> None:
    async with build(Counting()) as engine:
        for labels in ({"owner": "ann"}, {"team_id": "a\0"}):
            with pytest.raises(InvalidArgument, match=next(iter(labels))):
                await engine.create(labels=labels)
        session = await engine.create()
        for role, run, wrong in (
            ("a\0", None, "role"),
            ("x" * 65, None, "role"),
            ("user", "\0", "run_id"),
        ):
            with pytest.raises(InvalidArgument, match=wrong):
                await engine.registry.history.note(LOCAL, session.id, role, "said", run)
