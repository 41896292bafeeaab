"""The arguments of the tools that create, list, change and close sessions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, WithJsonSchema

from ...sessions.validation import Plain
from ..definition import Arguments

SessionId = Annotated[str, Field(min_length=1, max_length=256, description="Its id or name")]
Seconds = Annotated[float, Field(ge=0, le=3.2e9), WithJsonSchema({"type": "number"})]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Label = Annotated[Plain, Field(min_length=1, max_length=128)] | None


class CreateArguments(Arguments):
    name: Annotated[
        str | None,
        Field(
            max_length=128,
            description="To find it by later; unique among your open sessions",
        ),
    ] = None
    services: Annotated[
        list[str] | None,
        Field(description="Services that it uses. Default: all"),
    ] = None
    state: Annotated[dict[str, Any] | None, Field(description="Its first state")] = None
    state_schema: Annotated[
        dict[str, Any] | None,
        Field(description="JSON Schema (2020-12) of its state"),
    ] = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Shown by session_info and session_list"),
    ] = None
    user_id: Annotated[
        Label, Field(description="A label for session_list, like the next three; grants nothing")
    ] = None
    agent_id: Label = None
    team_id: Label = None
    workflow_id: Label = None
    namespace: Annotated[str, Field(max_length=128, description="Keeps names apart")] = ""
    idle_seconds: Annotated[
        Seconds | None, Field(description="Pause it when unused so long. 0: never")
    ] = None
    paused_seconds: Annotated[
        Seconds | None, Field(description="Close it when paused so long. 0: never")
    ] = None
    lifetime_seconds: Annotated[
        Seconds | None, Field(description="Close it at this age. 0: never")
    ] = None


class LendingCreateArguments(CreateArguments):
    logins: Annotated[
        list[Name] | None,
        Field(description="Logins of browsers that it gets at once, all or none; see login_list"),
    ] = None


class ListArguments(Arguments):
    name: Annotated[str | None, Field(max_length=128, description="Beginning of the name")] = None
    namespace: Annotated[str | None, Field(max_length=128)] = None
    statuses: Annotated[
        list[Literal["creating", "idle", "active", "paused", "error", "closing", "closed"]] | None,
        Field(description="Default: all but closed"),
    ] = None
    user_id: Label = None
    agent_id: Label = None
    team_id: Label = None
    workflow_id: Label = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Keys and values that its metadata has"),
    ] = None
    updated_since: Annotated[
        str | None,
        Field(max_length=64, description="Used at this time (ISO 8601) or later"),
    ] = None
    query: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Text in names, ids, metadata or summaries",
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[
        str | None, Field(max_length=256, description="next_cursor of the page before")
    ] = None


class SharedListArguments(ListArguments):
    shared: Annotated[
        bool, Field(description="Those that others share with you, without other filters")
    ] = False


class SessionArguments(Arguments):
    session_id: SessionId


class CloseArguments(SessionArguments):
    force: Annotated[bool, Field(description="Cancel running calls at once")] = False


class ExtendArguments(SessionArguments):
    seconds: Annotated[
        float,
        Field(ge=-3.2e9, le=3.2e9, description="Negative: shorter"),
        WithJsonSchema({"type": "number"}),
    ] = 3600.0


class RestartArguments(SessionArguments):
    services: Annotated[
        list[str] | None,
        Field(description="Default: all that are open"),
    ] = None


class RenameArguments(SessionArguments):
    name: Annotated[
        str | None,
        Field(
            max_length=128,
            description="Left out: none, or with metadata the old one",
        ),
    ] = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Merged into its metadata; null deletes"),
    ] = None


class BindArguments(SessionArguments):
    service: Name
