"""Files with settings, and the errors about wrong ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load

SECRET = "s3cret-v4lue"


def toml(folder: Path, text: str) -> Path:
    path = folder / "statehold.toml"
    path.write_text(text, encoding="utf-8")
    return path


def client_file(folder: Path, text: str | Mapping[str, Any]) -> Path:
    path = folder / "mcp.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def refused(**sources: Any) -> str:
    """Return the one-line error about these sources when a wrong service is refused as well."""
    flags = {"strict": True, **sources.pop("flags", {})}
    with pytest.raises(ConfigError) as failure:
        load(environ=sources.pop("environ", {}), flags=flags, **sources)
    message = str(failure.value)
    assert "\n" not in message
    assert SECRET not in message
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__ or failure.value.__context__ is None
    return message
