"""The files of the access to a server: its tokens and its certificate, read again when they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import anyio

from ...access.config.private_file import LOOK_SECONDS
from ...access.tokens import StaticTokens
from ...access.verifier import Verifier
from ..config.model import Config
from ..http.open_streams import OpenStreams

if TYPE_CHECKING:
    from ..http.certificate import ServerCertificate


@dataclass(frozen=True, slots=True)
class AccessFiles:
    """The contents of the files that the configuration names. None: it names none."""

    tokens: StaticTokens | None
    certificate: ServerCertificate | None

    @classmethod
    def read(cls, config: Config) -> Self:
        """Read the files.

        Raises:
            ConfigError: one of them cannot be read or used.
        """
        server, certificate = config.server, None
        tokens = None if server.tokens is None else StaticTokens.read(server.tokens)
        if server.tls is not None:
            # Imported here: few servers need TLS.
            from ..http.certificate import ServerCertificate

            certificate = ServerCertificate(server.tls)
        return cls(tokens, certificate)

    async def watch(self, streams: OpenStreams) -> None:
        """Read changed files until cancelled, and end the streams whose token is valid no more."""
        if self.tokens is None and self.certificate is None:
            return
        while True:
            await anyio.sleep(LOOK_SECONDS)
            if self.certificate is not None:
                self.certificate.refresh()
            if self.tokens is not None:
                self.tokens.refresh()
                streams.end_without_token(self.tokens.is_valid)


async def watch_streams(streams: OpenStreams, verifier: Verifier) -> None:
    """End the streams whose access token has expired, or is refused for another reason, until cancelled."""
    while True:
        await anyio.sleep(LOOK_SECONDS)
        await streams.end_refused(verifier)
