"""The logins of browsers, at the console and at the authorization server: an attempt, its cookie, and CSRF tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import Response

SECRET_BYTES: Final = 32
MAX_ATTEMPTS: Final = 10
"""Logins that one browser may have begun at once. The cookies of more would make its requests too long for servers."""
_NAME_CHARACTERS: Final = 16


def set_cookie(
    response: Response,
    name: str,
    value: str,
    seconds: float,
    *,
    samesite: Literal["strict", "lax"] = "strict",
) -> None:
    """Have a response set a cookie; with 0 seconds, delete it."""
    response.set_cookie(
        name,
        value,
        max_age=max(0, int(seconds)),
        path="/",
        secure=True,
        httponly=True,
        samesite=samesite,
    )


def csrf_token(cookie: str) -> str:
    """Return the token that only a page can send which read it with this cookie."""
    return _derived(cookie, "statehold csrf")


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One login of one browser, which holds its secret in a cookie. All that the issuer gets is derived from it."""

    secret: str

    @classmethod
    def begin(cls) -> LoginAttempt:
        return cls(secrets.token_urlsafe(SECRET_BYTES))

    @property
    def state(self) -> str:
        return self._derive("state")

    @property
    def nonce(self) -> str:
        return self._derive("nonce")

    @property
    def verifier(self) -> str:
        """The code verifier of PKCE."""
        return self._derive("verifier")

    @property
    def challenge(self) -> str:
        return _encode(hashlib.sha256(self.verifier.encode()).digest())

    def _derive(self, purpose: str) -> str:
        return _derived(self.secret, f"statehold login {purpose}")


@dataclass(frozen=True, slots=True)
class AttemptCookies:
    """The cookies of the logins that browsers have begun, each with a key that is no secret. `prefix` begins their names."""

    prefix: str
    seconds: float

    def make_room(self, request: Request, response: Response) -> None:
        """Delete the cookies of the oldest logins of a browser, so that one more fits. It sends the oldest first."""
        names = [name for name in request.cookies if name.startswith(self.prefix)]
        for name in names[: max(0, len(names) - MAX_ATTEMPTS + 1)]:
            set_cookie(response, name, "", 0, samesite="lax")

    def keep(self, response: Response, key: str, value: str) -> None:
        """Have a browser keep the value of a login."""
        # The browser comes back from another site, with which it would not send a strict cookie.
        set_cookie(response, self._name(key), value, self.seconds, samesite="lax")

    def value(self, request: Request, key: str) -> str:
        """Return the value of a login, nothing if this browser did not begin it."""
        return request.cookies.get(self._name(key), "")

    def delete(self, response: Response, key: str) -> None:
        """Have a browser forget a login."""
        set_cookie(response, self._name(key), "", 0, samesite="lax")

    def _name(self, key: str) -> str:
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
        return self.prefix + digest[:_NAME_CHARACTERS]


def _derived(secret: str, purpose: str) -> str:
    return _encode(hmac.digest(secret.encode(errors="surrogatepass"), purpose.encode(), "sha256"))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
