"""The doctor's checks of the issuers of access tokens: their metadata, their keys and their clock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, cast

import anyio

from ...access.claims import LEEWAY_SECONDS
from ...access.config.auth import IssuerSettings
from ...access.issuer_requests import find_jwks_uri, get_json_and_date
from ...access.issuers import Introspection
from ...access.keys import fits
from ...access.refusals import IssuerMismatch, TokenInvalid, VerifierUnavailable
from ...server.config.model import Config
from ...sessions.json_codec import JSON
from ...sessions.one_line import plural
from .system import Finding

CLOCK_SECONDS: Final = 5.0
"""A difference of clocks that is worth a warning."""
PROBE: Final = "a-token-of-statehold-doctor"


def check_issuers(config: Config) -> Iterator[Finding]:
    """Ask each issuer for what the check of a token needs; one finding for each."""
    issuers, of_facade = config.auth.issuers, config.auth.facade_issuer
    if of_facade is not None and of_facade not in issuers:
        issuers = [*issuers, of_facade]
    for issuer in issuers:
        try:
            if issuer.introspection_endpoint:
                yield anyio.run(_ask, issuer)
            else:
                yield anyio.run(_fetch, issuer)
        except IssuerMismatch as error:
            remedy = "set `issuer` to the `issuer` of its metadata, character by character"
            yield _failure(issuer, str(error), remedy)
        except VerifierUnavailable as error:
            remedy = "look whether this machine reaches the issuer, and whether `issuer` is right"
            yield _failure(issuer, str(error), remedy)


async def _ask(issuer: IssuerSettings) -> Finding:
    """Ask about a token that cannot exist."""
    try:
        await Introspection(issuer, clock=time.monotonic).claims(PROBE, "doctor")
    except TokenInvalid:
        return Finding(_name(issuer), "ok", "answers about tokens")
    return _failure(issuer, "accepts any token", "have the provider mend its introspection")


async def _fetch(issuer: IssuerSettings) -> Finding:
    uri = issuer.jwks_uri or await find_jwks_uri(issuer.issuer)
    document, date = await get_json_and_date(uri)
    count = _count_keys(document.get("keys"), issuer.algorithms)
    if not count:
        accepted = ", ".join(issuer.algorithms)
        remedy = "add the algorithm of the issuer to `algorithms`, or have it sign with one of them"
        return _failure(issuer, f"{uri} has no key for {accepted}", remedy)
    skew = 0.0 if date is None else abs(date - time.time())
    found = f"{plural(count, 'key')} at {uri}"
    if skew >= CLOCK_SECONDS:
        status = "fail" if skew >= LEEWAY_SECONDS else "warn"
        detail = f"{found}; its clock differs by {skew:.0f} s"
        return Finding(_name(issuer), status, detail, "set the clock of this machine by NTP")
    return Finding(_name(issuer), "ok", found)


def _count_keys(keys: object, algorithms: Sequence[str]) -> int:
    """Count the keys that verify signatures of one of the algorithms."""
    listed = cast("list[object]", keys) if isinstance(keys, list) else []
    jwks = [cast("JSON", key) for key in listed if isinstance(key, dict)]
    return sum(any(fits(jwk, name) for name in algorithms) for jwk in jwks)


def _name(issuer: IssuerSettings) -> str:
    return f"issuer {issuer.issuer}"


def _failure(issuer: IssuerSettings, detail: str, remedy: str) -> Finding:
    return Finding(_name(issuer), "fail", detail, remedy)
