"""The sites of logins, and the parts of a browser context that belong to them."""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ....sessions.json_codec import JSON
from ..devtools.world import origin_of
from ..egress.network_policy import Target
from ..snapshot.model import ContextSnapshot, StoredOrigin
from ..snapshot.session_storage import without_sessions

SHORTEST: Final = 8
"""The shortest value that is masked; shorter ones are in many texts by chance."""
MAX_TEXTS: Final = 200
"""Values of a login that are masked: the cookies, then what is in its storage."""


class LoginSites:
    """Some origins, with the cookies and the storage that belong to them. Immutable."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self.origins = frozenset(filter(None, map(origin_of, origins)))
        self._hosts = frozenset(urlsplit(origin).hostname or "" for origin in self.origins)

    def __bool__(self) -> bool:
        return bool(self.origins)

    @property
    def targets(self) -> list[Target]:
        return [Target.of_url(origin) for origin in self.origins]

    def has_address(self, url: str) -> bool:
        return bool(self.origins) and origin_of(url) in self.origins

    def has_cookie(self, cookie: Mapping[str, Any]) -> bool:
        """Return whether a browser sends a cookie to one of the hosts."""
        domain = str(cookie.get("domain", ""))
        if not domain.startswith("."):
            return domain in self._hosts
        return any(f".{host}".endswith(domain) for host in self._hosts)

    def is_near(self, url: str) -> bool:
        """Return whether scripts of a page may reach what belongs to the sites: pages of one domain share cookies."""
        host = urlsplit(origin_of(url) or "").hostname
        return host is not None and _domain(host) in map(_domain, self._hosts)

    def overlaps(self, other: LoginSites) -> bool:
        """Return whether the two may share a cookie."""
        return not {*map(_domain, self._hosts)}.isdisjoint(map(_domain, other._hosts))

    def of(self, state: ContextSnapshot) -> ContextSnapshot:
        """Return the cookies and the storage in a saved context that belong to the sites, and nothing else."""
        return ContextSnapshot(
            [cookie for cookie in state.cookies if self.has_cookie(cookie)],
            {key: value for key, value in state.origins.items() if key in self.origins},
        )

    def replace_in(
        self, state: ContextSnapshot | None, values: Collection[ContextSnapshot]
    ) -> ContextSnapshot | None:
        """Return a saved context with these values in place of all that belongs to the sites."""
        state = None if state is None else self.leave_out(state)
        if not values:
            return state
        state = state or ContextSnapshot()
        return replace(
            state,
            cookies=[*state.cookies, *(cookie for value in values for cookie in value.cookies)],
            origins=state.origins | {k: v for value in values for k, v in value.origins.items()},
        )

    def leave_out(self, state: ContextSnapshot) -> ContextSnapshot:
        """Return a saved context without them."""
        return replace(
            state,
            cookies=[cookie for cookie in state.cookies if not self.has_cookie(cookie)],
            origins={key: each for key, each in state.origins.items() if key not in self.origins},
            tabs=[without_sessions(tab, self.origins) for tab in state.tabs],
        )


NO_SITES: Final = LoginSites()


def _domain(host: str) -> str:
    """Return the last two labels of a host: cookies may be shared within them, rarely within more."""
    if host.replace(".", "").isdigit() or ":" in host:
        return host
    return ".".join(host.split(".")[-2:])


def encode_value(value: ContextSnapshot) -> str:
    """Return the value of a login as it is sealed."""
    origins = {origin: asdict(stored) for origin, stored in value.origins.items()}
    # Escaped: packed data may hold lone surrogates, which UTF-8 cannot encode.
    return json.dumps({"cookies": value.cookies, "origins": origins})


def decode_value(data: bytes) -> ContextSnapshot:
    document: JSON = json.loads(data)
    origins = {origin: StoredOrigin(**stored) for origin, stored in document["origins"].items()}
    return ContextSnapshot(document["cookies"], origins)


def secret_texts(value: ContextSnapshot) -> Collection[str]:
    """Return the texts that nobody is to read, the most secret last."""
    found = dict.fromkeys(text for text in _texts(value) if len(text) >= SHORTEST)
    return list(found)[:MAX_TEXTS][::-1]


def _texts(value: ContextSnapshot) -> Generator[str]:
    for cookie in value.cookies:
        yield str(cookie.get("value", ""))
    for stored in value.origins.values():
        for item in json.loads(stored.items or "[]"):
            yield item["value"]
            yield from _leaves(item["value"])
        for database in stored.databases.values():
            for store in json.loads(database).get("stores", ()):
                for record in store.get("records", ()):
                    yield from _texts_in(record)


def _leaves(text: str) -> Generator[str]:
    """Yield the texts inside one that is JSON: pages show the parts."""
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(document, str):
        yield from _texts_in(document)


def _texts_in(document: object) -> Generator[str]:
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list):
            waiting.extend(cast("list[object]", part))
        elif isinstance(part, dict):
            waiting.extend(cast("JSON", part).values())
