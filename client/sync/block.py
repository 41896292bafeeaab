"""The blocks in which a session is the current one, for programs that block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .. import automatic, block
from .session import Session

if TYPE_CHECKING:
    from .client import Client


class SessionBlock:
    """`with` it: it opens a session, or attaches to one, and makes it the current one of this thread in the block.

    The end of the block, by an error too, closes a session that the block made, and the children it forked; a session that
    it attached to is left.
    """

    def __init__(self, client: Client, inner: block.SessionBlock) -> None:
        self._client = client
        self._inner = inner
        self._outer: Any = ()

    def __enter__(self) -> Session:
        try:
            session = Session(self._client, self._client.run(self._inner.__aenter__))
        except BaseException:
            # Interrupted after the session was entered in the loop's thread and before this thread knew.
            self._client.run(block.abandoned, self._inner)
            raise
        self._outer = self._client.current.enter(self._client.key, session)
        return session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.current.leave(self._outer)
        self._client.run(self._inner.__aexit__, None, None, None)


class AutoSession:
    """The session that calls outside of every block share, from auto_session() until end() or the end of its block."""

    def __init__(self, client: Client, inner: automatic.AutoSession) -> None:
        self._client = client
        self._inner = inner

    def session(self) -> Session:
        """Return the session, making it when there is none."""
        return Session(self._client, self._client.run(self._inner.session))

    def end(self, *, close: bool = True) -> None:
        """Go back to calls that need a block; `close` closes the session when it was made here. May be called twice."""
        self._client.run(self._inner.end, close=close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()


__all__ = ["AutoSession", "SessionBlock"]
