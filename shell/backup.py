"""`statehold backup`: a copy of the database, made while processes use it."""

from __future__ import annotations

from pathlib import Path

from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import FAILURE, OK
from ..server.gateway.stores import is_remote, store_of
from ..server.printing import complain
from ..sessions.errors import StoreUnavailable
from ..sessions.store.file.backup import back_up
from .command_line import CommandLine
from .output import say, say_json
from .progress import ProgressBar

_TOOLS = {
    "postgresql": "pg_dump --format=custom --file=FILE DATABASE",
    "mysql": "mariadb-dump --single-transaction --result-file=FILE DATABASE",
}


def run(config: Config, arguments: CommandLine) -> int:
    """Make the copy and return the exit code."""
    target = Path(arguments.file).expanduser().absolute()
    try:
        with ProgressBar(f"copying the database to {target.name}", is_json=arguments.json) as bar:
            size = _copy(config, target, bar)
    except FileExistsError:
        return _report_failure(arguments, f"{target} is there already; name a new file")
    except StoreUnavailable as error:
        return _report_failure(arguments, str(error))
    if arguments.json:
        say_json({"file": str(target), "bytes": size})
    else:
        say(f"{target}: {size:,} bytes")
    return OK


def _copy(config: Config, target: Path, bar: ProgressBar) -> int:
    if config.ephemeral:
        raise ConfigError("--ephemeral: nothing is kept, so there is nothing to copy; drop it")
    if is_remote(config):
        database = store_of(config).location
        command = _TOOLS[database.partition(" ")[0]]
        raise StoreUnavailable(
            f"The sessions are in {database}. Its own tools copy it while it is used: {command}"
        )
    if not target.parent.is_dir():
        raise StoreUnavailable(f"There is no folder {target.parent}. Make it, or name another one.")
    return back_up(config.data, target, report=bar.update)


def _report_failure(arguments: CommandLine, problem: str) -> int:
    if arguments.json:
        say_json({"error": {"code": "backup_failed", "message": problem}})
    return complain(problem, FAILURE)
