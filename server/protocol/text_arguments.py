"""Arguments that a caller gives as texts: the schema of the tool decides what becomes of each.

A string and an enum stay as they are. A number is a JSON number, a boolean one of yes, no, true and false, an object JSON. A
list is JSON, or texts between commas. Where a schema allows several types, a text is JSON if that is allowed, else a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, cast

from ...sessions.errors import InvalidArgument
from ..sockets.command import TEXT_ANSWERS, TEXT_ARGUMENTS

if TYPE_CHECKING:
    # A command with --url imports this module, and takes as long as its imports.
    from ...sessions.json_codec import JSON
    from ...tools.catalog import Naming
    from ..gateway.gateway import Gateway
    from ..sdk.access import RequestContext

TEXT_TOTAL: Final = 16 << 20
"""Characters of all texts of a call at most."""
MAX_SHOWN: Final = 60
"""Characters of a text that an error shows."""
MAX_SCHEMAS: Final = 200
"""Schemas that are followed for one argument at most: a reference may lead to itself."""

_BOOLEANS: Final = {"yes": True, "true": True, "no": False, "false": False}
_COMBINATIONS: Final = ("anyOf", "oneOf", "allOf")


def parse_texts(tool: str, schema: Mapping[str, Any], texts: object, given: JSON) -> JSON:
    """Return the arguments of a call: those given as JSON, and the texts as the schema wants them.

    Raises:
        InvalidArgument: a text does not fit, an argument is unknown or missing. The error names it and the arguments.
    """
    properties: JSON = schema.get("properties") or {}
    arguments = dict(given)
    try:
        for name, text in _checked(texts).items():
            if name in arguments:
                raise ValueError(f"{name} is given twice")
            if name not in properties and not _accepts_more(schema, properties):
                raise ValueError(f"there is no argument {name[:MAX_SHOWN]!r}")
            arguments[name] = _value(name, text, properties.get(name, True), schema)
        missing = [name for name in schema.get("required", ()) if name not in arguments]
        if missing:
            raise ValueError(f"{', '.join(missing)}: required")
    except ValueError as error:
        raise InvalidArgument(
            f"{error}.", recovery=f"Arguments of {tool}: {signature(schema)}"
        ) from None
    return arguments


def signature(schema: Mapping[str, Any]) -> str:
    """Return the arguments of a schema in one line, the optional ones in brackets: `target=text [doubleClick=yes|no]`."""
    properties: JSON = schema.get("properties") or {}
    required: Sequence[str] = schema.get("required") or ()
    words = (f"{name}={_kind_of(each, schema)}" for name, each in properties.items())
    parts = [
        word if name in required else f"[{word}]"
        for name, word in zip(properties, words, strict=True)
    ]
    return " ".join(parts) or "none"


def _kind_of(schema: object, root: Mapping[str, Any]) -> str:
    """Return the kind of an argument in one word."""
    schemas = list(_schemas(schema, root))
    choices = [choice for each in schemas for choice in _choices(each)]
    if choices:
        return "|".join(
            choice if isinstance(choice, str) else json.dumps(choice) for choice in choices
        )
    types = [name for name in _types(schemas) if name != "null"]
    words = {"string": "text", "boolean": "yes|no", "array": "list", "object": "JSON"}
    return "|".join(dict.fromkeys(words.get(name, name) for name in types)) or "text"


def _checked(texts: object) -> dict[str, str | list[str]]:
    """Return texts as they may be.

    Raises:
        ValueError: they are something else, or too long.
    """
    if not isinstance(texts, dict):
        raise ValueError("the arguments are no texts")
    found, size = cast("dict[str, Any]", texts), 0
    for value in found.values():
        for text in cast("list[object]", value) if isinstance(value, list) else [value]:
            if not isinstance(text, str):
                raise ValueError("the arguments are no texts")
            size += len(text)
    if size > TEXT_TOTAL:
        raise ValueError(f"the arguments have more than {TEXT_TOTAL} characters")
    return found


def _accepts_more(schema: Mapping[str, Any], properties: JSON) -> bool:
    """Whether a tool takes arguments that its schema does not list: it says so, or lists none at all."""
    more: object = schema.get("additionalProperties")
    if more is None:
        return not properties or "patternProperties" in schema
    return more is not False


def _value(name: str, text: str | Sequence[str], schema: object, root: Mapping[str, Any]) -> Any:
    """Return the value of an argument. Raises ValueError with its name."""
    schemas = list(_schemas(schema, root))
    types = _types(schemas)
    try:
        if isinstance(text, str):
            return _from_text(text, schemas, types, root)
        if types and "array" not in types:
            raise ValueError("it is given several times")
        return [_item(each, schemas, root) for each in text]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _from_text(
    text: str, schemas: Sequence[Mapping[str, Any]], types: Sequence[str], root: Mapping[str, Any]
) -> Any:
    choices = [choice for schema in schemas for choice in _choices(schema)]
    if choices:
        return _choose(text, choices)
    match types:
        case ["string"]:
            return text
        case ["array"]:
            return _to_list(text, schemas, root)
        case [one]:
            return _single(text, one)
        case _:
            return _of_several(text, types, schemas, root)


def _choose(text: str, choices: Sequence[object]) -> object:
    if text in choices:
        return text
    value = _parse(text)
    for choice in choices:
        # In Python, true is equal to 1.
        if value == choice and type(value) is type(choice):
            return choice
    words = ", ".join(
        choice if isinstance(choice, str) else json.dumps(choice) for choice in choices
    )
    raise ValueError(f"should be one of {words}, found {_shown(text)}")


def _single(text: str, kind: str) -> object:
    """Return the value of a text for one type other than string and array."""
    value = _BOOLEANS.get(text.lower()) if kind == "boolean" else _parse(text)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if (value is not None or (kind == "null" and text == "null")) and _is_of(value, kind):
        return value
    wanted = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "yes or no",
        "object": "a JSON object",
    }.get(kind, kind)
    raise ValueError(f"should be {wanted}, found {_shown(text)}")


def _of_several(
    text: str, types: Sequence[str], schemas: Sequence[Mapping[str, Any]], root: Mapping[str, Any]
) -> Any:
    """Return JSON if one of the types allows it, else the text, else what the first type that takes it makes of it."""
    value = _parse(text)
    if (value is not None or text == "null") and (
        not types or any(_is_of(value, kind) for kind in types)
    ):
        return value
    if not types or "string" in types:
        return text
    failures: list[str] = []
    for kind in types:
        try:
            return _to_list(text, schemas, root) if kind == "array" else _single(text, kind)
        except ValueError as error:
            failures.append(str(error))
    raise ValueError(failures[0])


def _to_list(text: str, schemas: Sequence[Mapping[str, Any]], root: Mapping[str, Any]) -> list[Any]:
    if text.lstrip().startswith("["):
        value = _parse(text)
        if not isinstance(value, list):
            raise ValueError(f"is no JSON list: {_shown(text)}")
        return cast("list[Any]", value)
    return [_item(item, schemas, root) for item in text.split(",")] if text else []


def _item(text: str, schemas: Sequence[Mapping[str, Any]], root: Mapping[str, Any]) -> Any:
    items: object = next((schema["items"] for schema in schemas if "items" in schema), True)
    of_item = list(_schemas(items, root))
    return _from_text(text, of_item, _types(of_item), root)


def _schemas(schema: object, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and those that it refers to and combines."""
    queue, seen = [schema], 0
    while queue and seen < MAX_SCHEMAS:
        schema = queue.pop(0)
        seen += 1
        if not isinstance(schema, dict):
            continue
        members = cast("JSON", schema)
        yield members
        reference: object = members.get("$ref")
        if isinstance(reference, str):
            queue.append(_referred(reference, root))
        for name in _COMBINATIONS:
            parts: object = members.get(name)
            if isinstance(parts, list):
                queue += cast("list[object]", parts)


def _referred(reference: str, root: Mapping[str, Any]) -> object:
    """Return what a local reference stands for, None if nothing."""
    place: object = root
    if not reference.startswith("#"):
        return None
    for part in reference[1:].strip("/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        place = cast("dict[object, object]", place).get(key) if isinstance(place, dict) else None
    return place


def _types(schemas: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the types that schemas allow, each once; none means any."""
    found: dict[str, None] = {}
    for schema in schemas:
        kind: object = schema.get("type")
        for name in cast("list[object]", kind) if isinstance(kind, list) else [kind]:
            if isinstance(name, str):
                found[name] = None
        if kind is None and "properties" in schema:
            found["object"] = None
    return list(found)


def _choices(schema: Mapping[str, Any]) -> list[object]:
    choices: object = schema.get("enum")
    if isinstance(choices, list):
        return cast("list[object]", choices)
    return [schema["const"]] if "const" in schema else []


def _is_of(value: object, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return value is None


def _parse(text: str) -> Any:
    """Return a text as JSON, None if it is none. NaN and Infinity are no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...")


class TextArguments:
    """The calls of commands over one gateway. It keeps no state."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def parse(self, ctx: RequestContext, naming: Naming) -> RequestContext:
        """Return the request of a command with JSON instead of texts, in its arguments and its answers.

        Raises:
            InvalidArgument: a text does not fit.
        """
        params = dict(ctx.params or {})
        name: object = params.get("name")
        schema = await self._schema(ctx, name, naming) if isinstance(name, str) else None
        return replace(ctx, params=typed_params(params, schema))

    async def _schema(
        self, ctx: RequestContext, name: str, naming: Naming
    ) -> Mapping[str, Any] | None:
        """Return the schema of a tool; waits as a call does until its service has started."""
        tools = self._gateway.tools
        own = tools.own_tool(name, naming)
        if own is not None:
            return own.definition(naming=naming)["inputSchema"]
        if tools.catalog(naming).schemas.get(name) is None:
            from ...sessions.calls.deadline import WaitProgress
            from ..sdk.caller import Caller

            caller = Caller(ctx, ctx.params or {})
            await self._gateway.probes.entry(name, naming, WaitProgress(caller))
            caller.close()
        return tools.catalog(naming).schemas.get(name)


def typed_params(params: JSON, schema: Mapping[str, Any] | None) -> JSON:
    """Return the params of a call with JSON instead of the texts in its `_meta`. Without a schema they are left out.

    Raises:
        InvalidArgument: a text does not fit.
    """
    meta: JSON = dict(params.get("_meta") or {})
    texts, answers = meta.pop(TEXT_ARGUMENTS, None), meta.pop(TEXT_ANSWERS, None)
    typed = {**params, "_meta": meta}
    if texts is not None and schema is not None:
        given: JSON = params.get("arguments") or {}
        typed["arguments"] = parse_texts(str(params.get("name")), schema, texts, given)
    if isinstance(answers, dict):
        typed["inputResponses"] = {
            **(params.get("inputResponses") or {}),
            **dict(starmap(_answer, cast("JSON", answers).items())),
        }
    return typed


def _answer(question: str, answer: JSON) -> tuple[str, JSON]:
    content = parse_texts("the question", answer.get("schema") or {}, answer.get("texts"), {})
    return question, {"action": "accept", "content": content}
