"""Opens the transports of one upstream: its command, or its address over Streamable HTTP or HTTP+SSE.

Functions import the clients of HTTP: a list of the tools does not need them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....sessions.errors import ConnectionLost, ServiceUnavailable, StoreUnavailable
from ....sessions.one_line import escape_controls
from ....sessions.records import LOCAL
from ...logins.config import names_in
from ...logins.keys import Keys
from ...logins.masks import Masks
from ...processes.child_process import KeeperHandle, ProcessLimits
from ...processes.ledger import Ledger
from ...processes.workdir import Placeholders
from ..config import Transport, UpstreamConfig, is_header_value
from ..known_secrets import Secrets
from ..oauth.logins import ServiceLogins
from ..sandbox import ServiceSandboxes
from .base import OpenTransport, UpstreamTransport
from .stdio import open_stdio, resume_stdio

if TYPE_CHECKING:
    from ..oauth.bearer_auth import BearerAuth
    from .key_auth import KeyAuth, ServiceKeys

logger = logging.getLogger("statehold.upstream")


class TransportOpener:
    """Opens any number of transports from the configuration of one upstream. It holds nothing that must be closed."""

    def __init__(
        self,
        name: str,
        config: UpstreamConfig,
        *,
        secrets: Secrets,
        inherited_env: Mapping[str, str],
        base: Path | None,
        limits: ProcessLimits | None,
        ledger: Ledger | None,
        logins: ServiceLogins | None,
        keys: Keys | None,
        sandboxes: ServiceSandboxes,
    ) -> None:
        self._name = name
        self._config = config
        self._secrets = secrets
        self._inherited_env = inherited_env
        self._base = base
        self._limits = limits
        self._ledger = ledger
        self._logins = logins
        self._keys = keys
        self._sandboxes = sandboxes

    def open(
        self, transport: Transport, placeholders: Placeholders, kept: KeeperHandle | None
    ) -> OpenTransport:
        if self._config.command is None:
            from .http import open_http
            from .key_auth import KeyAuth
            from .sse import open_sse

            connect = open_http if transport == "http" else open_sse
            auth = self._auth(placeholders)
            opening = connect(*self._address(placeholders), auth)
            return _after_check(auth, opening) if isinstance(auth, KeyAuth) else opening
        return self._open_process(placeholders, kept)

    @asynccontextmanager
    async def _open_process(
        self, placeholders: Placeholders, kept: KeeperHandle | None
    ) -> AsyncGenerator[UpstreamTransport]:
        config = self._config
        assert config.command is not None
        env = {name: placeholders.fill(value) for name, value in config.env.items()}
        env, keys = await self._service_keys(placeholders).fill(env, anew=True)
        command, cwd = placeholders.fill(config.command), self._cwd(placeholders)
        sandbox, variables = self._sandboxes.make(command, placeholders.folder)
        if sandbox is not None and cwd is None:
            # It may not even list the folder of Statehold.
            cwd = str(placeholders.folder)
        async with open_stdio(
            command,
            [placeholders.fill(argument) for argument in config.args],
            service=self._name,
            env={**self._inherited_env, **variables, **env},
            cwd=cwd,
            limits=self._limits,
            ledger=self._ledger,
            kept=kept,
            on_stderr=self._on_stderr,
            hide=Masks(keys).hide if keys else bytes,
            sandbox=sandbox,
        ) as transport:
            yield self._note_sandbox(transport)

    def _note_sandbox(self, transport: UpstreamTransport) -> UpstreamTransport:
        if transport.resumption is not None:
            transport.resumption.sandbox = self._sandboxes.digest
        return transport

    def resume_process(
        self, placeholders: Placeholders, kept: KeeperHandle | None
    ) -> Callable[[], OpenTransport]:
        """Return the opening of a process that the keeper holds.

        Raises:
            ConnectionLost: The keeper holds none of this upstream.
        """
        if self._ledger is None or kept is None:
            raise ConnectionLost(f"{self._name} does not outlive its server.")
        return partial(self._resume_process, placeholders, kept, self._ledger)

    @asynccontextmanager
    async def _resume_process(
        self, placeholders: Placeholders, kept: KeeperHandle, ledger: Ledger
    ) -> AsyncGenerator[UpstreamTransport]:
        # It was started with the keys of that time: only those that are the same now can be hidden.
        _, keys = await self._service_keys(placeholders).fill(self._config.env, anew=True)
        async with resume_stdio(
            kept,
            service=self._name,
            limits=self._limits,
            ledger=ledger,
            on_stderr=self._on_stderr,
            hide=Masks(keys).hide if keys else bytes,
        ) as transport:
            yield self._note_sandbox(transport)

    def resume_session(
        self, placeholders: Placeholders, session_id: str, version: str
    ) -> Callable[[], OpenTransport]:
        """Return the opening of a connection under an MCP session of an earlier process, over Streamable HTTP."""
        from .http import resume_http

        url, headers = self._address(placeholders)
        auth = self._auth(placeholders)
        return partial(resume_http, url, headers, auth, session_id=session_id, version=version)

    def _address(self, placeholders: Placeholders) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a remote upstream. Raises ServiceUnavailable if HTTP cannot carry a header."""
        assert self._config.url is not None
        headers = {
            name: placeholders.fill(value)
            for name, value in self._config.headers.items()
            if not names_in([value])
        }
        for name, value in headers.items():
            if not is_header_value(value):
                # That of a placeholder: the configuration was checked before it was filled in.
                raise ServiceUnavailable(
                    f"{self._name} could not be opened: the name of this session, in the header {name}, holds a character "
                    "that no header can."
                )
        return placeholders.fill(self._config.url), headers

    def _owner(self, placeholders: Placeholders) -> str:
        """Return the principal of a connection: the operator for one of all sessions, and for those of no session."""
        return (self._config.scope == "session" and placeholders.owner) or LOCAL.key

    async def separates(self, owner: str) -> bool:
        """Return whether the service answers a principal by a login or a key, theirs or the operator's.

        True if the store does not answer.
        """
        config, names = self._config, self._config.key_names
        takes_login = config.command is None and not config.has_credentials
        try:
            if self._keys is not None and names:
                return await self._keys.separates(names, owner)
            if self._logins is not None and takes_login:
                return await self._logins.separates(self._name, owner)
        except StoreUnavailable:
            return True
        return False

    async def has_own_login(self, placeholders: Placeholders) -> bool:
        """Return whether a connection has a login of its principal, who is not the operator."""
        owner = self._owner(placeholders)
        return owner != LOCAL.key and await self.separates(owner)

    def _service_keys(self, placeholders: Placeholders) -> ServiceKeys:
        from .key_auth import ServiceKeys

        return ServiceKeys(self._keys, self._owner(placeholders), self._name)

    def _auth(self, placeholders: Placeholders) -> KeyAuth | BearerAuth | None:
        """Return what sends the keys or the token of a principal; credentials of the configuration go before the token."""
        from ..oauth.bearer_auth import BearerAuth
        from .key_auth import KeyAuth

        headers = {
            name: placeholders.fill(value)
            for name, value in self._config.headers.items()
            if names_in([value])
        }
        if headers:
            return KeyAuth(self._service_keys(placeholders), headers)
        if self._logins is None or self._config.has_credentials:
            return None
        # The login of a client is the operator's.
        is_of_person = self._config.login.grant == "authorization_code"
        owner = self._owner(placeholders) if is_of_person else LOCAL.key
        return BearerAuth(self._logins, owner, self._name, self._config)

    @property
    def _on_stderr(self) -> Callable[[str], None] | None:
        return self._log_stderr if logger.isEnabledFor(logging.DEBUG) else None

    def _log_stderr(self, line: str) -> None:
        # Redact before escaping; an escaped secret would not be recognised.
        logger.debug("%s stderr: %s", self._name, escape_controls(self._secrets.redact(line)))

    def _cwd(self, placeholders: Placeholders) -> str | None:
        if self._config.cwd is None:
            return None
        folder = Path(placeholders.fill(self._config.cwd))
        return str(folder if self._base is None else self._base / folder)


@asynccontextmanager
async def _after_check(auth: KeyAuth, opening: OpenTransport) -> AsyncGenerator[UpstreamTransport]:
    await auth.check()
    async with opening as transport:
        yield transport
