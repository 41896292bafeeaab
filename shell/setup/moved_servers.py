"""The servers of clients that go behind Statehold: which ones may, and the file that has them then.

The file is `services.json` in the data folder, private to this user, in the form of a client's file. All clients that start
Statehold name it with `--services`.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ...access.config.types import ConfigError
from ...server.config.client_entries import ENV_FILE
from ...server.config.client_files import parse_json, read_servers
from ...server.config.load import load
from ...server.config.model import BROWSER
from ...sessions.json_codec import JSON
from ...tools.upstream.config import UnusableConfig
from .client_file import EditableFile, Unwritable, read, write

FILE: Final = "services.json"
_OF_CLIENT: Final = re.compile(r"\$\{(?:input|command|config|workspace\w*|fileDirname)\b")
"""Variables that only a client knows."""
_RESTRICTION: Final = re.compile(r"([\w.$()]+): (?:restricts|is run)")


class MovedServers:
    """The file of the servers behind Statehold, and what is to be in it."""

    def __init__(self, data: Path) -> None:
        """Raises Unwritable if there is a file that cannot be read."""
        self.path = data / FILE
        self._before = read(self.path)
        text = (self._before or b'{"mcpServers": {}}').decode(errors="replace")
        try:
            document: Any = parse_json(self.path, text.removeprefix("\ufeff"))
            self.services: dict[str, JSON] = dict(document["mcpServers"])
        except (ConfigError, ValueError, TypeError, KeyError):
            raise Unwritable(f"{self.path} is no file of servers; correct or remove it") from None
        self._read = dict(self.services)

    @property
    def is_changed(self) -> bool:
        return self.services != self._read

    def has(self, server: JSON) -> bool:
        """Whether a server that is missing in a file is here; True for all if this file is gone, so that they come back."""
        return self._before is None or server in self.services.values()

    def add(self, servers: Mapping[str, JSON]) -> None:
        """Add servers. One that is there already is not added again; another one of the same name gets a number."""
        for name, settings in servers.items():
            if settings not in self.services.values():
                self.services.setdefault(BROWSER, {})
                names = [name, *(f"{name}-{n}" for n in range(2, len(self.services) + 3))]
                self.services[next(each for each in names if each not in self.services)] = settings

    def remove(self, servers: Collection[JSON], *, is_named: bool) -> None:
        """Remove servers that go back to their client, and all with the last of them unless a client names the file."""
        rest = {name: each for name, each in self.services.items() if each not in servers}
        self.services = rest if is_named or rest.keys() - {BROWSER} else {}

    def write(self) -> None:
        """Write the file, private to this user, or remove it if it has no servers. Raises Unwritable."""
        text = json.dumps({"mcpServers": self.services}, indent=2, ensure_ascii=False) + "\n"
        write(self.path, self._before, text.encode() if self.services else None, None)


def movable(file: EditableFile) -> tuple[dict[str, JSON], dict[str, str]]:
    """Return the servers of a client that may go behind Statehold, with our settings, and why the others stay."""
    try:
        found = read_servers(file.path, file.base.document)
    except ConfigError:
        return {}, {}
    ruled = "\n".join(
        rule.read_text(errors="replace") for rule in file.client.rules if rule.exists()
    )
    servers: dict[str, JSON] = {}
    reasons: dict[str, str] = {}
    for name in [each for each in file.base.table if each in found.services]:
        problem = found.problems.get(name)
        reason = _reason_to_stay(found.services[name])
        if problem is not None:
            key = _RESTRICTION.search(problem)
            reason = f"Statehold cannot apply its {key[1] if key else 'restriction'}"
        elif re.search(rf"(?:mcp__|Mcp\(){re.escape(name)}(?=__|[^\w-])", ruled):
            reason = "a rule of its client names it"
        try:
            if reason is None:
                file.base.cut(name)
                servers[name] = found.services[name]
        except Unwritable:
            reason = "it is written in an unusual way"
        if reason is not None:
            reasons[name] = reason
    reasons |= _problems(servers)
    return {name: each for name, each in servers.items() if name not in reasons}, reasons


def _reason_to_stay(settings: object) -> str | None:
    if not isinstance(settings, dict):
        return "it is no table"
    entry = cast(JSON, settings)
    if entry.get("disabled"):
        return "it is turned off"
    if _OF_CLIENT.search(json.dumps(entry)):
        return "it has a variable that only its client knows"
    paths = [str(entry.get(key) or "") for key in ("command", "cwd", ENV_FILE)]
    if any("/" in path and not path.startswith(("/", "~", "$")) for path in paths):
        return "its path begins in a folder of its client"
    if entry.get("url") and not entry.get("headers") and not _is_local(str(entry["url"])):
        return "its client may have to log in to it"
    return None


def _is_local(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _problems(servers: Mapping[str, JSON]) -> dict[str, str]:
    """Return why Statehold takes some servers not, found by reading them as it does."""
    if not servers:
        return {}
    # Under names of their own: one may be that of a service in the user's settings.
    names = {f"server{n}": name for n, name in enumerate(servers)}
    document = {"mcpServers": {key: servers[name] for key, name in names.items()}}
    environ = {key: each for key, each in os.environ.items() if not key.startswith("STATEHOLD_")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_text(json.dumps(document), encoding="utf-8")
        services = load(services=path, environ=environ).services
    return {
        names[key]: service.problem.removeprefix(f"{path}: services.{key}.")
        for key, service in services.items()
        if isinstance(service, UnusableConfig)
    }
