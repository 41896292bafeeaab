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
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from .errors import SessionNotFound, StateConflict
from .results import object_of

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON
    from .session import Session
    from .state import State

T = TypeVar("T")
logger = logging.getLogger("statehold.client")
Dump: TypeAlias = Callable[[Any], Any]
"""Makes JSON of an attribute."""
Load: TypeAlias = Callable[[Any], Any]
"""Makes an attribute of that JSON."""

_MODULES: Final = "_statehold_modules"
_STATES: Final = "_statehold_states"

PATH: Final = "/modules"
"""The path of the modules in the state of a session."""
OPTIONS: Final = frozenset({"allow_not_exist", "strict"})
"""Options of load_session_state(): a module of such a name could not be loaded."""


@dataclass(slots=True)
class LoadResult:
    """The missing and the unknown parts of a loaded state, as paths such as `memory.pages`."""

    missing: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _LoadPlan:
    """The values to set, once all of them have been checked."""

    result: LoadResult
    values: list[tuple[StateModule, str, Any]] = field(
        default_factory=list[tuple["StateModule", str, Any]]
    )

    def apply(self) -> None:
        previous: list[tuple[StateModule, str, Any]] = []
        try:
            for module, name, value in self.values:
                before = getattr(module, name)
                setattr(module, name, value)
                previous.append((module, name, before))
        except BaseException:
            for module, name, before in reversed(previous):
                setattr(module, name, before)
            raise


class StateModule:
    """Base of objects with a state: the attributes they register, and the modules among their attributes, at any depth.

    Those in a list or a dict are not found.

    A subclass need not call `super().__init__()`. Saved and loaded values are copies.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        modules, states = self._modules_and_states()
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
        modules, states = self._modules_and_states()
        self.__dict__[_MODULES] = _without(modules, name)
        self.__dict__[_STATES] = _without(states, name)

    def _modules_and_states(
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
        modules, states = self._modules_and_states()
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
        return self._dump("")

    def _dump(self, path: str) -> JSON:
        modules, states = self._modules_and_states()
        state: JSON = {name: module._dump(f"{path}{name}.") for name, module in modules.items()}
        for name, (dump, _) in states.items():
            value = getattr(self, name)
            state[name] = _json(value if dump is None else dump(value), f"{path}{name}")
        return state

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Load a state. All of it is checked and converted before the first attribute is changed.

        Raises:
            KeyError: an attribute is missing; with `strict=False` it stays as it is.
            TypeError: the state of a module is no object.
        """
        plan = _LoadPlan(LoadResult())
        self._add_to_plan(state, plan, "")
        _require_all(plan.result, strict)
        plan.apply()
        return plan.result

    def _add_to_plan(self, state: object, plan: _LoadPlan, path: str) -> None:
        if not isinstance(state, Mapping):
            raise TypeError(f"the state of {path.rstrip('.') or 'a module'} should be an object")
        values = object_of(dict(state))  # pyright: ignore[reportUnknownArgumentType]
        modules, states = self._modules_and_states()
        plan.result.unknown += [
            f"{path}{k}" for k in values if k not in modules and k not in states
        ]
        for name, module in modules.items():
            if name in values:
                module._add_to_plan(values[name], plan, f"{path}{name}.")
            else:
                plan.result.missing.append(path + name)
        for name, (_, load) in states.items():
            if name not in values:
                plan.result.missing.append(path + name)
                continue
            value = copy.deepcopy(values[name])
            plan.values.append((self, name, value if load is None else load(value)))


def _without(entries: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in entries.items() if key != name}


def _require_all(result: LoadResult, strict: bool) -> None:
    if strict and result.missing:
        raise KeyError(f"the state has no {', '.join(result.missing)}")


async def save_modules(state: State, modules: Mapping[str, StateModule]) -> None:
    """Add the states of modules to those in a session, all in one write.

    Raises:
        TypeError: a value in a state is not JSON; nothing was saved.
    """
    states = {name: module._dump(f"{name}.") for name, module in modules.items()}  # pyright: ignore[reportPrivateUsage]
    while True:
        current = await state.read(PATH)
        try:
            values: JSON = {**object_of(current.value), **states}
            await state.replace(values, path=PATH, if_version=current.version)
        except StateConflict:
            # Another client wrote meanwhile: merge with its version instead of overwriting it.
            continue
        return


async def load_modules(
    session: Session | None,
    modules: Mapping[str, StateModule],
    *,
    allow_not_exist: bool,
    strict: bool,
) -> LoadResult | None:
    """Load the states of modules, all or none; return None when none was saved and that is allowed."""
    states: JSON = {} if session is None else object_of(await session.state.get(PATH))
    missing = [name for name in modules if name not in states]
    if missing and not allow_not_exist:
        reason = "there is no such session" if session is None else f"{session.id} has none"
        raise SessionNotFound(f"No state of {', '.join(missing)} was saved: {reason}.")
    for name in missing:
        logger.info("no state of module %s was saved; it stays as it is", name)
    if len(missing) == len(modules):
        return None
    plan = _LoadPlan(LoadResult())
    for name, module in modules.items():
        if name in states:
            module._add_to_plan(states[name], plan, f"{name}.")  # pyright: ignore[reportPrivateUsage]
    _require_all(plan.result, strict)
    plan.apply()
    plan.result.missing += missing
    return plan.result


def require_modules(modules: Mapping[str, Any]) -> None:
    """Check that all of them are modules with usable names.

    Raises:
        TypeError: one is no StateModule, or has the name of an option of load_session_state().
    """
    for name, module in modules.items():
        if name in OPTIONS:
            raise TypeError(
                f"{name}: is an option of load_session_state(); give the module another name"
            )
        if not isinstance(module, StateModule):
            raise TypeError(f"{name}: is no StateModule")


def _json(value: Any, name: str) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{name}: is not JSON ({error}); give register_state a dump") from None


__all__ = ["LoadResult", "StateModule", "load_modules", "require_modules", "save_modules"]
