"""The configuration of one upstream: an entry of any client's `mcpServers` block plus our own options.

The keys of the entry keep their names (`command`, `args`, `env`, `cwd`, `url`, `type` or `transport`, `headers`); ours stand
beside them. Unknown keys are refused in our TOML and ignored in a foreign `mcpServers` file.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Step(BaseModel):
    """One tool call of a recipe.

    In `arguments` every `{name}` inside a string stands for a saved value, `{dir}` for the folder of this session and
    service; a string that is exactly `{name}` becomes the saved JSON value itself. `keep` says what to save from the
    result: a name for each of
    `file:PATH` (bytes of a file below `{dir}`), `text` (all text of the result), `text:REGEX` (its first group) and a JSON
    pointer into `structuredContent` (`/cookies`).
    """

    model_config = ConfigDict(extra="forbid")

    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    keep: dict[str, str] = Field(default_factory=dict[str, str])


class Recipe(BaseModel):
    """How to save what an upstream holds, and how to give it back to a fresh one.

    `save` runs before a pause and, at most every `checkpoint` seconds, after a call that may have changed something.
    Files that `save` kept are written back below `{dir}` before `restore` runs. `restores` and `loses` are told to the
    caller after a resume, so they are written for a reader: "the login", "open pages".
    """

    model_config = ConfigDict(extra="forbid")

    save: list[Step] = Field(default_factory=list[Step])
    restore: list[Step] = Field(default_factory=list[Step])
    checkpoint: float = Field(default=5.0, ge=0)
    """Seconds between two checkpoints at least; 0 turns checkpoints off."""
    restores: str = "what its recipe saved"
    loses: str = "everything else"


Transport = Literal["stdio", "http", "sse"]


class UpstreamConfig(BaseModel):
    """One upstream. Exactly one of `command` and `url` is given; all times are seconds."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    command: str | None = None
    args: list[str] = Field(default_factory=list[str])
    env: dict[str, str] = Field(default_factory=dict[str, str])
    cwd: str | None = None
    """Working folder of the process; `{dir}` is a folder of this session's own. Relative to the configuration file."""
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    type: Transport | None = None
    """Told from `command` or `url` when absent; a URL that ends in /sse is SSE."""

    era: Literal["auto", "legacy", "modern"] = "auto"
    """auto: initialize first, 2026-07-28 only when that is refused."""
    scope: Literal["session", "shared"] = "session"
    pause: Literal["keep", "release", "snapshot"] | None = None
    """Default: snapshot with a recipe, else keep."""
    connect: Literal["lazy", "eager"] = "lazy"
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 16
    connect_seconds: Annotated[float, Field(gt=0)] = 30.0
    call_seconds: Annotated[float, Field(gt=0)] | None = None
    """Default: `timeouts.call`."""
    prefix: str = ""
    include: list[str] | None = None
    exclude: list[str] = Field(default_factory=list[str])
    recipe: Recipe | None = None
    disabled: bool = False
