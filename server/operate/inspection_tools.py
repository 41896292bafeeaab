"""The tools that show what sessions have in their process: programs, files, changes; not offered over MCP."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.live.session import Binding
from ...sessions.registry import Registry
from ...sessions.views import timestamp
from ...tools.definition import Arguments
from ...tools.own.definition import Outcome, OwnTool, ToolContext
from ...tools.own.sessions import SessionArguments
from ...tools.processes import procfs
from ...tools.processes.workdir import safe_name
from .change_log import SessionChangeLog

FILES: Final = "browser/files"
"""The folder below the data folder with the downloads, videos and results of each session."""
FILE_BYTES: Final = 16 << 20
"""The largest file that is read."""


class FileArguments(SessionArguments):
    name: str


class ChangesArguments(Arguments):
    since: int | None = None


@dataclass(frozen=True, slots=True)
class SessionProcesses:
    """The programs of a session, each with those that it started. Memory is in bytes, CPU time in seconds."""

    processes: list[JSON]


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """The files of a session, the newest first."""

    files: list[JSON]


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A file in base64."""

    name: str
    mime: str
    data: str


@dataclass(frozen=True, slots=True)
class SessionChanges:
    """The sessions that changed after a number, with their owners, and the number to ask with next."""

    changes: list[JSON]
    number: int


class InspectionTools:
    """The tools over one registry. `data` is the data folder; without one no session has files that can be read."""

    def __init__(self, registry: Registry, data: Path | None) -> None:
        self._registry = registry
        self._change_log = SessionChangeLog(registry)
        self._folder = None if data is None else data / FILES

    def tools(self) -> list[OwnTool]:
        """Return all of them."""
        return [
            OwnTool(
                "operator_processes",
                "Show the programs of a session",
                "Show pid, memory and CPU time of the programs behind the connections of a session.",
                SessionArguments,
                SessionProcesses,
                self._processes,
                read_only=True,
                toolset="operator",
            ),
            OwnTool(
                "operator_files",
                "List the files of a session",
                "List the downloads, videos and results of a session.",
                SessionArguments,
                SessionFiles,
                self._files,
                read_only=True,
                toolset="operator",
            ),
            OwnTool(
                "operator_file",
                "Read a file of a session",
                "Read one of the files that operator_files lists.",
                FileArguments,
                SessionFile,
                self._file,
                read_only=True,
                toolset="operator",
            ),
            OwnTool(
                "operator_changes",
                "List the sessions that changed",
                "List the sessions of this process that changed, came or went after a number.",
                ChangesArguments,
                SessionChanges,
                self._changes,
                read_only=True,
                toolset="operator",
            ),
        ]

    async def _changes(self, context: ToolContext, args: ChangesArguments) -> Outcome:
        changes, number = self._change_log.read(args.since)
        listed = [{"session_id": each.session_id, "owner": each.owner} for each in changes]
        return Outcome({"changes": listed, "number": number})

    async def _processes(self, context: ToolContext, args: SessionArguments) -> Outcome:
        sessions = {session.id: session for session in self._registry.owned_sessions()}
        session = sessions.get(args.session_id)
        roots = [] if session is None else list(_roots(session.bindings.values()))
        processes = await anyio.to_thread.run_sync(_describe_processes, roots)
        return Outcome({"processes": processes})

    async def _files(self, context: ToolContext, args: SessionArguments) -> Outcome:
        folder = self._folder_of(args.session_id)
        return Outcome({"files": await anyio.to_thread.run_sync(_list_files, folder)})

    async def _file(self, context: ToolContext, args: FileArguments) -> Outcome:
        folder = self._folder_of(args.session_id)
        return Outcome(await anyio.to_thread.run_sync(_read_file, folder, args.name))

    def _folder_of(self, session_id: str) -> Path | None:
        return None if self._folder is None else self._folder / safe_name(session_id)


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
