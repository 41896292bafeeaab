"""A shop that writes down every order that reaches it, over HTTP/1.1, TLS or HTTP/2."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PROGRAM = Path(__file__).with_name("order_site.mjs")
LOOPBACK = "127.0.0.1"

Protocol: TypeAlias = Literal["http", "https", "h2"]


class OrderSite:
    """The shop at `url`. Its page has `order(number, path)` and the promises `outcomes[number]`.

    An order to `/order` is answered only when it comes again, one to `/now` at once.
    """

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    @property
    def orders(self) -> list[str]:
        """The numbers of the orders that arrived, in order."""
        return self._log.read_text().split()


@contextmanager
def order_site(folder: Path, protocol: Protocol) -> Generator[OrderSite]:
    """Run the shop while the block runs. Its files are in a folder."""
    log = folder / "orders"
    log.touch()
    node = shutil.which("node")
    assert node is not None
    command = [node, str(PROGRAM), protocol, str(log), *map(str, _certificate(folder))]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            scheme = "http" if protocol == "http" else "https"
            yield OrderSite(f"{scheme}://{LOOPBACK}:{port}", log)
        finally:
            process.kill()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate that it signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, LOOPBACK)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


__all__ = ["OrderSite", "Protocol", "order_site"]
