"""Properties of an upstream that its configuration alone determines."""

from __future__ import annotations

from typing import Final

from ...sessions.json_codec import JSON, canonical, digest_of
from .config import Recipe, Transport, UpstreamConfig

PLACEHOLDERS: Final = ("{dir}", "{session_id}", "{session_name}")
_IDENTITY: Final = ("command", "args", "cwd", "url", "type", "era", "scope")


def transport_of(config: UpstreamConfig) -> Transport:
    """Return the transport that a configuration names or suggests."""
    if config.command is not None:
        return "stdio"
    if config.type in ("http", "sse"):
        return config.type
    path = (config.url or "").partition("?")[0].rstrip("/")
    return "sse" if path.endswith("/sse") else "http"


def transports_of(config: UpstreamConfig, first: Transport) -> tuple[Transport, ...]:
    """Return the transports to try, `first` at first. A URL without a `type` may speak either of the two over HTTP."""
    if config.command is not None or config.type is not None:
        return (first,)
    return (first, "sse" if first == "http" else "http")


def config_hash(config: UpstreamConfig) -> str:
    """Return a digest of the settings that a snapshot or a tool list depends on.

    Each secret value contributes only 16 bits of its hash: enough to detect a change, too few to recover the value.
    """
    fields = config.model_dump(mode="json", include=set(_IDENTITY))
    fields["recipe"] = None if config.recipe is None else config.recipe.model_dump(mode="json")
    fields["env"] = {name: _trace(value) for name, value in sorted(config.env.items())}
    fields["headers"] = {name: _trace(value) for name, value in sorted(config.headers.items())}
    if config.inherit_env:
        fields["inherit_env"] = sorted(config.inherit_env)
    return _digest(fields)


def pins_hash(config: UpstreamConfig) -> str:
    """Return a digest of the settings that say which server a service is: a new value of a secret changes nothing."""
    fields = config.model_dump(mode="json", include=set(_IDENTITY))
    fields["names"] = [sorted(config.env), sorted(config.headers)]
    return _digest(fields)


def _digest(fields: JSON) -> str:
    return digest_of(canonical(fields))[:32]


def _trace(value: str) -> str:
    return digest_of(value)[:4]


def checkpoint_of(recipe: Recipe | None) -> float | None:
    if recipe is None or not recipe.save or recipe.checkpoint == 0:
        return None
    return recipe.checkpoint


def needs_folder(config: UpstreamConfig) -> bool:
    texts = (config.command, config.cwd, config.url, *config.args, *config.env.values())
    if config.sandbox.is_on:
        return True
    return config.recipe is not None or any("{dir}" in text for text in texts if text)


def is_filled(config: UpstreamConfig) -> bool:
    """Whether the URL or a header of a remote upstream differs between sessions."""
    texts = (config.url or "", *config.headers.values())
    return any(name in text for text in texts for name in PLACEHOLDERS)


def start_remedy(service: str, config: UpstreamConfig, transport: Transport) -> str:
    """Return advice for a service whose first start took too long."""
    if transport == "http" and config.type is None:
        return f"; if it speaks HTTP+SSE only, {sse_remedy(service)}"
    if transport != "stdio":
        return ""
    return (
        "; its first start may have to download it: start it once in a terminal, or raise first_connect_seconds "
        f"in [services.{service}]"
    )


def sse_remedy(service: str) -> str:
    return f'set type = "sse" in [services.{service}]'
