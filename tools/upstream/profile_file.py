"""Stores the profile of an upstream from its last probe on disk, for the next start."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ...sessions.json_codec import JSON
from ...sessions.services import ToolSpec
from ..processes.workdir import private_folder
from .config import Transport
from .negotiation import Peer
from .probe import Profile

logger = logging.getLogger("statehold.upstream")

FOLDER = "profiles"


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal[1]
    service: str
    config_hash: str
    peer: Peer
    tools: list[tuple[str, JSON]]
    prompts: list[JSON]
    transport: Transport | None = None
    events: list[JSON] = []
    is_strict: bool = False


class ProfileFile:
    """The file of one service, `<data>/profiles/<digest of its name>.json`; nothing without a data folder.

    The profile belongs to one configuration: read() ignores a file with another `config_hash`, and write() replaces it.
    Where changed definitions are held back (`is_strict`), it also ignores one of a process that offered them. The methods
    block and may run in any thread; several processes may share a data folder.
    """

    def __init__(
        self, data: Path | None, service: str, config_hash: str, *, is_strict: bool = False
    ) -> None:
        self._service = service
        self._config_hash = config_hash
        self._is_strict = is_strict
        digest = hashlib.sha256(service.encode(errors="surrogatepass")).hexdigest()[:32]
        self._path = None if data is None else data / FOLDER / f"{digest}.json"

    def read(self) -> Profile | None:
        """Return the stored profile; None if there is none, or it is damaged or belongs to another configuration."""
        if self._path is None:
            return None
        try:
            content = _Content.model_validate(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, ValidationError, RecursionError) as error:
            logger.info(
                "the stored tool list of %s is ignored: %s", self._service, type(error).__name__
            )
            return None
        if (content.service, content.config_hash) != (self._service, self._config_hash):
            return None
        if self._is_strict and not content.is_strict:
            return None
        tools = tuple(ToolSpec(name, definition) for name, definition in content.tools)
        prompts, events = tuple(content.prompts), tuple(content.events)
        return Profile(content.peer, tools, prompts, content.transport, events)

    def write(self, profile: Profile) -> None:
        """Store a profile in a file with mode 0600. A failure is only logged; the next start then probes the upstream."""
        if self._path is None:
            return
        try:
            replace_file(self._path, self._text(profile))
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("the tool list of %s could not be stored: %s", self._service, error)

    def _text(self, profile: Profile) -> str:
        # Not pydantic: an upstream may send half a surrogate pair, which UTF-8 cannot encode.
        return json.dumps(
            {
                "format": 1,
                "service": self._service,
                "config_hash": self._config_hash,
                "peer": asdict(profile.peer),
                "tools": [(spec.name, spec.definition) for spec in profile.tools],
                "prompts": profile.prompts,
                "transport": profile.transport,
                "events": profile.events,
                "is_strict": self._is_strict,
            }
        )


def replace_file(path: Path, text: str) -> None:
    """Write a text in ASCII to a file with mode 0600, whole or not at all. Blocks.

    Raises:
        OSError: The file could not be written.
    """
    private_folder(path.parent)
    # mkstemp() makes a file of mode 0600.
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
