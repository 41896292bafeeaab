"""`statehold sessions`: runs one action on the sessions of a data folder, held by a process or not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from ...access.config.types import ConfigError
from ...server.config.model import Config
from ...server.exit_codes import FAILURE
from ...server.gateway.stores import may_exist, store_of
from ...server.operate.sessions import SessionDocuments
from ...server.printing import complain
from ...sessions.errors import InvalidArgument, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.records import SessionRecord
from ...sessions.store.sql import SQLStore
from ..output import CommandError, say_json
from ..parser import CommandLine
from . import transfer
from .browser import open_session, save_screenshot
from .changes import change_sessions
from .history import show_history, show_summary
from .listing import print_list, print_session
from .sharing import change_shares
from .state import read_state, update_state
from .tool_calls import find_session


def run(config: Config, arguments: CommandLine) -> int:
    """Run one action, and return its exit code."""
    if config.ephemeral:
        raise ConfigError("--ephemeral: nothing is kept, so there are no sessions to see; drop it")
    try:
        return anyio.run(_run, config, arguments)
    except (CommandError, StoreUnavailable) as error:
        is_command_error = isinstance(error, CommandError)
        if arguments.json:
            code = error.code if is_command_error else "store_unavailable"
            say_json({"error": {"code": code, "message": str(error)}})
        return complain(str(error), error.exit_code if is_command_error else FAILURE)


async def _run(config: Config, arguments: CommandLine) -> int:
    action = arguments.action
    async with _open_store(config, create=action == "import") as store:
        match action:
            case "list":
                document = await _list(config, store, arguments)
                return print_list(document, arguments, config.data)
            case "close" | "pause" | "resume" | "purge" | "delete":
                return await change_sessions(config, store, arguments)
            case "import":
                assert store is not None
                is_folder = await anyio.Path(str(arguments.file)).is_dir()
                # Imported here: the gateway takes longer than all other imports of a command.
                from .importers import import_foreign, import_session

                if arguments.source is not None or is_folder:
                    return await import_foreign(config, store, arguments)
                return await import_session(config, store, arguments)
            case "export" if arguments.folder is not None:
                return await transfer.export_all(config, store, arguments)
            case _:
                if arguments.ref is None:
                    raise CommandError.usage("export needs a SESSION, or --all FOLDER")
                if store is None:
                    raise CommandError.session_unknown(arguments.ref, config.data)
                record = await find_session(store, arguments.ref, config.data)
                return await _run_on(config, store, record, arguments)


async def _run_on(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Run an action on one session."""
    match arguments.action:
        case "show":
            documents = _documents(config, store)
            return print_session(await documents.show(record.id, arguments.last), arguments)
        case "history" | "summary":
            action = show_history if arguments.action == "history" else show_summary
            return await action(config, store, record, arguments)
        case "share" | "unshare":
            return await change_shares(config, store, record, arguments)
        case "state":
            if arguments.set is None and arguments.merge is None:
                return await read_state(store, record, arguments)
            return await update_state(config, record, arguments)
        case "screenshot":
            return await save_screenshot(config, record, arguments)
        case "open":
            return await open_session(config, record, arguments)
        case "test":
            # Imported here: the tools of the browser take a tenth of a second.
            from .recording.command import write_recorded_test

            return await write_recorded_test(config, store, record, arguments)
        case _:
            return await transfer.ACTIONS[arguments.action](config, store, record, arguments)


async def _list(config: Config, store: SQLStore | None, arguments: CommandLine) -> JSON:
    if store is None:
        return {"sessions": [], "more": False}
    try:
        return await _documents(config, store).list(vars(arguments))
    except InvalidArgument as error:
        raise CommandError.usage(error.message) from None


def _documents(config: Config, store: SQLStore) -> SessionDocuments:
    return SessionDocuments(store, config.data, closes_idle=config.on_idle == "close")


@asynccontextmanager
async def _open_store(config: Config, *, create: bool) -> AsyncGenerator[SQLStore | None]:
    """Open the store, or yield None where there is none: only import creates the folder."""
    if not create and not may_exist(config):
        yield None
        return
    async with store_of(config) as store:
        yield store
