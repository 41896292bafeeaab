"""The certificates of the nodes of a cluster: each proves with its own that it belongs to the authority of all."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ...access.config.private_file import load_certificate
from ...access.config.types import ConfigError
from ..config.cluster import ClusterSettings


@dataclass(frozen=True, slots=True)
class Certificates:
    """The TLS contexts of one node, both with its certificate. The authority signs those of the nodes, and no others."""

    server: ssl.SSLContext
    """The context of the end that is connected to: it refuses programs without a certificate."""
    client: ssl.SSLContext
    """The context of the end that connects."""

    @classmethod
    def read(cls, settings: ClusterSettings) -> Self | None:
        """Return the certificates of a cluster; None if its nodes use no TLS.

        Raises:
            ConfigError: one file cannot be read or used, or the key is open to other users.
        """
        certificate, key, authority = settings.certificate, settings.key, settings.authority
        if certificate is None or key is None or authority is None:
            return None
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Nodes come and go with their addresses: the authority vouches for the cluster, and the proof for the node.
        client.check_hostname = False
        for context in (server, client):
            _load(context, certificate, key, authority)
        return cls(server, client)


def _load(context: ssl.SSLContext, certificate: Path, key: Path, authority: Path) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    load_certificate(context, certificate, key, setting="cluster", content="key of the node")
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise ConfigError(f"cluster.authority: {authority}: not usable ({error.reason})") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"cluster.authority: {authority} cannot be read: {reason}") from None
