"""The metadata of an issuer: OpenID Connect discovery, or RFC 8414."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from ..sessions.json_codec import JSON
from .errors import IssuerMismatch, VerifierUnavailable
from .issuer_requests import get_json


async def find_metadata(issuer: str, *members: str) -> JSON:
    """Return the first metadata of an issuer that have texts with these names.

    Raises:
        IssuerMismatch: its metadata is that of another issuer.
        VerifierUnavailable: it has no metadata, or metadata without one of them.
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
        missing = [name for name in members if not isinstance(document.get(name), str)]
        if not missing:
            return document
        problems.append(f"{url} has no {missing[0]}")
    raise VerifierUnavailable("; ".join(problems))


async def find_jwks_uri(issuer: str) -> str:
    """Return the URL of the keys of an issuer.

    Raises:
        VerifierUnavailable: as find_metadata().
    """
    return str((await find_metadata(issuer, "jwks_uri"))["jwks_uri"])


def _metadata_urls(issuer: str) -> Iterator[str]:
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    yield f"{origin}{path}/.well-known/openid-configuration"
    yield f"{origin}/.well-known/oauth-authorization-server{path}"
    if path:
        yield f"{origin}/.well-known/openid-configuration{path}"
