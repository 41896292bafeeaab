"""The files of the access to a server: tokens, certificate and policies, read again when they change."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

from ...access.config.private_file import LOOK_SECONDS, Stamp, stamp_of
from ...access.config.types import ConfigError
from ...access.tokens import StaticTokens
from ...access.verifier import Verifier
from ...sessions.principals.policy_watch import PolicyWatch
from ..config.model import Config
from ..http.open_streams import OpenStreams

if TYPE_CHECKING:
    from ..http.tls_listener import ServerCertificate

logger = logging.getLogger("statehold.server")


@dataclass(slots=True)
class AccessFiles:
    """The files that the settings of one process name. None: they name none."""

    config: Config
    tokens: StaticTokens | None
    certificate: ServerCertificate | None
    policies_stamp: Stamp

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
            from ..http.tls_listener import ServerCertificate

            certificate = ServerCertificate(server.tls)
        return cls(
            config, tokens, certificate, () if config.file is None else stamp_of(config.file)
        )

    async def watch(
        self, streams: OpenStreams, verifier: Verifier | None, policies: PolicyWatch
    ) -> None:
        """Read changed files until cancelled, and end the streams whose token is valid no more."""
        if verifier is None and self.certificate is None and self.config.file is None:
            return
        while True:
            await anyio.sleep(LOOK_SECONDS)
            if len(streams):
                policies.record_use()
            if self.certificate is not None:
                self.certificate.refresh()
            if self.tokens is not None:
                self.tokens.refresh()
                streams.end_without_token(self.tokens.is_valid)
            await self._refresh_policies(policies)

    async def _refresh_policies(self, policies: PolicyWatch) -> None:
        """Use the policies of a changed file of settings. The former ones hold while it has a mistake."""
        stamp = () if self.config.file is None else stamp_of(self.config.file)
        if stamp == self.policies_stamp:
            return
        self.policies_stamp = stamp
        try:
            rules = (await anyio.to_thread.run_sync(self.config.load_again)).policy()
        except ConfigError as error:
            logger.error("the former policies hold: %s", error)
            return
        policies.configure(rules.principal_policies)


async def watch_streams(streams: OpenStreams, verifier: Verifier) -> None:
    """End the streams whose access token has expired, or is refused for another reason, until cancelled."""
    while True:
        await anyio.sleep(LOOK_SECONDS)
        await streams.end_refused(verifier)
