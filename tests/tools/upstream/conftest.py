"""Services over real upstreams."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from callers import SHORT, UPSTREAMS, Serving

from statehold.tools.processes.ledger import Ledger
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService


@pytest.fixture
def serving(tmp_path: Path, ledger: Ledger) -> Serving:
    """`serving("quick", "--era", "legacy", pause="keep")` is a service over tests/upstreams/quick.py, on stdio."""

    def make(name: str, *arguments: str, **settings: Any) -> UpstreamService:
        program = str(UPSTREAMS / f"{name}.py")
        entry = {"command": sys.executable, "args": [program, *arguments], **settings}
        config = UpstreamConfig.model_validate(entry)
        return UpstreamService(name, config, data=tmp_path / "data", ledger=ledger, limits=SHORT)

    return make
