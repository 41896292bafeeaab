"""The keys in the headers and the environment of one service, for one principal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Final

import httpx2

from ....sessions.errors import LoginUnavailable, StoreUnavailable
from ...logins.config import REFERENCE, names_in
from ...logins.keys import Keys, ServiceKey
from ...logins.masks import MASKS, Masks
from ..config import is_header_value

KEY_ERROR: Final = "statehold_key_error"
"""The extension of a request whose keys are missing or were refused: the error for its caller."""


class KeyMissing(httpx2.TransportError):
    """Raised in place of a request whose keys cannot be read; its extension KEY_ERROR says why."""


class ServiceKeys:
    """Replaces the keys in settings of a service. It lives as long as a connection, and has nothing to close."""

    def __init__(self, keys: Keys | None, owner: str, service: str) -> None:
        self._keys = keys
        self._owner = owner
        self.service = service

    async def fill(
        self, texts: Mapping[str, str], *, anew: bool
    ) -> tuple[dict[str, str], list[str]]:
        """Return the texts with the keys in place of `${login:NAME}`, and the keys. Raises as Keys.read() does."""
        keys: dict[str, ServiceKey] = {}
        for name in names_in(texts.values()):
            if self._keys is None:
                raise LoginUnavailable(
                    f"{self.service} needs the key {name}, and there is no store of keys."
                )
            try:
                keys[name] = await self._keys.read(self._owner, name, anew=anew)
            except LoginUnavailable as error:
                message = f"{self.service} needs a key. {error.message}"
                raise _unavailable(name, message, error.recovery) from None
        filled = {
            variable: REFERENCE.sub(lambda match: keys[match[1]].value, text)
            for variable, text in texts.items()
        }
        return filled, [key.value for key in keys.values()]


class KeyAuth(httpx2.Auth):
    """Sends the keys of a principal in the headers of each request, and reads them anew when the service refuses them."""

    def __init__(self, keys: ServiceKeys, headers: Mapping[str, str]) -> None:
        self._keys = keys
        self._headers = headers
        self._hidden: list[str] = []
        self._masks = Masks()
        """Those of all requests of the connection: a stream that is open hides also a key that is replaced later."""

    async def check(self) -> None:
        """Read the keys anew, for a connection that is opened. Raises as Keys.read() does."""
        await self._fill(anew=True)

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        sent = await self._set(request, anew=False)
        response = yield request
        if response.status_code != 401:
            return
        if await self._set(request, anew=True) != sent:
            response = yield request
        if response.status_code == 401:
            names = names_in(self._headers.values())
            request.extensions[KEY_ERROR] = _unavailable(
                names[0],
                f"{self._keys.service} refused the key {', '.join(names)} (HTTP 401).",
                f"Store a valid one with `statehold logins add {names[0]} --key`, then try again.",
            )

    async def _set(self, request: httpx2.Request, *, anew: bool) -> dict[str, str]:
        """Set the headers, and hide their keys and the former ones of this connection in the response."""
        try:
            filled, keys = await self._fill(anew=anew)
        except LoginUnavailable as error:
            request.extensions[KEY_ERROR] = error
            raise KeyMissing(error.message, request=request) from None
        except StoreUnavailable as error:
            request.extensions[KEY_ERROR] = LoginUnavailable(
                f"The keys of {self._keys.service} cannot be read: {error}"
            )
            raise KeyMissing(str(error), request=request) from None
        if keys != self._hidden:
            self._hidden = keys
            self._masks.add(keys)
        request.extensions[MASKS] = (self._masks,)
        request.headers.update(filled)
        return filled

    async def _fill(self, *, anew: bool) -> tuple[dict[str, str], list[str]]:
        filled, keys = await self._keys.fill(self._headers, anew=anew)
        for name, value in filled.items():
            if not is_header_value(value):
                raise LoginUnavailable(
                    f"The key of {self._keys.service} in the header {name} holds a character that no header can.",
                    recovery="Store it again with `statehold logins add NAME --key`.",
                )
        return filled, keys


def _unavailable(name: str, message: str, recovery: str) -> LoginUnavailable:
    error = LoginUnavailable(message, recovery=recovery)
    error.needs_login = name
    return error
