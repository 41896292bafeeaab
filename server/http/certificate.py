"""The certificate of the HTTP server, read again when its files change."""

from __future__ import annotations

import logging
import ssl
from typing import Final

from ...access.config.private_file import load_certificate, stamp_of
from ...access.config.types import ConfigError
from ..config.http import TlsSettings

ALPN: Final = ["http/1.1"]

logger = logging.getLogger("statehold.server")


class ServerCertificate:
    """A certificate and its key. New connections take the `context`; open ones keep theirs.

    Raises:
        ConfigError: the files cannot be read or used, or the key is open to other users.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        # Before the content, so that a change in between is noticed.
        self._stamp = stamp_of(settings.certificate, settings.key)
        self.context = _context_of(settings)

    def refresh(self) -> None:
        """Read the files again if they have changed. Files with a mistake are reported in the log, and not used."""
        settings = self._settings
        stamp = stamp_of(settings.certificate, settings.key)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.context = _context_of(settings)
        except ConfigError as error:
            logger.error("the former certificate stays in use: %s", error)
        else:
            logger.info(
                "new connections use the certificate that is now in %s", settings.certificate
            )


def _context_of(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(ALPN)
    load_certificate(context, settings.certificate, settings.key, setting="server.tls")
    return context
