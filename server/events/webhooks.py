"""Signed messages to the URLs of subscribers, as Standard Webhooks and SEP-3415 have them."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import ssl
import time
from collections.abc import Sequence
from typing import Final, cast

import httpx2

from ...sessions.clock import Clock
from ...sessions.errors import SessionLimit
from ...sessions.json_codec import JSON, dumps
from ...sessions.store.events.records import NOTIFY_HOST, EventDelivery, Subscription
from ...tools.outbound import UNREACHABLE, DestinationRefused, OutboundAnswer, OutboundClient

SECRET_PREFIX: Final = "whsec_"
SECRET_BYTES: Final = range(24, 65)
ANSWER_BYTES: Final = 4096
OVERLOAD: Final = "overload"
"""The reason for no answer if this process has too many requests: nothing was sent."""


def is_secret(text: object) -> bool:
    """Whether a text is a secret of a subscriber: `whsec_` and 24 to 64 bytes in base64."""
    if not isinstance(text, str) or not text.startswith(SECRET_PREFIX):
        return False
    try:
        return len(_key(text)) in SECRET_BYTES
    except ValueError:
        return False


def _key(secret: str) -> bytes:
    text = secret.removeprefix(SECRET_PREFIX)
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def signed_headers(message_id: str, content: bytes, keys: Sequence[str]) -> dict[str, str]:
    """Return the headers of a message that is signed with each of some secrets."""
    # Receivers compare it with their own time; that of a clock of ours is never adjusted.
    sent_at = str(int(time.time()))
    signed = f"{message_id}.{sent_at}.".encode() + content
    digests = [hmac.digest(_key(key), signed, "sha256") for key in keys]
    signatures = (f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": sent_at,
        "webhook-signature": " ".join(signatures),
    }


class Webhooks:
    """Sends messages to subscribers. It has nothing to close."""

    def __init__(self, outbound: OutboundClient, clock: Clock) -> None:
        self._outbound = outbound
        self._clock = clock

    def host_of(self, url: str) -> str:
        """Return the host and port of a URL, the same for all its spellings.

        Raises:
            DestinationRefused: no message may go there.
        """
        parts = self._outbound.check_url(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{(parts.hostname or '').rstrip('.')}:{port}"

    def serves(self, host: str) -> bool:
        return not host.startswith(NOTIFY_HOST)

    async def deliver(self, delivery: EventDelivery) -> int | str:
        """Send an event once. Return the status of the answer, or the reason why there is none, as send() does."""
        answer = await self.send(delivery.subscription, delivery.event_id, delivery.body)
        return answer if isinstance(answer, str) else answer.status

    async def send(
        self, subscription: Subscription, message_id: str, body: str
    ) -> OutboundAnswer | str:
        """Send a message once. Return the answer, or the reason why there is none: a word of SEP-3415, or OVERLOAD."""
        content, now = body.encode(), self._clock.now()
        keys = [subscription.secret]
        if subscription.old_secret is not None and now < subscription.old_secret_ends_at:
            keys.append(subscription.old_secret)
        headers = signed_headers(message_id, content, keys)
        headers["x-mcp-subscription-id"] = subscription.id
        try:
            return await self._outbound.request(
                "POST",
                subscription.url,
                asker=subscription.owner,
                headers=headers,
                content=content,
                answer_bytes=ANSWER_BYTES,
            )
        except DestinationRefused:
            return "connection_refused"
        except SessionLimit:
            return OVERLOAD
        except UNREACHABLE as error:
            return _reason(error)

    async def challenge(self, subscription: Subscription) -> str | None:
        """Return None if the URL repeats a challenge, which only its owner would have it do; else the reason."""
        challenge = secrets.token_urlsafe(32)
        body = dumps({"type": "verification", "challenge": challenge})
        message_id = f"msg_verification_{secrets.token_hex(8)}"
        answer = await self.send(subscription, message_id, body)
        if isinstance(answer, str):
            return answer
        if answer.status >= 400:
            return "http_4xx" if answer.status < 500 else "http_5xx"
        try:
            document: object = json.loads(answer.body or b"")
        except (ValueError, RecursionError):
            document = None
        answered = cast("JSON", document).get("challenge") if isinstance(document, dict) else None
        is_met = hmac.compare_digest(str(answered).encode(errors="replace"), challenge.encode())
        return None if is_met and answer.status < 300 else "challenge_failed"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return "timeout"
    cause: BaseException | None = error
    while cause is not None:
        # Its subclasses are ends of the connection, but for one.
        if type(cause) in (ssl.SSLError, ssl.SSLCertVerificationError):
            return "tls_error"
        cause = cause.__cause__ or cause.__context__
    return "connection_refused"
