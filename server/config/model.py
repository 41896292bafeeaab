"""The settings of one Statehold process: their names, defaults, and the rules between settings.

A Config is a value. `config.load.load` builds it from flags, environment and files; code and tests may construct it
directly, which reads neither. Times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ...access.config.auth import AuthSettings
from ...access.config.policies import PolicySettings
from ...access.config.types import NameOrNone, Names, Section, split, wrong
from ...sessions.policy import JournalLimits, Policy
from ...tools.browser.config import BrowserConfig
from ...tools.logins.config import NAME, KeyConfig, LoginConfig
from ...tools.upstream.config import UnusableConfig, UpstreamConfig
from .data_folder import default_data_folder
from .ports import ClusterSettings, HttpSettings
from .sections import (
    JournalSettings,
    KeeperSettings,
    LimitSettings,
    LogSettings,
    MetricsSettings,
    NotifySettings,
    RecoverySettings,
    SealingSettings,
    ServerSettings,
    StoreSettings,
    SummarySettings,
    TimeoutSettings,
)
from .variables import secrets_of

Toolset = Literal["core", "lifecycle", "state", "history", "branch", "admin", "view", "calls"]
FIRST_CONNECT_SECONDS = 120.0
"""Default limit of the first start of a command: `npx` and `uvx` download the program first."""

TOOLSETS: tuple[Toolset, ...] = get_args(Toolset)
PREFIX = "STATEHOLD_"
"""The prefix of the environment variables that are settings."""


BROWSER = "browser"
"""The name under which a service without `command` and `url` is the built-in browser."""
UPSTREAM_TAG, BROWSER_TAG = "<upstream>", "<browser>"
"""Markers of the kind of a service in the location of an error; no key is spelled so."""


def _kind(value: object) -> str:
    if isinstance(value, dict):
        kind = cast("dict[str, Any]", value).get("type")
        return BROWSER_TAG if kind == "browser" else UPSTREAM_TAG
    return BROWSER_TAG if isinstance(value, BrowserConfig) else UPSTREAM_TAG


ServiceConfig = Annotated[
    Annotated[UpstreamConfig, Tag(UPSTREAM_TAG)] | Annotated[BrowserConfig, Tag(BROWSER_TAG)],
    Discriminator(_kind),
]


def is_name_of_service(name: str) -> bool:
    return bool(name.strip()) and len(name) <= 128 and name.isprintable()


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where settings come from. Settings that are equal may come from different files."""

    file: Path | None = field(default=None, compare=False)
    load: Callable[[], Config] | None = field(default=None, compare=False)


class Config(Section):
    """All settings."""

    data: Path = Field(
        default_factory=lambda: Path(default_data_folder()),
        description="Folder of everything that is kept. Default: the user's data folder of the platform.",
    )
    ephemeral: bool = Field(
        default=False, description="Keep everything in memory: sessions end with the process."
    )
    strict: bool = Field(
        default=False,
        description="Refuse to start when a setting of a service is wrong, instead of leaving that service out.",
    )
    toolsets: Annotated[list[Toolset], BeforeValidator(split)] = Field(
        default_factory=lambda: [t for t in TOOLSETS if t not in ("admin", "view", "calls")],
        description="Groups of Statehold's own tools to offer. Without it, pinned sessions offer seven tools.",
    )
    on_idle: Literal["pause", "close"] = Field(
        default="pause", description="The fate of a session after `timeouts.idle`."
    )
    journal: Literal["async", "sync", "off"] = Field(
        default="async",
        description="`async`: entries are written within 50 ms; `sync`: before the reply; `off`: only of calls with an "
        "operation id.",
    )
    audit: Literal["off", "on", "required"] = Field(
        default="off",
        description="`on`: requests, logins and refusals are recorded; `required`: and no request runs unrecorded.",
    )
    pins: Literal["strict", "tell"] | None = Field(
        default=None,
        description="The treatment of a tool, prompt or page whose definition has changed: `strict` holds it back until "
        "`services accept`, `tell` offers it with a note. Default: `strict` with callers of a token, else `tell`.",
    )
    audit_arguments: bool = Field(
        default=False, description="Record the arguments of requests, redacted as in the journal."
    )
    auto_resume: bool = Field(
        default=True,
        description="Resume a paused session when it is called. `false`: the call gets `session_paused`.",
    )
    namespace: NameOrNone = Field(
        default="", description="Namespace of sessions whose caller names none."
    )
    inherit_env: list[str] = Field(
        default_factory=list[str],
        description="Environment variables that all servers get, besides `PATH`, `HOME`, `LANG`, `TZ`, `LC_*`, `XDG_*` "
        "and those of proxies and certificates.",
    )
    redact: Names = Field(
        default_factory=lambda: sorted(Policy().redact),
        description="Names, in any case, also as words of longer ones, whose values never reach the journal: of "
        "arguments, and in texts such as `name=value`, but for messages and summaries.",
    )
    redact_patterns: list[str] = Field(
        default_factory=list[str],
        description="Regular expressions of texts that never reach the journal, besides credentials, keys and long random "
        "words.",
    )
    history: JournalSettings = Field(default_factory=JournalSettings)
    summary: SummarySettings = Field(default_factory=SummarySettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    sealing: SealingSettings = Field(default_factory=SealingSettings)
    cluster: ClusterSettings = Field(default_factory=ClusterSettings)
    timeouts: TimeoutSettings = Field(default_factory=TimeoutSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    recovery: RecoverySettings = Field(default_factory=RecoverySettings)
    keeper: KeeperSettings = Field(default_factory=KeeperSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    notify: list[NotifySettings] = Field(
        default_factory=list[NotifySettings],
        description="Notices to people who have no console open, each with a command or an address.",
    )
    policies: list[PolicySettings] = Field(
        default_factory=list[PolicySettings],
        description="Limits of single principals, groups and roles (docs/operate/policies.md), read again when the file "
        "changes.",
    )
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    logins: dict[str, LoginConfig] = Field(
        default_factory=dict[str, LoginConfig],
        description="Logins by name: keys for `${login:NAME}` in the settings of services, and logins of the built-in "
        "browser that one session at a time has.",
    )
    services: dict[str, ServiceConfig] = Field(
        default_factory=lambda: {BROWSER: BrowserConfig()},
        repr=False,  # it holds secrets
        description="The services, by name: the built-in browser, and any MCP server.",
    )

    _notes: tuple[str, ...] = PrivateAttr(())
    _source: ConfigSource = PrivateAttr(default_factory=lambda: ConfigSource())

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about what the sources have and is not used, without values."""
        return self._notes

    @property
    def file(self) -> Path | None:
        """The file of the settings, if there is one."""
        return self._source.file

    def load_again(self) -> Config:
        """Return the settings as the sources have them now.

        Raises:
            ConfigError: a setting is wrong.
        """
        return self if self._source.load is None else self._source.load()

    def with_source(
        self,
        notes: Iterable[str],
        file: Path | None = None,
        load_again: Callable[[], Config] | None = None,
    ) -> Config:
        """Return the settings with where they come from."""
        copy = self.model_copy()
        copy._notes, copy._source = tuple(notes), ConfigSource(file, load_again)
        return copy

    def policy(self) -> Policy:
        """Return the policy for the sessions of this process."""
        waits = self.recovery.backoff
        attempts = self.recovery.attempts
        return Policy(
            timeouts=self.timeouts.session(),
            paused_named=self.timeouts.paused_named,
            longest=self.timeouts.maximum(),
            namespace=self.namespace,
            on_idle=self.on_idle,
            auto_resume=self.auto_resume,
            retention=self.timeouts.retention,
            close_grace=self.timeouts.close_grace,
            recovery_backoff=tuple(waits[min(n, len(waits) - 1)] for n in range(attempts)),
            live_sessions=self.limits.live_sessions,
            live_per_principal=self.limits.live_per_principal,
            shared=self.needs_token,
            sessions_per_principal=self.limits.sessions_per_principal,
            stored_bytes_per_principal=self.limits.stored_bytes_per_principal,
            principal_policies=tuple(policy.rule for policy in self.policies),
            state_bytes=self.limits.state_bytes,
            free_disk_bytes=self.limits.free_disk_bytes,
            calls_per_session=self.limits.calls_per_session,
            queue=self.limits.queue,
            queue_per_principal=self.limits.queue_per_principal,
            queue_seconds=self.limits.queue_seconds,
            journal_calls=self.journal != "off",
            journal_sync=self.journal == "sync",
            redact=frozenset(name.lower() for name in self.redact),
            redact_patterns=tuple(self.redact_patterns),
            secrets=self.secrets,
            journal_bytes=self.history.entry_bytes,
            journal_facts=self.history.facts,
            receipts=self.history.receipts,
            receipt_bytes=self.history.receipt_bytes,
            receipts_bytes=self.history.receipts_bytes,
            summaries=self.summary.triggers(),
        )

    @property
    def pins_mode(self) -> Literal["strict", "tell"]:
        """The treatment of definitions that change."""
        return self.pins or ("strict" if self.needs_token else "tell")

    @property
    def needs_token(self) -> bool:
        """Whether each HTTP request of a caller needs a token."""
        return self.server.tokens is not None or self.auth.enabled

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret texts of the services, of issuers and of the store, which the journal and the log do not hold."""
        clients = [issuer.client_secret for issuer in (*self.auth.issuers, self.auth.console)]
        clients += self.auth.facade.secrets
        clients += self.sealing.keys
        others = (secret.get_secret_value() for secret in clients if secret is not None)
        return (*secrets_of(self.services.values(), self.inherit_env), *others)

    @property
    def private_paths(self) -> list[Path]:
        """The files and folders of this process that no service may see."""
        tls, keys = (
            self.server.tls,
            (each for each in self.logins.values() if isinstance(each, KeyConfig)),
        )
        files = (
            *(self.file, self.server.tokens, self.store.url_file, self.cluster.keys_file),
            *(self.cluster.key, None if tls is None else tls.key),
            *(each.file for each in keys),
        )
        return [self.data, *(file for file in files if file is not None)]

    @property
    def node_capacity(self) -> int:
        """Number of sessions that this node takes on."""
        capacity = self.cluster.capacity
        return self.limits.live_sessions if capacity is None else capacity

    def journal_limits(self) -> JournalLimits:
        """Return the limits of the journal of one session."""
        return JournalLimits(self.history.entries, self.history.bytes)

    def enabled_services(self) -> dict[str, ServiceConfig]:
        """Return the enabled services in the order given, with the global timeouts where they set none."""
        return {
            name: service.model_copy(update=self._times_of(service))
            for name, service in self.services.items()
            if not service.disabled
        }

    def unusable_services(self) -> dict[str, str]:
        """Return the problem of each enabled service whose settings are wrong."""
        return {
            name: service.problem
            for name, service in self.services.items()
            if isinstance(service, UnusableConfig) and not service.disabled
        }

    def upstreams(self) -> dict[str, UpstreamConfig]:
        """Return the enabled services that are MCP servers."""
        enabled = self.enabled_services().items()
        return {name: service for name, service in enabled if isinstance(service, UpstreamConfig)}

    def browsers(self) -> dict[str, BrowserConfig]:
        """Return the enabled services that are the built-in browser."""
        enabled = self.enabled_services().items()
        return {name: service for name, service in enabled if isinstance(service, BrowserConfig)}

    def _times_of(self, service: ServiceConfig) -> dict[str, float]:
        times: dict[str, float] = {}
        if "connect_seconds" not in service.model_fields_set:
            times["connect_seconds"] = self.timeouts.connect
            by_default = "connect" not in self.timeouts.model_fields_set
            if isinstance(service, UpstreamConfig) and service.first_connect_seconds is None:
                first = FIRST_CONNECT_SECONDS if by_default else self.timeouts.connect
                times["first_connect_seconds"] = first
        if service.call_seconds is None:
            times["call_seconds"] = self.timeouts.call
        return times

    @field_validator("redact_patterns")
    @classmethod
    def _check_patterns(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise PydanticCustomError(
                    "pattern",
                    "Input should be regular expressions; one is none: {problem}",
                    {"problem": str(error)},
                ) from None
        return patterns

    @field_validator("policies")
    @classmethod
    def _check_policies(cls, policies: list[PolicySettings]) -> list[PolicySettings]:
        targets = [policy.target for policy in policies]
        if len(set(targets)) < len(targets):
            raise PydanticCustomError("policies", "each `match` should be there once")
        return policies

    @field_validator("services", mode="before")
    @classmethod
    def _name_the_browser(cls, services: object) -> object:
        if not isinstance(services, dict):
            return services  # pyright: ignore[reportUnknownVariableType]
        settings = cast("dict[str, Any]", services)
        if not isinstance(settings.get(BROWSER), dict):
            return settings
        browser: dict[str, Any] = settings[BROWSER]
        if not {"type", "command", "url"}.isdisjoint(browser):
            return settings
        return {**settings, BROWSER: {**browser, "type": "browser"}}

    @model_validator(mode="after")
    def _check_exposure(self) -> Config:
        if self.server.loopback:
            return self
        if self.needs_token:
            return self._check_encryption()
        problem = f"listening on {self.server.host} without authentication is refused"
        if self.timeouts.lifetime == 0:
            problem += ", all the more with timeouts.lifetime = 0 (sessions without an end)"
        raise wrong(
            ("server", "host"),
            f"{problem}; give server.tokens (--token-file FILE) or auth.issuers, or listen on 127.0.0.1",
        )

    def _check_encryption(self) -> Config:
        if self.server.tls is not None or self.server.trusted_proxies:
            return self
        raise wrong(
            ("server", "host"),
            f"listening on {self.server.host} without TLS is refused, since tokens could be read on the way; give "
            "server.tls a certificate and a key, or name the proxy that speaks TLS in server.trusted_proxies",
        )

    @model_validator(mode="after")
    def _check_auth(self) -> Config:
        auth = self.auth
        if not auth.enabled:
            if auth.audience:
                raise wrong(
                    ("auth", "issuers"), "no issuer is given, so no token is checked; add one"
                )
            return self
        if not auth.audience:
            raise wrong(
                ("auth", "audience"),
                "without an audience, tokens for other servers would be accepted; give the URL of this one, such as "
                "https://mcp.example.org/mcp",
            )
        if self.server.public_url is None:
            raise wrong(
                ("server", "public_url"),
                "callers could not find the issuer; give the URL of this server, such as https://mcp.example.org",
            )
        return self

    @model_validator(mode="after")
    def _check_modes(self) -> Config:
        if self.server.session is not None and self.server.auto_session:
            raise wrong(
                ("server", "auto_session"),
                "a pinned session and auto_session exclude each other; drop one of the two",
            )
        if self.server.hand_over and "calls" not in self.toolsets:
            raise wrong(
                ("server", "hand_over"),
                "no client could get the results; add calls to toolsets, or drop hand_over",
            )
        if self.server.workers > 1 and self.ephemeral:
            raise wrong(
                ("server", "workers"),
                "sessions in memory are known to one process only; drop ephemeral, or give 1",
            )
        if self.server.workers > 1 and self.cluster.enabled and self.cluster.listen[-2:] != ":0":
            raise wrong(
                ("cluster", "listen"),
                "each worker needs a port of its own; give port 0, or server.workers = 1",
            )
        return self

    @model_validator(mode="after")
    def _check_store(self) -> Config:
        if self.store.url is not None and self.store.url_file is not None:
            raise wrong(
                ("store", "url_file"),
                "url and url_file say where the same thing is; drop one of the two",
            )
        return self

    @model_validator(mode="after")
    def _check_cluster(self) -> Config:
        cluster = self.cluster
        if not cluster.enabled:
            return self
        if self.ephemeral or (self.store.url is None and self.store.url_file is None):
            raise wrong(
                ("cluster", "enabled"),
                "the nodes of a cluster share a PostgreSQL database; give its URL as store.url",
            )
        if not cluster.keys and cluster.keys_file is None:
            raise wrong(
                ("cluster", "keys"),
                "the nodes of a cluster sign what they send each other; give a secret of 32 characters or more, the same "
                "on all nodes",
            )
        return self

    @field_validator("logins")
    @classmethod
    def _check_logins(cls, logins: dict[str, LoginConfig]) -> dict[str, LoginConfig]:
        for name in logins:
            if not re.fullmatch(NAME, name):
                raise wrong(
                    ("logins", name),
                    "the name of a login has 1 to 128 letters, digits and _ . @ / -; rename it",
                )
        return logins

    @model_validator(mode="after")
    def _check_services(self) -> Config:
        for name in self.services:
            if not is_name_of_service(name):
                raise wrong(
                    ("services", name),
                    "the name of a service needs 1 to 128 printable characters; rename it",
                )
        return self
