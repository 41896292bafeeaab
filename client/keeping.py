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
"""Where in the state of a session the modules are."""

OPTIONS: Final = frozenset({"allow_not_exist", "strict"})
"""What load_session_state() takes as its own, so that no module of that name could be brought back."""


async def save(state: State, modules: Mapping[str, StateModule]) -> None:
    """Put the states of modules beside those that are kept already, all in one write."""
    given = dumped(modules)
    while True:
        kept = await state.read(PLACE)
        try:
            values: JSON = {**table(kept.value), **given}
            await state.replace(values, path=PLACE, if_version=kept.version)
        except StateConflict:
            # Somebody else wrote meanwhile; theirs must not be lost.
            continue
        return


async def load(
    session: Session | None,
    modules: Mapping[str, StateModule],
    *,
    allow_not_exist: bool,
    strict: bool,
) -> Loaded | None:
    """Bring the states of modules back, all or none; None when nothing was kept and that is allowed."""
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
