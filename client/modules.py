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
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from .errors import no_session
from .results import object_of

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON
    from .session import Session
    from .state import State

T = TypeVar("T")
logger = logging.getLogger("statehold.client")
ToJSON: TypeAlias = Callable[[Any], Any]
"""Makes JSON of an attribute."""
FromJSON: TypeAlias = Callable[[Any], Any]
"""Makes an attribute of that JSON."""
Undo: TypeAlias = Callable[[], object]

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


class Stateful(Protocol):
    """An object with a state of its own: a StateModule, a module of agentscope, or any other with these two methods."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


@dataclass(slots=True)
class _LoadPlan:
    """The steps of a load. They begin once the states of all StateModules have been checked."""

    strict: bool
    result: LoadResult = field(default_factory=LoadResult)
    values: list[Callable[[], Undo]] = field(default_factory=list[Callable[[], Undo]])
    others: list[Callable[[], Undo]] = field(default_factory=list[Callable[[], Undo]])
    """Modules of other classes, which check a state while they load it: the last steps."""

    def add(self, module: Stateful, state: object, path: str) -> None:
        if isinstance(module, StateModule):
            module._add_to_plan(state, self, path)  # pyright: ignore[reportPrivateUsage]
        else:
            self.others.append(partial(_load_other, module, state, self.strict))

    def apply(self) -> LoadResult:
        """Run all steps, or undo those that ran.

        Raises:
            KeyError: an attribute is missing, and that is not allowed.
        """
        if self.strict and self.result.missing:
            raise KeyError(f"the state has no {', '.join(self.result.missing)}")
        undo: list[Undo] = []
        try:
            for step in (*self.values, *self.others):
                undo.append(step())  # noqa: PERF401 the steps before a failed one are undone
        except BaseException:
            for each in reversed(undo):
                each()
            raise
        return self.result


def _set_attribute(module: StateModule, name: str, value: object) -> Undo:
    before = getattr(module, name)
    setattr(module, name, value)
    return partial(setattr, module, name, before)


def _load_other(module: Stateful, state: object, strict: bool) -> Undo:
    """Load the state of a module that is no StateModule, or leave it as it was."""
    before = copy.deepcopy(module.state_dict())
    load: Callable[..., Any] = module.load_state_dict
    takes_strict = "strict" in inspect.signature(load).parameters
    try:
        load(copy.deepcopy(state), **({"strict": strict} if takes_strict else {}))
    except BaseException:
        load(before)
        raise
    return partial(load, before)


class StateModule:
    """Base of objects with a state: the attributes they register, and the modules among their attributes, at any depth.

    A module is a StateModule, or any object whose class has `state_dict()` and `load_state_dict()`, such as a memory of
    agentscope. Those in a list or a dict are not found.

    A subclass need not call `super().__init__()`. Saved and loaded values are copies.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        modules, states = self._modules_and_states()
        if isinstance(value, StateModule) and name in states:
            raise ValueError(f"{name!r} is registered as a state; a module cannot take its place")
        if is_stateful(value) and name not in states:
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
    ) -> tuple[dict[str, Stateful], dict[str, tuple[ToJSON | None, FromJSON | None]]]:
        # Not in __init__, which a subclass may forget to call. The dicts are replaced, never changed: a `copy.copy()` of
        # this module shares them.
        return self.__dict__.setdefault(_MODULES, {}), self.__dict__.setdefault(_STATES, {})

    def register_state(
        self,
        attr_name: str,
        custom_to_json: ToJSON | None = None,
        custom_from_json: FromJSON | None = None,
    ) -> None:
        """Make an attribute part of the state. A value that is not JSON needs `custom_to_json` to be saved, and
        `custom_from_json` to be loaded.

        Raises:
            AttributeError: there is no such attribute yet.
            ValueError: it is a module, which is part of the state anyway.
            TypeError: its value is not JSON, and there is no `custom_to_json`, or that makes none.
        """
        modules, states = self._modules_and_states()
        value = getattr(self, attr_name)
        if attr_name in modules and (custom_to_json is None or isinstance(value, StateModule)):
            raise ValueError(
                f"{attr_name!r} is a module; its state is kept without being registered"
            )
        _json(value if custom_to_json is None else custom_to_json(value), attr_name)
        self.__dict__[_MODULES] = _without(modules, attr_name)
        self.__dict__[_STATES] = {**states, attr_name: (custom_to_json, custom_from_json)}

    def state_dict(self) -> JSON:
        """Return the state as JSON: modules first, then attributes.

        Raises:
            TypeError: an attribute is no longer JSON; the error names it.
        """
        return self._dump("")

    def _dump(self, path: str) -> JSON:
        modules, states = self._modules_and_states()
        state: JSON = {name: _dump(module, f"{path}{name}") for name, module in modules.items()}
        for name, (to_json, _) in states.items():
            value = getattr(self, name)
            state[name] = _json(value if to_json is None else to_json(value), f"{path}{name}")
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Load a state: all of it, or none when there is an error.

        Raises:
            KeyError: an attribute is missing; with `strict=False` it stays as it is.
            TypeError: the state of a module is no object.
        """
        plan = _LoadPlan(strict)
        plan.add(self, state_dict, "")
        return plan.apply()

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
                plan.add(module, values[name], f"{path}{name}.")
            else:
                plan.result.missing.append(path + name)
        for name, (_, from_json) in states.items():
            if name not in values:
                plan.result.missing.append(path + name)
                continue
            value = copy.deepcopy(values[name])
            value = value if from_json is None else from_json(value)
            plan.values.append(partial(_set_attribute, self, name, value))


def is_stateful(value: object) -> bool:
    """Return whether an object is a module: its class has the two methods of one."""
    kind = type(value)
    return isinstance(value, StateModule) or all(
        callable(getattr(kind, method, None)) for method in ("state_dict", "load_state_dict")
    )


def _dump(module: Stateful, path: str) -> Any:
    if isinstance(module, StateModule):
        return module._dump(f"{path}.")  # pyright: ignore[reportPrivateUsage]
    return _json(module.state_dict(), path)


def _without(entries: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in entries.items() if key != name}


def dump_modules(modules: Mapping[str, Stateful]) -> JSON:
    """Return the states of modules by their names.

    Raises:
        TypeError: one is no module, has the name of an option of load_session_state(), or a value that is not JSON.
    """
    require_modules(modules)
    return {name: _dump(module, name) for name, module in modules.items()}


async def save_states(state: State, states: JSON) -> None:
    """Add the states of modules to those in a session, all in one write."""
    await state.change(lambda saved: {**object_of(saved), **states}, PATH)


async def read_states(session: Session | None) -> JSON:
    """Return the states of all modules that a session has; none without a session."""
    return {} if session is None else object_of(await session.state.get(PATH))


def load_modules(
    states: JSON,
    modules: Mapping[str, Stateful],
    *,
    session: str | None,
    allow_not_exist: bool,
    strict: bool,
) -> LoadResult | None:
    """Load the states of modules, all or none; return None when none was saved and that is allowed.

    `session` is the id of the session that has the states, None when there is no such session.
    """
    missing = [name for name in modules if name not in states]
    if missing and not allow_not_exist:
        reason = "there is no such session" if session is None else f"{session} has none"
        raise no_session(f"No state of {', '.join(missing)} was saved: {reason}.")
    for name in missing:
        logger.warning("no state of module %s was saved; it stays as it is", name)
    if len(missing) == len(modules):
        return None
    plan = _LoadPlan(strict)
    for name, module in modules.items():
        if name in states:
            plan.add(module, states[name], f"{name}.")
    result = plan.apply()
    result.missing += missing
    return result


def require_modules(modules: Mapping[str, Any]) -> None:
    """Check that all of them are modules with usable names.

    Raises:
        TypeError: one is no module, or has the name of an option of load_session_state().
    """
    for name, module in modules.items():
        if name in OPTIONS:
            raise TypeError(
                f"{name}: is an option of load_session_state(); give the module another name"
            )
        if not is_stateful(module):
            raise TypeError(f"{name}: is no module: it lacks state_dict() or load_state_dict()")


def _json(value: Any, name: str) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"{name}: is not JSON ({error}); give register_state a custom_to_json"
        ) from None


__all__ = [
    "LoadResult",
    "StateModule",
    "Stateful",
    "dump_modules",
    "load_modules",
    "read_states",
    "require_modules",
    "save_states",
]
