"""Imports of the SDK: its packages and its models are built when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any

from pydantic import BaseModel

PACKAGES = ("mcp", "mcp.client", "mcp.server")
"""The packages that import the SDK's client, its server framework and an HTTP client, for names that no server uses."""

_lock = RLock()
_executing: set[str] = set()


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


def defer_packages(packages: Sequence[str] = PACKAGES) -> None:
    """Let Python execute the `__init__` modules of packages when one of their own names is first used.

    Their submodules are imported as ever. Call it before the first import of the SDK; later it does nothing. Other threads
    that use a name meanwhile wait. If the execution fails, the next use of a name repeats it.
    """
    for name in packages:
        if name in sys.modules:
            continue
        spec = find_spec(name)
        if spec is None:
            return
        package = module_from_spec(spec)
        package.__dict__["__getattr__"] = partial(_execute, package)
        sys.modules[name] = package
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, package)


def _execute(package: ModuleType, name: str) -> Any:
    """Execute the `__init__` module of a package, and return the attribute that was looked up."""
    with _lock:
        members, package_name = package.__dict__, package.__name__
        if package_name in _executing:
            # A module that the package imports looks for a submodule, or for a name that is not there yet.
            raise AttributeError(f"module {package_name!r} has no attribute {name!r}", name=name)
        deferring = members.get("__getattr__")
        # Else another thread executed it while this one waited.
        if isinstance(deferring, partial) and deferring.func is _execute:
            assert package.__spec__ is not None
            assert package.__spec__.loader is not None
            _executing.add(package_name)
            try:
                package.__spec__.loader.exec_module(package)
            finally:
                _executing.discard(package_name)
            if members.get("__getattr__") is deferring:
                del members["__getattr__"]
    return getattr(package, name)
