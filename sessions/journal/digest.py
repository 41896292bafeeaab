"""A summary made without a model: it counts and quotes the records. The same records give the same summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson

from ..attribution import attribute_text
from ..json_codec import JSON
from ..records import JournalCounts
from ..times import timestamp
from .redaction import Redactor

MAX_LAST_CALLS: Final = 5
MAX_LAST_ERRORS: Final = 3
LAST_NOTES: Final = 200
MAX_TOOLS: Final = 20
MAX_PAGES: Final = 20
MAX_KEYS: Final = 50
TOPIC_TEXT: Final = 2000
"""Characters of a message that are searched for topics."""
MAX_TOPICS: Final = 10
QUOTE: Final = 200
"""Most characters of a quotation."""
TEXT: Final = 4000
"""Most characters of the whole text."""

_WORD: Final = re.compile(r"(?<![\w+/])[^\W\d_][\w'-]{3,30}(?![\w+/=])")
"""A word, but no part of a picture in Base64."""
_LINES: Final = (
    "about after again also another back because been before being between both cannot could does doing done",
    "down during each either else even ever every first from further have having here into itself just know",
    "last like made make many more most much must need next only other over please quite same shall should",
    "some such sure take than thank thanks that their them then there these they thing this those through",
    "under until upon used using very want well were what when where whether which while will with within",
    "without would your yours null true false http https html page",
)
_COMMON: Final = frozenset(word for line in _LINES for word in line.split())


@dataclass(slots=True)
class Material:
    """Input of a digest, besides the counts."""

    status: str
    name: str | None = None
    reason: str | None = None
    services: Sequence[JSON] = ()
    calls: Sequence[JSON] = ()
    """The last calls, as the history shows them."""
    errors: Sequence[JSON] = ()
    """The last calls that were not `ok`."""
    notes: Sequence[JSON] = ()
    """The last messages."""
    state_version: int = 0
    state_keys: Sequence[str] = ()
    pages: Sequence[JSON] = field(default_factory=list[JSON])


def digest(material: Material, counts: JournalCounts, redactor: Redactor) -> JSON:
    """Return the digest as JSON; `text` repeats it in a few lines."""
    pages = [_page(page, redactor) for page in material.pages[:MAX_PAGES]]
    keys = sorted(redactor.text(key)[:QUOTE] for key in material.state_keys)
    fields: JSON = {
        "source": "digest",
        "text": "",
        "topics": topics_of(_topic_texts(material, pages)),
        "from": timestamp(counts.first_at),
        "updated_at": timestamp(counts.last_at),
        "through_seq": counts.last_seq,
        "entries": counts.entries,
        "runs": counts.runs,
        "status": material.status,
        "reason": material.reason,
        "services": [_service(service, redactor) for service in material.services],
        "calls": _most(counts.calls),
        "messages": dict(sorted(counts.messages.items())),
        "last_calls": [_quote_call(call) for call in material.calls],
        "last_errors": [_quote_call(call) for call in material.errors],
        "pages": pages,
        "state_version": material.state_version,
        "state_keys": keys[:MAX_KEYS],
    }
    fields["text"] = _text(material.name, fields, len(keys), len(material.pages))[:TEXT]
    return fields


def pages_of(data: bytes) -> list[JSON]:
    """Return title and address of the pages in a stored browser snapshot, nothing for any other snapshot."""
    try:
        saved: JSON = orjson.loads(data)["data"]
        # Where it holds secrets, it also has the pages without them.
        tabs_value: Any = saved.get("pages") or saved["tabs"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    tabs = cast("list[Any]", tabs_value) if isinstance(tabs_value, list) else []
    return [
        {"title": str(tab.get("title") or ""), "url": str(tab["url"])}
        for tab in (cast("JSON", tab) for tab in tabs if isinstance(tab, dict))
        if tab.get("url")
    ]


def topics_of(texts: Iterable[str]) -> list[str]:
    """Return the most frequent words that have more than a few letters."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word in _WORD.findall(text.lower()) if word not in _COMMON)
    by_frequency = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [word for word, _ in by_frequency[:MAX_TOPICS] if "redacted" not in word]


def _topic_texts(material: Material, pages: Sequence[JSON]) -> Iterable[str]:
    # The beginnings suffice; the whole of two hundred long messages would keep other tasks waiting.
    yield from (str(note.get("content") or "")[:TOPIC_TEXT] for note in material.notes)
    yield from (page["title"] for page in pages)


def _page(page: JSON, redactor: Redactor) -> JSON:
    return {
        key: attribute_text(redactor.beginning(page[key], QUOTE), "page")
        for key in ("title", "url")
    }


def _service(service: JSON, redactor: Redactor) -> JSON:
    error: str | None = service["last_error"]
    quotation = None if error is None else redactor.beginning(error, QUOTE)
    return {
        **{key: service[key] for key in ("service", "status", "generation")},
        "last_error": quotation,
    }


def _most(calls: dict[str, dict[str, int]]) -> list[JSON]:
    """Return the tools that were called most often, with the count of each outcome."""
    tools = [
        {"tool": tool, "count": sum(outcomes.values()), "outcomes": dict(sorted(outcomes.items()))}
        for tool, outcomes in calls.items()
    ]
    return sorted(tools, key=lambda item: (-cast("int", item["count"]), item["tool"]))[:MAX_TOOLS]


def _quote_call(call: JSON) -> JSON:
    fields = {key: call[key] for key in ("seq", "at", "tool", "status", "error") if key in call}
    if "error" in fields:
        fields["error"] = fields["error"][:QUOTE]
    if call.get("arguments"):
        fields["arguments"] = _quote_json(call["arguments"])
    content = cast("JSON", call.get("result") or {}).get("content")
    texts = [text for text in cast("list[Any]", content or []) if isinstance(text, str)]
    if texts:
        fields["result"] = texts[0][:QUOTE]
    return fields


def _quote_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()[:QUOTE]
    except orjson.JSONEncodeError:
        return repr(value)[:QUOTE]


def _text(name: str | None, fields: JSON, keys: int, pages: int) -> str:
    calls: list[JSON] = fields["calls"]
    total = sum(call["count"] for call in calls)
    condition = f"{fields['status']} ({fields['reason']})" if fields["reason"] else fields["status"]
    lines = [f"The session {f'{name!r} ' if name else ''}is {condition}."]
    if total:
        tools = ", ".join(f"{call['tool']} {_outcomes(call)}" for call in calls)
        lines.append(f"{total} calls between {fields['from']} and {fields['updated_at']}: {tools}.")
    if fields["messages"]:
        roles = ", ".join(f"{count} {role}" for role, count in fields["messages"].items())
        lines.append(f"Messages: {roles}.")
    if fields["last_calls"]:
        lines.append(f"Last: {', '.join(_step(call) for call in fields['last_calls'])}.")
    lines += [
        f"Error of {call.get('tool')} ({call.get('status')}): {call.get('error') or call.get('result', '')}"
        for call in fields["last_errors"]
    ]
    for service in fields["services"]:
        if service["last_error"] and service["status"] != "open":
            lines.append(f"{service['service']} is {service['status']}: {service['last_error']}")
    lines += [f"Open page: {page['title']} <{page['url']}>" for page in fields["pages"]]
    if pages > MAX_PAGES:
        lines.append(f"... and {pages - MAX_PAGES} more pages.")
    if keys:
        more = f" and {keys - MAX_KEYS} more" if keys > MAX_KEYS else ""
        names = ", ".join(fields["state_keys"])
        lines.append(f"State (version {fields['state_version']}): {names}{more}.")
    if fields["topics"]:
        lines.append(f"Topics: {', '.join(fields['topics'])}.")
    return "\n".join(lines)


def _outcomes(call: JSON) -> str:
    outcomes: dict[str, int] = call["outcomes"]
    if list(outcomes) == ["ok"]:
        return str(call["count"])
    return (
        f"{call['count']} ({', '.join(f'{count} {status}' for status, count in outcomes.items())})"
    )


def _step(call: JSON) -> str:
    status = call.get("status")
    return str(call.get("tool")) if status == "ok" else f"{call.get('tool')} ({status})"
