"""The bodies and the queries of the API, as models that check them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr

from ..server.operate.pictures import PictureQuery
from ..sessions.actions.sharing import LONGEST_SECONDS
from ..sessions.errors import InvalidArgument
from ..sessions.lifecycle import Status
from ..sessions.records import JournalKind


class ApiModel(BaseModel):
    """The members of a body, or of a query."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LoginBody(ApiModel):
    code: Annotated[
        str | None, Field(max_length=200, description="The code of `statehold console` or a link")
    ] = None
    token: Annotated[
        str | None,
        Field(max_length=8192, description="A token of `server.tokens` or `auth.issuers`"),
    ] = None
    look: Annotated[
        bool, Field(description="Show the login that the code would give, and do not use it")
    ] = False


class LogoutBody(ApiModel):
    everywhere: Annotated[bool, Field(description="End all logins of the same user")] = False


class KeyBody(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=128, description="`${login:NAME}`")]
    value: Annotated[SecretStr, Field(min_length=1, max_length=65_536)]


class LogInBody(ApiModel):
    service: Annotated[str, Field(max_length=128, description="A service that asks for OAuth")]


class BrowserLoginBody(ApiModel):
    login: Annotated[str, Field(max_length=128, description="A login of the kind browser")]


class NoBody(ApiModel):
    """No members."""


class ShareBody(ApiModel):
    link: Annotated[
        bool, Field(description="A link that works once, for 15 minutes at most, for no person")
    ] = False
    subject: Annotated[
        str | None, Field(min_length=1, max_length=255, description="A person, or give a group")
    ] = None
    group: Annotated[str | None, Field(min_length=1, max_length=255)] = None
    issuer: Annotated[
        str | None, Field(max_length=2048, description="Of the person. Default: of the owner")
    ] = None
    rights: Annotated[
        Literal["embed", "view", "use"], Field(description="embed: of a link, in a frame")
    ] = "view"
    expires_in_seconds: Annotated[float, Field(ge=1, le=LONGEST_SECONDS)] = 28_800.0


class RestartBody(ApiModel):
    services: Annotated[list[str] | None, Field(description="None: all that are open")] = None


class CloseBody(ApiModel):
    force: Annotated[bool, Field(description="Cancel running calls at once")] = False


class ExtendBody(ApiModel):
    seconds: Annotated[float, Field(ge=-3.2e9, le=3.2e9)] = 3600.0


class RenameBody(ApiModel):
    name: Annotated[str | None, Field(max_length=128)] = None
    metadata: Annotated[
        dict[str, JsonValue] | None, Field(description="Merged into its metadata; null deletes")
    ] = None


class ForkBody(ApiModel):
    count: Annotated[int, Field(ge=1, le=100)] = 1
    names: list[str] | None = None


class ExportBody(ApiModel):
    secrets: Annotated[
        bool, Field(description="Also logins; for the user of the machine alone")
    ] = False


class RenewBody(ApiModel):
    epoch: Annotated[int, Field(description="The epoch that `take` returned")]


class GiveBackBody(RenewBody):
    end: Literal["done", "could_not"] = "done"
    reply: Annotated[str | None, Field(max_length=500, description="Words for the agent")] = None


class CancelCallBody(ApiModel):
    task_id: Annotated[str, Field(min_length=1, max_length=300, description="As `calls` has it")]


class ListQuery(ApiModel):
    query: Annotated[
        str | None, Field(min_length=1, max_length=256, description="Text in name, labels, summary")
    ] = None
    status: Annotated[
        str | None,
        Field(description="Statuses, separated by commas. Default: all but closed", max_length=100),
    ] = None
    driver: Annotated[
        Literal["human", "requested"] | None,
        Field(description="A person, or an agent that asks for one"),
    ] = None
    sort: Annotated[
        Literal["used", "created", "name", "-used", "-created", "-name"],
        Field(description="Times: the latest first. With a minus sign, the other way round"),
    ] = "used"
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str | None, Field(max_length=512)] = None


class OperatorListQuery(ApiModel):
    status: Annotated[
        str | None,
        Field(description="Statuses, separated by commas. Default: all but closed", max_length=100),
    ] = None
    sort: Annotated[
        Literal["used", "created", "-used", "-created"],
        Field(description="The latest first. With a minus sign, the other way round"),
    ] = "used"
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str | None, Field(max_length=512)] = None


class TimelineQuery(ApiModel):
    before: Annotated[int | None, Field(ge=1, description="Only entries before this `seq`")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    kind: Annotated[JournalKind | None, Field(description="Only entries of this kind")] = None
    failed: Annotated[
        bool, Field(description="Only failed calls and runs, and lost or failed connections")
    ] = False


class StateQuery(ApiModel):
    version: Annotated[
        int | None, Field(ge=0, description="An earlier version. Default: the present one")
    ] = None


class FramesQuery(ApiModel, PictureQuery):
    """The parameters of the live picture."""


class InputBody(ApiModel):
    epoch: Annotated[int, Field(description="The epoch that `take` returned")]
    tab: Annotated[int | None, Field(description="The number of the tab of the picture")] = None
    number: Annotated[
        int | None, Field(description="Rises with each batch; one that is sent again does nothing")
    ] = None
    events: Annotated[
        list[dict[str, JsonValue]], Field(max_length=200, description="What the person did")
    ]


class NoQuery(ApiModel):
    """No parameters."""


def parse_statuses(text: str | None) -> set[Status]:
    """Return the statuses of a query.

    Raises:
        InvalidArgument: there is no such status.
    """
    if not text:
        return set(Status) - {Status.CLOSED}
    try:
        return {Status(word.strip()) for word in text.split(",")}
    except ValueError:
        words = ", ".join(Status)
        raise InvalidArgument(f"status: should be some of {words}.") from None


def tool_arguments(body: ApiModel) -> dict[str, Any]:
    """Return the members that a request gave, as the arguments of a tool."""
    return body.model_dump(exclude_unset=True)
