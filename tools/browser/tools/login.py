"""The logins that the configuration lends to sessions: listing them, having one, and giving it back. None tells a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ...definition import NoArguments
from ..call import BrowserCall
from ..tool import BrowserArguments, BrowserTool, Whole, tool

if TYPE_CHECKING:
    from ..logins.lending import SessionLogins


class UseLogin(BrowserArguments):
    login: Annotated[str, Field(description="As in login_list")]
    wait_seconds: Annotated[
        Whole, Field(ge=0, le=60, description="How long to wait while another session has it")
    ] = 10


@tool("login_list", title="List logins", cap="logins", read_only=True)
async def login_list(call: BrowserCall, arguments: NoArguments) -> None:
    """List the logins that sessions can have, with their sites and states. Their sites are out of reach without them."""
    call.answer.result("\n".join(await _logins_of(call).describe()))


@tool("login_use", title="Use a login", cap="logins", limit="wait")
async def login_use(call: BrowserCall, arguments: UseLogin) -> None:
    """Log the session in at the sites of a login. One session at a time has it, until login_release, a pause, or a while
    without calls. A login that is new has no value yet: have its person log in at its site in this session.
    """
    logins = _logins_of(call)
    await logins.lend(arguments.login, arguments.wait_seconds)
    call.answer.result(f"The session has the login {arguments.login}.")
    for line in await logins.describe():
        if line.startswith(f"- {arguments.login}:"):
            call.answer.result(line)


class ReleaseLogin(BrowserArguments):
    login: str


@tool("login_release", title="Give back a login", cap="logins")
async def login_release(call: BrowserCall, arguments: ReleaseLogin) -> None:
    """Give a login back as its sites left it, so that another session can have it."""
    await _logins_of(call).release(arguments.login)
    call.answer.result(f"The login {arguments.login} was given back.")


def _logins_of(call: BrowserCall) -> SessionLogins:
    assert call.logins is not None, "the tools are off without logins"
    return call.logins


TOOLS: list[BrowserTool] = [login_list, login_use, login_release]
