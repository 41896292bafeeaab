"""Calls of our own tools from the command line: in the process that holds the session; if there is none, in this one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Self

from ...access.audit.recorder import Audit
from ...server.config.model import Config, ServiceConfig
from ...server.operate.handler import OperatorHandler
from ...server.operate.requests import OperatorRequest, ProcessUnavailable, ask
from ...server.sockets.request import Refused
from ...sessions.audit.log import AuditLog
from ...sessions.clock import SystemClock
from ...sessions.core import Core
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.node import NODES, Node
from ...sessions.records import LOCAL, NodeRecord, SessionRecord
from ...sessions.registry import Registry
from ...sessions.store.sql import SQLStore
from ...tools.processes.ledger import Ledger
from ...tools.processes.workdir import FOLDERS, safe_name
from ..errors import CommandError


class ToolCaller:
    """Calls tools for one command, and lives as long as the command.

    If a tool has to act on a session that no process holds, it opens a registry in this process, which from then on is a
    node of the data folder.
    """

    def __init__(self, config: Config, store: SQLStore) -> None:
        self.config = config
        self.store = store
        self._stack = AsyncExitStack()
        self._node: Node | None = None
        self._registry: Registry | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        # An error of the command is not passed on: the task group of the registry would wrap it.
        await self._stack.aclose()

    async def call(
        self,
        record: SessionRecord,
        tool: str,
        *,
        services: Mapping[str, ServiceConfig] | None = None,
        **arguments: Any,
    ) -> JSON:
        """Call a tool on a session and return the content of its result.

        `services`: the services that the tool needs if it runs in this process.

        Raises:
            CommandError: the tool refused, or a process that does not answer holds the session.
        """
        content, record = await self.ask_holder(record, tool, **arguments)
        if content is not None:
            return content
        return await self.call_here(record, tool, services=services, **arguments)

    async def ask_holder(
        self, record: SessionRecord, tool: str, **arguments: Any
    ) -> tuple[JSON | None, SessionRecord]:
        """Call a tool in the process that holds the session.

        Returns the content of the result, None when no process holds the session, and the newest record of the session.

        Raises:
            CommandError: the tool refused, or the process that holds the session does not answer.
        """
        if record.node is None:
            return None, record
        content = await self.ask(record, record.node, tool, **arguments)
        return content, record if content is not None else await self.recover(record)

    async def ask(
        self, record: SessionRecord, node: str, tool: str, **arguments: Any
    ) -> JSON | None:
        """Call a tool in another process. Returns None when that process does not answer.

        Raises:
            CommandError: the tool refused.
        """
        try:
            return await ask(self.config.data / NODES, node, _request(record, tool, arguments))
        except ProcessUnavailable:
            return None
        except Refused as error:
            raise CommandError.of(record, error.code, error.message, error.recovery) from None

    async def ask_any(
        self, record: SessionRecord, tool: str, *, unless: Collection[str], **arguments: Any
    ) -> JSON | None:
        """Call a tool in one of the running processes on a session that none holds; the newest process first.

        Returns None when no other process runs, or each refuses with a code of `unless`.

        Raises:
            CommandError: a process refuses with another code.
        """
        for node in reversed(await self.store.nodes()):
            if self._node is not None and node.id == self._node.id:
                continue
            try:
                content = await self.ask(record, node.id, tool, **arguments)
            except CommandError as error:
                if error.code not in unless:
                    raise
                continue
            if content is not None:
                return content
        return None

    async def call_here(
        self,
        record: SessionRecord,
        tool: str,
        *,
        services: Mapping[str, ServiceConfig] | None = None,
        **arguments: Any,
    ) -> JSON:
        """Call a tool in this process, on a session that no process holds.

        Raises:
            CommandError: the tool refused.
        """
        registry = await self.open_registry(
            services or {}, has_local_callers=record.owner == LOCAL.key
        )
        handler = OperatorHandler(registry, self.store, audit=await self._audit())
        try:
            return await handler(_request(record, tool, arguments))
        except SessionError as error:
            raise CommandError.of_session(record, error) from None

    async def open_registry(
        self, services: Mapping[str, ServiceConfig], *, has_local_callers: bool = True
    ) -> Registry:
        """Open the registry of this command with some services. A later call returns the same registry.

        `has_local_callers`: the sessions are of the user of this machine, so browsers may reach private addresses.
        """
        if self._registry is None:
            node = await self.join()
            service_objects: dict[str, Any] = {}
            if services:
                from ...server.gateway.services import service_of

                ledger = Ledger(self.config.data, node=node.id)
                self._stack.push_async_callback(ledger.aclose)
                await ledger.sweep()
                for name, settings in services.items():
                    service_objects[name] = service_of(
                        name, settings, self.config, ledger, has_local_callers=has_local_callers
                    )
            for service in service_objects.values():
                if isinstance(service, AbstractAsyncContextManager):
                    await self._stack.enter_async_context(service)  # pyright: ignore[reportUnknownArgumentType]
            core = Core.create(self.store, node, service_objects, policy=self.config.policy())
            registry = Registry(core)
            registry.on_purged.append(self.delete_files)
            self._registry = await self._stack.enter_async_context(registry)
        return self._registry

    async def _audit(self) -> Audit:
        if self.config.audit == "off":
            return Audit()
        node, required = await self.join(), self.config.audit == "required"
        return Audit(AuditLog(self.store, node.id, is_required=required))

    async def join(self) -> Node:
        """Join the data folder as a node until the end of the command. A later call returns the same node."""
        if self._node is None:
            membership = Node(
                self.store,
                self.config.data,
                address=f"command line, pid {os.getpid()}",
                clock=SystemClock().now,
            )
            self._node = await self._stack.enter_async_context(membership)
        return self._node

    async def recover(self, record: SessionRecord) -> SessionRecord:
        """Take a session off a node that does not answer, if the node is proved dead, and return its new record.

        Raises:
            CommandError: the node lives.
        """
        await (await self.join()).recover()
        current = await self.store.get(record.id)
        if current is None:
            raise CommandError.session_unknown(record.id, self.config.data)
        if current.node is not None:
            advice = "which does not answer; end that process, then try again"
            raise await self.busy(current, advice)
        return current

    async def busy(self, record: SessionRecord, advice: str) -> CommandError:
        """Return the error for a session that another process holds."""
        node = next((node for node in await self.store.nodes() if node.id == record.node), None)
        message = f"{record.id} is open in {_address(node)}, {advice}"
        return CommandError("session_busy", message)

    def delete_files(self, session_id: str) -> None:
        """Remove the files of a session that was deleted from the store."""
        for folder in FOLDERS:
            shutil.rmtree(self.config.data / folder / safe_name(session_id), ignore_errors=True)


def lazy_services(config: Config) -> dict[str, ServiceConfig]:
    """Return the services, none of which is started when a session is created."""
    services = config.enabled_services().items()
    return {name: service.model_copy(update={"connect": "lazy"}) for name, service in services}


def _request(record: SessionRecord, tool: str, arguments: Mapping[str, Any]) -> OperatorRequest:
    all_arguments = {"session_id": record.id, **arguments}
    return OperatorRequest(tool=tool, arguments=all_arguments, owner=record.owner)


def _address(node: NodeRecord | None) -> str:
    if node is None:
        return "another process"
    return node.address or f"pid {node.pid}"
