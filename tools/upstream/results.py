"""Results of tool calls: their shape, their facts for the journal, and texts that look like our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import takewhile
from typing import Any, Final, cast

from mcp_types import SERVER_INFO_META_KEY

from ...sessions.attribution import ORDINARY_BEGINNINGS, attribute_text, attribute_value
from ...sessions.errors import RequestRefused
from ...sessions.journal.facts import LONGEST_TEXT
from ...sessions.json_codec import JSON
from ..outputs import PASSED, OutputRules, clean_texts, is_safe_link, restrict_links
from .errors import UpstreamMisbehaved, era_remedy

REQUIRED_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}
"""The text fields that a content block of each type must have."""

MAX_SCALARS: Final = 20
"""Scalars of structured content that are facts of a step."""
MAX_VISITS: Final = 200
"""Members of structured content that are searched for them."""
MAX_LEVELS: Final = 8
LONGEST_KEY: Final = 100
LONGEST_VALUE: Final = 200
"""Characters of the longest text that is such a fact; a part of a value is none."""
_PLAIN: Final = frozenset({int, float, bool, type(None)})
EXIT_CODES: Final = frozenset({"exit_code", "exitCode", "returncode"})
_RESULTS: Final = frozenset({"content", "contents", "messages"})
"""The members of results whose texts a service may pass on unchanged; those of lists are cleaned in any case."""
ENDS: Final = 2000
"""Characters at the beginning and the end of a text that are searched for its first and last line."""


def validate_result(
    result: JSON,
    *,
    modern: bool,
    service: str,
    tool: bool,
    exact: bool = False,
    rules: OutputRules = PASSED,
) -> JSON:
    """Return a result that can be passed on, or raise UpstreamMisbehaved. `tool`: it is a result of tools/call.

    With `exact`, its texts are not cleaned.

    A result of a legacy upstream has no `resultType`; a modern one's is `complete` or `input_required`.
    """
    kind = result.get("resultType", "complete")
    if not modern:
        if result.pop("resultType", None) == "input_required":
            fault = f"it asks for input by a newer revision; {era_remedy(service)}"
            raise UpstreamMisbehaved(service, fault)
    elif kind == "input_required":
        return _validate_question(result, service, rules)
    elif kind != "complete":
        raise UpstreamMisbehaved(service, f"its result is of the unknown type {str(kind)[:40]!r}")
    if "_meta" in result:
        _drop_server_info(result)
    if tool and (fault := _find_fault(result)) is not None:
        raise UpstreamMisbehaved(service, f"its result is not a tool result ({fault})")
    if not (exact or rules.exact) or _RESULTS.isdisjoint(result):
        clean_texts(result)
    if rules.https:
        restrict_links(result, service)
    claim_texts(result, service)
    return result


def _validate_question(result: JSON, service: str, rules: OutputRules) -> JSON:
    value, state = result.get("inputRequests"), result.get("requestState")
    requests = cast(JSON, value) if isinstance(value, dict) else {}
    is_valid = all(isinstance(_get(request, "method"), str) for request in requests.values())
    if not is_valid or not (requests or isinstance(state, str)):
        raise UpstreamMisbehaved(service, "it asks for input without a question")
    _drop_server_info(result)
    claim_texts(result, service)
    for request in requests.values():
        attribute_question(service, request["method"], request.get("params"), rules)
    return result


def next_round(params: JSON, responses: JSON | None, state: object) -> JSON:
    """Return the params that repeat a request with the answers and the `requestState` of the upstream."""
    next_params = {k: v for k, v in params.items() if k not in ("inputResponses", "requestState")}
    if responses is not None:
        next_params["inputResponses"] = responses
    if state is not None:
        next_params["requestState"] = state
    return next_params


def _drop_server_info(result: JSON) -> None:
    """Remove the upstream's `serverInfo`, which ours replaces, and a `_meta` that is not an object."""
    meta = result.get("_meta")
    if not isinstance(meta, dict):
        result.pop("_meta", None)
    elif SERVER_INFO_META_KEY in meta:
        fields = cast(JSON, meta)
        del fields[SERVER_INFO_META_KEY]
        if not fields:
            del result["_meta"]


def _find_fault(result: JSON) -> str | None:
    content = result.get("content")
    if not isinstance(content, list):
        return "content is no list"
    if not isinstance(result.get("isError", False), bool):
        return "isError is neither true nor false"
    for number, block in enumerate(cast(list[object], content)):
        if (fault := _find_block_fault(block)) is not None:
            return f"content block {number} {fault}"
    return None


def _find_block_fault(block: object) -> str | None:
    fields = cast(JSON, block) if isinstance(block, dict) else {}
    kind: object = fields.get("type")
    if not isinstance(kind, str):
        return "has no type"
    for name in REQUIRED_TEXTS.get(kind, ()):
        if not isinstance(fields.get(name), str):
            return f"is of type {kind} without {name}"
    if kind == "resource":
        resource = fields.get("resource")
        if not isinstance(_get(resource, "uri"), str):
            return "is a resource without uri"
        if not any(isinstance(_get(resource, name), str) for name in ("text", "blob")):
            return "is a resource without text or blob"
    return None


def facts_of(result: JSON) -> JSON:
    """Return the facts of a step: scalars of the structured content, or the first and last line of the text.

    The result is one that validate_result() returned.
    """
    structured: object = result.get("structuredContent")
    if isinstance(structured, dict) and _is_plain(fields := cast(JSON, structured)):
        facts: JSON = {"values": dict(fields)}
        for name in fields.keys() & EXIT_CODES:
            if type(fields[name]) is int:
                facts["exit_code"] = fields[name]
        return facts
    facts = {}
    if isinstance(structured, dict | list):
        scalars = _FirstScalars()
        values = scalars.within(cast(object, structured))
        if scalars.exit_code is not None:
            facts["exit_code"] = scalars.exit_code
        if scalars.count:
            return facts | {"values": values}
    texts = (_get(block, "text") for block in result.get("content", ()))
    return facts | _ends([text for text in texts if isinstance(text, str)])


def _is_plain(fields: JSON) -> bool:
    """Return whether an object has a few numbers, booleans and nulls only, as most results have."""
    return (
        0 < len(fields) <= MAX_SCALARS
        and _PLAIN.issuperset(map(type, fields.values()))
        and max(map(len, fields)) <= LONGEST_KEY
    )


class _FirstScalars:
    """Takes the first scalars of a JSON value with the containers around them, in bounded time."""

    def __init__(self) -> None:
        self.count = 0
        self.exit_code: int | None = None
        """The value of the first field that is called so."""
        self._visits = MAX_VISITS

    def within(self, value: object, levels: int = MAX_LEVELS) -> object:
        """Return a value without its further scalars; {} stands for one that is left out."""
        self._visits -= 1
        if isinstance(value, dict):
            return self._members(cast(JSON, value), levels)
        if isinstance(value, list):
            members = takewhile(lambda _: self._is_open, cast(list[object], value))
            return [self.within(member, levels - 1) for member in members] if levels else {}
        if not self._is_open or (isinstance(value, str) and len(value) > LONGEST_VALUE):
            return {}
        self.count += 1
        return value

    def _members(self, fields: JSON, levels: int) -> JSON:
        if not levels:
            return {}
        members: JSON = {}
        # A value comes after the name beside it, which tells whether it is secret.
        for key in sorted(fields, key="value".__eq__) if "value" in fields else fields:
            if not self._is_open:
                break
            member: object = fields[key]
            if key in EXIT_CODES and self.exit_code is None and type(member) is int:
                self.exit_code = member
            if len(key) <= LONGEST_KEY and (part := self.within(member, levels - 1)) != {}:
                members[key] = part
        return members

    @property
    def _is_open(self) -> bool:
        return self.count < MAX_SCALARS and self._visits > 0


def _ends(texts: Sequence[str]) -> JSON:
    """Return the first and the last line of texts; without the last if there is one line."""
    if not texts:
        return {}
    first = texts[0][:ENDS].strip().partition("\n")[0].rstrip()
    before, _, last = texts[-1][-ENDS:].strip().rpartition("\n")
    # Without a line before it, it is the first one, or it may begin in the middle of a secret.
    is_whole = bool(before) or (len(texts) > 1 and len(texts[-1]) <= ENDS)
    ends = {"first": first[:LONGEST_TEXT], "last": last.lstrip()[:LONGEST_TEXT] if is_whole else ""}
    return {name: line for name, line in ends.items() if line}


def _get(value: object, name: str) -> Any:
    return cast(JSON, value).get(name) if isinstance(value, dict) else None


OUR_META: Final = "statehold/"
MAX_DEPTH: Final = 6
"""Levels of a result that are searched for `_meta`; content blocks, resources, messages and questions are within them."""

_DATA: Final = frozenset({"structuredContent", "inputSchema", "outputSchema", "requestedSchema"})
"""Members with data of the upstream, in which clients ignore a `_meta`."""
_SHOWN: Final = frozenset({"text", "name", "title", "description", "systemPrompt"})
"""Members of content blocks, resources and prompts that clients show."""
_DESCRIPTIONS: Final = frozenset({"title", "description"})
"""Those of things that are called by their names, and of schemas."""
_CONTAINERS: Final = (dict, list)
_NOT_SHOWN: Final = frozenset({"_meta", "structuredContent"})
"""Members without texts of content blocks; structured content is attributed as a whole."""
_NAMED: Final = frozenset({"tools", "prompts", "arguments"}) | _DATA


def claim_texts(result: JSON, service: str) -> None:
    """Keep a result, a question or a notification of a service distinguishable from our own, in place.

    Our keys leave each `_meta`, and a text or a name that begins like a note of ours gets the name of the service.
    """
    _claim(result, service, _SHOWN, MAX_DEPTH)
    structured: object = result.get("structuredContent")
    if structured is not None and _may_be_ours(structured):
        result["structuredContent"] = attribute_value(structured, service)


def _claim(fields: JSON, service: str, shown: Set[str], depth: int, *, data: bool = False) -> None:
    """Do the same for an object and those in it. In the `data` of an upstream, clients ignore a `_meta`."""
    meta: object = fields.get("_meta")
    if isinstance(meta, dict) and not data:
        own = cast(JSON, meta)
        for key in [key for key in own if key.startswith(OUR_META)]:
            del own[key]
        if not own:
            del fields["_meta"]
    for name, child in fields.items():
        if isinstance(child, str):
            if name in shown and child[:1] not in ORDINARY_BEGINNINGS:
                fields[name] = attribute_text(child, service)
        elif depth and isinstance(child, _CONTAINERS) and name not in _NOT_SHOWN:
            inner, is_data = (_DESCRIPTIONS if name in _NAMED else shown), data or name in _DATA
            for item in cast("list[object]", child if isinstance(child, list) else [child]):
                if isinstance(item, dict):
                    _claim(cast(JSON, item), service, inner, depth - 1, data=is_data)


def _may_be_ours(structured: object) -> bool:
    """Whether a name or a text of structured content has a beginning that a note of ours may have."""
    if not isinstance(structured, dict):
        return True
    fields = cast("dict[str, object]", structured)
    texts = [*fields, *(value for value in fields.values() if isinstance(value, str))]
    return not all(text[:1] in ORDINARY_BEGINNINGS for text in texts)


def attribute_question(
    service: str, method: object, params: Any, rules: OutputRules = PASSED
) -> None:
    """Begin the message of an elicitation with the name of the service that asks, in place.

    A text in a question that begins like a note of Statehold gets the name, too. A person reads elicitations, so that
    hidden characters in them are shown.

    Raises:
        UpstreamMisbehaved: It leads a person to an address that the rules do not allow.
    """
    if not isinstance(params, dict):
        return
    fields = cast(JSON, params)
    is_for_person = method == "elicitation/create"
    clean_texts(fields, escape=is_for_person)
    claim_texts(fields, service)
    if is_for_person:
        if rules.https and "url" in fields and not is_safe_link(fields["url"]):
            raise UpstreamMisbehaved(
                service, "it sends a person to an address that is neither HTTPS nor on this machine"
            )
        message: object = fields.get("message")
        question = message if isinstance(message, str) else ""
        fields["message"] = f"{service} asks: {question}".strip()


def attribute_refusal(error: RequestRefused, service: str) -> None:
    """Put the name of the service before the texts of its error that begin like a note of Statehold, in place."""
    texts: JSON = {"message": error.message, "data": error.data}
    clean_texts(texts)
    error.message = attribute_text(texts["message"], service)
    error.data = attribute_value(texts["data"], service)


def attribute_report(service: str, params: JSON) -> None:
    """Put the name of the service before a text of a progress or log message that begins like a note, in place."""
    clean_texts(params)
    claim_texts(params, service)
    for name in ("message", "data"):
        if name in params:
            params[name] = attribute_value(params[name], service)
