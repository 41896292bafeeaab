"""Keeping the states of an agent's own modules in a session."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .errors import SessionNotFound, StateConflict
from .modules import Loaded, StateModule, dumped, loaded
from .results import JSON, table

if TYPE_CHECKING:
    from .session import Session
    from .state import State

logger = logging.getLogger("statehold.client")

PLACE: Final = "/modules"
"""The path of the modules in the state of a session."""

OPTIONS: Final = frozenset({"allow_not_exist", "strict"})
"""Options of load_session_state(): a module of such a name could not be loaded."""


async def save(state: State, modules: Mapping[str, StateModule]) -> None:
    """Add the states of modules to the saved ones, all in one write."""
    given = dumped(modules)
    while True:
        kept = await state.read(PLACE)
        try:
            values: JSON = {**table(kept.value), **given}
            await state.replace(values, path=PLACE, if_version=kept.version)
        except StateConflict:
            # Another client wrote meanwhile: merge with its version instead of overwriting it.
            continue
        return


async def load(
    session: Session | None,
    modules: Mapping[str, StateModule],
    *,
    allow_not_exist: bool,
    strict: bool,
) -> Loaded | None:
    """Load the states of modules, all or none; return None when none was saved and that is allowed."""
    found: JSON = {} if session is None else table(await session.state.get(PLACE))
    missing = [name for name in modules if name not in found]
    if missing and not allow_not_exist:
        where = "there is no such session" if session is None else f"{session.id} keeps none"
        raise SessionNotFound(f"No state of {', '.join(missing)} is kept: {where}.")
    for name in missing:
        logger.info("no state of module %s is kept; it stays as it is", name)
    if len(missing) == len(modules):
        return None
    result = loaded(modules, found, strict)
    result.missing += missing
    return result


def as_modules(modules: Mapping[str, Any]) -> dict[str, StateModule]:
    for name, module in modules.items():
        if name in OPTIONS:
            raise TypeError(
                f"{name}: is an option of load_session_state(); give the module another name"
            )
        if not isinstance(module, StateModule):
            raise TypeError(f"{name}: is no StateModule")
    return dict(modules)


__all__ = ["as_modules", "load", "save"]
