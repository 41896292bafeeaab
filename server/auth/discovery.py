"""The metadata of an issuer: OpenID Connect discovery, or RFC 8414."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from .errors import IssuerMismatch, VerifierUnavailable
from .issuer_requests import get_json


async def find_jwks_uri(issuer: str) -> str:
    """Return the URL of the keys of an issuer.

    Raises:
        IssuerMismatch: its metadata is that of another issuer.
        VerifierUnavailable: it has no metadata, or metadata without keys.
    """
    problems: list[str] = []
    for url in _metadata_urls(issuer):
        try:
            document = await get_json(url)
        except VerifierUnavailable as error:
            problems.append(str(error))
            continue
        if document.get("issuer") != issuer:
            raise IssuerMismatch(f"{url} is not about the issuer {issuer}")
        uri = document.get("jwks_uri")
        if isinstance(uri, str):
            return uri
        problems.append(f"{url} has no jwks_uri")
    raise VerifierUnavailable("; ".join(problems))


def _metadata_urls(issuer: str) -> Iterator[str]:
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    yield f"{origin}{path}/.well-known/openid-configuration"
    yield f"{origin}/.well-known/oauth-authorization-server{path}"
    if path:
        yield f"{origin}/.well-known/openid-configuration{path}"


__all__ = ["find_jwks_uri"]
