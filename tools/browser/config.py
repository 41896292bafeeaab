"""The configuration of the built-in browser: `[services.browser]` without `command` and `url`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ...sessions.store.sealing.encryption import SHORTEST_KEY
from .devtools.world import is_origin
from .egress.addresses import parse_host
from .egress.network_policy import HostEntry, UpstreamProxy

Capability = Literal[
    "core",
    "config",
    "network",
    "storage",
    "testing",
    "vision",
    "pdf",
    "devtools",
    "webmcp",
    "unsafe",
]
"""A group of tools. `core` is always on; `unsafe` is browser_run_code_unsafe, which runs code from the caller."""

CAPABILITIES: tuple[Capability, ...] = get_args(Capability)

MIB = 2**20
PHONE = "Pixel 10"
"""The device of `mobile`."""


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
    type: Literal["browser"] = Field(
        default="browser",
        description="Makes a service of any name a browser; `[services.browser]` is one without it.",
    )
    executable: str | None = Field(
        default=None,
        description="Path of a Chromium, Chrome or Edge. Default: the first that is found.",
    )
    channel: str | None = Field(
        default=None,
        description="Playwright's name of an installed browser, such as `chrome` or `msedge`.",
    )
    headless: bool = Field(default=True, description="Whether it works without a window.")
    install: bool = Field(
        default=False,
        description=(
            "Install a browser when there is none: as root on Debian with the system's packages, else from "
            "Playwright."
        ),
    )
    args: Names = Field(default_factory=list[str], description="More flags for the browser.")
    cdp_endpoint: str | None = Field(
        default=None, description="Address of a browser elsewhere, by its DevTools."
    )
    cdp_headers: dict[str, str] = Field(
        default_factory=dict[str, str], repr=False, description="Headers of the requests to it."
    )
    attach: Literal["context", "tabs"] = Field(
        default="context",
        description=(
            "The part of the browser at `cdp_endpoint` that a session uses: a context of its own, or the open "
            "`tabs`, one session at a time, of which nothing is saved."
        ),
    )
    ws_endpoint: str | None = Field(
        default=None,
        description="Address of a browser elsewhere, by a Playwright server of the same version.",
    )

    # Properties of its pages.
    viewport: Annotated[tuple[Pixels, Pixels], BeforeValidator(_pair)] = Field(
        default=(1280, 720),
        description="Width and height of a page. If unset, `device` and `mobile` have their own.",
    )
    user_agent: str | None = Field(
        default=None,
        description="The user agent that pages see. Default: that of this browser with a window.",
    )
    locale: str | None = Field(
        default=None, description="Language and region of pages, such as `de-DE`."
    )
    timezone: str | None = Field(
        default=None, description="Time zone of pages, such as `Europe/Berlin`."
    )
    device: str | None = Field(
        default=None,
        description='A device to be like, by its name in Playwright, such as `"iPhone 15"`.',
    )
    mobile: bool = Field(
        default=False, description="Be like a phone: a small touch screen. Excludes `device`."
    )
    device_scale_factor: Annotated[float, Field(gt=0, le=10)] | None = Field(
        default=None, description="Pixels of the screen per pixel of a page, such as 2."
    )
    permissions: Names = Field(
        default_factory=list[str],
        description=(
            "The permissions of pages, such as `geolocation`. Others than Chrome's defaults are denied."
        ),
    )
    ignore_https_errors: bool = Field(default=False, description="Accept broken certificates.")
    init_script: Names = Field(
        default_factory=list[str], description="JavaScript files that every page runs first."
    )
    init_page: Names = Field(
        default_factory=list[str],
        description=(
            "Python files with `async def default(page)`: each runs with Playwright's page when a context opens, "
            "after its tabs were restored."
        ),
    )
    storage_state: str | None = Field(
        default=None,
        description=(
            "File with the logins of all new sessions, as `browser_storage_state` writes it."
        ),
    )
    http_credentials: dict[str, str] = Field(
        default_factory=dict[str, str],
        repr=False,
        description=(
            'Logins by HTTP, by origin: `{ "https://staging.test" = "USER:%PASSWORD%" }`, also with names of `secrets`.'
        ),
    )
    secrets: str | None = Field(
        default=None,
        description=(
            "File of lines `NAME=value`, or `NAME@https://shop.test=value` for one site: a caller types "
            "`%NAME%`, the page gets the value, and results show the name."
        ),
    )
    secrets_command: Names = Field(
        default_factory=list[str],
        repr=False,
        description="Command that prints such lines, run once, for at most `connect_seconds`.",
    )
    test_id_attribute: str = Field(
        default="data-testid", description="Attribute that test ids of elements stand in."
    )

    # Limits on the network access of pages.
    allow: Hosts = Field(
        default_factory=list[str],
        description=(
            "Hosts that may be reached: `example.com`, `*.example.com`, `10.0.0.0/8`, `http://localhost:*`. "
            "Empty: all. Without `private`, a private address has to be in the list itself."
        ),
    )
    block: Hosts = Field(
        default_factory=list[str],
        description="Hosts that may not be reached, written in the same way.",
    )
    private: bool | None = Field(
        default=None,
        description=(
            "Allow private and loopback addresses. Default: only on stdio, and on loopback without "
            "`server.tokens`."
        ),
    )
    bytes_per_second: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="Bandwidth of a session."
    )
    proxy: str | None = Field(
        default=None,
        repr=False,
        description="HTTP proxy that all requests leave by, those with TLS and WebSockets through `CONNECT`.",
    )

    # Its tools.
    caps: Annotated[list[Capability], BeforeValidator(_split)] = Field(
        default_factory=list[Capability],
        description=(
            "Groups of tools besides the core. `unsafe` runs code of the caller on this machine."
        ),
    )
    snapshot: Literal["auto", "full", "diff", "none"] = Field(
        default="auto",
        description=(
            "The snapshot in the answer of an action. `auto`: the page, its changes or an outline; `full`: the "
            "whole page; `diff`: its changes."
        ),
    )
    snapshot_tokens: Annotated[int, Field(ge=200)] = Field(
        default=4000,
        description="Largest snapshot that an action answers with, in tokens of four characters.",
    )
    snapshot_boxes: bool = Field(
        default=False, description="Snapshots have the place of each element on the page."
    )
    codegen: Literal["python", "typescript", "none"] = Field(
        default="python", description="Language of the code in results, or `none` for no code."
    )
    console_level: Literal["error", "warning", "info", "debug"] = Field(
        default="error",
        description="Console messages of this level and above are reported in the next answer.",
    )
    action_seconds: Annotated[float, Field(gt=0)] = Field(
        default=5.0, description="Longest duration of one action on an element."
    )
    navigation_seconds: Annotated[float, Field(gt=0)] = Field(
        default=60.0, description="Longest time until a page answers."
    )
    script_seconds: Annotated[float, Field(gt=0)] = Field(
        default=30.0, description="Longest duration of a script of the caller's in a page."
    )
    settle: Literal["fast", "balanced", "patient"] = Field(
        default="balanced",
        description=(
            "The effects that an action waits for. `fast`: requests and what changes at once; `balanced`: timers, "
            "animations and messages within 600 ms, too; `patient`: half a second more than `fast`."
        ),
    )
    settle_seconds: Annotated[float, Field(ge=0)] = Field(
        default=3.0, description="Longest time an action waits for what it caused."
    )
    tabs: Annotated[int, Field(ge=1, le=200)] = Field(
        default=30, description="Tabs a session may have."
    )
    download_bytes: Annotated[int, Field(gt=0)] = Field(
        default=100 * MIB,
        description="Size of the largest download; all files of a session may have four times as much.",
    )
    output_dir: str | None = Field(
        default=None,
        description=(
            "Folder that gets a copy of every file of a session. Copies stay when the session is deleted."
        ),
    )
    output_max_size: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description=(
            "Bytes that `output_dir` may hold; beyond them its oldest files are removed, also files of others, "
            "but for logs of open sessions."
        ),
    )
    save_session: bool = Field(
        default=False,
        description=(
            "Write the calls of each session to `session.md` among its files, or to `session-ID.md` in "
            "`output_dir`, up to `download_bytes`."
        ),
    )
    image_responses: Literal["allow", "omit"] = Field(
        default="allow",
        description="`omit`: a screenshot is a file only, for models that cannot see pictures.",
    )
    uploads: Names = Field(
        default_factory=list[str],
        description="Folders that files may be uploaded from, besides the session's own files.",
    )

    # Its sessions.
    checkpoint: Annotated[float, Field(ge=0)] = Field(
        default=5.0, description="Seconds between two checkpoints at least. 0: none."
    )
    keep_seconds: Annotated[float, Field(ge=0)] = Field(
        default=60.0, description="How long a browser that no session uses is kept."
    )
    outlive: bool = Field(
        default=True,
        description=("Open pages outlive a crash and a restart (Linux, with `keeper`)."),
    )
    key: str | None = Field(
        default=None,
        repr=False,
        description=(
            "Key that saved sessions are encrypted with. Write it as `${NAME}` of an environment "
            "variable."
        ),
    )

    # The settings that every service has.
    approve: Literal["never", "destructive", "all"] | list[str] = Field(
        default="never",
        description="The calls that a person approves before they run: those of these tools (names of the server, without a "
        "prefix; `*` for any text), `all`, or `destructive`: of tools not marked as reading only or as not destructive.",
    )
    connect: Literal["lazy", "eager"] = Field(
        default="lazy", description="`lazy`: with the first call. `eager`: with the session."
    )
    on_lost: Literal["pause", "close"] = Field(
        default="pause",
        description=(
            "The fate of a session whose connection cannot be opened again within `recovery.attempts`: it is "
            "paused until its next call, or closed."
        ),
    )
    connect_seconds: Annotated[float, Field(gt=0)] = Field(
        default=30.0, description="Longest time to open a connection. Default: `timeouts.connect`."
    )
    call_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Longest duration of one call. Default: `timeouts.call`."
    )
    prefix: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9_.\-/]{0,64}$",
        description="Put before the names of its tools.",
    )
    include: Names | None = Field(
        default=None, description="Names of the only tools to offer. Default: all."
    )
    exclude: Names = Field(default_factory=list[str], description="Names of tools not to offer.")
    disabled: bool = Field(default=False, description="Leave it out.")

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
    def is_attached(self) -> bool:
        """Whether a session works in the open tabs of a person's browser instead of a context of its own."""
        return self.attach == "tabs"

    @property
    def emulated_device(self) -> str | None:
        """The device to be like, by its name in Playwright."""
        return PHONE if self.mobile else self.device

    @property
    def output_folder(self) -> Path | None:
        """The path of `output_dir`."""
        return None if self.output_dir is None else Path(self.output_dir).expanduser().absolute()

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
        if self.secrets is not None and self.secrets_command:
            yield "secrets_command", "excludes `secrets`; keep one of the two"
        for origin, login in self.http_credentials.items():
            if not is_origin(origin) or ":" not in login:
                yield (
                    "http_credentials",
                    'is no table such as { "https://shop.test" = "USER:PASSWORD" }',
                )
        if self.output_max_size is not None and self.output_dir is None:
            yield "output_max_size", "needs `output_dir`; set the folder that is meant"
        if self.executable is not None and self.channel is not None:
            yield "channel", "excludes `executable`; keep one of the two"
        if self.mobile and self.device is not None:
            yield "mobile", "excludes `device`; keep one of the two"
        for field, (schemes, example) in {"cdp_endpoint": _CDP, "ws_endpoint": _WS}.items():
            value: Any = getattr(self, field)
            if value is not None and not _is_address(value, schemes):
                yield field, f"is no address such as {example}; correct it"
        if self.proxy is not None:
            try:
                UpstreamProxy.parse(self.proxy)
            except PydanticCustomError as error:
                yield "proxy", error.message()
        if self.key is not None and len(self.key) < SHORTEST_KEY:
            yield (
                "key",
                f"is shorter than {SHORTEST_KEY} characters; make one with: openssl rand -base64 32",
            )
        yield from self._problems_elsewhere() if self.elsewhere else ()
        yield from self._problems_attached() if self.is_attached else ()

    def _problems_elsewhere(self) -> Generator[tuple[str, str]]:
        enforced_here = ("allow", "block", "bytes_per_second", "proxy")
        for field in (*enforced_here, *(("private",) if self.private is False else ())):
            value: Any = getattr(self, field)
            if value or value is False:
                yield field, "cannot be held for a browser on another machine; set it there"

    def _problems_attached(self) -> Generator[tuple[str, str]]:
        if self.cdp_endpoint is None:
            yield "attach", "needs the `cdp_endpoint` of the browser whose tabs are meant"
        for field in _OF_CONTEXTS:
            if field in self.model_fields_set:
                yield field, "cannot be set for the tabs of a person's browser; leave it out"


_OF_CONTEXTS = (
    "viewport",
    "user_agent",
    "locale",
    "timezone",
    "device",
    "mobile",
    "device_scale_factor",
    "permissions",
    "ignore_https_errors",
    "init_script",
    "init_page",
    "storage_state",
    "http_credentials",
    "allow",
    "block",
    "bytes_per_second",
    "proxy",
)
"""The settings of a context of a session's own."""

_CDP = (("http", "https", "ws", "wss"), "http://127.0.0.1:9222")
_WS = (("ws", "wss"), "ws://127.0.0.1:3000/")


def _is_address(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
