"""Imports of the SDK: its packages, its models and some of its modules are executed when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Union

from pydantic import BaseModel, TypeAdapter

PACKAGES = ("mcp", "mcp.client", "mcp.server")
"""The packages that import the SDK's client, its server framework and an HTTP client, for names that no server uses."""
MODULES = (
    *("mcp_types._v2025_11_25", "mcp_types._v2026_07_28"),
    *("mcp.server.auth.routes", "mcp.server.streamable_http", "mcp.server.streamable_http_manager"),
    "sse_starlette",
)
"""The models of the two eras, of which a client speaks one, and modules for methods of the SDK's server that serve HTTP."""

_lock = RLock()
_executing: set[str] = set()


@contextmanager
def defer_models() -> Generator[None]:
    """Let pydantic build the models that the block defines when they are first used.

    The SDK defines some 600 models, and a process uses a tenth of them.
    Building all of them would take a tenth of its start. The same holds for type adapters.
    """
    config, decide = BaseModel.model_config, vars(TypeAdapter)["_defer_build"]
    is_deferring = config.get("defer_build", False)
    config["defer_build"] = True
    TypeAdapter._defer_build = True  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    try:
        yield
    finally:
        config["defer_build"] = is_deferring
        TypeAdapter._defer_build = decide  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


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


class DeferredName:
    """Stands for a class or a function of a module, which is imported at the first call or use of an attribute."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._import()(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._import(), name)
        setattr(self, name, value)
        return value

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007 - it is no class

    def __get_pydantic_core_schema__(self, _: Any, handler: Any) -> Any:
        return handler.generate_schema(self._import())

    def _import(self) -> Any:
        with defer_models():
            return getattr(import_module(self._module), self._name)


@contextmanager
def defer_names(modules: Sequence[str] = MODULES) -> Generator[None]:
    """Let what the block imports have DeferredNames of these modules, unless they are imported already.

    The block must not derive a class from such a name; that fails.
    """
    missing = [name for name in modules if name not in sys.modules]
    for name in missing:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__["__getattr__"] = partial(_deferred_name, name)
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


def _deferred_name(module: str, name: str) -> DeferredName:
    if name.startswith("__"):
        raise AttributeError(name)
    return DeferredName(module, name)


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
