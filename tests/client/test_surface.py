"""The public names of the client, and the cost of importing it."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.selection import matrix

import statehold.client
from statehold.client import errors, sync
from statehold.server.config import load
from statehold.sessions.errors import SessionError

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(("statehold", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in (ROOT / "client").rglob("*.py")
    if path.stem != "pytest_plugin"  # Its names are for pytest.
)


ALIASES = ("ElicitationCallback", "ProgressCallback")
"""Types of callbacks, which cannot have a docstring."""


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_offers(name: str) -> None:
    module = importlib.import_module(name)
    offered: list[str] = module.__all__
    assert len(offered) == len(set(offered))
    assert all(hasattr(module, public) for public in offered)


@pytest.mark.parametrize("module", [statehold.client, sync, errors])
def test_the_public_modules_offer_what_they_hold(module: ModuleType) -> None:
    held = {name for name in vars(module) if not name.startswith("_")}
    modules = {name for name in held if inspect.ismodule(getattr(module, name))} - {"errors"}
    left = held - modules - {"annotations"}
    internal = {
        "CODES",
        "ErrorT",
        "error_of_result",
        "error_of_refusal",
        "no_session",
        "next_step",
        "PYTHON",
        "cast",
        "Mapping",
        "Sequence",
        "Any",
        "Final",
    }
    assert left - internal - {"TYPE_CHECKING", "TypeVar"} == set(module.__all__) - {"ConfigError"}
    for name in module.__all__:
        value = getattr(module, name)
        assert inspect.getdoc(value) or name in ALIASES, name


def test_the_blocking_client_offers_what_the_other_one_does() -> None:
    assert set(sync.__all__) == set(statehold.client.__all__)
    for name in ("errors", "CallResult", "Question", "StateModule", "ConfigError"):
        assert getattr(sync, name) is getattr(statehold.client, name)


def test_errors_of_connect_can_be_caught_with_the_client_alone() -> None:
    with pytest.raises(errors.ConfigError):
        statehold.client.connect(services={"one": {"nosuch": 1}})
    assert statehold.client.ConfigError is errors.ConfigError
    with pytest.raises(AttributeError, match="nosuch"):
        getattr(statehold.client, "nosuch")  # noqa: B009 it is not there


@pytest.mark.thorough
def test_only_asking_for_the_error_of_the_settings_imports_them() -> None:
    modules = imported("from statehold.client import errors; errors.ConfigError")
    assert "statehold.access.config.types" in modules


def test_every_code_of_the_server_has_a_class_of_the_client() -> None:
    def below(kind: type[SessionError]) -> set[type[SessionError]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    ours = {k for k in below(SessionError) if k.__module__ == "statehold.sessions.errors"}
    # A kind without a code of its own arrives as the one above it.
    told_apart = {kind for kind in ours if "code" in vars(kind)}
    assert {kind.__name__ for kind in told_apart} <= set(errors.__all__)
    assert {kind.code for kind in ours} == set(errors.CODES)


HEAVY = ("mcp", "starlette", "uvicorn", "sqlalchemy", "playwright", "langchain_core", "pydantic")


def imported(program: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys; {program}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_client_imports_neither_the_server_nor_the_sdk() -> None:
    """This limits its time too: it takes a small part of the time of `import mcp.client`."""
    modules = imported(
        "import statehold.client, statehold.client.sync, statehold.client.integrations.mcpstore"
    )
    assert modules.isdisjoint(HEAVY), modules.intersection(HEAVY)
    packages = {name.split(".")[1] for name in modules if name.startswith("statehold.")}
    assert packages.isdisjoint({"server", "access", "console", "shell"})


def test_a_client_over_http_needs_no_server_either() -> None:
    modules = imported("from statehold.client import connect; connect('http://127.0.0.1:1')")
    assert modules.isdisjoint(HEAVY)


def test_the_environment_says_nothing_to_an_embedded_statehold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATEHOLD_NAMESPACE", "elsewhere")
    assert load.load().namespace == "elsewhere"
    from statehold.client.transport.embedded import load_config

    assert load_config(None, None, None).namespace == ""


@pytest.mark.parametrize("argument", matrix("config", "services"))
def test_the_error_for_a_missing_file_names_the_argument_of_the_program(argument: str) -> None:
    from statehold.client.transport.embedded import load_config

    files: dict[str, str | None] = {"config": None, "services": None, argument: "/none.json"}
    with pytest.raises(errors.ConfigError, match=f"correct {argument}$"):
        load_config(**files, data=None)
