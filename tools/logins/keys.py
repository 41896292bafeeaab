"""The keys that the settings of services name by `${login:NAME}`: each principal's own, or those of the configuration."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ...sessions.clock import Clock
from ...sessions.errors import InvalidArgument, LoginUnavailable
from ...sessions.owned_map import BoundedMap
from ...sessions.records import LOCAL
from ...sessions.store.base import OK, LoginRecord
from ..foreign_file import read_foreign
from ..processes.command import run_command
from .audit import LoginAudit
from .config import NAME, KeyConfig, LoginConfig

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

KIND: Final = "key"
KEY_BYTES: Final = 65_536
COMMAND_SECONDS: Final = 20.0
"""Seconds that a command may take to print a key."""
RUN_SECONDS: Final = 5.0
"""Seconds between two runs of one command at least."""
KEPT_SECONDS: Final = 1.0
"""Seconds for which a stored key, or its absence, is known without a look at the store."""
MAX_KNOWN: Final = 10_000


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """The value of a key."""

    value: str = field(repr=False)


@dataclass(slots=True)
class _KeyRow:
    """The row of a key as it was last, None without one."""

    record: LoginRecord | None
    key: ServiceKey | None
    read_at: float


@dataclass(slots=True)
class _Source:
    """A file or a command of the configuration: its last outcome."""

    outcome: ServiceKey | LoginUnavailable | None = None
    read_at: float = 0.0
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Keys:
    """The keys of one process. Any task may use it; it has nothing to close."""

    def __init__(
        self,
        logins: Mapping[str, LoginConfig],
        store: SQLStore,
        clock: Clock,
        audit: LoginAudit,
    ) -> None:
        self._logins = logins
        self._store = store
        self._clock = clock
        self._audit = audit
        self._rows = BoundedMap[tuple[str, str], _KeyRow](MAX_KNOWN)
        self._sources: defaultdict[str, _Source] = defaultdict(_Source)

    async def read(self, owner: str, name: str, *, anew: bool = False) -> ServiceKey:
        """Return the key of a principal, else that of the configuration, which is for all.

        `anew`: a connection is opened, or the last value was refused. Otherwise the store is read at most each second, and
        a file or a command not again.

        Raises:
            LoginUnavailable: There is none, or it cannot be read. The message holds no value.
            StoreUnavailable: The store does not answer.
        """
        try:
            key = await self._read(owner, name, anew=anew)
        except LoginUnavailable:
            self._audit.note_seldom("refuse", owner, name, "unavailable")
            raise
        self._audit.note_seldom("use", owner, name)
        return key

    async def separates(self, names: Iterable[str], owner: str) -> bool:
        """Whether one of the keys that a principal uses is stored, and so not that of all.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        keys = [(each, name) for name in names for each in (owner, LOCAL.key)]
        return any([(await self._read_row(*each, anew=False)).key is not None for each in keys])

    async def _read(self, owner: str, name: str, *, anew: bool) -> ServiceKey:
        stored = await self._read_row(owner, name, anew=anew)
        if stored.key is not None:
            return stored.key
        record, config = stored.record, self._logins.get(name)
        if record is None and isinstance(config, KeyConfig):
            return await self._read_source(name, config, anew=anew)
        if record is None and config is None:
            raise _unavailable(name, "is not stored")
        if record is None or record.kind != KIND:
            raise _unavailable(name, "is a login of another kind", "Choose another name.")
        because = f" ({record.reason})" if record.reason else ""
        raise _unavailable(name, f"is {record.state}{because}")

    async def put(self, owner: str, name: str, text: str) -> None:
        """Store a key of a principal, in place of an earlier one.

        Raises:
            InvalidArgument: The name or the text is not usable, or the name is that of another login. No value is shown.
            StoreUnavailable: The store does not answer.
        """
        if not re.fullmatch(NAME, name):
            raise InvalidArgument("The name of a key has 1 to 128 letters, digits and _ . @ / -.")
        try:
            value = parse_key(text)
        except ValueError as error:
            raise InvalidArgument(f"The key cannot be stored: {error}.") from None
        record = LoginRecord(
            owner=owner,
            name=name,
            kind=KIND,
            site="",
            issuer="",
            state=OK,
            since=self._clock.now(),
            sealed=await self._store.logins.seal(owner, name, value),
        )
        await self._audit.admit("grant", owner, name)
        config = self._logins.get(name)
        is_other = config is not None and not isinstance(config, KeyConfig)
        if is_other or not await self._store.logins.put(record):
            raise InvalidArgument(
                f"{name} is a login of another kind.",
                recovery="Choose another name, or forget it first.",
            )
        self._rows.pop((owner, name), None)

    async def _read_row(self, owner: str, name: str, *, anew: bool) -> _KeyRow:
        now, known = self._clock.now(), self._rows.get((owner, name))
        if known is not None and not anew and now < known.read_at + KEPT_SECONDS:
            return known
        record = await self._store.logins.find(owner, name)
        key = None
        if record is not None and record.kind == KIND and record.state == OK:
            if known is not None and known.record == record:
                key = known.key
            else:
                key = ServiceKey((await self._store.logins.open(record)).decode())
            await self._store.logins.note_use(record, now)
        stored = self._rows[owner, name] = _KeyRow(record, key, now)
        return stored

    async def _read_source(self, name: str, config: KeyConfig, *, anew: bool) -> ServiceKey:
        source, asked_at = self._sources[name], self._clock.now()
        async with source.turn:
            known, now = source.outcome, self._clock.now()
            age = RUN_SECONDS if config.command else 0.0
            # Callers that waited for this turn share its outcome.
            is_fresh = source.read_at >= asked_at or now < source.read_at + age
            if known is None or not (is_fresh or (isinstance(known, ServiceKey) and not anew)):
                # A command may ask a person: a caller that leaves does not make the next one run it again.
                with anyio.CancelScope(shield=True):
                    source.outcome = await _read_anew(name, config)
                    source.read_at = self._clock.now()
                known = source.outcome
                assert known is not None
        if isinstance(known, LoginUnavailable):
            raise LoginUnavailable(known.message, recovery=known.recovery)
        return known


async def _read_anew(name: str, config: KeyConfig) -> ServiceKey | LoginUnavailable:
    try:
        if config.file is None:
            text = await run_command(
                config.command, seconds=COMMAND_SECONDS, output_bytes=KEY_BYTES
            )
        else:
            content = await anyio.to_thread.run_sync(read_foreign, config.file, KEY_BYTES)
            text = content.decode("utf-8-sig")
        return ServiceKey(parse_key(text))
    except UnicodeDecodeError:
        problem = "is no text in UTF-8"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except ValueError as error:
        problem = f"cannot be read: {error}"
    place = "command" if config.file is None else "file"
    return _unavailable(name, problem, f"Correct the {place} of [logins.{name}] or what it gives.")


def parse_key(text: str) -> str:
    """Return the key in the output of a command, a file or a field.

    Raises:
        ValueError: There is none, or no process could be given it.
    """
    value = text.strip()
    if not value:
        raise ValueError("it is empty")
    if "\0" in value or len(value) > KEY_BYTES:
        raise ValueError("it has a NUL character, or too many characters")
    return value


def _unavailable(name: str, problem: str, recovery: str | None = None) -> LoginUnavailable:
    remedy = f"Store it with `statehold logins add {name} --key`, then try again."
    return LoginUnavailable(f"The key {name} {problem}.", recovery=recovery or remedy)
