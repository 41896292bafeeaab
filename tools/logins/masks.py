"""Masks in the place of secrets in the bytes of a server that was sent them, and may repeat them."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

MASK: Final = b"[login]"
MASKS: Final = "statehold_masks"
"""The extension of a request with secrets: the tuple of Masks for its response."""
LEAST: Final = 8
"""Characters of the shortest secret that is hidden; a shorter one occurs in ordinary words."""

MAX_SETS: Final = 3


class Masks:
    """Hides some secrets in bytes: as they are, and in JSON, base64 and addresses.

    Secrets that take the place of others can be added, also while it hides them in a stream: the last MAX_SETS are hidden.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._sets = deque[set[bytes]](maxlen=MAX_SETS)
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        self._sets.append({form for text in secrets if len(text) >= LEAST for form in _forms(text)})
        self._forms = sorted(set[bytes]().union(*self._sets), key=len, reverse=True)
        self._longest = max(map(len, self._forms), default=0)

    def hide(self, data: bytes) -> bytes:
        for form in self._forms:
            if form in data:
                data = data.replace(form, MASK)
        return data

    def complete(self, data: bytes) -> int:
        """Return how many bytes of the beginning of a text cannot be part of a secret that its next bytes complete."""
        end, first = len(data), max(0, len(data) - self._longest + 1)
        for form in self._forms:
            start = data.find(form[:1], first, end)
            while start >= 0:
                if form.startswith(data[start:]):
                    end = start
                start = data.find(form[:1], start + 1, end)
        return end


def _forms(text: str) -> Iterator[bytes]:
    data = text.encode()
    yield data
    for safe in ("", "/"):
        in_address = quote(text, safe=safe)
        yield in_address.encode()
        yield re.sub("%..", lambda match: match[0].lower(), in_address).encode()
    # Encoders for pages escape more: that of .NET, and those of Gson and Go.
    yield re.sub(r"""[+&<>'"`]""", lambda match: f"\\u{ord(match[0]):04X}", text).encode()
    in_json = json.dumps(text, ensure_ascii=False)[1:-1]
    for escaped in ("[=&<>']", "[&<>]"):
        yield re.sub(escaped, lambda match: f"\\u{ord(match[0]):04x}", in_json).encode()
    for is_ascii in (True, False):
        in_json = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield in_json.encode()
        yield in_json.replace("/", "\\/").encode()
        # A JSON text that is the text of a result.
        yield json.dumps(in_json, ensure_ascii=is_ascii)[1:-1].encode()
    for before in range(3):
        # A secret within other bytes: the characters that none of these has a part in.
        start, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data)[start:end]


def hide(masks: Iterable[Masks], text: str) -> str:
    data = text.encode(errors="surrogatepass")
    for each in masks:
        data = each.hide(data)
    return data.decode(errors="surrogatepass")
