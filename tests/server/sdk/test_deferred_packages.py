"""Packages, and names of modules, that are executed or imported when they are first used."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from statehold.server.sdk.deferred_imports import defer_packages

NAME = "package_of_the_deferral_test"
GATE = """
import threading
reached, go_on = threading.Event(), threading.Event()
starts, fails = [], False
"""
BODY = f"""
import {NAME}_gate as gate
gate.starts.append(1)
gate.reached.set()
assert gate.go_on.wait(30)
if gate.fails:
    raise ImportError("not this time")
from {NAME} import part
VALUE = 1
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The events that the body of the deferred package sets and waits for."""
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "__init__.py").write_text(BODY)
    (tmp_path / NAME / "part.py").write_text("")
    (tmp_path / f"{NAME}_gate.py").write_text(GATE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    defer_packages([NAME])
    yield importlib.import_module(f"{NAME}_gate")
    for name in (NAME, f"{NAME}.part", f"{NAME}_gate"):
        sys.modules.pop(name, None)


def test_threads_that_use_a_package_at_once_wait_until_it_is_executed(gate: Any) -> None:
    package, values = importlib.import_module(NAME), list[Any]()

    def read() -> None:
        values.append(getattr(package, "VALUE", None))

    threads = [threading.Thread(target=read) for _ in range(2)]
    threads[0].start()
    assert gate.reached.wait(20)
    threads[1].start()
    # An attribute that is missing would end it now.
    threads[1].join(0.2)
    gate.go_on.set()
    for thread in threads:
        thread.join(20)
    assert values == [1, 1]
    assert len(gate.starts) == 1


def test_a_package_whose_execution_failed_is_executed_again(gate: Any) -> None:
    package: ModuleType = importlib.import_module(NAME)
    gate.go_on.set()
    gate.fails = True
    with pytest.raises(ImportError, match="not this time"):
        package.VALUE  # noqa: B018
    gate.fails = False
    assert package.VALUE == 1
    assert not hasattr(package, "OTHER")
    assert len(gate.starts) == 2


SCHEMAS = """
import hashlib, json, sys
from contextlib import ExitStack
from pydantic import TypeAdapter
from statehold.server.sdk import deferred_imports as deferred
with ExitStack() as stack:
    if sys.argv[1] == "deferred":
        deferred.defer_packages()
        stack.enter_context(deferred.defer_models())
        stack.enter_context(deferred.defer_names())
    import mcp.server.lowlevel.server as lowlevel
    import mcp_types
    from mcp_types import methods
if sys.argv[1] == "deferred":
    assert not {*deferred.MODULES} & {*sys.modules}
    assert not mcp_types.client_request_adapter.pydantic_complete
ping = {"method": "ping", "params": {}}
print(type(mcp_types.client_request_adapter.validate_python(ping)))
print(lowlevel.build_resource_metadata_url("https://a.test/mcp"))
for name in ("REQUESTS", "NOTIFICATIONS", "RESULTS"):
    for side in ("CLIENT", "SERVER"):
        for key, row in getattr(methods, f"{side}_{name}").items():
            for mode in ("validation", "serialization"):
                print(key, json.dumps(TypeAdapter(row).json_schema(mode=mode), sort_keys=True))
methods.validate_client_request("ping", "2025-11-25", {})
print(methods.serialize_server_result("tools/call", "2026-07-28", {"content": [], "resultType": "complete"}))
"""


def test_the_sdk_has_the_same_models_of_each_era_when_they_are_deferred() -> None:
    """It reads the private modules of the eras by their names, and calls or validates with what it finds there."""
    deferred, plain = (
        subprocess.run(
            [sys.executable, "-c", SCHEMAS, mode], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for mode in ("deferred", "plain")
    )
    assert len(plain) > 300
    assert deferred == plain
