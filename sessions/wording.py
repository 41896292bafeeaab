"""Words of messages: the next step after an error in the terms of its reader, and names that are near an unknown one.

The recovery of an error names our tools, as a model calls them. A command, the Python client and the console put their own
terms in their place. Imports little: `statehold call` has no time for it.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SHELL = 0
PYTHON = 1
CONSOLE = 2
"""The readers of a recovery beside a model."""

_VERBS = ("run", "call", "use")
_TERMS = {
    "session_create": ("statehold call NAME TOOL", "client.create()", "session_create of an agent"),
    "session_list": ("statehold sessions list", "client.list_sessions()", "the overview"),
    "session_info": ("statehold sessions show {session}", "session.info()", "the session's page"),
    "session_resume": ("statehold sessions resume {session}", "session.resume()", "Resume"),
    "session_pause": ("statehold sessions pause {session}", "session.pause()", "Pause"),
    "session_close": ("statehold sessions close {session}", "session.close()", "Close"),
    "session_restart": (
        "statehold call {session} session_restart",
        "session.restart()",
        "Restart services",
    ),
    "session_bind": (
        "statehold call {session} session_bind service={service}",
        'session.bind("{service}")',
        "session_bind of an agent",
    ),
    "session_history": ("statehold sessions history {session}", "session.history()", "Timeline"),
    "call_result": ("statehold tasks wait ID", "call_result", "call_result of an agent"),
    "session_unshare": ("statehold sessions unshare {session}", "session_unshare", "Share"),
    "state_get": ("statehold sessions state {session}", "session.state.get()", "State"),
    "state_update": ("statehold sessions state {session}", "session.state.update()", "State"),
    "browser_navigate": (
        "statehold call {session} browser_navigate url=URL",
        'session.call("browser_navigate", url=...)',
        "the address field of the page",
    ),
}
"""Each tool in the terms of each reader: a command, a method, or a part of the console."""
_TOOL = re.compile(
    rf"(?P<verb>\b[Cc]all )?\b(?P<tool>{'|'.join(_TERMS)})\b"
    r"(?: with this session_id)?(?: and (?:service=(?P<service>[\w-]+)|the name of the service))?(?P<force> with force)?"
)
SIMILARITY = 0.6
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""The reasons of OpenSSL for the answer of a server that speaks no TLS."""
MAX_CHARACTERS = 200
"""Characters of a name that is compared with others, and the names that it is compared with at most are MAX_COMPARED."""
MAX_COMPARED = 5000


def next_step(
    recovery: str, reader: int, session: str | None = None, *, retry_after: object = None
) -> str:
    """Return the recovery of an error in the terms of a reader.

    `session` is the name or the id that the reader uses, and `retry_after` the seconds after which trying again makes sense.
    """
    if isinstance(retry_after, int | float):
        recovery = recovery.replace("retry_after_seconds", f"{retry_after:.0f} seconds")

    def replace(match: re.Match[str]) -> str:
        term = _TERMS[match["tool"]][reader]
        service = match["service"] or ("SERVICE" if reader == SHELL else "NAME")
        name = session or "SESSION"
        if reader == SHELL:
            name = _quoted(name)
        term = term.replace("{session}", name).replace("{service}", service)
        if match["force"]:
            term = {SHELL: f"{term} --force", PYTHON: term.replace("()", "(force=True)")}.get(
                reader, f"{term} with force"
            )
        term = term if reader == CONSOLE else f"`{term}`"
        if not match["verb"]:
            return term
        verb = _VERBS[reader]
        return f"{verb.capitalize() if match['verb'][0] == 'C' else verb} {term}"

    return _TOOL.sub(replace, recovery)


def did_you_mean(name: str, names: Iterable[str], *, count: int = 1) -> str:
    """Return a question with the names that are nearest to an unknown one, after a blank; empty if none is near."""
    near = near_names(name, names, count=count)
    return (
        f" Did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}?"
        if near
        else ""
    )


def near_names(
    name: str, names: Iterable[str], *, count: int = 1, similarity: float = SIMILARITY
) -> list[str]:
    """Return the names that are most similar to an unknown one, whatever their case, the nearest first."""
    if len(name) > MAX_CHARACTERS:
        return []
    import difflib
    from itertools import islice

    known = {
        each.lower(): each for each in islice(names, MAX_COMPARED) if len(each) <= MAX_CHARACTERS
    }
    return [
        known[each] for each in difflib.get_close_matches(name.lower(), known, count, similarity)
    ]


def connection_failure(error: BaseException) -> str:
    """Return why no connection came about, with the remedy where only one is possible; empty for other reasons.

    The error may be of any library: the one of the system is among its causes.
    """
    seen: set[int] = set()
    causes: list[BaseException | None] = [error]
    while causes:
        cause = causes.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        if getattr(cause, "reason", None) in _NO_TLS:
            return "the server speaks no TLS, so the address begins with http:"
        if verification := getattr(cause, "verify_message", ""):
            return f"the certificate is not trusted ({verification}); SSL_CERT_FILE names that of its authority"
        if isinstance(cause, ConnectionRefusedError):
            return "Connection refused, nothing listens"
        if type(cause).__name__ == "gaierror":
            return "the name has no address"
        causes += [*getattr(cause, "exceptions", ()), cause.__context__, cause.__cause__]
    return ""


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)
