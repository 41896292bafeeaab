"""Objects of an agent's own whose state goes into a session and comes back: plugins, memories, plans.

class Notes(StateModule):
    def __init__(self) -> None:
        self.pages: list[str] = []
        self.register_state("pages")

await client.save_session_state("alice", notes=notes)
await client.load_session_state("alice", notes=notes)
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from .results import JSON, table

T = TypeVar("T")
Dump: TypeAlias = Callable[[Any], Any]
"""Makes JSON of an attribute."""
Load: TypeAlias = Callable[[Any], Any]
"""Makes an attribute of that JSON."""

_MODULES: Final = "_statehold_modules"
_STATES: Final = "_statehold_states"


@dataclass(slots=True)
class Loaded:
    """The missing and the unknown parts of a loaded state, as paths such as `memory.pages`."""

    missing: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Plan:
    """The values to set, once all of them have been checked."""

    loaded: Loaded
    values: list[tuple[StateModule, str, Any]] = field(
        default_factory=list[tuple["StateModule", str, Any]]
    )

    def carry_out(self) -> None:
        done: list[tuple[StateModule, str, Any]] = []
        try:
            for module, name, value in self.values:
                before = getattr(module, name)
                setattr(module, name, value)
                done.append((module, name, before))
        except BaseException:
            for module, name, before in reversed(done):
                setattr(module, name, before)
            raise


class StateModule:
    """Base of objects with a state: the attributes they register, and the modules among their attributes, at any depth.

    Those in a list or a dict are not found.

    A subclass need not call `super().__init__()`. Saved and loaded values are copies.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        modules, states = self._registered()
        if isinstance(value, StateModule):
            if name in states:
                raise ValueError(
                    f"{name!r} is registered as a state; a module cannot take its place"
                )
            self.__dict__[_MODULES] = {**modules, name: value}
        elif name in modules:
            self.__dict__[_MODULES] = _without(modules, name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        modules, states = self._registered()
        self.__dict__[_MODULES] = _without(modules, name)
        self.__dict__[_STATES] = _without(states, name)

    def _registered(
        self,
    ) -> tuple[dict[str, StateModule], dict[str, tuple[Dump | None, Load | None]]]:
        # Not in __init__, which a subclass may forget to call. The dicts are replaced, never changed: a `copy.copy()` of
        # this module shares them.
        return self.__dict__.setdefault(_MODULES, {}), self.__dict__.setdefault(_STATES, {})

    def register_state(self, attr: str, dump: Dump | None = None, load: Load | None = None) -> None:
        """Make an attribute part of the state. A value that is not JSON needs `dump` to be saved, and `load` to be loaded.

        Raises:
            AttributeError: there is no such attribute yet.
            ValueError: it is a module, which is part of the state anyway.
            TypeError: its value is not JSON, and there is no `dump`, or `dump` makes none.
        """
        modules, states = self._registered()
        if attr in modules:
            raise ValueError(f"{attr!r} is a module; its state is kept without being registered")
        value = getattr(self, attr)
        _json(value if dump is None else dump(value), attr)
        self.__dict__[_STATES] = {**states, attr: (dump, load)}

    def state_dict(self) -> JSON:
        """Return the state as JSON: modules first, then attributes.

        Raises:
            TypeError: an attribute is no longer JSON; the error names it.
        """
        return self._dumped("")

    def _dumped(self, path: str) -> JSON:
        modules, states = self._registered()
        found: JSON = {name: module._dumped(f"{path}{name}.") for name, module in modules.items()}
        for name, (dump, _) in states.items():
            value = getattr(self, name)
            found[name] = _json(value if dump is None else dump(value), f"{path}{name}")
        return found

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Loaded:
        """Load a state. All of it is checked and converted before the first attribute is changed.

        Raises:
            KeyError: an attribute is missing; with `strict=False` it stays as it is.
            TypeError: the state of a module is no object.
        """
        plan = _Plan(Loaded())
        self._plan(state, plan, "")
        checked(plan.loaded, strict)
        plan.carry_out()
        return plan.loaded

    def _plan(self, state: object, plan: _Plan, path: str) -> None:
        if not isinstance(state, Mapping):
            raise TypeError(f"the state of {path.rstrip('.') or 'a module'} should be an object")
        given = table(dict(state))  # pyright: ignore[reportUnknownArgumentType]
        modules, states = self._registered()
        plan.loaded.unknown += [f"{path}{k}" for k in given if k not in modules and k not in states]
        for name, module in modules.items():
            if name in given:
                module._plan(given[name], plan, f"{path}{name}.")
            else:
                plan.loaded.missing.append(path + name)
        for name, (_, load) in states.items():
            if name not in given:
                plan.loaded.missing.append(path + name)
                continue
            value = copy.deepcopy(given[name])
            plan.values.append((self, name, value if load is None else load(value)))


def _without(registered: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in registered.items() if key != name}


def checked(loaded: Loaded, strict: bool) -> None:
    if strict and loaded.missing:
        raise KeyError(f"the state has no {', '.join(loaded.missing)}")


def dumped(modules: Mapping[str, StateModule]) -> JSON:
    """Return the states of several modules."""
    return {name: module._dumped(f"{name}.") for name, module in modules.items()}  # pyright: ignore[reportPrivateUsage]


def loaded(modules: Mapping[str, StateModule], state: Mapping[str, Any], strict: bool) -> Loaded:
    """Load the states of several modules: of all, or of none. Modules without a state are left as they are."""
    plan = _Plan(Loaded())
    for name, module in modules.items():
        if name in state:
            module._plan(state[name], plan, f"{name}.")  # pyright: ignore[reportPrivateUsage]
    checked(plan.loaded, strict)
    plan.carry_out()
    return plan.loaded


def _json(value: Any, name: str) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{name}: is not JSON ({error}); give register_state a dump") from None


__all__ = ["Loaded", "StateModule"]
