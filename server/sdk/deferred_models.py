"""Imports of modules that define many pydantic models."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pydantic import BaseModel


@contextmanager
def defer_models() -> Generator[None]:
    """Let pydantic build the models that the block defines when they are first used.

    The SDK defines some 600 models, and a process uses a tenth of them.
    Building all of them would take a tenth of its start.
    """
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]
