"""The blocking client is what its generator makes of the async one."""

from __future__ import annotations

import pytest

from statehold.client.sync import generate


@pytest.mark.parametrize("module", generate.SOURCES)
def test_a_generated_module_is_current(module: str) -> None:
    written = (generate.SYNC / f"{module}.py").read_text(encoding="utf-8")
    assert written == generate.generate(module), "run `uv run python client/sync/generate.py`"
