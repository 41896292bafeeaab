"""The file of the schemas of our own tools agrees with their models. Run this file to write it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from statehold.tools import own
from statehold.tools.definition import SCHEMAS, Arguments, build_schema
from statehold.tools.own import session_tools, state_tools


def content() -> str:
    # It imports the modules of all of them.
    importlib.import_module("statehold.tools.own.toolsets")
    results = (session_tools.CreatedSession, state_tools.StateValue, state_tools.StateVersion)
    models: dict[str, Sequence[type[Any]]] = {
        "validation": arguments(Arguments),
        "serialization": results,
    }
    schemas = {
        f"{model.__module__}.{model.__qualname__} {mode}": build_schema(model, mode)
        for mode, each in models.items()
        for model in each
    }
    # Within a schema the order counts: models see the arguments in it.
    return json.dumps(dict(sorted(schemas.items())), indent=1, ensure_ascii=False) + "\n"


def arguments(base: type[Arguments]) -> list[type[Arguments]]:
    """Return the models of arguments of our own tools."""
    found = [model for below in base.__subclasses__() for model in (below, *arguments(below))]
    return [model for model in found if model.__module__.startswith(f"{own.__name__}.")]


def test_the_file_has_the_schemas_of_the_models() -> None:
    assert SCHEMAS.read_text(encoding="utf-8") == content(), f"run: python {__file__}"


if __name__ == "__main__":
    SCHEMAS.write_text(content(), encoding="utf-8")
