"""Finds what the sessions of a service share, by starting two connections and looking at their processes. Linux only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ...sessions.errors import SessionError
from ..processes import procfs
from .service import UpstreamService

LOSS_SECONDS: Final = 0.5
"""Seconds to wait for the end of the first connection after the second one was opened."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The working folders of some processes, the files that they have open for writing, and the ports they listen on."""

    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()


async def describe_sharing(service: UpstreamService) -> str | None:
    """Start two connections of a service, and return one line about what they share and the settings that separate them.

    Returns None if nothing is known to be shared. Takes the time of two starts.

    Raises:
        ServiceUnavailable: The first connection cannot be opened.
    """
    if not procfs.LINUX or service.transport != "stdio" or service.scope != "session":
        return None
    async with service.open_temporary() as first:
        marks = _marks_of(service)
        alone = one = two = await _footprint_of(marks)
        try:
            async with service.open_temporary():
                with anyio.move_on_after(LOSS_SECONDS):
                    await first.lost.wait()
                one = await _footprint_of(marks)
                two = await _footprint_of(_marks_of(service) - marks)
        except SessionError as error:
            return _one_process(
                service, f"a second session cannot start beside the first: {error.message}"
            )
        if first.lost.is_set():
            ports = ", ".join(f"port {port}" for port in sorted(alone.ports & two.ports))
            reason = f" (both use {ports})" if ports else ""
            return _one_process(service, f"a second session ends the process of the first{reason}")
    return _describe_common(service, one, two)


def _describe_common(service: UpstreamService, one: Footprint, two: Footprint) -> str | None:
    ports = sorted(one.ports & two.ports)
    # Starters such as uvx hold a lock file of their cache.
    files = sorted(file for file in one.files & two.files if not file.endswith(".lock"))
    folders = sorted(one.folders & two.folders)
    shared = [f"port {port}" for port in ports]
    shared += [f"the file {file}" for file in files]
    shared += [f"the working folder {folder}" for folder in folders]
    if not shared:
        return None
    text = f"sessions share {', '.join(shared)}"
    if ports:
        return _one_process(service, text)
    # A path that does not begin at the working folder stays the same in another one.
    if files and not all(any(file.startswith(f"{each}/") for each in folders) for file in files):
        return f"{text}; {{dir}} in its path, in args or env of [services.{service.name}], gives each session its own"
    return f'{text}; cwd = "{{dir}}" in [services.{service.name}] gives each its own folder'


def _one_process(service: UpstreamService, fault: str) -> str:
    return f'{fault.rstrip(".")}; scope = "shared" in [services.{service.name}] makes sessions use one process'


def _marks_of(service: UpstreamService) -> frozenset[str]:
    """Return the marks of the child processes of a service that run now."""
    children = () if service.ledger is None else service.ledger.children
    return frozenset(child.mark for child in children if child.service == service.name)


async def _footprint_of(marks: frozenset[str]) -> Footprint:
    return await anyio.to_thread.run_sync(_read_footprint, marks)


def _read_footprint(marks: frozenset[str]) -> Footprint:
    """Blocks for some milliseconds."""
    pids = procfs.find_marked(marks.__contains__)
    folders = (procfs.working_folder(pid) for pid in pids)
    return Footprint(
        frozenset(folder for folder in folders if folder is not None),
        frozenset(file for pid in pids for file in procfs.written_files(pid) if not _is_lock(file)),
        frozenset(port for pid in pids for port in procfs.listening_ports(pid)),
    )


def _is_lock(file: str) -> bool:
    """Whether a file only orders the work of programs, such as that of uv's cache."""
    try:
        return file.endswith(".lock") and Path(file).stat().st_size == 0
    except OSError:
        return False
