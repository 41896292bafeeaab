"""Sharing sessions with other principals and with groups, in the toolset `lifecycle`. Only where callers are told apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ...sessions.actions.sharing import LONGEST_SECONDS
from ...sessions.errors import InvalidArgument
from ...sessions.records import Grantee, GranteeKind, Principal, ShareRights
from ...sessions.registry import Registry
from ...sessions.views import describe_share
from .own_tool import Outcome, OwnTool, ToolContext
from .results import ShareInfo
from .session_arguments import SessionArguments
from .session_tools import summary

Name = Annotated[str, Field(min_length=1, max_length=255)]


class UnshareArguments(SessionArguments):
    subject: Annotated[Name | None, Field(description="A user, or give a group")] = None
    group: Name | None = None
    issuer: Annotated[
        str | None, Field(max_length=2048, description="Of the user or group. Default: yours")
    ] = None


class ShareArguments(UnshareArguments):
    rights: Annotated[ShareRights, Field(description="view: read it; use: also call its tools")] = (
        ShareRights.VIEW
    )
    expires_in_seconds: Annotated[float, Field(ge=1, le=LONGEST_SECONDS)] = 28_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSession(ShareInfo):
    """A session and its new share."""

    session_id: str


@dataclass(frozen=True, slots=True)
class UnsharedSession:
    """A session after session_unshare."""

    session_id: str
    was_shared: bool


class SharingTools:
    """The tools of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes their toolset, else none."""
        if "lifecycle" not in set(toolsets):
            return []
        return [
            OwnTool(
                "session_share",
                "Share a session",
                "Let another user or a group view or use a session by its id, until the share expires.",
                ShareArguments,
                SharedSession,
                self._share,
                toolset="lifecycle",
                idempotent=True,
            ),
            OwnTool(
                "session_unshare",
                "Stop sharing a session",
                "End a share of a session.",
                UnshareArguments,
                UnsharedSession,
                self._unshare,
                toolset="lifecycle",
                idempotent=True,
            ),
        ]

    async def _share(self, context: ToolContext, arguments: ShareArguments) -> Outcome:
        share = await self._registry.sharing.share(
            context.principal,
            arguments.session_id,
            _grantee(context.principal, arguments),
            arguments.rights,
            arguments.expires_in_seconds,
            namespace=context.namespace,
        )
        info = await self._registry.info(context.principal, share.session_id)
        content = {"session_id": share.session_id, **describe_share(share)}
        return Outcome(content, summary(info))

    async def _unshare(self, context: ToolContext, arguments: UnshareArguments) -> Outcome:
        session_id, was_shared = await self._registry.sharing.unshare(
            context.principal,
            arguments.session_id,
            _grantee(context.principal, arguments),
            namespace=context.namespace,
        )
        info = await self._registry.info(context.principal, session_id)
        return Outcome({"session_id": session_id, "was_shared": was_shared}, summary(info))


def _grantee(principal: Principal, arguments: UnshareArguments) -> Grantee:
    names = (
        (GranteeKind.PRINCIPAL, arguments.subject),
        (GranteeKind.GROUP, arguments.group),
    )
    issuer = principal.issuer if arguments.issuer is None else arguments.issuer
    found = [(kind, name) for kind, name in names if name is not None]
    if len(found) != 1:
        raise InvalidArgument("Either subject or group should be given.")
    kind, name = found[0]
    return Grantee(kind=kind, issuer=issuer, name=name)
