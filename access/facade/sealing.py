"""Texts that only this authorization server can write and read, on all of its nodes."""

from __future__ import annotations

import base64
import hmac
import json
from typing import cast

from cryptography.fernet import Fernet, InvalidToken

from ...sessions.json_codec import JSON


class Seal:
    """Encrypts and signs documents of one purpose. The nodes have the same `secret`, so they read each other's."""

    def __init__(self, secret: str, purpose: str) -> None:
        key = hmac.digest(
            secret.encode(errors="surrogatepass"), f"statehold facade {purpose}".encode(), "sha256"
        )
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def seal(self, document: JSON, now: float) -> str:
        """Return a text of URL characters."""
        body = json.dumps(document, separators=(",", ":")).encode()
        return self._fernet.encrypt_at_time(body, int(now)).decode().rstrip("=")

    def open(self, text: str, now: float, *, seconds: int) -> JSON | None:
        """Return the document of a text that is at most `seconds` old, else None."""
        try:
            padded = text + "=" * (-len(text) % 4)
            body = self._fernet.decrypt_at_time(padded.encode(), seconds, int(now))
        except (InvalidToken, ValueError):
            return None
        return cast("JSON", json.loads(body))
