"""The configuration of the built-in browser: `[services.browser]` without `command` and `url`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from .egress.addresses import parse_host
from .egress.policy import HostEntry
from .egress.upstream import UpstreamProxy
from .snapshot.encryption import LEAST_KEY

Capability = Literal[
    "core", "config", "network", "storage", "testing", "vision", "pdf", "devtools", "unsafe"
]
"""A group of tools. `core` is always on; `unsafe` is browser_run_code_unsafe, which runs code from the caller."""

CAPABILITIES: tuple[Capability, ...] = (
    "core",
    "config",
    "network",
    "storage",
    "testing",
    "vision",
    "pdf",
    "devtools",
    "unsafe",
)

MIB = 2**20


def _split(value: object) -> object:
    """Let an environment variable give a list as `a,b`."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _pair(value: object) -> object:
    """Let an environment variable give a size as `1280x720`."""
    return value.lower().replace("x", ",").split(",") if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_split)]
Hosts = Annotated[list[HostEntry], BeforeValidator(_split)]
Pixels = Annotated[int, Field(ge=1, le=16_384)]


class BrowserConfig(BaseModel):
    """The browser and its tools. All times are seconds, all sizes bytes."""

    model_config = ConfigDict(extra="forbid")

    # The browser.
    type: Literal["browser"] = "browser"
    executable: str | None = None
    """Path of a Chromium, Chrome or Edge; if absent, a browser is searched for."""
    channel: str | None = None
    """Playwright's name of an installed browser: chrome, msedge, chromium."""
    headless: bool = True
    install: bool = False
    """Install a browser, with a message on stderr, if there is none."""
    args: Names = Field(default_factory=list[str])
    """More flags for the browser."""
    cdp_endpoint: str | None = None
    """The DevTools address (http://, https://, ws:// or wss://) of a running browser to connect to."""
    cdp_headers: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    ws_endpoint: str | None = None
    """The address of a Playwright server of the same version, whose browser to use."""

    # Properties of its pages.
    viewport: Annotated[tuple[Pixels, Pixels], BeforeValidator(_pair)] = (1280, 720)
    user_agent: str | None = None
    locale: str | None = None
    timezone: str | None = None
    device: str | None = None
    """One of Playwright's device names, such as "iPhone 15"."""
    permissions: Names = Field(default_factory=list[str])
    ignore_https_errors: bool = False
    init_script: str | None = None
    """A JavaScript file that every page runs first."""
    test_id_attribute: str = "data-testid"

    # Limits on the network access of pages.
    allow: Hosts = Field(default_factory=list[str])
    """Hosts that may be reached: `example.com`, `*.example.com`, `10.0.0.0/8`, with a port where wanted. Empty: all."""
    block: Hosts = Field(default_factory=list[str])
    private: bool | None = None
    """Whether private and loopback addresses may be reached. Default: only if no other callers are served."""
    bytes_per_second: Annotated[int, Field(gt=0)] | None = None
    proxy: str | None = Field(default=None, repr=False)
    """An HTTP proxy for all requests."""

    # Its tools.
    caps: Annotated[list[Capability], BeforeValidator(_split)] = Field(
        default_factory=list[Capability]
    )
    snapshot: Literal["full", "diff", "none"] = "full"
    """The form of the snapshot in the answer to an action."""
    action_seconds: Annotated[float, Field(gt=0)] = 5.0
    navigation_seconds: Annotated[float, Field(gt=0)] = 60.0
    script_seconds: Annotated[float, Field(gt=0)] = 30.0
    """How long a script from the caller may run; then it is stopped, and its page is closed if it does not answer."""
    settle_seconds: Annotated[float, Field(ge=0)] = 3.0
    """The longest time that an action waits for its effects."""
    tabs: Annotated[int, Field(ge=1, le=200)] = 30
    download_bytes: Annotated[int, Field(gt=0)] = 100 * MIB
    """The largest download; all files of a session together may have four times as much."""
    uploads: Names = Field(default_factory=list[str])
    """Folders from which files may be uploaded, besides the session's own."""

    # Its sessions.
    checkpoint: Annotated[float, Field(ge=0)] = 5.0
    """The least number of seconds between two checkpoints; 0 turns checkpoints off."""
    keep_seconds: Annotated[float, Field(ge=0)] = 60.0
    """How long a browser process without sessions is kept."""
    key: str | None = Field(default=None, repr=False)
    """The key that encrypts saved sessions; write it as `${NAME}` of an environment variable."""

    # The settings that every service has.
    connect: Literal["lazy", "eager"] = "lazy"
    connect_seconds: Annotated[float, Field(gt=0)] = 30.0
    call_seconds: Annotated[float, Field(gt=0)] | None = None
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_.\-/]{0,64}$")
    include: Names | None = None
    exclude: Names = Field(default_factory=list[str])
    disabled: bool = False

    @property
    def remote(self) -> bool:
        """Whether the browser was not started by Statehold, be it on this machine or another."""
        return self.cdp_endpoint is not None or self.ws_endpoint is not None

    @property
    def elsewhere(self) -> bool:
        """Whether the browser runs on another machine, and so in another network."""
        endpoint = self.cdp_endpoint or self.ws_endpoint
        host = None if endpoint is None else urlsplit(endpoint).hostname
        if host is None:
            return False
        address = parse_host(host)
        return host != "localhost" and (address is None or not address.is_loopback)

    @property
    def place(self) -> str:
        """The location of the browser, without the parts of an address that may be secret."""
        endpoint = self.cdp_endpoint or self.ws_endpoint
        if endpoint is None:
            return self.executable or self.channel or "the first browser that is found"
        parts = urlsplit(endpoint)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    @model_validator(mode="after")
    def _check(self) -> BrowserConfig:
        # A disabled service may be configured incompletely.
        for field, problem in () if self.disabled else self._problems():
            raise PydanticCustomError(
                "statehold", "{message}", {"message": problem, "field": field}
            )
        return self

    def _problems(self) -> Generator[tuple[str, str]]:
        if self.cdp_endpoint is not None and self.ws_endpoint is not None:
            yield "ws_endpoint", "excludes `cdp_endpoint`; keep the one that your browser speaks"
        if self.remote and (self.executable is not None or self.channel is not None):
            yield "", "names a browser here and one elsewhere; keep `executable` or the endpoint"
        if self.executable is not None and self.channel is not None:
            yield "channel", "excludes `executable`; keep one of the two"
        for field, (allowed, example) in {"cdp_endpoint": _CDP, "ws_endpoint": _WS}.items():
            value: Any = getattr(self, field)
            if value is not None and not _is_address(value, allowed):
                yield field, f"is no address such as {example}; correct it"
        if self.proxy is not None:
            try:
                UpstreamProxy.parse(self.proxy)
            except PydanticCustomError as error:
                yield "proxy", error.message()
        if self.key is not None and len(self.key) < LEAST_KEY:
            yield (
                "key",
                f"is shorter than {LEAST_KEY} characters; make one with: openssl rand -base64 32",
            )
        yield from self._problems_elsewhere() if self.elsewhere else ()

    def _problems_elsewhere(self) -> Generator[tuple[str, str]]:
        held = ("allow", "block", "bytes_per_second", "proxy")
        for field in (*held, *(("private",) if self.private is False else ())):
            value: Any = getattr(self, field)
            if value or value is False:
                yield field, "cannot be held for a browser on another machine; set it there"


_CDP = (("http", "https", "ws", "wss"), "http://127.0.0.1:9222")
_WS = (("ws", "wss"), "ws://127.0.0.1:3000/")


def _is_address(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


__all__ = ["CAPABILITIES", "BrowserConfig", "Capability"]
