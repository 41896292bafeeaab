"""The JSON Schema (2020-12) of a state: the allowed schemas, and the check of a value within bounds.

A caller supplies the schema and the value, and can make both expensive. So nothing is fetched, patterns run on an engine
without backtracking, and a check that takes longer than a moment leaves the event loop and ends within a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import orjson
from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry

from ..errors import InvalidArgument, StateInvalid
from ..json_codec import JSON
from . import patterns
from .patch import MISSING, at, pointer, tokens_of

T = TypeVar("T")

SCHEMA_LIMIT: Final = 64 << 10
"""Bytes of a schema as JSON text."""
SMALL: Final = 16 << 10
"""Bytes of the largest state that is checked on the event loop, for at most LOOP_SECONDS."""
LOOP_SECONDS: Final = 0.005
THREAD_SECONDS: Final = 2.0
THREADS: Final = 2
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_SCHEMAS: Final = frozenset(
    (
        *("items", "additionalProperties", "not", "if", "then", "else", "contains"),
        *("propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    )
)
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS: Final = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
)
_REFERENCES: Final = ("$ref", "$dynamicRef")

_threads: anyio.CapacityLimiter | None = None


class _TooLong(Exception):
    """Raised within a check that has used up its time."""


_deadline: ContextVar[float] = ContextVar("deadline")


class StateSchema:
    """One schema, ready to check values against. It keeps no state between checks, which may run concurrently."""

    def __init__(self, schema: JSON) -> None:
        own = {key: value for key, value in schema.items() if key != "$schema"}
        # An empty registry: the default one fetches references.
        self._validator: Any = _Bounded(own, registry=cast("Any", Registry)())
        self._patterns = _patterns_of(_parts(own))

    @property
    def _slow(self) -> bool:
        """Whether patterns must be compiled first."""
        return not all(map(patterns.is_compiled, self._patterns))

    async def check(
        self, value: object, size: int, session_id: str | None = None, *, owner: str = ""
    ) -> None:
        """Check a value; `size` is its approximate size in bytes, `owner` the principal that the work is counted for.

        Raises:
            StateInvalid: it does not fit (the message names the place), or the check takes too long.
        """
        try:
            try:
                if size > SMALL or self._slow:
                    raise _TooLong
                found = self._first(value, LOOP_SECONDS)
            except _TooLong:
                found = await in_thread(owner, partial(self._first, value, THREAD_SECONDS))
        except _TooLong:
            found = "The state takes too long to check against the session's schema."
        except RecursionError:
            found = "The state or the session's schema is too deep to check."
        except (ArithmeticError, ValueError) as error:
            found = f"The state cannot be checked against the session's schema: {error}."
        if found is not None:
            raise StateInvalid(found, session_id=session_id)

    def _first(self, value: object, seconds: float) -> str | None:
        """Describe the first part that does not fit, and where it is; None if all fits."""
        token = _deadline.set(time.perf_counter() + seconds)
        try:
            for error in self._validator.iter_errors(value):
                place = pointer(list(error.absolute_path)) or "The state"
                return f"{place:.200} does not fit the session's schema: {error.message:.300}."
            return None
        finally:
            _deadline.reset(token)


@lru_cache(maxsize=256)
def _kept(text: bytes) -> StateSchema:
    return StateSchema(orjson.loads(text))


def shape_of(schema: JSON) -> StateSchema:
    """Return the StateSchema of a session's schema, which was checked when it was given."""
    return _kept(orjson.dumps(schema))


async def new_shape(schema: JSON, *, owner: str = "") -> StateSchema:
    """Check a new schema and return its StateSchema; a check that may take a while runs off the event loop.

    `owner` is the key of the principal who gave it.

    Raises:
        InvalidArgument: it is invalid, refers to something outside of itself, or uses a feature that has no bound.
    """
    try:
        text = orjson.dumps(schema)
    except TypeError:
        raise _refused("it is not JSON, or holds an integer of more than 64 bits") from None
    if len(text) > SCHEMA_LIMIT:
        raise _refused(f"it takes {len(text)} bytes; {SCHEMA_LIMIT} are allowed")
    if len(text) <= SMALL // 8 and b'"pattern' not in text:
        _checked(schema)
    else:
        await in_thread(owner, partial(_checked, schema))
    return _kept(text)


class _Turn:
    """The right of one principal to use a thread."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()


_turns: Final[WeakValueDictionary[str, _Turn]] = WeakValueDictionary()


async def in_thread(owner: str, work: Callable[[], T]) -> T:
    """Run `work` in one of the threads for schemas, and return its value.

    A principal uses one of them at a time, and queues once for it, so the others are served in turn.
    """
    global _threads
    if _threads is None:  # it can be created within an event loop only
        _threads = anyio.CapacityLimiter(THREADS)
    turn = _turns.setdefault(owner, _Turn())
    async with turn.lock:
        return await anyio.to_thread.run_sync(work, limiter=_threads)
    raise AssertionError("unreachable: a lock swallows no exception")


# Allowed schemas.


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(f"state_schema: {why}.")


def _checked(schema: JSON) -> None:
    if schema.get("$schema", DIALECT) not in (DIALECT, f"{DIALECT}#"):
        raise _refused(f"it is written in another dialect than {DIALECT}")
    try:
        # Without formats: our engine decides which patterns can be used.
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
        parts = list(_parts(schema))
    except SchemaError as error:
        place = pointer(list(error.absolute_path)) or "it"
        raise _refused(f"{place:.200} is no valid schema: {error.message:.300}") from None
    except RecursionError:
        raise _refused("it is too deep") from None
    known = {id(part) for part in parts}
    anchors = {part[key]: part for part in parts for key in _ANCHORS if key in part}
    for part in parts:
        if part is not schema and ("$schema" in part or "$id" in part):
            raise _refused("$schema and $id may stand at its root only")
        for key in _REFERENCES:
            target = _target(schema, anchors, part[key]) if key in part else True
            if not isinstance(target, bool) and id(target) not in known:
                raise _refused(
                    f"{key} {part[key]!r:.200} does not lead to a schema within it (remote ones are not fetched)"
                )
    _check_patterns(parts)


_ANCHORS: Final = ("$anchor", "$dynamicAnchor")


def _parts(schema: object) -> Iterator[JSON]:
    """Yield a schema and every schema in it."""
    if not isinstance(schema, dict):
        return
    found = cast("JSON", schema)
    yield found
    for key, value in found.items():
        if key in _SCHEMAS:
            yield from _parts(value)
        elif key in _LISTS and isinstance(value, list):
            for item in cast("list[object]", value):
                yield from _parts(item)
        elif key in _MAPS and isinstance(value, dict):
            for item in cast("JSON", value).values():
                yield from _parts(item)


def _target(schema: JSON, anchors: Mapping[str, JSON], reference: str) -> object:
    """Return the target of a reference, MISSING if it is not within the schema."""
    if not reference.startswith("#"):
        return MISSING
    place = unquote(reference[1:])
    if place and not place.startswith("/"):
        return anchors.get(place, MISSING)
    try:
        return at(schema, tokens_of(place))
    except InvalidArgument:
        return MISSING


def _patterns_of(parts: Iterable[JSON]) -> set[str]:
    found: set[str] = set()
    for part in parts:
        found.update(part.get("patternProperties", ()))
        if "pattern" in part:
            found.add(part["pattern"])
    return found


def _check_patterns(parts: list[JSON]) -> None:
    weight = 0
    for pattern in sorted(_patterns_of(parts)):
        try:
            weight += patterns.checked(pattern)
        except ValueError as error:
            raise _refused(f"the pattern {pattern!r:.100} cannot be used: {error}") from None
    if weight > patterns.HEAVIEST:
        raise _refused("its patterns together repeat too much")
    if any("unevaluatedProperties" in part for part in parts) and any(
        "patternProperties" in part for part in parts
    ):
        raise _refused("unevaluatedProperties cannot be used together with patternProperties")


# Checking within bounds.


Keyword = Callable[[Any, Any, Any, JSON], Iterator[ValidationError]]


def _timed(keyword: Keyword) -> Keyword:
    def run(validator: Any, value: Any, instance: Any, schema: JSON) -> Iterator[ValidationError]:
        if time.perf_counter() > _deadline.get():
            raise _TooLong
        yield from keyword(validator, value, instance, schema) or ()

    return run


def _pattern(
    validator: Any, pattern: Any, instance: Any, schema: JSON
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not patterns.matches(pattern, instance):
        yield ValidationError(f"{instance!r:.100} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, parts: Any, instance: Any, schema: JSON
) -> Iterator[ValidationError]:
    for name in _names(instance):
        for pattern, part in parts.items():
            if patterns.matches(pattern, name):
                yield from validator.descend(instance[name], part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, part: Any, instance: Any, schema: JSON
) -> Iterator[ValidationError]:
    known, others = schema.get("properties", {}), schema.get("patternProperties", {})
    for name in _names(instance):
        if name in known or any(patterns.matches(pattern, name) for pattern in others):
            continue
        if part is False:
            yield ValidationError(f"there is no place for {name!r:.100}")
        else:
            yield from validator.descend(instance[name], part, path=name)


def _names(instance: object) -> list[str]:
    return list(cast("JSON", instance)) if isinstance(instance, dict) else []


def _unique_items(
    validator: Any, wanted: Any, instance: Any, schema: JSON
) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, list):
        items = cast("list[object]", instance)
        if len({_identity(item) for item in items}) != len(items):
            yield ValidationError("two of its items are equal")


def _identity(value: object) -> object:
    """Return a hashable value that is equal for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        members = cast("JSON", value).items()
        return ("object", frozenset((key, _identity(item)) for key, item in members))
    if isinstance(value, list):
        return ("array", tuple(_identity(item) for item in cast("list[object]", value)))
    return (isinstance(value, bool), value)


def _bounded() -> Any:
    found: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
    found |= {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    extend: Any = cast("Any", validators).extend
    return extend(Draft202012Validator, {name: _timed(run) for name, run in found.items()})


_Bounded: Final = _bounded()


__all__ = ["StateSchema", "new_shape", "shape_of"]
