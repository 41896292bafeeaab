"""Reads the keys with which a client takes something away: a server that is off, tools that are not offered, a sandbox.

A restriction is obeyed, or its server is unusable and the message names the key. None is ignored, since the user of the file
believes that it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ...sessions.json_codec import JSON

APPROVALS: Final = ("alwaysAllow", "autoApprove", "trust")
"""Keys by which a client asks its user less often. Statehold asks for no approval."""

_OFF: Final = frozenset({"false", "0", "no", "off"})
_ON_SWITCHES: Final = ("enabled", "isActive", "isEnabled", "start_on_launch", "startup")
_INCLUDE_KEYS: Final = (
    "include",
    *("includeTools", "enabledTools", "enabled_tools", "allowedTools", "allowed_tools"),
    *("available_tools", "tools"),
)
_EXCLUDE_KEYS: Final = (
    "exclude",
    "excludeTools",
    "disabledTools",
    "disabled_tools",
    "blockedTools",
)
_MODES: Final = {"allow": "include", "block": "exclude"}
"""The modes of `toolFilter`, a key of the proxy of TBXark."""
NESTED: Final = ("options", "_extensions", "requestOptions")
"""Tables below the entry of a server that have settings of it, of proxies and of Continue."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_GRANTS: Final = ("enab", "activ", "allow", "includ")
"""Beginnings of words for what is offered: their `false` and their lists take something away."""
_TAKES: Final = ("disab", "deny", "denied", "block", "exclud", "filter", "restrict", "sandbox")
_WILDCARD: Final = re.compile(r"[*?\[]")


def read_restrictions(rest: JSON) -> JSON:
    """Move the restrictions of one server that Statehold can obey from its entry to settings of ours, and return them."""
    settings: JSON = {}
    for key in _ON_SWITCHES:
        if isinstance(rest.get(key), bool | int | str) and str(rest.pop(key)).lower() in _OFF:
            settings["disabled"] = True
    for setting, names in _lists_of_tools(rest):
        if names is not None and (setting == "exclude" or "*" not in names):
            settings[setting] = [*settings.get(setting, ()), *names]
    switches = rest.get("tools")
    if isinstance(switches, dict) and switches:
        off = set(_switched_off(cast(JSON, switches)))
        if "*" in off:
            settings["include"] = [name for name in cast(JSON, switches) if name not in off]
        elif off:
            settings["exclude"] = [*settings.get("exclude", ()), *sorted(off)]
        if all(set(_table(each)) <= {"enabled"} for each in cast(JSON, switches).values()):
            del rest["tools"]
    return settings


def find_restriction(rest: Mapping[str, Any]) -> str | None:
    """Return a key of an entry that takes something away and was not read; None if there is none."""
    for key, value in rest.items():
        if key in APPROVALS or value is None:
            continue
        if key in NESTED and isinstance(value, dict):
            inner = find_restriction(cast(JSON, value))
            if inner is not None:
                return f"{key}.{inner}"
            continue
        words = [word.lower() for word in _WORD.findall(key)]
        grants = any(word.startswith(_GRANTS) for word in words)
        takes = any(word.startswith(_TAKES) for word in words)
        if isinstance(value, bool):
            restricts = takes if value else grants and not takes
        else:
            restricts = (grants or takes) and value not in ("", [], {})
        if restricts:
            return key
    return None


@dataclass(slots=True)
class Outside:
    """The restrictions of one server that stand outside of its entry."""

    settings: JSON = field(default_factory=dict[str, Any])
    problem: str | None = None
    """The key of a restriction that Statehold cannot obey."""


def read_outside(document: JSON, names: Iterable[str]) -> dict[str, Outside]:
    """Return the restrictions of these servers that stand elsewhere in the file of their client."""
    found: dict[str, Outside] = {}
    for name in names:
        outside = found[name] = Outside()
        included, excluded = _tools_of_agent(document, name), _turned_off_in_zed(document, name)
        excluded += _denied_by_claude(document, name)
        for key, pattern in _patterns(document):
            excluded += _tools_of(pattern, name, key, outside)
        for pattern in _list(document.get("enabled_tools")):
            included = [*(included or ()), *_tools_of(str(pattern), name, "enabled_tools", outside)]
        if "enabled_tools" in document and included is None and _list(document["enabled_tools"]):
            included = []
        if _is_off(document, name) or "*" in excluded or included == []:
            outside.settings["disabled"] = True
        if included and "*" not in included:
            outside.settings["include"] = included
        if excluded:
            outside.settings["exclude"] = excluded
    return found


def _lists_of_tools(rest: JSON) -> Iterator[tuple[str, list[str] | None]]:
    """Take the lists of tools out of an entry. Yield each with our setting for it; None for a list that is none."""
    for setting, keys in (("include", _INCLUDE_KEYS), ("exclude", _EXCLUDE_KEYS)):
        for key in keys:
            names = _names(rest.get(key))
            if names is not None:
                del rest[key]
            yield setting, names
    for table in (rest, _table(rest.get("options"))):
        filters = _table(table.get("toolFilter"))
        setting, names = _MODES.get(str(filters.get("mode"))), _names(filters.get("list"))
        if setting is not None and names is not None:
            del table["toolFilter"]
            yield setting, names
    lists = _table(_table(rest.get("_extensions")).pop("tools", None))
    yield "include", _names(lists.get("allow")) or None  # an empty list allows all
    yield "exclude", _names(lists.get("deny"))


def _names(value: object) -> list[str] | None:
    """Return names of tools; Gemini CLI allows `name(arguments)`. None if it is no list of texts."""
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    names = [item.partition("(")[0] for item in items if isinstance(item, str)]
    return names if len(names) == len(items) else None


def _switched_off(switches: JSON) -> Iterator[str]:
    for name, switch in switches.items():
        value = cast(JSON, switch).get("enabled", True) if isinstance(switch, dict) else switch
        if str(value).lower() in _OFF:
            yield name


def _is_off(document: JSON, name: str) -> bool:
    """Whether lists of servers of Gemini CLI or Claude Code turn a server off."""
    inner = _table(document.get("mcp"))
    allowed = inner.get("allowed", document.get("allowMCPServers"))
    excluded = [
        inner.get("excluded", document.get("excludeMCPServers")),
        document.get("disabledMcpjsonServers"),
    ]
    return (isinstance(allowed, list) and name not in allowed) or any(
        isinstance(each, list) and name in each for each in excluded
    )


def _denied_by_claude(document: JSON, name: str) -> list[str]:
    """Return the tools that `permissions.deny` of Claude Code names as `mcp__SERVER__TOOL`; `*` for all."""
    rules = [str(rule) for rule in _list(_table(document.get("permissions")).get("deny"))]
    server, beginning = f"mcp__{name}", f"mcp__{name}__"
    all_tools = ["*"] if server in rules else []
    return all_tools + [
        rule.removeprefix(beginning) for rule in rules if rule.startswith(beginning)
    ]


def _turned_off_in_zed(document: JSON, name: str) -> list[str]:
    """Return the tools that the default profile of Zed turns off."""
    agent = _table(document.get("agent"))
    profile = _table(_table(agent.get("profiles")).get(str(agent.get("default_profile", "write"))))
    servers = _table(profile.get("context_servers"))
    return list(_switched_off(_table(_table(servers.get(name)).get("tools"))))


def _tools_of_agent(document: JSON, name: str) -> list[str] | None:
    """Return the tools that an agent of Amazon Q may use of a server; None if it may use all."""
    names = [str(each) for each in _list(document.get("tools"))]
    if not names or not {"*", f"@{name}"}.isdisjoint(names):
        return None
    return [each.partition("/")[2] for each in names if each.startswith(f"@{name}/")]


def _patterns(document: JSON) -> Iterator[tuple[str, str]]:
    """Yield the patterns that turn tools off, with their keys: of opencode and of Vibe."""
    for pattern in _switched_off(_table(document.get("tools"))):
        yield f"tools.{pattern}", pattern
    for pattern, rule in _table(document.get("permission")).items():
        if rule == "deny":
            yield f"permission.{pattern}", pattern
    for pattern in _list(document.get("disabled_tools")):
        yield "disabled_tools", str(pattern)


def _tools_of(pattern: str, name: str, key: str, outside: Outside) -> list[str]:
    """Return the tools of a server that a pattern of names `SERVER_TOOL` names; `*` for all.

    The tools are not known yet. A pattern that may name some of them is the problem of the server.
    """
    beginning = f"{name}_"
    wildcard = _WILDCARD.search(pattern)
    literal = pattern[: wildcard.start()] if wildcard else pattern
    if wildcard and pattern[wildcard.start() :] == "*" and beginning.startswith(literal):
        return ["*"]
    if not wildcard and not pattern.startswith("re:"):
        return [pattern.removeprefix(beginning)] if pattern.startswith(beginning) else []
    if pattern.startswith("re:") or literal.startswith(beginning) or beginning.startswith(literal):
        outside.problem = outside.problem or key
    return []


def _table(value: object) -> JSON:
    return cast(JSON, value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
