"""Requests to issuers within bounds of time and size, and the metadata of issuers (OpenID Connect, RFC 8414)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
import httpx2

from ..sessions.errors import SessionLimit
from ..sessions.json_codec import JSON
from ..sessions.live.budget import Budget
from ..tools.http_client import http_options, read_body, server_of
from .config.types import is_protected_url
from .refusals import IssuerMismatch, IssuerRefused, VerifierUnavailable

ANSWER_SECONDS: Final = 5.0
"""Seconds for a whole request."""
ANSWER_BYTES: Final = 512 * 1024
MAX_FORMS: Final = 32
"""Forms that one issuer is sent at once because strangers ask."""
MAX_WAITING_FORMS: Final = 1000
WAIT_SECONDS: Final = 5.0


async def get_json(url: str) -> JSON:
    """Return the JSON object at a URL.

    Raises:
        VerifierUnavailable: there is none.
    """
    return (await _request("GET", url))[0]


async def get_json_and_date(url: str) -> tuple[JSON, float | None]:
    """Return the same with the time of the answer by the clock of the issuer, in seconds since 1970, if it gives one.

    Raises:
        VerifierUnavailable: there is none.
    """
    document, headers = await _request("GET", url)
    try:
        return document, parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError):
        return document, None


class StrangersForms:
    """The forms that one issuer is sent because strangers ask. Each asker has a share of them; it waits for its own only."""

    def __init__(self) -> None:
        self._places = Budget(
            MAX_FORMS, queue=MAX_WAITING_FORMS, queue_seconds=WAIT_SECONDS, shared=True
        )

    async def post(
        self,
        asker: str,
        url: str,
        form: Mapping[str, str],
        client: tuple[str, str] | None = None,
    ) -> JSON:
        """Send a form, with the id and the secret of a client, and return the JSON object of the answer.

        Raises:
            IssuerRefused: the issuer says that the form is wrong.
            VerifierUnavailable: there is no such answer, or too many forms of the asker wait.
        """
        try:
            async with self._places.place(asker):
                return (await _request("POST", url, data=form, auth=client))[0]
        except SessionLimit:
            raise VerifierUnavailable(f"too many requests to {url} wait") from None


async def _request(method: str, url: str, **content: Any) -> tuple[JSON, httpx2.Headers]:
    if not is_protected_url(url):
        raise VerifierUnavailable(f"{url[:200]} is no https URL")
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            body, headers = await _read(method, url, content)
        document: object = json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError) as error:
        cause = f"{type(error).__name__} at {server_of(url)}"
        raise VerifierUnavailable(f"{url} cannot be read ({cause})") from None
    except (ValueError, RecursionError):
        raise VerifierUnavailable(f"{url} is no JSON") from None
    if not isinstance(document, dict):
        raise VerifierUnavailable(f"{url} is no JSON object")
    return cast("JSON", document), headers


async def _read(method: str, url: str, content: Mapping[str, Any]) -> tuple[bytes, httpx2.Headers]:
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(**http_options(url), timeout=ANSWER_SECONDS) as client,
        client.stream(method, url, headers=headers, follow_redirects=False, **content) as answer,
    ):
        if answer.status_code in (400, 401, 403):
            raise IssuerRefused(f"{url} answers {answer.status_code}")
        if answer.status_code != 200:
            raise VerifierUnavailable(f"{url} answers {answer.status_code}")
        body = await read_body(answer, ANSWER_BYTES)
    if body is None:
        raise VerifierUnavailable(f"{url} is too large")
    return body, answer.headers


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
