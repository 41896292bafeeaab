"""The sandboxes of the processes of one service, and the advice about what they refused."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ...keeper.confinement import landlock_abi
from ...sessions.errors import ServiceUnavailable
from ...sessions.json_codec import canonical, digest_of
from ..processes.sandbox import (
    SYSTEM,
    ProcessQuota,
    ProcessSandbox,
    holds,
    missing_features,
)
from ..processes.workdir import safe_name, temporary_link
from .config import SandboxSettings

logger = logging.getLogger("statehold.upstream")

_LAUNCHERS: Final = frozenset({"npx", "npm", "uvx", "uv"})
"""Programs that download others. Each service has a cache of its own: from that of the user, what it holds could be run
outside of any sandbox."""
_TEXT: Final = 4000
"""Characters of an error that are searched for a refusal."""
_REFUSAL: Final = re.compile(
    r"EACCES|EPERM|permission denied|operation not permitted", re.IGNORECASE
)
_OF_SOCKET: Final = re.compile(r"EISCONN|endpoint is already connected|ECONNREFUSED /")
_PATH: Final = re.compile(r"(?<![\w./:])/[\w.@+~/-]{1,200}")
"""A path without blanks: a note must not repeat sentences of a server."""
_PORT: Final = re.compile(r"(?:[A-Za-z\]]|\.\d{1,3}):(\d{1,5})(?![\d:])")


class ServiceSandboxes:
    """Makes the sandbox of each process of a service, if its settings give it one. It holds nothing that must be closed.

    `caches` is the folder for the caches of launchers. `private` are files and folders that no process may see. `abi` is the
    version of Landlock; None: that of this kernel.
    """

    def __init__(
        self,
        service: str,
        settings: SandboxSettings,
        *,
        caches: Path | None = None,
        private: Iterable[Path] = (),
        abi: int | None = None,
    ) -> None:
        self._service = service
        self._settings = settings
        self._caches = None if caches is None else caches / safe_name(service)
        self._private = [os.path.realpath(path) for path in private]
        self._abi = abi
        self._lacking: list[str] = []
        if settings.is_on:
            self._abi = landlock_abi() if abi is None else abi
            self._lacking = missing_features(self._abi)
        if self._lacking and settings.mode == "auto":
            lacking = " and ".join(self._lacking)
            logger.warning(
                "%s runs without a sandbox for %s, which this system lacks", service, lacking
            )

    @property
    def digest(self) -> str | None:
        """A digest of the settings of a sandbox, None without one."""
        settings = self._settings.model_dump(mode="json")
        return digest_of(canonical(settings)) if self._settings.is_on else None

    def make(
        self, command: str, folder: Path | None
    ) -> tuple[ProcessSandbox | None, dict[str, str]]:
        """Return the sandbox of a process with this folder, None without one, and variables of its environment.

        Raises:
            ServiceUnavailable: This system lacks what it needs.
        """
        settings = self._settings
        if self._lacking and settings.mode == "landlock":
            lacking = " and ".join(self._lacking)
            raise ServiceUnavailable(
                f'{self._service} could not be started: this system has no sandbox for {lacking}; set sandbox = "auto" in '
                f'[services.{self._service}] to start it with what there is, or sandbox = "off".'
            )
        if not self._abi or folder is None:
            return None, {}
        temporary = str(temporary_link(folder))
        folders, variables = [folder], {"TMPDIR": temporary, "XDG_CACHE_HOME": temporary}
        if os.path.basename(command) in _LAUNCHERS:
            caches = self._caches or folder / "caches"
            folders += [self._caches] if self._caches else []
            variables |= {
                "npm_config_cache": str(caches / "npm"),
                "UV_CACHE_DIR": str(caches / "uv"),
                "UV_TOOL_DIR": str(caches / "uv-tools"),
                "UV_PYTHON_INSTALL_DIR": str(caches / "uv-python"),
            }
        sandbox = ProcessSandbox(
            abi=self._abi,
            folders=folders,
            read=settings.read,
            write=settings.write,
            ports=settings.ports,
            private=self._private,
            quota=ProcessQuota(settings.processes, settings.open_files, settings.memory_bytes),
        )
        return sandbox, variables

    def with_note(self, error: ServiceUnavailable) -> ServiceUnavailable:
        """Return the error of a start, with a note and the setting if the process spoke of a refusal."""
        if note := self._advise(error.message):
            error.message += f" {note}"
        return error

    def explain(self, text: str) -> str | None:
        """Return a note about a result whose words speak of a refusal, else None. The log has the setting that allows it."""
        advice = self._advise(text)
        if advice is None:
            return None
        logger.warning("%s", advice)
        # For a model, which a server could have recommend any path to its person.
        return self._note

    @property
    def _note(self) -> str:
        return (
            f"Note from Statehold: the sandbox of {self._service} may have refused this; read, write and ports below "
            f"[services.{self._service}.sandbox] say what it allows."
        )

    def _advise(self, text: str) -> str | None:
        """Return a note with the setting that allows what a process was refused; None if its words speak of no refusal."""
        text = text[:_TEXT]
        note = f"Note from Statehold: the sandbox of {self._service}"
        if self._abi and _OF_SOCKET.search(text):
            return f'{note} lets it connect to no socket with a path; sandbox = "off", or a container, does.'
        refusal = _REFUSAL.search(text) if self._abi else None
        if refusal is None:
            return None
        line = text[text.rfind("\n", 0, refusal.start()) + 1 :].partition("\n")[0]
        table = f"below [services.{self._service}.sandbox]"
        found = _PATH.search(line)
        # A note names only what exists, and so repeats no sentence of a server.
        if found is not None and os.path.lexists(found[0]):
            path, settings = os.path.normpath(found[0]), self._settings
            if any(holds(each, path) for each in [*self._private, *settings.write]):
                return None
            if any(holds(each, path) for each in [*SYSTEM, *settings.read]):
                return f'{note} lets it change nothing in {path}; write = ["{path}"] {table} does.'
            return f'{note} may refuse {path}; read = ["{path}"] {table} allows it, or write to change files there.'
        if (port := _PORT.search(line)) and int(port[1]) <= 65_535:
            ports = [*self._settings.ports, int(port[1])]
            return (
                f"{note} allows connections to some ports; ports = {ports} {table} adds this one."
            )
        return self._note
