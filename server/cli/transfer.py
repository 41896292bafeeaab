"""`statehold sessions rename|fork|merge|export|import|delete`, whether a process holds the session or not."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from ...sessions.actions.document import read, written
from ...sessions.actions.export import exported
from ...sessions.actions.import_ import ImportTarget, imported
from ...sessions.clock import SystemClock
from ...sessions.core import Core
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.records import SessionRecord, new_id
from ...sessions.registry import Registry
from ...tools.processes.ledger import Ledger
from ..config.model import Config
from ..config.secrets import redactor_of
from ..control.handler import ControlHandler
from ..gateway.services import services_of
from .changes import Refused, SessionChanger
from .filters import object_of
from .output import plain, plural, say, say_json
from .parser import OK, USAGE
from .screenshot import refuse_closed, refused


async def whole(changer: SessionChanger, record: SessionRecord, action: str, **wish: Any) -> JSON:
    """Ask the process that holds a session to act on it; without one, act here.

    Raises:
        Refused: nothing was changed.
    """
    if record.node is not None:
        answer = await changer.ask(record, record.node, action, **wish)
        if answer is not None:
            return answer
        record = await changer.take_off(record)
    request = {"op": action, "session": record.id, "owner": record.owner, **wish}
    # Out of the block first: its task group would wrap an error.
    failure: SessionError | None = None
    done: JSON = {}
    async with _registry(changer, record, action) as registry:
        try:
            done = await ControlHandler(registry)(request)
        except SessionError as error:
            failure = error
    if failure is not None:
        raise refused(record, failure)
    return done


@asynccontextmanager
async def _registry(
    changer: SessionChanger, record: SessionRecord, action: str
) -> AsyncGenerator[Registry]:
    """Yield a registry for the block, which owns sessions like that of a server, and opens no connections."""
    node = await changer.joined()
    config = _lazy(changer.config)
    ledger = Ledger(config.data, node=node.id, watchdog=False)
    try:
        services: dict[str, Any] = {}
        if action == "fork":
            # A child uses the services of its parent, so they have to be configured here.
            _refuse_unknown(config, record)
            services = dict(services_of(config, ledger, alone=True))
        async with Registry(
            Core.create(changer.store, node, services, policy=config.policy())
        ) as registry:
            registry.on_purged.append(changer.forget)
            yield registry
    finally:
        await ledger.aclose()


def _lazy(config: Config) -> Config:
    lazy = {
        name: settings.model_copy(update={"connect": "lazy"})
        for name, settings in config.services.items()
    }
    return config.model_copy(update={"services": lazy})


def _refuse_unknown(config: Config, record: SessionRecord) -> None:
    unknown = [name for name in record.services if name not in config.enabled()]
    if unknown:
        raise Refused(
            "service_not_bound",
            f"{record.id} uses {', '.join(unknown)}, which is not configured here; give the --config of its server",
        )


async def rename(changer: SessionChanger, record: SessionRecord, arguments: Namespace) -> int:
    """Change the name of a session, or its metadata."""
    refuse_closed(record)
    wish: JSON = {}
    if arguments.name is not None or arguments.unname:
        wish["name"] = arguments.name
    if arguments.metadata is not None:
        wish["metadata"] = object_of(arguments.metadata)
    if not wish or (arguments.name is not None and arguments.unname):
        raise Refused("usage", "rename needs a NAME, or --unname, or --metadata; give one", USAGE)
    session: JSON = (await whole(changer, record, "rename", **wish))["session"]
    if arguments.json:
        say_json({key: session[key] for key in ("session_id", "name", "metadata")})
    else:
        name = session["name"]
        say(f"{record.id} is called {plain(name)}" if name else f"{record.id} has no name")
    return OK


async def fork(changer: SessionChanger, record: SessionRecord, arguments: Namespace) -> int:
    """Create children of a session."""
    refuse_closed(record)
    names: list[str] | None = arguments.name
    count: int = arguments.count or len(names or [1])
    found = await whole(changer, record, "fork", count=count, names=names)
    children = [{key: child[key] for key in ("session_id", "name")} for child in found["children"]]
    if arguments.json:
        say_json({"session_id": record.id, "children": children, "services": found["services"]})
        return OK
    for child in children:
        name = f" ({plain(child['name'])})" if child["name"] else ""
        say(f"{child['session_id']}{name} was forked from {record.id}")
    for service in found["services"]:
        if not service["copied"]:
            say(f"  {plain(service['service'])}: {service['note']}")
    return OK


async def merge(
    changer: SessionChanger,
    record: SessionRecord,
    sources: list[SessionRecord],
    arguments: Namespace,
) -> int:
    """Merge the states of children into that of a session."""
    refuse_closed(record)
    ids = [source.id for source in sources]
    found = await whole(changer, record, "merge", sources=ids, policy=arguments.policy)
    if arguments.json:
        say_json({"session_id": record.id, **found})
        return OK
    count: int = found["conflict_count"]
    say(
        f"the state of {record.id} is at version {found['version']}, with {plural(count, 'conflict')}"
    )
    for conflict in found["conflicts"]:
        outcome = "taken" if conflict["taken"] else "left out"
        say(f"  {plain(conflict['path']) or '/'}: that of {conflict['source']} was {outcome}")
    return OK


async def delete(changer: SessionChanger, record: SessionRecord, *, force: bool) -> JSON:
    """Close a session where it is open, and delete it."""
    await whole(changer, record, "delete", force=force)
    changer.forget(record.id)
    return {"session_id": record.id, "name": record.name, "status": "deleted", "changed": True}


async def export(changer: SessionChanger, record: SessionRecord, arguments: Namespace) -> int:
    """Write a session into a file."""
    config = changer.config
    if arguments.secrets and record.node is not None:
        # A snapshot taken now is newer than the stored one.
        await changer.ask(record, record.node, "save")
    document = await exported(
        changer.store,
        await changer.store.get(record.id) or record,
        now=SystemClock().now(),
        redactor=redactor_of(config.policy()),
        secrets=bool(arguments.secrets),
    )
    text = await anyio.to_thread.run_sync(written, document)
    if arguments.file == "-":
        sys.stdout.write(text.decode() + "\n")
        return OK
    await anyio.to_thread.run_sync(_write, Path(arguments.file), text, bool(arguments.force))
    if arguments.json:
        shown = {"session_id": record.id, "name": record.name, "file": arguments.file}
        say_json({**shown, "bytes": len(text), "secrets": document.secrets})
    else:
        what = "with" if document.secrets else "without"
        say(f"{arguments.file} has {record.id}, {what} its secrets ({len(text)} bytes)")
    return OK


def _write(file: Path, text: bytes, force: bool) -> None:
    """Write a document into a file that only the user can read; all of it, or no file."""
    if not force and os.path.lexists(file):
        raise Refused("usage", f"{file} is there already; name another file, or add --force", USAGE)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Refused("usage", f"{file}: {error.strerror}; name another file", USAGE) from None


async def bring_in(changer: SessionChanger, owner: str, arguments: Namespace) -> int:
    """Create a session from a file."""
    config, file = changer.config, str(arguments.file)
    text = await anyio.to_thread.run_sync(_read, file)
    node = await changer.joined()
    ledger = Ledger(config.data, node=node.id, watchdog=False)
    place = ImportTarget(
        store=changer.store,
        node=node.id,
        clock=SystemClock(),
        policy=config.policy(),
        services=services_of(config, ledger, alone=True),
        redactor=redactor_of(config.policy()),
        mint=new_id,
    )
    try:
        document = await anyio.to_thread.run_sync(partial(read, text))
        found = await imported(
            place, document, owner, name=arguments.name, strict=not arguments.lenient
        )
    except SessionError as error:
        advice = error.recovery.replace("strict=false", "--lenient")
        raise Refused(error.code, f"{file}: {error.message} {advice}".strip()) from None
    finally:
        await ledger.aclose()
    record, origin = found.record, document.session.id
    if arguments.json:
        shown: JSON = {"session_id": record.id, "name": record.name, "status": record.status.value}
        say_json({**shown, "imported_from": origin, "left_out": found.left_out})
        return OK
    name = f" ({plain(record.name)})" if record.name else ""
    say(f"{record.id}{name} is {record.status.value}, imported from {plain(origin)}")
    for what in found.left_out:
        say(f"  left out: {plain(what)}")
    return OK


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Refused("usage", f"{file}: {error.strerror}; name another file", USAGE) from None


__all__ = ["bring_in", "delete", "export", "fork", "merge", "rename", "whole"]
