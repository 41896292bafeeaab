"""The definition of Statehold's own tools, the context of a call, and its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...sessions.calls.notices import Delivery
from ...sessions.calls.receipts import Operation
from ...sessions.calls.request import RecordedAnswer
from ...sessions.errors import InvalidArgument, SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.policy import Policy
from ...sessions.records import Grantee, GranteeKind, Principal
from ...sessions.services import CallContext
from ...sessions.times import format_duration, seconds_of
from ..definition import BuiltinTool, Naming, schema_of
from .results import without_nulls


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The caller of an own tool."""

    principal: Principal
    namespace: str = ""
    pinned_session: str | None = None
    """The id of the session if the URL or the command line names it, so that the arguments need not."""
    operation: Operation | None = None
    """The operation of a call that creates a session; its receipt is stored with the session."""
    run: str | None = None
    """The run that the caller counts the call to."""
    caller: CallContext | None = None
    """The request of the call, for progress messages; None for a command."""
    cause: str = "requested"
    """The cause that the journal records when the caller pauses or closes a session."""
    groups: tuple[str, ...] = ()
    """The groups of the caller, which its issuer names."""
    is_shared: bool = False
    """Whether the caller is another principal, with which `principal` shares the session."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an own tool: its structured content, and a summary of the session that it concerns."""

    content: JSON
    session: JSON | None = None
    notice: str | None = None
    """Text shown after the result, as in the answer of any call."""
    delivery: Delivery | None = None
    """The delivery of the notice, for Router.return_notice()."""
    blocks: Sequence[JSON] = ()
    """Content blocks behind the text, such as a picture."""
    answer: RecordedAnswer | None = None
    """The answer of a call to a service, which is the result in place of the content."""


Handler = Callable[[ToolContext, Any], Awaitable[Outcome]]

Pinned = Literal["always", "asked", "never"]
"""Whether a tool is offered when the URL or the command line pins the session: `always`, if its toolset is on; `asked`, if
the configuration names its toolset; `never`, since it is about other sessions."""


@dataclass(frozen=True, slots=True)
class OwnTool(BuiltinTool):
    """One of Statehold's own tools, with the function that runs it."""

    output: type[Any]
    """The class of its result."""
    handler: Handler
    output_schema: type[Any] | None = field(default=None, kw_only=True)
    """The class of the listed output schema: what callers pass to a next call. None: no schema is listed, since it would
    cost more tokens than the rest of the tool."""
    pinned: Pinned = field(default="asked", kw_only=True)
    frees_name: bool = field(default=False, kw_only=True)
    """Whether a call may free the name of its session for another session."""
    asks_caller: bool = field(default=False, kw_only=True)
    """Whether a call may ask its caller for input."""
    page_uri: str | None = field(default=None, kw_only=True)
    """The page with which hosts of MCP Apps show its results."""

    def offered(self, naming: Naming, *, asked: bool) -> bool:
        """Whether callers who name the session like this find it in their list. `asked`: its toolset is configured."""
        is_pinned = naming in ("pinned", "command")
        return not is_pinned or self.pinned == "always" or (asked and self.pinned == "asked")

    @property
    def takes_session(self) -> bool:
        """Whether it has a session argument."""
        return "session_id" in self.arguments.model_fields

    def definition(self, *, naming: Naming = "explicit", header: bool = False) -> JSON:
        """Return the tool as MCP JSON. `naming` decides whether its session argument is required, optional or left out.

        With `header`, clients may also send session_id as an HTTP header.
        """
        definition = BuiltinTool.definition(self)
        if self.output_schema is not None:
            definition["outputSchema"] = schema_of(self.output_schema, "serialization")
        if self.page_uri is not None:
            definition["_meta"] = {"ui": {"resourceUri": self.page_uri}}
        schema: JSON = definition["inputSchema"]
        properties: JSON = schema.setdefault("properties", {})
        if self.takes_session:
            if naming != "explicit":
                schema["required"] = [
                    name for name in schema.get("required", []) if name != "session_id"
                ]
            if naming in ("pinned", "command"):
                del properties["session_id"]
            elif header:
                properties["session_id"]["x-mcp-header"] = "Session-Id"
        if not schema.get("required"):
            schema.pop("required", None)
        return definition

    def without_nulls(self, content: JSON) -> JSON:
        """Return a result without the keys whose null means that there is no value, to save tokens."""
        return without_nulls(self.output, content)

    async def run(self, context: ToolContext, arguments: JSON) -> Outcome:
        """Check the arguments and run the tool. Raises like parse_call()."""
        return await self.handler(context, self.parse_call(context, arguments))

    def parse_call(self, context: ToolContext, arguments: JSON) -> Any:
        """Return the arguments as the tool's model. A pinned session replaces the session argument.

        Raises:
            SessionNotFound: The tool needs a session and the call names none.
            InvalidArgument: An argument is wrong; see parse().
        """
        unlisted: tuple[str, ...] = ()
        if self.takes_session:
            if context.pinned_session is not None:
                unlisted = ("session_id",)
                arguments = {**arguments, "session_id": context.pinned_session}
            elif not arguments.get("session_id"):
                raise missing_session("session_id")
        return self.parse(arguments, unlisted=unlisted)


def grantees_of(principal: Principal, groups: Sequence[str]) -> list[Grantee]:
    """Return the grantees whose shares a caller has: itself and its groups."""
    issuer = principal.issuer
    kind = GranteeKind.GROUP
    return [
        Grantee.principal(principal),
        *(Grantee(kind=kind, issuer=issuer, name=group) for group in groups),
    ]


def missing_session(argument: str) -> SessionNotFound:
    """Return the error of a call that names no session."""
    return SessionNotFound(
        f"{argument} is missing: call session_create and pass the session_id it returns."
    )


def parse_time(text: str | None, argument: str) -> float | None:
    """Return a time in ISO 8601 as seconds since 1970. Without a time zone it is in UTC.

    Raises:
        InvalidArgument: The text is not a time; the error names `argument`.
    """
    seconds = seconds_of(text)
    if seconds is None and text is not None:
        raise InvalidArgument(
            f"{argument}: should be a time in ISO 8601, such as 2026-07-28T12:00:00Z."
        )
    return seconds


def describe_creation(policy: Policy, services: Iterable[str]) -> str:
    """Return the description of the tool for a policy and the names of the services."""
    times, longest = policy.timeouts, policy.longest
    idle = "paused" if policy.on_idle == "pause" else "closed"
    lifetime = f"; any at an age of {format_duration(times.lifetime)}" if times.lifetime else ""
    bounds = [
        f"{key}_seconds {format_duration(getattr(longest, key))}"
        for key in ("idle", "paused", "lifetime")
        if getattr(longest, key)
    ]
    most = f" Longest times: {', '.join(bounds)}." if bounds else ""
    return (
        "Create a session and get its session_id, which the other tools take. It keeps its live connections between calls. "
        f"Services: {', '.join(services) or 'none'}. Unused, it is {idle}: {_after(times.idle)}. The next call resumes a "
        f"paused one. One without a name is closed when unused: {_after(times.paused)}; one with a name: "
        f"{_after(policy.paused_named)}{lifetime}.{most} The session_id stays valid when your connection or the server "
        "restarts."
    )


def _after(seconds: float) -> str:
    return f"after {format_duration(seconds)}" if seconds else "never"
