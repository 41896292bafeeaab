"""The sections of the settings that have no rules of their own; model.py puts them together.

Times are seconds.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ...access.config.types import (
    Bytes,
    Count,
    Name,
    Names,
    Seconds,
    Section,
    SomeSeconds,
    is_protected_url,
    not_bool,
    split,
)
from ...sessions.policy import SummaryTriggers
from ...sessions.records import Timeouts
from ...sessions.store.events.records import REASONS, Reason
from ...tools.browser.egress.addresses import is_loopback_host
from .ports import TlsSettings

DEFAULT_PORT: Final = 8931
_QUIET: Final = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$"
_BASE64: Final = "[A-Za-z0-9+/]"
_SECRET: Final = re.compile(
    f"whsec_({_BASE64}{{4}}){{8,21}}({_BASE64}{{2}}(==)?|{_BASE64}{{3}}=?)?"
)


class TimeoutSettings(Section):
    """Time limits."""

    idle: Seconds = Field(
        default=900.0,
        description="Idle time after which a session is paused (see `on_idle`). 0: never.",
    )
    paused: Seconds = Field(
        default=2_592_000.0,
        description="Time without use after which a paused session without a name is closed. 0: never.",
    )
    paused_named: Seconds = Field(
        default=0.0, description="The same for a session with a name. 0: never."
    )
    lifetime: Seconds = Field(
        default=0.0, description="Age at which a session is closed, whatever it does. 0: never."
    )
    max_idle: Seconds = Field(
        default=0.0,
        description="Longest `idle_seconds` a caller may ask for, then not 0; a default of 0 becomes this. 0: any.",
    )
    max_paused: Seconds = Field(default=0.0, description="The same for `paused_seconds`. 0: any.")
    max_lifetime: Seconds = Field(
        default=0.0, description="The same for `lifetime_seconds`. 0: any."
    )
    retention: Seconds = Field(
        default=604_800.0,
        description="Time until the record and journal of a closed session are purged. 0: for ever.",
    )
    call: SomeSeconds = Field(
        default=300.0,
        description="Longest duration of one tool call. A service may set its own `call_seconds`.",
    )
    connect: SomeSeconds = Field(
        default=30.0,
        description="Longest time to open a connection. A service may set its own `connect_seconds`.",
    )
    close_grace: Annotated[Seconds, Field(le=3600)] = Field(
        default=5.0,
        description="Time running calls get to finish when their session is closed or the process stops.",
    )

    def session(self) -> Timeouts:
        """Return the default timeouts of a session; where they are 0 and there is a maximum, that."""
        return Timeouts(
            idle=self.idle or self.max_idle,
            paused=self.paused or self.max_paused,
            lifetime=self.lifetime or self.max_lifetime,
        )

    def maximum(self) -> Timeouts:
        """Return the longest timeouts that a caller may request, never below the defaults. 0: no maximum."""
        return Timeouts(
            idle=self.max_idle and max(self.idle, self.max_idle),
            paused=self.max_paused and max(self.paused, self.max_paused),
            lifetime=self.max_lifetime and max(self.lifetime, self.max_lifetime),
        )


class LimitSettings(Section):
    """Limits of numbers and sizes."""

    live_sessions: Annotated[Count, Field(ge=1)] = Field(
        default=100,
        description="Sessions with live connections at a time, of each process; at the limit an idle one is paused.",
    )
    live_per_principal: Count = Field(
        default=0,
        description="How many of them one caller may have, of each process. 0: with `server.tokens`, three times as many "
        "as are free; without, all.",
    )
    sessions_per_principal: Count = Field(
        default=10_000,
        description="Open sessions one caller may have, of all processes of the store together. 0: no limit.",
    )
    stored_bytes_per_principal: Bytes = Field(
        default=4 << 30,
        description="Bytes that the sessions of one caller, closed ones included, may take in the store and as files. "
        "Past it new sessions and larger states get `session_limit`. 0: no limit.",
    )
    state_bytes: Annotated[Bytes, Field(ge=1024, le=64 << 20)] = Field(
        default=1 << 20,
        description="Bytes of the state of one session as JSON.",
    )
    free_disk_bytes: Bytes = Field(
        default=100 << 20,
        description="Bytes that stay free on the disk of the data folder. With less, new sessions and larger states get "
        "`session_limit`. 0: none.",
    )
    calls_per_session: Annotated[Count, Field(ge=1)] = Field(
        default=1000,
        description="Calls of one session in flight at a time; more get `session_busy`.",
    )
    queue: Count = Field(
        default=1000,
        description="Calls that may wait for a live connection when none can be paused.",
    )
    queue_per_principal: Count = Field(
        default=0,
        description="How many of them one caller may have. 0: with `server.tokens`, three times as many as are free; "
        "without, all.",
    )
    queue_seconds: Seconds = Field(
        default=30.0, description="Longest wait in that queue; then the call gets `session_limit`."
    )


class JournalSettings(Section):
    """The limits of the journals of sessions, and of the records for repeated operation ids."""

    entries: Annotated[Count, Field(ge=100)] = Field(
        default=100_000,
        description="Entries of one session. Past it the oldest become one entry that counts them.",
    )
    bytes: Annotated[Bytes, Field(ge=100_000)] = Field(
        default=64 << 20, description="Bytes the entries of one session may take; past it as well."
    )
    entry_bytes: Annotated[Bytes, Field(ge=256, le=1 << 20)] = Field(
        default=4096, description="How much of the arguments of a call an entry keeps."
    )
    facts: bool = Field(
        default=True,
        description="Keep facts of each call, at most 2 KiB, from which tests are written.",
    )
    receipts: Annotated[Count, Field(ge=1)] = Field(
        default=10_000,
        description="Operation ids one session may use; a call with one more gets `session_limit`.",
    )
    receipt_bytes: Bytes = Field(
        default=8 << 20,
        description="Largest result kept for a repeat; that of a larger one is `outcome_unknown`.",
    )
    receipts_bytes: Bytes = Field(
        default=256 << 20,
        description="Bytes of all kept results of one session; past them a call with an operation id gets "
        "`session_limit`.",
    )


class SummarySettings(Section):
    """Summaries by a model: a command that sums up sessions. Without it there is the digest, which needs no model."""

    command: list[str] = Field(
        default_factory=list[str],
        description='Command, without a shell, that reads a session as JSON from stdin and prints `{"summary": ..., '
        '"topics": [...], "name": ...}`.',
    )
    seconds: Annotated[SomeSeconds, Field(le=600)] = Field(
        default=60.0, description="Time after which the command and its processes are killed."
    )
    every_messages: Count = Field(
        default=0, description="Run it after so many messages of a session. 0: not by messages."
    )
    on_pause: bool = Field(default=False, description="Run it when a session was paused.")
    on_close: bool = Field(default=False, description="Run it when a session was closed.")

    def triggers(self) -> SummaryTriggers:
        """Return the events after which the command runs."""
        return SummaryTriggers(self.every_messages, self.on_pause, self.on_close)


class NotifySettings(Section):
    """Notices to people who have no console open, by a command or to an address. Each is sent again until it is taken."""

    on: Annotated[list[Reason], BeforeValidator(split), Field(min_length=1)] = Field(
        default_factory=lambda: list(REASONS), description="The reasons to notify."
    )
    command: list[str] = Field(
        default_factory=list[str],
        description='Command, without a shell, that reads `{"id": ..., "event": ..., "at": ..., "text": ..., '
        '"address": ..., "attempt": ...}` from stdin, and ends with 0 within ten seconds.',
    )
    url: SecretStr | None = Field(
        default=None, description="Address that gets the same JSON with POST: `https://...`."
    )
    secret: SecretStr | None = Field(
        default=None,
        description="Secret that signs what `url` gets, as Standard Webhooks has it: `whsec_` and 24 to 64 bytes in base64.",
    )
    content: bool = Field(
        default=False,
        description="Add to `text` names, and the words of agents, without those that `redact` takes out.",
    )
    quiet: Annotated[str, Field(pattern=_QUIET)] | None = Field(
        default=None,
        description="Hours of the machine's time in which nothing is sent, such as `22:00-07:00`. Notices whose reason "
        "still holds then are sent at their end.",
    )

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("https://", "http://")):
            raise PydanticCustomError("statehold", "should start with https:// or http://")
        return url

    @field_validator("secret")
    @classmethod
    def _is_secret(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and not _SECRET.fullmatch(secret.get_secret_value()):
            raise PydanticCustomError("statehold", "should be whsec_ and 24 to 64 bytes in base64")
        return secret

    @model_validator(mode="after")
    def _has_one_way(self) -> NotifySettings:
        if bool(self.command) == (self.url is not None):
            raise PydanticCustomError("statehold", "should have either `command` or `url`")
        if self.quiet is not None and len({*self.quiet.split("-")}) == 1:
            raise PydanticCustomError(
                "statehold", "should have a `quiet` that ends at another time"
            )
        return self


class StoreSettings(Section):
    """The store of the sessions: by default a file in the data folder."""

    url: SecretStr | None = Field(
        default=None,
        description="`postgresql://USER@HOST/DATABASE` or `mysql://USER@HOST/DATABASE`, with a password as `${NAME}`.",
    )
    url_file: Path | None = Field(
        default=None, description="File that holds such a URL, and nothing else."
    )


class SealingSettings(Section):
    """The keys that encrypt the content of the store."""

    keys: Annotated[list[SecretStr], BeforeValidator(split)] = Field(
        default_factory=list[SecretStr],
        description="Keys of at least 16 characters, as `${NAME}` or `${file:PATH}`, the same on every node. The first "
        "seals the store; the others are former ones.",
    )
    command: list[str] = Field(
        default_factory=list[str],
        description="A command that prints the keys instead, one on each line. It has 20 seconds.",
    )

    @property
    def enabled(self) -> bool:
        """Whether the store is sealed."""
        return bool(self.keys or self.command)


class KeeperSettings(Section):
    """The keeper, which holds the processes of stdio servers when this process is killed or crashes. Linux only."""

    linger_seconds: Seconds | None = Field(
        default=None,
        description="Time that processes live without a Statehold. 0: none. Default: 60 with `statehold serve`, 900 with "
        "`--shared`. Over plain stdio they always end with it.",
    )


class RecoverySettings(Section):
    """The recovery of a lost live connection."""

    attempts: Annotated[Count, Field(le=1000)] = Field(
        default=3,
        description="Attempts to open a lost connection again; after them the session is paused, and its next call tries "
        "again. 0: only `session_restart` does.",
    )
    backoff: list[Seconds] = Field(
        default=[0.2, 1.0, 5.0],
        min_length=1,
        description="Wait before each attempt; the last one repeats.",
    )


_ORIGIN: Final = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")


def _public_url(url: str) -> str:
    """Return an address without a slash at its end. Raises for one that people cannot open safely."""
    if not is_protected_url(url):
        raise PydanticCustomError(
            "public_url",
            "Input should be an https address (on loopback also http) without user, query and fragment",
        )
    return url.rstrip("/")


class ServerSettings(Section):
    """The server that callers connect to. Host, port, names and tokens matter to `statehold serve` only."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. Anything but loopback needs `tokens` or `auth.issuers`, and `tls` or "
        "`trusted_proxies`.",
    )
    port: Annotated[int, BeforeValidator(not_bool), Field(ge=0, le=65_535)] = Field(
        default=DEFAULT_PORT, description="Port to listen on. 0: any free one."
    )
    console_port: Annotated[int, BeforeValidator(not_bool), Field(ge=0, le=65_535)] = Field(
        default=0,
        description="Loopback port of the console for a process whose own port a browser cannot use. 0: the last one, or "
        "any free one.",
    )
    workers: Annotated[Count, Field(ge=1, le=64)] = Field(
        default=1,
        description="Processes that serve the port, each with `limits` and `http` for itself. More than 1 needs Linux.",
    )
    allowed_hosts: Names = Field(
        default_factory=list[str],
        description="Values of the Host header to accept besides the address itself, such as `mcp.example.org` or "
        "`mcp.example.org:*`.",
    )
    public_url: Annotated[str, AfterValidator(_public_url)] | None = Field(
        default=None,
        description="Address at which people reach this server, such as `https://statehold.example.org`. A proxy has to "
        "keep the Host header, and `allowed_hosts` to name it.",
    )
    allowed_origins: Names = Field(
        default_factory=list[str],
        description="Values of the Origin header to accept, such as `https://app.example.org`.",
    )
    embed_origins: Names = Field(
        default_factory=list[str],
        description="Origins of pages that may show [the view of a session](../use/console.md#embed) in a frame, such as "
        "`https://dash.example.org`.",
    )
    tokens: Path | None = Field(
        default=None,
        description="File of the digests of static bearer tokens, readable by its owner only, or of root and readable by "
        "a group. With it every HTTP request needs a token.",
    )
    tls: TlsSettings | None = Field(
        default=None,
        description="The certificate of this server. Without it, it speaks plain HTTP.",
    )
    trusted_proxies: Names = Field(
        default_factory=list[str],
        description="Addresses or networks of the proxies in front, whose `X-Forwarded-For` and `X-Forwarded-Proto` are "
        "believed. Without `tls`, other machines get 403, but for `/livez`, `/readyz` and `/health`.",
    )
    session_header: bool = Field(
        default=False,
        description="Clients of 2026-07-28 also send `session_id` as the header `Mcp-Param-Session-Id`, by which a proxy "
        "can route.",
    )
    session: Name | None = Field(
        default=None,
        description="Name of the session of a pinned server: no tool has a `session_id`.",
    )
    auto_session: bool = Field(
        default=False,
        description="Give each connection of an older client a session of its own when it names none.",
    )
    hand_over: float = Field(
        default=0,
        ge=0,
        description="Seconds after which a client without tasks gets `still_running` and calls `call_result`, which needs "
        "the toolset `calls`. 0: its calls are waited for.",
    )
    linger_seconds: Seconds = Field(
        default=900.0,
        description="Time after which the background server ends that has no client, no live session and no open console.",
    )

    @field_validator("embed_origins")
    @classmethod
    def _check_embed_origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            # They stand in a header, where a space, a semicolon or a wildcard would allow other pages.
            if not (_ORIGIN.fullmatch(origin) and is_protected_url(origin)):
                raise PydanticCustomError(
                    "origin", "should be https://HOST or https://HOST:PORT (on loopback also http)"
                )
        return origins

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, proxies: list[str]) -> list[str]:
        for proxy in proxies:
            try:
                is_any = ip_network(proxy).prefixlen == 0
            except ValueError:
                raise PydanticCustomError(
                    "network", "Input should be addresses or networks such as 10.0.0.0/24"
                ) from None
            if is_any:
                raise PydanticCustomError(
                    "network",
                    "Input should be the proxies alone, and {proxy} is every address",
                    {"proxy": proxy},
                )
        return proxies

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        return is_loopback_host(self.host)


class LogSettings(Section):
    """Logs are lines on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is written."
    )
    format: Literal["text", "json"] = Field(
        default="text", description="One readable line or one JSON object per event."
    )


class MetricsSettings(Section):
    """Metrics of `statehold serve` for Prometheus."""

    listen: str = Field(
        default="",
        description="Address and port of `/metrics`, such as `127.0.0.1:9464`, on a port of its own without tokens, which "
        "only the scraper should reach. The second of the `workers` has the next port, and so on. Empty: none.",
    )
    tools: bool = Field(
        default=False, description="Measure each tool for itself, which makes many series."
    )
