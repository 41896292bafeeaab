"""The configuration of the built-in browser: `[services.browser]` without `command` and `url`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Capability = Literal[
    "core", "config", "network", "storage", "testing", "vision", "pdf", "devtools", "unsafe"
]
"""A group of tools. `core` is always there; `unsafe` is browser_run_code_unsafe, which runs code of the caller's."""

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


class BrowserConfig(BaseModel):
    """The browser and its tools. All times are seconds, all sizes bytes."""

    model_config = ConfigDict(extra="forbid")

    # Which browser.
    type: Literal["browser"] = "browser"
    executable: str | None = None
    """Path of a Chromium, Chrome or Edge; found by itself when absent."""
    channel: str | None = None
    """Playwright's name of an installed browser: chrome, msedge, chromium."""
    headless: bool = True
    install: bool = True
    """Install a browser, with a message on stderr, when there is none."""
    args: list[str] = Field(default_factory=list[str])
    """More flags for the browser."""
    cdp_endpoint: str | None = None
    """A browser elsewhere, by its DevTools address (http://, https://, ws:// or wss://)."""
    cdp_headers: dict[str, str] = Field(default_factory=dict[str, str])
    ws_endpoint: str | None = None
    """A browser elsewhere, by the address of a Playwright server of the same version."""

    # What its pages are.
    viewport: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (1280, 720)
    user_agent: str | None = None
    locale: str | None = None
    timezone: str | None = None
    device: str | None = None
    """One of Playwright's device names, such as "iPhone 15"."""
    permissions: list[str] = Field(default_factory=list[str])
    ignore_https_errors: bool = False
    init_script: str | None = None
    """A JavaScript file that every page runs first."""
    test_id_attribute: str = "data-testid"

    # What they may reach.
    allow: list[str] = Field(default_factory=list[str])
    """Hosts that may be reached: `example.com`, `*.example.com`, `10.0.0.0/8`, with a port where wanted. Empty: all."""
    block: list[str] = Field(default_factory=list[str])
    private: bool | None = None
    """Whether private and loopback addresses may be reached. Default: only where no other callers are served."""
    bytes_per_second: Annotated[int, Field(gt=0)] | None = None
    proxy: str | None = None
    """An HTTP proxy that all requests leave by."""

    # Its tools.
    caps: list[Capability] = Field(default_factory=list[Capability])
    snapshot: Literal["full", "diff", "none"] = "full"
    """What of the page an action answers with."""
    action_seconds: Annotated[float, Field(gt=0)] = 5.0
    navigation_seconds: Annotated[float, Field(gt=0)] = 60.0
    script_seconds: Annotated[float, Field(gt=0)] = 30.0
    """How long a script of the caller's may take; then its page is closed if it does not answer."""
    settle_seconds: Annotated[float, Field(ge=0)] = 3.0
    """How long at most an action waits for what it caused."""
    tabs: Annotated[int, Field(ge=1, le=200)] = 30
    download_bytes: Annotated[int, Field(gt=0)] = 100 * MIB
    """The largest download; all files of a session together may have four times as much."""
    uploads: list[str] = Field(default_factory=list[str])
    """Folders from which files may be uploaded, besides the session's own."""

    # Its sessions.
    checkpoint: Annotated[float, Field(ge=0)] = 5.0
    """Seconds between two checkpoints at least; 0 turns checkpoints off."""
    keep_seconds: Annotated[float, Field(ge=0)] = 60.0
    """How long a browser process without sessions is kept."""
    key: str | None = None
    """The key that saved sessions are encrypted with; write it as `${NAME}` of an environment variable."""

    # As of any service.
    connect: Literal["lazy", "eager"] = "lazy"
    connect_seconds: Annotated[float, Field(gt=0)] = 30.0
    call_seconds: Annotated[float, Field(gt=0)] | None = None
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_.\-/]{0,64}$")
    include: list[str] | None = None
    exclude: list[str] = Field(default_factory=list[str])
    disabled: bool = False

    @property
    def remote(self) -> bool:
        return self.cdp_endpoint is not None or self.ws_endpoint is not None


__all__ = ["CAPABILITIES", "BrowserConfig", "Capability"]
