"""The pins of one process: which definitions of services are offered, and which wait for a person to accept them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ...sessions.clock import Clock
from ...sessions.errors import NotAllowed, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.one_line import plain_name, plural
from ...sessions.services import ToolSpec
from ...sessions.store.base import PinRecord
from .definitions import Kind, definition_of, digest_of

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

logger = logging.getLogger("statehold.upstream")

Mode: TypeAlias = Literal["strict", "tell"]
LOOK_SECONDS: Final = 2.0
"""Seconds between two looks at whether a person has accepted what is held back."""
NAMED: Final = 5
"""The most names in one note."""


class Pins:
    """Compares what services offer with what was seen of them first, or accepted last.

    It lives as long as its process. Any task may use it. The pins themselves are in the store, for all processes. `tell` is
    called with a service and a sentence for its next results.
    """

    def __init__(
        self, store: SQLStore, clock: Clock, mode: Mode, tell: Callable[[str, str], None]
    ) -> None:
        self.mode: Mode = mode
        self._store = store
        self._clock = clock
        self._tell = tell
        self._held: dict[tuple[str, Kind], frozenset[str]] = {}
        self._configured: dict[str, str] = {}
        """The hash of the configuration of each service."""

    async def admit(
        self,
        service: str,
        config_hash: str,
        kind: Kind,
        items: Iterable[tuple[str, Mapping[str, Any]]],
    ) -> frozenset[str]:
        """Pin what is new of the items of a service, each with its name. Return the names of those that are held back.

        Raises:
            StoreUnavailable: The pins cannot be read, and nothing may be offered without them.
        """
        self._configured[service] = config_hash
        # The first item of a name wins, as in the lists.
        definitions = {name: definition_of(kind, item) for name, item in reversed([*items])}
        try:
            known = await self._store.access.pin_digests(service, config_hash, kind)
            found = {name: digest_of(text) for name, text in definitions.items()}
            pending = [
                name
                for name, digest in found.items()
                if known.get(name) not in ((digest, ""), None) and known[name][1] != digest
            ]
            new = [name for name in found if name not in known]
            now = self._clock.now()
            if new or pending:
                await self._store.access.fix_pins(
                    [
                        PinRecord(
                            service, config_hash, kind, name, found[name], definitions[name], now
                        )
                        for name in (*new, *pending)
                    ]
                )
        except StoreUnavailable:
            if self.mode == "strict":
                raise
            logger.warning("the definitions of %s were not compared: no store", service)
            return frozenset()
        changed = frozenset(
            name for name in found if name in known and known[name][0] != found[name]
        )
        self._note(
            service, kind, new if known else [], [name for name in pending if name in changed]
        )
        held = changed if self.mode == "strict" else frozenset[str]()
        self._held[service, kind] = held
        return held

    def _note(self, service: str, kind: Kind, new: list[str], changed: list[str]) -> None:
        sentences: list[str] = []
        if new:
            sentences.append(f"{service} offers {plural(len(new), f'new {kind}')}: {_names(new)}.")
        if changed:
            is_held = self.mode == "strict"
            words = (
                "is held back until a person accepts it" if is_held else "is offered as it is now"
            )
            sentences.append(
                f"{service} has changed what it says of {_names(changed)}, which {words}: "
                f"`statehold services accept {service}` shows the difference."
            )
        for sentence in sentences:
            logger.warning("%s", sentence)
            self._tell(service, sentence)

    def check(self, service: str, kind: Kind, name: str) -> None:
        """Refuse what is held back.

        Raises:
            NotAllowed: A person has to accept its definition first.
        """
        if name in self._held.get((service, kind), ()):
            raise NotAllowed(
                f"{service} has changed the definition of {plain_name(name)}, and nobody has accepted that yet.",
                recovery=f"Ask a person for `statehold services accept {service}`, which shows the difference.",
            )

    async def changes(self, service: str | None = None) -> list[PinRecord]:
        """Return what a person has not accepted yet, of one service or all. Raises StoreUnavailable."""
        changed = await self._store.access.changed_pins(service)
        return [each for each in changed if self._configured.get(each.service) == each.config_hash]

    def held_tools(self) -> Iterator[tuple[str, str]]:
        """Yield each tool that is held back, after its service."""
        for (service, kind), names in self._held.items():
            if kind == "tool":
                yield from ((service, name) for name in names)

    async def run(self, on_accepted: Callable[[str], Awaitable[None]]) -> None:
        """Call `on_accepted` with each service of which a person has accepted something, in any process, until cancelled."""
        while True:
            await self._clock.sleep_until(self._clock.now() + LOOK_SECONDS)
            held = {service for (service, _), names in self._held.items() if names}
            for service in held:
                try:
                    changed = await self.changes(service)
                except StoreUnavailable:
                    break
                names = {(each.kind, each.name) for each in changed}
                if any(
                    (kind, name) not in names
                    for (each, kind), held_names in self._held.items()
                    for name in held_names
                    if each == service
                ):
                    await on_accepted(service)


class ServicePins:
    """The pins of one service with its configuration. Any task may use it. Without `pins` it admits everything."""

    def __init__(self, pins: Pins | None, service: str, config_hash: str) -> None:
        self._pins = pins
        self._service = service
        self._config_hash = config_hash

    async def admit_tools(self, specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered. Raises as Pins.admit() does."""
        held = await self._admit("tool", ((spec.name, spec.definition) for spec in specs))
        return tuple(spec for spec in specs if spec.name not in held)

    async def admit_items(self, kind: Kind, key: str, items: Sequence[JSON]) -> tuple[JSON, ...]:
        """Return the items that are offered, which `key` identifies. Raises as Pins.admit() does."""
        held = await self._admit(kind, ((str(item.get(key)), item) for item in items))
        return tuple(item for item in items if str(item.get(key)) not in held)

    async def admit_page(self, uri: str, page: JSON) -> JSON:
        """Pin a page of an MCP App, and return it.

        Raises:
            NotAllowed: It has changed since, and is held back.
            StoreUnavailable: As Pins.admit() does.
        """
        if self._pins is not None and uri in await self._admit("page", [(uri, page)]):
            self._pins.check(self._service, "page", uri)
        return page

    async def _admit(
        self, kind: Kind, items: Iterable[tuple[str, Mapping[str, Any]]]
    ) -> frozenset[str]:
        if self._pins is None:
            return frozenset()
        return await self._pins.admit(self._service, self._config_hash, kind, items)


def _names(names: list[str]) -> str:
    shown = ", ".join(map(plain_name, names[:NAMED]))
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"
