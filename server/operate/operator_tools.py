"""The tools of the user who runs the process, and of its console. They are not offered over MCP."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_type_hints

import anyio.to_thread

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.live.session import Binding, LiveSession
from ...sessions.registry import Registry
from ...sessions.times import timestamp
from ...tools.definition import Arguments
from ...tools.own.own_tool import Outcome, OwnTool, ToolContext
from ...tools.own.session_arguments import SessionArguments
from ...tools.processes import procfs
from ...tools.processes.workdir import safe_name
from .change_log import SessionChangeLog

FILES: Final = "browser/files"
"""The folder below the data folder with the downloads, videos and results of each session."""
FILE_BYTES: Final = 16 << 20
"""The largest file that is read."""

H = TypeVar("H", bound=Callable[..., Any])


def operator(handler: H) -> H:
    """Make a method the tool `operator_NAME`. The annotation of `args` is the model of its arguments."""
    handler.__dict__["is_operator"] = True
    return handler


def operator_tools(owner: object) -> list[OwnTool]:
    """Return the tools that are methods of an object."""
    return [
        OwnTool(
            name=f"operator_{name}",
            title=name,
            description=function.__doc__ or "",
            arguments=get_type_hints(function)["args"],
            output=dict,
            handler=getattr(owner, name),
            toolset="operator",
        )
        for name, function in vars(type(owner)).items()
        if hasattr(function, "is_operator")
    ]


class ScreenshotArguments(SessionArguments):
    kind: Literal["png", "jpeg", "webp"] = "png"
    full_page: bool = False


class HeldArguments(Arguments):
    session_ids: list[str] | None = None
    """Only these. None: all that this process holds."""


class FileArguments(SessionArguments):
    name: str


class ChangesArguments(Arguments):
    since: int | None = None


class OperatorTools:
    """The tools that show or save sessions of one registry, of all principals.

    `data` is the data folder; without one no session has files that can be read.
    """

    def __init__(self, registry: Registry, data: Path | None) -> None:
        self._registry = registry
        self._change_log = SessionChangeLog(registry)
        self._folder = None if data is None else data / FILES

    @operator
    async def sessions(self, context: ToolContext, args: HeldArguments) -> Outcome:
        """List the sessions that this process holds."""
        sessions = self._registry.owned_sessions()
        if args.session_ids is not None:
            chosen = set(args.session_ids)
            sessions = [session for session in sessions if session.id in chosen]
        now = self._registry.core.clock.now()
        return Outcome({"sessions": [_describe_session(session, now) for session in sessions]})

    @operator
    async def stderr(self, context: ToolContext, args: SessionArguments) -> Outcome:
        """Show the last lines of stderr of each connection of a session, by service."""
        sessions = {session.id: session for session in self._registry.owned_sessions()}
        session = sessions.get(args.session_id)
        return Outcome({"stderr": {} if session is None else dict(session.stderr_tails())})

    @operator
    async def save(self, context: ToolContext, args: SessionArguments) -> Outcome:
        """Make durable the journal of a session and the snapshots that its services can take."""
        await self._registry.porting.save_session(context.principal, args.session_id)
        return Outcome({"session_id": args.session_id})

    @operator
    async def screenshot(self, context: ToolContext, args: ScreenshotArguments) -> Outcome:
        """Take a picture of the page that a session shows, in base64, without an effect on its callers."""
        # Imported here: without a browser service it would take a tenth of the start of the process.
        from .screenshot import take_screenshot

        picture = await take_screenshot(
            self._registry,
            context.principal,
            args.session_id,
            kind=args.kind,
            full_page=args.full_page,
        )
        return Outcome(picture)

    @operator
    async def changes(self, context: ToolContext, args: ChangesArguments) -> Outcome:
        """List the sessions that changed, came or went after a number, with the number for the next request."""
        changes, number = self._change_log.read(args.since)
        listed = [{"session_id": each.session_id, "owner": each.owner} for each in changes]
        return Outcome({"changes": listed, "number": number})

    @operator
    async def processes(self, context: ToolContext, args: SessionArguments) -> Outcome:
        """Show the programs of a session, each with those that it started: memory in bytes, CPU time in seconds."""
        sessions = {session.id: session for session in self._registry.owned_sessions()}
        session = sessions.get(args.session_id)
        roots = [] if session is None else list(_roots(session.bindings.values()))
        processes = await anyio.to_thread.run_sync(_describe_processes, roots)
        return Outcome({"processes": processes})

    @operator
    async def files(self, context: ToolContext, args: SessionArguments) -> Outcome:
        """List the downloads, videos and results of a session, the newest first."""
        folder = self._folder_of(args.session_id)
        return Outcome({"files": await anyio.to_thread.run_sync(_list_files, folder)})

    @operator
    async def file(self, context: ToolContext, args: FileArguments) -> Outcome:
        """Read one of the listed files, in base64."""
        folder = self._folder_of(args.session_id)
        return Outcome(await anyio.to_thread.run_sync(_read_file, folder, args.name))

    def _folder_of(self, session_id: str) -> Path | None:
        return None if self._folder is None else self._folder / safe_name(session_id)


def _describe_session(session: LiveSession, now: float) -> JSON:
    """Return the description of a session, with the use of its services in the last hour."""
    document, usage = session.info(), session.activity.usage
    for service in document["services"]:
        name = service["service"]
        service["last_hour"] = usage[name].describe(now) if name in usage else None
    return document


def _roots(bindings: Iterable[Binding]) -> Iterable[tuple[str, int]]:
    for binding in bindings:
        if binding.live is not None:
            for pid in binding.live.pids():
                yield binding.record.service, pid


def _describe_processes(roots: Iterable[tuple[str, int]]) -> list[JSON]:
    return [
        {
            "service": service,
            "pid": pid,
            "program": procfs.program_name(pid),
            "memory_bytes": procfs.tree_memory(pid),
            "cpu_seconds": procfs.tree_cpu_seconds(pid),
        }
        for service, pid in roots
    ]


def _paths(folder: Path | None) -> dict[str, Path]:
    """Return the files of a folder by name. Links are left out: they may lead elsewhere."""
    if folder is None or not folder.is_dir():
        return {}
    return {
        path.name: path for path in folder.iterdir() if path.is_file() and not path.is_symlink()
    }


def _list_files(folder: Path | None) -> list[JSON]:
    found: list[tuple[float, JSON]] = []
    for name, path in _paths(folder).items():
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        changed_at = timestamp(status.st_mtime)
        document: JSON = {"name": name, "bytes": status.st_size, "changed_at": changed_at}
        found.append((status.st_mtime, {**document, "mime": _mime_of(name)}))
    found.sort(key=lambda each: -each[0])
    return [document for _, document in found]


def _read_file(folder: Path | None, name: str) -> JSON:
    # The name is looked up, never joined: it cannot lead out of the folder.
    path = _paths(folder).get(name)
    if path is None:
        raise InvalidArgument(f"name: the session has no file {name:.200}.")
    size = path.stat().st_size
    if size > FILE_BYTES:
        raise InvalidArgument(f"name: the file has {size} bytes; {FILE_BYTES} can be read.")
    data = base64.b64encode(path.read_bytes()).decode()
    return {"name": name, "mime": _mime_of(name), "data": data}


def _mime_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
