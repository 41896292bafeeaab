"""The pins of one process: which definitions of services are offered, and which wait for a person to accept them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ...sessions.clock import Clock
from ...sessions.errors import NotAllowed, ServiceUnavailable, SessionError, StoreUnavailable
from ...sessions.json_codec import JSON, digest_of
from ...sessions.one_line import plain_name, plural
from ...sessions.services import ToolSpec
from ...sessions.store.base import PinRecord
from .definitions import Kind, definition_of

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

logger = logging.getLogger("statehold.upstream")

Mode: TypeAlias = Literal["strict", "tell"]
LOOK_SECONDS: Final = 2.0
"""Seconds between two looks at whether a person has accepted what is held back."""
RETRY_SECONDS: Final = 30.0
"""Seconds to the next look after a service could not be asked for its lists."""
MAX_PINS: Final = 10_000
"""The most items of one kind that are pinned of a service; in strict mode more are not offered."""
NAMED: Final = 5
"""The most names in one note."""


class Pins:
    """Compares what services offer with what was seen of them first, or accepted last.

    It lives as long as its process. Any task may use it. The pins themselves are in the store, for all processes. `tell` is
    called with a service and a sentence for the next results over it.
    """

    def __init__(
        self, store: SQLStore, clock: Clock, mode: Mode, tell: Callable[[str, str], None]
    ) -> None:
        self.mode: Mode = mode
        self._store = store
        self._clock = clock
        self._tell = tell
        self._held: set[tuple[str, Kind, str]] = set()
        """The tools and prompts that are held back, by service and kind."""
        self._noted: dict[tuple[str, Kind, str], str] = {}
        """The digest of the last change of each item that was noted."""
        self._configured: dict[str, str] = {}
        """The hash of the configuration of each service."""

    async def admit(
        self,
        service: str,
        config_hash: str,
        kind: Kind,
        items: Mapping[str, Mapping[str, Any]],
    ) -> frozenset[str]:
        """Pin what is new of the items of a service, by their names. Return the names of those that are held back.

        Raises:
            ServiceUnavailable: The pins cannot be read, and nothing may be offered without them.
        """
        self._configured[service] = config_hash
        definitions = {name: definition_of(kind, item) for name, item in items.items()}
        found = {name: digest_of(text) for name, text in definitions.items()}
        try:
            known = await self._store.access.pin_digests(service, config_hash, kind)
            pinned = {name: digest for name, (digest, _) in known.items()}
            new = [name for name in found if name not in known][: max(0, MAX_PINS - len(known))]
            others = [
                name
                for name, (digest, offered) in known.items()
                if name in found and offered != ("" if found[name] == digest else found[name])
            ]
            if new or others:
                now = self._clock.now()
                records = [
                    PinRecord(service, config_hash, kind, name, found[name], definitions[name], now)
                    for name in (*new, *others)
                ]
                # Another process may have pinned another definition meanwhile.
                pinned |= await self._store.access.fix_pins(records)
        except StoreUnavailable as error:
            if self.mode == "strict":
                raise ServiceUnavailable(
                    f"The definitions of {service} cannot be compared: the store does not answer."
                ) from error
            logger.warning("the definitions of %s were not compared: no store", service)
            return frozenset()
        changed = frozenset(name for name in found if pinned.get(name) != found[name])
        self._note(service, kind, new if known else [], {name: found[name] for name in changed})
        if self.mode == "tell":
            return frozenset()
        if kind in ("tool", "prompt"):
            self._held -= {(service, kind, name) for name in found}
            self._held |= {(service, kind, name) for name in changed if name in pinned}
        return changed

    def _note(self, service: str, kind: Kind, new: list[str], changed: Mapping[str, str]) -> None:
        sentences: list[str] = []
        if new and kind in ("tool", "prompt"):
            sentences.append(f"{service} offers {plural(len(new), f'new {kind}')}: {_names(new)}.")
        news = [
            name
            for name, digest in changed.items()
            if self._noted.get((service, kind, name)) != digest
        ]
        if news:
            self._noted |= {(service, kind, name): changed[name] for name in news}
            is_held = self.mode == "strict"
            words = (
                "is held back until a person accepts it" if is_held else "is offered as it is now"
            )
            sentences.append(
                f"{service} has changed what it says of {_names(news)}, which {words}: "
                f"`statehold services accept {service}` shows the difference."
            )
        for sentence in sentences:
            logger.warning("%s", sentence)
            self._tell(service, sentence)

    def check(self, service: str, kind: Kind, name: str) -> None:
        """Refuse a tool or prompt that is held back. Raises NotAllowed."""
        if (service, kind, name) in self._held:
            raise _held_back(service, name)

    async def changes(self, service: str) -> list[PinRecord]:
        """Return what no person has accepted yet of a service with its configuration. Raises StoreUnavailable."""
        return await self._store.access.changed_pins(service, self._configured[service])

    def held_tools(self) -> Iterator[tuple[str, str]]:
        """Yield each tool that is held back, after its service."""
        return ((service, name) for service, kind, name in self._held if kind == "tool")

    async def run(self, on_accepted: Callable[[str], Awaitable[None]]) -> None:
        """Call `on_accepted` with each service of which a person has accepted something, in any process, until cancelled.

        A service that cannot be asked for its lists then is asked again later.
        """
        seconds = LOOK_SECONDS
        while True:
            await self._clock.sleep_until(self._clock.now() + seconds)
            seconds = LOOK_SECONDS
            for service in {service for service, _, _ in self._held}:
                try:
                    changed = {
                        (service, each.kind, each.name) for each in await self.changes(service)
                    }
                    accepted = {each for each in self._held if each[0] == service} - changed
                    if accepted:
                        await on_accepted(service)
                        self._held -= accepted
                except (SessionError, StoreUnavailable) as error:
                    logger.warning("what was accepted of %s is not offered yet: %s", service, error)
                    seconds = RETRY_SECONDS


class ServicePins:
    """The pins of one service with its configuration. Any task may use it. Without `pins` it admits everything."""

    def __init__(self, pins: Pins | None, service: str, config_hash: str) -> None:
        self._pins = pins
        self._service = service
        self._config_hash = config_hash
        self.is_strict = pins is not None and pins.mode == "strict"
        """Whether a definition that changes is held back."""

    async def admit_tools(self, specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered. Raises as Pins.admit() does."""
        held = await self._admit("tool", {spec.name: spec.definition for spec in specs})
        return tuple(spec for spec in specs if spec.name not in held)

    async def admit_items(self, kind: Kind, key: str, items: Sequence[JSON]) -> tuple[JSON, ...]:
        """Return the items that are offered, the first of each `key`. Raises as Pins.admit() does."""
        first: dict[str, JSON] = {}
        for item in items:
            first.setdefault(str(item.get(key)), item)
        held = await self._admit(kind, first)
        return tuple(item for name, item in first.items() if name not in held)

    async def admit_page(self, uri: str, page: JSON) -> JSON:
        """Pin a page of an MCP App, and return it.

        Raises:
            NotAllowed: It has changed since, and is held back.
            ServiceUnavailable: As Pins.admit() does.
        """
        if uri in await self._admit("page", {uri: page}):
            raise _held_back(self._service, uri)
        return page

    async def _admit(self, kind: Kind, items: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
        if self._pins is None:
            return frozenset()
        return await self._pins.admit(self._service, self._config_hash, kind, items)


def _held_back(service: str, name: str) -> NotAllowed:
    return NotAllowed(
        f"{service} has changed the definition of {plain_name(name)}, and no person has accepted that yet.",
        recovery=f"Ask a person for `statehold services accept {service}`, which shows the difference.",
    )


def _names(names: Iterable[str]) -> str:
    shown = [*map(plain_name, names)]
    rest = len(shown) - NAMED
    return ", ".join(shown[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
