"""The configuration of one upstream: an entry of any client's `mcpServers` block plus our own options.

The keys of the entry keep their names (`command`, `args`, `env`, `cwd`, `url`, `type` or `transport`, `headers`); ours stand
beside them. Unknown keys are refused in our TOML and ignored in a foreign `mcpServers` file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from ...sessions.one_line import one_line
from ..logins.config import REFERENCE, names_in

_UNUSABLE: Final = re.compile(r"[\0\ud800-\udfff]")
"""Characters that no process can be given. JSON allows the surrogates among them, halves of characters, alone."""


def _wrong(problem: str, field: str = "") -> PydanticCustomError:
    """Return the error of a field of a model, or of all of it. No value is shown that may be secret."""
    return PydanticCustomError("statehold", "{message}", {"message": problem, "field": field})


def _source(source: str) -> str:
    if source.startswith("file:"):
        path = PurePosixPath(source.removeprefix("file:").removeprefix("{dir}/"))
        if path.is_absolute() or ".." in path.parts or path == PurePosixPath():
            raise _wrong("file:PATH names a file below {dir}; correct it")
    elif source.startswith("text:"):
        try:
            re.compile(source.removeprefix("text:"))
        except re.error as error:
            raise _wrong(f"is no regular expression ({error}); correct it") from None
    elif source != "text" and not source.startswith("/"):
        raise _wrong("should be file:PATH, text, text:REGEX or a pointer such as /id; correct it")
    return source


class RecipeStep(BaseModel):
    """One tool call of a recipe.

    In `arguments` every `{name}` inside a string is replaced by a saved value, `{dir}` by the folder of this session and
    service; a string that is exactly `{name}` becomes the saved JSON value itself. `keep` selects the parts of the result
    to save: a name for each of
    `file:PATH` (bytes of a file below `{dir}`), `text` (all text of the result), `text:REGEX` (its first group) and a JSON
    pointer into `structuredContent` (`/cookies`).
    """

    model_config = ConfigDict(extra="forbid")

    tool: str = Field(description="Name of the tool.")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue],
        description=(
            "Its arguments. `{name}` in a string stands for a saved value, `{dir}` for the folder of the "
            "session."
        ),
    )
    keep: dict[str, Annotated[str, AfterValidator(_source)]] = Field(
        default_factory=dict[str, str],
        description=(
            "The parts of the result to save, as name = source: `file:PATH`, `text`, `text:REGEX`, or a "
            "JSON pointer."
        ),
    )


class Recipe(BaseModel):
    """The tool calls that save the state of an upstream, and those that restore it in a fresh one.

    `save` runs before a pause and, at most every `checkpoint` seconds, after a call that may have changed something.
    Files that `save` kept are written back below `{dir}` before `restore` runs. `restores` and `loses` are shown to the
    caller after a resume, so they are words for a reader: "the login", "open pages".
    """

    model_config = ConfigDict(extra="forbid")

    save: list[RecipeStep] = Field(
        default_factory=list[RecipeStep],
        description="Tool calls that save, run before a pause and as a checkpoint.",
    )
    restore: list[RecipeStep] = Field(
        default_factory=list[RecipeStep],
        description="Tool calls that restore, run on a fresh connection; written like those of `save`.",
    )
    checkpoint: float = Field(
        default=5.0, ge=0, description="Seconds between two checkpoints at least. 0: none."
    )
    restores: str = Field(
        default="what its recipe saved", description="The restored things, in words for the caller."
    )
    loses: str = Field(
        default="everything else", description="The lost things, in words for the caller."
    )


class LoginSettings(BaseModel):
    """The client of the authorization server of an upstream, where clients cannot register themselves."""

    model_config = ConfigDict(extra="forbid")

    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code",
        description=(
            "`authorization_code`: each principal logs in. `client_credentials`: the client has a login of its own, "
            "which all sessions use."
        ),
    )
    client_id: str | None = Field(
        default=None, description="Id of the client. Default: Statehold registers itself."
    )
    client_secret: str | None = Field(default=None, description="Its secret, if it has one.")
    private_key: str | None = Field(
        default=None,
        description=(
            "Its key in PEM, instead of a secret, as `${file:PATH}`; for `client_credentials` only."
        ),
    )
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post"] = Field(
        default="client_secret_basic", description="How it sends its secret."
    )
    client_metadata_url: str | None = Field(
        default=None,
        description=(
            "HTTPS address of a client metadata document, the id of the client at servers that read such documents."
        ),
    )
    issuer: str | None = Field(
        default=None,
        description=(
            "The authorization server that knows the client: no other one gets its secret. Needed for `client_credentials`."
        ),
    )
    scope: str | None = Field(
        default=None, description="Scopes to ask for. Default: those that the server names."
    )
    port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of its page, `http://127.0.0.1:PORT/callback`. Default: any.",
    )

    @model_validator(mode="after")
    def _check(self) -> LoginSettings:
        if self.grant == "client_credentials":
            if not (self.client_id and self.issuer):
                raise _wrong('grant = "client_credentials" needs a `client_id` and an `issuer`')
            if bool(self.client_secret) == bool(self.private_key):
                raise _wrong(
                    'grant = "client_credentials" needs a `client_secret` or a `private_key`'
                )
        elif self.private_key:
            raise _wrong('`private_key` needs grant = "client_credentials"', "private_key")
        return self


def _absolute(path: str) -> str:
    path = os.path.expanduser(path)
    if not os.path.isabs(path) or _UNUSABLE.search(path):
        raise _wrong("should hold absolute paths, or such as begin with ~; correct it")
    return os.path.normpath(path)


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class SandboxSettings(BaseModel):
    """The sandbox of a program, by Landlock of Linux. The name of a mode stands for a table with that mode alone."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["landlock", "auto", "off"] = Field(
        default="landlock",
        description=(
            "`landlock`: the program starts only confined, which needs Linux 6.12. `auto`: as far as this system can, and "
            "the log says what is missing."
        ),
    )
    read: list[AbsolutePath] = Field(
        default_factory=list[str],
        description=(
            "Files and folders that it may read and run, besides those of the system and its own program."
        ),
    )
    write: list[AbsolutePath] = Field(
        default_factory=list[str],
        description="Files and folders that it may change, besides `{dir}`, which is also its `TMPDIR`.",
    )
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default=[443],
        description=(
            "TCP ports to which it may connect, at any address, besides those of proxies in its environment."
        ),
    )
    processes: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Most processes and threads, counted over all of the user of Statehold. Root has no such limit.",
    )
    open_files: Annotated[int, Field(ge=16)] | None = Field(
        default=None, description="Most open files of each of its processes."
    )
    memory_bytes: Annotated[int, Field(ge=1 << 20)] | None = Field(
        default=None,
        description="Bytes of the address space of each of its processes; Node.js needs many more than it uses.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_mode(cls, given: object) -> object:
        return {"mode": given} if isinstance(given, str) else given

    @property
    def is_on(self) -> bool:
        return self.mode in ("landlock", "auto")


Transport = Literal["stdio", "http", "sse"]
_PREFIX: Final = re.compile(r"^[A-Za-z0-9_.\-/]{0,64}$")


class UpstreamConfig(BaseModel):
    """One upstream. Exactly one of `command` and `url` is given; all times are seconds."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    command: str | None = Field(
        default=None,
        description="Program to start. With a slash in it: relative to the file it stands in.",
    )
    args: list[str] = Field(default_factory=list[str], description="Its arguments.")
    env: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Additional environment variables of the program.",
    )
    inherit_env: list[str] = Field(
        default_factory=list[str],
        description="Names of environment variables of Statehold's that it gets too.",
    )
    cwd: str | None = Field(
        default=None,
        description=(
            "Folder to start it in, relative to the file; with "
            "[placeholders](../use/services.md#variables-and-placeholders) such as `{dir}`."
        ),
    )
    url: str | None = Field(
        default=None, description="Address of a server that runs already, instead of `command`."
    )
    headers: dict[str, str] = Field(
        default_factory=dict[str, str], description="Headers of every HTTP request to it."
    )
    type: Transport | None = Field(
        default=None,
        description=(
            "Transport. Default: `stdio` with a command, else `http`, or `sse` for a URL that ends in `/sse`, and the "
            "other one if that fails."
        ),
    )

    login: LoginSettings = Field(
        default_factory=LoginSettings,
        description="The client of its authorization server, for `statehold logins add`; see below.",
    )
    sandbox: SandboxSettings = Field(
        default_factory=lambda: SandboxSettings(mode="off"),
        description='The paths and ports of its program, or `"landlock"`, `"auto"` or `"off"`; see below.',
    )
    era: Literal["auto", "legacy", "modern"] = Field(
        default="auto",
        description=(
            "Protocol to speak. `auto`: 2026-07-28 if the server speaks it and keeps no HTTP session, else the older one."
        ),
    )
    scope: Literal["session", "shared"] = Field(
        default="session",
        description=(
            "`session`: one connection per session. `shared`: one for all, for servers that keep no "
            "state."
        ),
    )
    pause: Literal["keep", "release", "snapshot"] | None = Field(
        default=None,
        description=(
            "The effect of a pause. `snapshot` (default with a recipe): save and close; `keep` (default without): "
            "leave open while there is room; `release`: close."
        ),
    )
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
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=16, description="Calls of one session that may run at once; 1: in order."
    )
    connect_seconds: Annotated[float, Field(gt=0)] = Field(
        default=30.0, description="Longest time to open a connection. Default: `timeouts.connect`."
    )
    first_connect_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description=(
            "Longest time of the first start of a command, which may download it. Default: 120, or "
            "`connect_seconds` or `timeouts.connect`."
        ),
    )
    call_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Longest duration of one call. Default: `timeouts.call`."
    )
    prefix: str = Field(
        default="",
        pattern=_PREFIX.pattern,
        description="Put before the names of its tools.",
    )
    include: list[str] | None = Field(
        default=None, description="Names of the only tools to offer. Default: all."
    )
    exclude: list[str] = Field(
        default_factory=list[str], description="Names of tools not to offer."
    )
    text: Literal["clean", "exact"] = Field(
        default="clean",
        description=(
            "`clean`: controls, overrides of the direction and invisible tags are left out of the texts of its results. "
            "`exact`: they are passed on, as for files that are written back."
        ),
    )
    recipe: Recipe | None = Field(
        default=None,
        description="How to save what it holds and give it back to a fresh one; see below.",
    )
    disabled: bool = Field(default=False, description="Leave this service out.")

    @model_validator(mode="after")
    def _check(self) -> UpstreamConfig:
        # A disabled entry may be incomplete.
        for field, problem in () if self.disabled else self._problems():
            raise _wrong(problem, field)
        return self

    def _problems(self) -> Generator[tuple[str, str]]:
        if self.command and self.url:
            yield (
                "",
                "has both `command` and `url`; keep `command` for a local program, `url` for a server elsewhere",
            )
        elif self.command:
            if self.type not in (None, "stdio"):
                yield (
                    "",
                    f'type = "{self.type}" needs a `url`, not a `command`; correct one of the two',
                )
            yield from _problems_of_process([self.command, *self.args, self.cwd or ""], self.env)
            if any(not name or "=" in name or "\0" in name for name in self.inherit_env):
                yield "inherit_env", "should hold names of variables; correct it"
        elif self.url:
            if self.type == "stdio":
                yield "", 'type = "stdio" needs a `command`, not a `url`; correct one of the two'
            if self.sandbox.is_on:
                yield "sandbox", "is for a `command`, not for a `url`; drop it"
            yield from _problems_of_address(self.url, self.headers)
        else:
            yield (
                "",
                "needs a `command` (a local program) or a `url` (a server elsewhere); give one",
            )
        yield from self._problems_of_keys()

    @property
    def has_credentials(self) -> bool:
        """Whether its URL or headers have credentials, so that no login is used."""
        has_user = "@" in urlsplit(self.url or "").netloc
        has_key = bool(names_in(self.headers.values()))
        return has_user or has_key or any(name.lower() == "authorization" for name in self.headers)

    @property
    def key_names(self) -> list[str]:
        """The names of the keys in its headers and its environment."""
        return names_in((*self.env.values(), *self.headers.values()))

    def _problems_of_keys(self) -> Generator[tuple[str, str]]:
        public = {
            "command": [self.command],
            "args": self.args,
            "cwd": [self.cwd],
            "url": [self.url],
        }
        for field, texts in public.items():
            if any("${login:" in (text or "") for text in texts):
                yield (
                    field,
                    "is seen by others; only `env` and `headers` may hold ${login:NAME}, so move the key there",
                )
        for field, table in (("env", self.env), ("headers", self.headers)):
            if any("${login:" in REFERENCE.sub("", text) for text in table.values()):
                yield (
                    field,
                    "the NAME in ${login:NAME} has 1 to 128 letters, digits and _ . @ / -; correct it",
                )


class UnusableConfig(UpstreamConfig):
    """The settings of a service that are wrong. The service is listed with the problem, and never started.

    Of its settings only those are kept that the list of services needs.
    """

    problem: str = Field(default="", description="The mistake and its remedy, in one line.")

    @classmethod
    def of(cls, settings: object, problem: str, *, disabled: bool = False) -> UnusableConfig:
        """Return the remains of wrong settings, whatever these are."""
        given = cast("dict[str, object]", settings) if isinstance(settings, dict) else {}
        prefix, command = given.get("prefix"), given.get("command")
        return cls(
            problem=one_line(problem),
            prefix=prefix if isinstance(prefix, str) and _PREFIX.fullmatch(prefix) else "",
            command=command if isinstance(command, str) else None,
            type="sse" if given.get("type") == "sse" else None,
            disabled=disabled,
        )

    def _problems(self) -> Generator[tuple[str, str]]:
        yield from ()


def _problems_of_process(command: list[str], env: dict[str, str]) -> Generator[tuple[str, str]]:
    if any(map(_UNUSABLE.search, command)):
        yield "args", "a command line cannot hold a NUL character or half a character; correct it"
    for name, value in env.items():
        if not name or "=" in name or _UNUSABLE.search(name + value):
            yield "env", f"no environment can hold {name!r}; correct it"


def _problems_of_address(url: str, headers: dict[str, str]) -> Generator[tuple[str, str]]:
    if not url.lower().startswith(("http://", "https://")):
        yield "url", "should start with http:// or https://; correct it"
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"[\x00-\x20\x7f]", url):
        yield "url", "is no address of a server, such as http://127.0.0.1:8000/mcp; correct it"
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            yield "headers", f"{name!r} is no name of a header; correct it"
        elif not is_header_value(value):
            yield "headers", f"the value of {name} holds a character that no header can; correct it"


def is_header_value(value: str) -> bool:
    """Return whether HTTP carries a value: beyond ASCII, servers read the same bytes in different ways."""
    return re.fullmatch(r"[\t\x20-\x7e]*", value) is not None and value.strip() == value
