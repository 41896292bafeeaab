"""Which results of an upstream are passed on."""

from __future__ import annotations

from typing import Any

import pytest

from statehold.sessions.services import JSON
from statehold.tools.upstream.errors import UpstreamMisbehaved
from statehold.tools.upstream.results import checked


def passed(result: JSON) -> JSON:
    return checked(result, modern=False, service="s", tool=True)


@pytest.mark.parametrize("meta", [5, None, [], "x"])
def test_meta_that_is_no_object_is_left_out(meta: Any) -> None:
    assert passed({"content": [], "_meta": meta}) == {"content": []}


@pytest.mark.parametrize("resource", [{}, {"text": None}, {"blob": 5}, {"text": {}}])
def test_a_resource_without_text_or_blob_is_none(resource: JSON) -> None:
    block = {"type": "resource", "resource": {"uri": "a:b", **resource}}
    with pytest.raises(UpstreamMisbehaved, match="without text or blob"):
        passed({"content": [block]})


@pytest.mark.parametrize("resource", [{"text": ""}, {"blob": ""}])
def test_a_resource_may_be_empty(resource: JSON) -> None:
    result: JSON = {"content": [{"type": "resource", "resource": {"uri": "a:b", **resource}}]}
    assert passed(result) == result
