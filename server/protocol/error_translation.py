"""Errors of sessions, of the store and of our own code, as the JSON-RPC errors that clients get."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ...sessions.errors import NodeUnavailable, OwnedByAnotherNode, SessionError, StoreUnavailable
from ...tools.upstream.errors import UpstreamRefused
from ..sdk.access import RequestContext
from .results import store_down

logger = logging.getLogger("statehold.server")


@contextmanager
def translate_errors(*, but: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Raise errors of sessions as JSON-RPC errors, for requests whose results have no `isError`; not those of `but`.

    Raises:
        OwnedByAnotherNode, NodeUnavailable: as the block did: another node may serve the request.
        MCPError: the block raised SessionError, UpstreamRefused or StoreUnavailable.
    """
    try:
        yield
    except but:
        raise
    except (OwnedByAnotherNode, NodeUnavailable):
        raise
    except UpstreamRefused as error:
        raise MCPError(code=error.rpc_code, message=error.message, data=error.data) from None
    except SessionError as error:
        raise as_mcp_error(error) from None
    except StoreUnavailable as error:
        logger.error("%s", error)
        raise as_mcp_error(store_down()) from None


def as_mcp_error(error: SessionError) -> MCPError:
    """Return the JSON-RPC error for an error of a session."""
    return MCPError(
        code=types.INVALID_PARAMS,
        message=f"{error.code}: {error.message} {error.recovery}",
        data=error.details(),
    )


async def hide_internal_error(call_next: CallNext, ctx: RequestContext) -> HandlerResult:
    """Answer a request. The text of an internal error is logged, not sent; the SDK would send it to a legacy client."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError, OwnedByAnotherNode, NodeUnavailable):
        raise
    except Exception:
        logger.exception("%.100s failed", ctx.method)
        raise MCPError(code=types.INTERNAL_ERROR, message="Internal error") from None
