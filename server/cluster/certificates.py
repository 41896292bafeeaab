"""The certificates of the nodes of a cluster: each proves with its own that it belongs to the authority of all."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..config.cluster import ClusterSettings
from ..config.model import ConfigError
from ..config.private_file import read_private


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of one node. The authority signs the certificates of the cluster's nodes, and no others."""

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def read(cls, settings: ClusterSettings) -> Self | None:
        """Return the certificates of a cluster, checked; None if its nodes use no TLS.

        Raises:
            ConfigError: one file cannot be read or used, or the key is open to other users.
        """
        files = (settings.certificate, settings.key, settings.authority)
        certificate, key, authority = files
        if certificate is None or key is None or authority is None:
            return None
        read_private(key, setting="cluster.key", content="key of the node")
        found = cls(certificate, key, authority)
        found.server()
        return found

    def server(self) -> ssl.SSLContext:
        """Return the context of the end that is connected to: it refuses programs without a certificate."""
        return self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client(self) -> ssl.SSLContext:
        """Return the context of the end that connects."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Nodes come and go with their addresses: the authority vouches for the cluster, and the proof for the node.
        context.check_hostname = False
        return self._load(context)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        setting, path = "cluster.certificate, cluster.key", self.certificate
        try:
            context.load_cert_chain(self.certificate, self.key)
            setting, path = "cluster.authority", self.authority
            context.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise ConfigError(f"{setting}: {path}: not usable ({error.reason})") from None
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise ConfigError(f"{setting}: {path} cannot be read: {reason}") from None
        return context


__all__ = ["Certificates"]
