"""The table of the routes of the API. The application, its OpenAPI document and their test are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..access.config.auth import Role
from ..server.http.request import BODY_LIMIT
from ..sessions.records import ShareRights
from .logins import Rights
from .requests import (
    ApiModel,
    CloseBody,
    ExportBody,
    ExtendBody,
    ForkBody,
    FramesQuery,
    GiveBackBody,
    InputBody,
    LinkBody,
    ListQuery,
    LoginBody,
    LogoutBody,
    NoBody,
    NoQuery,
    OperatorListQuery,
    RenameBody,
    RenewBody,
    RestartBody,
    ShareBody,
    StateQuery,
    TimelineQuery,
)

PREFIX: Final = "/api/v1"
VIEW, USE = ShareRights.VIEW, ShareRights.USE
BODY_BYTES: Final = 1 << 20
"""The largest body of a request that carries no files."""

Audience = Literal["anyone", "guest", "member", "machine"]
"""The users that a route is for: anyone, those with a login, those whose login is no link, the user of the machine."""

Answer = Literal["json", "file", "events", "frames"]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A route. `name` is that of its handler; `rights` and `role` are those that its user needs.

    It answers for sessions of its user alone, unless `shared` has the right of a share that allows it for those of others. A
    route for operators answers for sessions of all owners, and has no content of them.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    summary: str
    audience: Audience = "member"
    rights: Rights = "view"
    role: Role = "user"
    shared: ShareRights | None = None
    query: type[ApiModel] = NoQuery
    body: type[ApiModel] | None = None
    body_bytes: int = BODY_BYTES
    answer: Answer = "json"

    @property
    def full_path(self) -> str:
        return f"{PREFIX}{self.path}"


@dataclass(frozen=True, slots=True)
class SessionAction:
    """An action on a session, and the tool that runs it."""

    name: str
    tool: str
    summary: str
    body: type[ApiModel] = NoBody
    for_guests: bool = False
    """Whether a link with the right to control, and a share with the right to use, include it."""

    @property
    def route(self) -> ApiRoute:
        return ApiRoute(
            "POST",
            f"{SESSION}/actions/{self.name}",
            f"act_{self.name.replace('-', '_')}",
            self.summary,
            "guest" if self.for_guests else "member",
            "control",
            shared=USE if self.for_guests else None,
            body=self.body,
        )


SESSION: Final = "/sessions/{session_id}"

ACTIONS: Final = (
    SessionAction("pause", "session_pause", "Save a session and free what it takes"),
    SessionAction("resume", "session_resume", "Resume a paused session"),
    SessionAction("restart", "session_restart", "Replace its connections", RestartBody),
    SessionAction("close", "session_close", "Close a session for good", CloseBody),
    SessionAction("extend", "session_extend", "Let a session live longer", ExtendBody),
    SessionAction("rename", "session_rename", "Change its name or metadata", RenameBody),
    SessionAction("fork", "session_fork", "Make children of a session", ForkBody),
    SessionAction("export", "session_export", "Get all that is kept of it", ExportBody),
    SessionAction(
        "take", "operator_take_control", "Take control of it from its agent", for_guests=True
    ),
    SessionAction(
        "renew",
        "operator_renew_control",
        "Keep control for another minute",
        RenewBody,
        for_guests=True,
    ),
    SessionAction(
        "give-back",
        "operator_give_back",
        "Hand it back to its agent",
        GiveBackBody,
        for_guests=True,
    ),
)

ROUTES: Final = (
    ApiRoute("GET", "/login", "login_ways", "Show the ways to log in", "anyone"),
    ApiRoute(
        "POST",
        "/login",
        "login",
        "Exchange a code or a token for a cookie",
        "anyone",
        body=LoginBody,
    ),
    ApiRoute("POST", "/logout", "logout", "End this login", "guest", body=LogoutBody),
    ApiRoute("GET", "/me", "me", "Show this login, with its CSRF token", "guest"),
    ApiRoute("GET", "/openapi.json", "openapi", "This document", "guest"),
    ApiRoute("GET", "/sessions", "sessions", "List sessions", "guest", query=ListQuery),
    ApiRoute("GET", "/shared", "shared", "List the sessions that others share with you"),
    ApiRoute("GET", SESSION, "session", "Show a session", "guest", shared=VIEW),
    ApiRoute(
        "GET",
        f"{SESSION}/timeline",
        "timeline",
        "Read its journal, newest last",
        "guest",
        shared=VIEW,
        query=TimelineQuery,
    ),
    ApiRoute(
        "GET",
        f"{SESSION}/timeline/{{seq}}",
        "entry",
        "Read one entry in full",
        "guest",
        shared=VIEW,
    ),
    ApiRoute(
        "GET",
        f"{SESSION}/state",
        "state",
        "Read its state, or an earlier version",
        "guest",
        shared=VIEW,
        query=StateQuery,
    ),
    ApiRoute(
        "GET",
        f"{SESSION}/state/versions",
        "state_versions",
        "List the versions of its state that the journal leads back to",
        "guest",
        shared=VIEW,
    ),
    ApiRoute("GET", f"{SESSION}/forks", "forks", "List its parent, its siblings and its children"),
    ApiRoute(
        "GET",
        f"{SESSION}/stderr",
        "stderr",
        "Read the stderr of its programs",
        "guest",
        shared=VIEW,
    ),
    ApiRoute("GET", f"{SESSION}/files", "files", "List its files", "guest", shared=VIEW),
    ApiRoute(
        "GET",
        f"{SESSION}/files/{{name}}",
        "file",
        "Read one of its files",
        "guest",
        shared=VIEW,
        answer="file",
    ),
    ApiRoute(
        "GET",
        f"{SESSION}/frames",
        "frames",
        "Watch the page of its browser",
        "guest",
        "embed",
        shared=VIEW,
        query=FramesQuery,
        answer="frames",
    ),
    ApiRoute(
        "POST",
        f"{SESSION}/input",
        "input",
        "Use its browser while you have control",
        "guest",
        rights="control",
        shared=USE,
        body=InputBody,
        body_bytes=BODY_LIMIT,
    ),
    ApiRoute("GET", f"{SESSION}/shares", "shares", "List its shares with people and groups"),
    ApiRoute(
        "POST",
        f"{SESSION}/shares",
        "create_share",
        "Share it with a person or a group",
        rights="control",
        body=ShareBody,
    ),
    ApiRoute(
        "DELETE", f"{SESSION}/shares/{{share_id}}", "revoke_share", "End a share", rights="control"
    ),
    ApiRoute("GET", f"{SESSION}/links", "links", "List its links", rights="control"),
    ApiRoute(
        "POST",
        f"{SESSION}/links",
        "create_link",
        "Make a one-time link to it",
        rights="control",
        body=LinkBody,
    ),
    ApiRoute(
        "DELETE",
        f"{SESSION}/links/{{link_id}}",
        "revoke_link",
        "End a link and its login",
        rights="control",
    ),
    *(action.route for action in ACTIONS),
    ApiRoute(
        "GET",
        "/operator/sessions",
        "operator_sessions",
        "List the sessions of all owners",
        role="operator",
        query=OperatorListQuery,
    ),
    ApiRoute(
        "GET",
        "/operator/sessions/{session_id}",
        "operator_session",
        "Show a session of any owner without its content",
        role="operator",
    ),
    ApiRoute(
        "POST",
        "/operator/sessions/{session_id}/close",
        "operator_close",
        "Close a session of any owner",
        "member",
        "control",
        role="operator",
        body=CloseBody,
    ),
    ApiRoute("GET", "/services", "services", "List the services of this process"),
    ApiRoute("GET", "/nodes", "nodes", "List the processes of the store", "machine"),
    ApiRoute("GET", "/usage", "usage", "Show what is used, and its limits"),
    ApiRoute(
        "GET",
        "/events",
        "events",
        "Follow changes of sessions as server-sent events",
        "guest",
        answer="events",
    ),
)
