"""The `statehold` command: reads the command line and starts the command. Everything else is imported when needed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..server.exit_codes import FAILURE, INTERRUPTED, OK, USAGE
from ..server.printing import complain, discard, end, is_terminal, write_line
from .command_line import CommandLine, read_settings

if TYPE_CHECKING:
    from ..server.config.model import Config


LARGE_BLOCK = 1 << 20
"""Bytes from which a block of memory is mapped for itself, and given back to the system when it is freed."""
UNUSED_BYTES = 16 << 20
"""Bytes at the end of the heap that are kept for the next answers: without a bound of its own, glibc returns 128 KiB."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
NEW_OBJECTS = 10_000
"""The objects after whose creation a server looks for garbage among them; Python itself looks after 700."""
FULL_COLLECTIONS = (5, 2)
"""The collections of the first and of the second generation after which the next generation is collected too; Python
itself waits for 10 of each.

Cancelled tasks and failed calls of Playwright leave reference cycles. With 10 of each, the cycles of several hundred closed
sessions waited for a full collection.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        return end(_run(_read(sys.argv[1:] if argv is None else argv)))
    except SystemExit as ended:  # --help, or a mistake it has explained already
        return ended.code if isinstance(ended.code, int) else OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has what it wanted.
        discard()
        return OK


def _read(argv: Sequence[str]) -> CommandLine:
    """Read a command line. Ends with SystemExit after --help and after a mistake."""
    if (settings := read_settings(argv)) is not None:
        return settings
    # Imported here: click takes longer than a client of --shared.
    from .commands import parse_command_line

    return parse_command_line(argv)


def _run(arguments: CommandLine) -> int:
    if arguments.version:
        return _version()
    match arguments.command:
        case "doctor":
            from .doctor.run import run

            return run(arguments)
        case "demo":
            from .demo.tour import demo

            return demo()
        case "completion":
            from .completion import show_script

            return show_script(arguments.shell)
        case "skill":
            from .call.skill import show_skill

            return show_skill(arguments)
        case "call" | "answer" | "tools":
            # entry.py runs these commands, with the settings that they take.
            return complain(f"{arguments.command} takes its settings from the server", USAGE)
        case "status":
            from .status import show_status

            return show_status(arguments)
        case "console":
            from .console import open_console

            return open_console(arguments)
        case "top":
            from .top import run as run_top

            return run_top(arguments)
        case "stop":
            from .status import stop

            return stop(arguments)
        case "sessions" if arguments.action in ("list", "show"):
            from .sessions.quick import run_quickly

            code = run_quickly(arguments)
            return _run_configured(arguments) if code is None else code
        case None if _is_shared(arguments):
            from .shared import run_pipe

            return run_pipe(arguments)
        case _:
            return _run_configured(arguments)


def _run_configured(arguments: CommandLine) -> int:
    if arguments.command in (None, "serve"):
        # Imports create many objects and free few: collecting garbage meanwhile takes a tenth of the start.
        gc.disable()
    from ..server.sdk.deferred_imports import defer_models

    with defer_models():
        from ..access.config.types import ConfigError
        from ..server.config.load import load_for
    from ..sessions.errors import StoreUnavailable

    try:
        config = load_for(arguments)
        match arguments.command:
            case "sessions":
                from .sessions.run import run as run_sessions

                return run_sessions(config, arguments)
            case "services":
                from .services import run as run_services

                return run_services(config, arguments)
            case "audit":
                from .principals.audit import run as run_audit

                return run_audit(config, arguments)
            case "logins":
                from .logins import run as run_logins

                return run_logins(config, arguments)
            case "approvals":
                from .approvals import run as run_approvals

                return run_approvals(config, arguments)
            case "nodes":
                from .store_commands import run_nodes

                return run_nodes(config, arguments)
            case "tokens":
                from .principals.tokens import run as run_tokens

                return run_tokens(config, arguments)
            case "principals":
                if arguments.action in ("revoke", "restore", "forget"):
                    from .principals.revocations import run as run_revocations

                    return run_revocations(config, arguments)
                from .principals.principals import run as run_principals

                return run_principals(config, arguments)
            case "setup":
                from .setup.run import set_up

                return set_up(config, arguments)
            case "backup":
                from .store_commands import run_backup

                return run_backup(config, arguments)
            case command:
                return _serve(config, arguments, http=command == "serve")
    except ConfigError as error:
        if arguments.command is None and not is_terminal(sys.stdin):
            from .shared import refuse_client

            return refuse_client(str(error))
        return complain(str(error), USAGE)
    except StoreUnavailable as error:
        return complain(str(error))
    except BaseExceptionGroup as group:
        # A group with a single error is reported like that error.
        from ..sessions.concurrency import unwrap_group

        error = unwrap_group(group)
        if not isinstance(error, ConfigError | StoreUnavailable | KeyboardInterrupt):
            raise
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        return complain(str(error), USAGE if isinstance(error, ConfigError) else FAILURE)
    finally:
        gc.enable()


def _is_shared(arguments: CommandLine) -> bool:
    return hasattr(arguments, "shared")


def _serve(config: Config, arguments: CommandLine, *, http: bool) -> int:
    from ..server.sdk.deferred_imports import defer_models, defer_names, defer_packages

    defer_packages()
    with defer_models():
        if _is_shared(arguments):
            from ..console.app import Console
            from ..server.process.shared import run_shared
            from .shared import settings_of

            run = partial(run_shared, settings=settings_of(arguments), create_console=Console)
        elif http:
            from ..console.app import Console
            from ..server.process.http import run_http
            from .shared import settings_of
            from .status import report_background_server

            run = partial(run_http, settings=settings_of(arguments), create_console=Console)
            report_background_server(config)
        else:
            with defer_names():
                from ..server.process.stdio import run_stdio as run

    _return_large_blocks()
    # Imported objects live as long as the process.
    gc.freeze()
    # With 100 sessions, a fifth of the time of a call went into collections that found nothing.
    gc.set_threshold(NEW_OBJECTS, *FULL_COLLECTIONS)
    gc.enable()
    if not http and is_terminal(sys.stdin):
        complain("serving MCP on stdin and stdout; a client should start this. See --help", OK)
    return run(config)


def _return_large_blocks() -> None:
    """Let glibc give each freed block of LARGE_BLOCK bytes back: else the first ones raise its threshold for good."""
    if sys.platform == "linux":
        import ctypes

        # Other C libraries lack it.
        with suppress(AttributeError):
            set_option = ctypes.CDLL(None).mallopt
            set_option(_M_MMAP_THRESHOLD, LARGE_BLOCK)
            set_option(_M_TRIM_THRESHOLD, UNUSED_BYTES)


def _version() -> int:
    from importlib.metadata import version

    write_line(f"statehold {version('statehold')}")
    return OK
