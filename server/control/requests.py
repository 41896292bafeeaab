"""Checks of the control requests that one process of a user sends to another; socket.py describes their form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from ...sessions.actions.branches import MOST
from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON

PICTURES: Final = ("png", "jpeg", "webp")
POLICIES: Final = ("last_wins", "first_wins", "fail")


def checked(request: JSON) -> JSON | SessionError:
    """Return a request with exactly the members that its op needs, or the error of a malformed one."""
    op, session, force = request.get("op"), request.get("session"), request.get("force", False)
    owner = request.get("owner")
    if op not in OPS:
        return InvalidArgument(f"op should be one of {', '.join(OPS)}.")
    if not isinstance(force, bool):
        return InvalidArgument("force should be true or false.")
    if op != "list" and not isinstance(session, str):
        return InvalidArgument("session should be the id of a session.")
    if not isinstance(owner, str | None):
        return InvalidArgument("owner should be the key of a principal.")
    common: JSON = {"op": op, "session": session, "owner": owner, "force": force}
    details = _DETAILS.get(cast("str", op))
    if details is None:
        return common
    found = details(request)
    return found if isinstance(found, SessionError) else {**common, **found}


def _picture(request: JSON) -> JSON | SessionError:
    kind, full_page = request.get("kind", "png"), request.get("full_page", False)
    if kind not in PICTURES:
        return InvalidArgument(f"kind should be one of {', '.join(PICTURES)}.")
    if not isinstance(full_page, bool):
        return InvalidArgument("full_page should be true or false.")
    return {"kind": kind, "full_page": full_page}


def _state(request: JSON) -> JSON | SessionError:
    mode, path, version = request.get("mode"), request.get("path", ""), request.get("if_version")
    if mode not in ("merge", "replace"):
        return InvalidArgument("mode should be merge or replace.")
    if not isinstance(path, str) or "values" not in request:
        return InvalidArgument("path should be a JSON pointer, and values be given.")
    if isinstance(version, bool) or not isinstance(version, int | None):
        return InvalidArgument("if_version should be a number.")
    return {"values": request["values"], "mode": mode, "path": path, "if_version": version}


def _fork(request: JSON) -> JSON | SessionError:
    count, names = request.get("count", 1), request.get("names")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        return InvalidArgument(f"count should be 1 to {MOST}.")
    if names is not None and not _are_texts(names):
        return InvalidArgument("names should be texts.")
    return {"count": count, "names": names}


def _merge(request: JSON) -> JSON | SessionError:
    sources, policy = request.get("sources"), request.get("policy", "last_wins")
    if not _are_texts(sources) or policy not in POLICIES:
        return InvalidArgument(f"sources should be ids, and policy one of {', '.join(POLICIES)}.")
    return {"sources": sources, "policy": policy}


def _rename(request: JSON) -> JSON | SessionError:
    found = {key: request[key] for key in ("name", "metadata") if key in request}
    if not isinstance(found.get("name"), str | None):
        return InvalidArgument("name should be a text.")
    if not isinstance(found.get("metadata"), dict | None):
        return InvalidArgument("metadata should be an object.")
    return found


def _are_texts(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, str) for item in cast("list[object]", value))


_DETAILS: Final[dict[str, Callable[[JSON], JSON | SessionError]]] = {
    "screenshot": _picture,
    "state": _state,
    "fork": _fork,
    "merge": _merge,
    "rename": _rename,
}
OPS: Final = (
    *("list", "show", "stderr", "pause", "resume", "close", "screenshot", "state"),
    *("save", "delete", "fork", "merge", "rename"),
)

__all__ = ["OPS", "PICTURES", "checked"]
