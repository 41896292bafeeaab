"""Imports of the SDK's packages."""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any

PACKAGES = ("mcp", "mcp.client", "mcp.server")
"""The packages that import the SDK's client, its server framework and an HTTP client, for names that no server uses."""

_lock = RLock()


def defer_packages() -> None:
    """Let Python execute the `__init__` modules of PACKAGES when one of their own names is first used.

    Their submodules are imported as ever. Call it before the first import of the SDK; later it does nothing.
    """
    for name in PACKAGES:
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
        if package.__dict__.pop("__getattr__", None) is not None:
            assert package.__spec__ is not None
            assert package.__spec__.loader is not None
            package.__spec__.loader.exec_module(package)
    return getattr(package, name)


__all__ = ["PACKAGES", "defer_packages"]
