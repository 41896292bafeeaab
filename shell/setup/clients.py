"""The clients that `statehold setup` knows: where each has its file and its table of servers, and the form of an entry."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from ...server.config.client_entries import Dialect, read_entry
from ...server.config.client_files import starts_statehold
from ...sessions.json_codec import JSON

ENTRY: Final = "statehold"
"""The name of our entry in a table of servers."""
_TABLE: Final = (
    (
        "claude-desktop",
        "Claude Desktop",
        "mcpServers",
        "plain",
        "support/Claude/claude_desktop_config.json",
    ),
    ("claude-code", "Claude Code", "mcpServers", "typed", "claude_json/.claude.json"),
    ("cursor", "Cursor", "mcpServers", "plain", "home/.cursor/mcp.json"),
    ("vscode", "VS Code", "servers", "typed", "support/Code/User/mcp.json"),
    ("windsurf", "Windsurf", "mcpServers", "plain", "home/.codeium/windsurf/mcp_config.json"),
    ("devin-desktop", "Devin Desktop", "mcpServers", "plain", "config/devin/mcp_config.json"),
    ("codex", "Codex", "mcp_servers", "codex", "codex/config.toml"),
    ("gemini-cli", "Gemini CLI", "mcpServers", "gemini", "home/.gemini/settings.json"),
    ("zed", "Zed", "context_servers", "zed", "config/zed/settings.json"),
    ("cline", "Cline", "mcpServers", "plain", "home/.cline/data/settings/cline_mcp_settings.json"),
    ("goose", "Goose", "extensions", "goose", "config/goose/config.yaml"),
    ("opencode", "opencode", "mcp", "opencode", "config/opencode/opencode.json"),
)
"""Name, title, table, form of entries, and the file of each client."""
_OTHER_FILES: Final = {"opencode": "config/opencode/opencode.jsonc"}
"""The file that a client has instead of the first."""
_FOLDERS: Final = {"claude-code": "claude", "cline": "home/.cline"}
"""The folder that shows that a client is on this machine, if it is not that of the file."""
_RULES: Final = {
    "claude-code": ("claude/settings.json",),
    "cursor": ("home/.cursor/cli-config.json", "home/.cursor/permissions.json"),
}
"""Other files of a client, whose rules may name a server."""
_DIALECTS: Final = ("gemini", "zed", "codex", "goose", "opencode")
"""The forms that are read in another way than `mcpServers`."""


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One client, with its files and the folder that shows that it is on this machine."""

    name: str
    title: str
    key: str
    form: str
    files: tuple[Path, ...]
    folder: Path
    rules: tuple[Path, ...]

    def find(self) -> Path | None:
        """Return the file of the client, which may have to be created; None if the client is not on this machine."""
        there = [file for file in self.files if file.exists() or file.is_symlink()]
        return [*there, *self.files][0] if there or self.folder.is_dir() else None

    def table_keys(self, document: object) -> tuple[str, ...]:
        """Return the keys of the table of servers in a document: opencode 2 may have it one level deeper."""
        if self.form == "opencode" and isinstance(document, dict):
            inner: object = cast(JSON, document).get(self.key)
            if isinstance(inner, dict) and isinstance(cast(JSON, inner).get("servers"), dict):
                return (self.key, "servers")
        return (self.key,)

    def settings(self, entry: object) -> JSON:
        """Return an entry with our names of its settings."""
        if not isinstance(entry, dict):
            return {}
        dialect = self.form if self.form in _DIALECTS else "common"
        return read_entry(cast(JSON, entry), cast(Dialect, dialect)).settings

    def own_entry(self, table: Mapping[str, Any]) -> str | None:
        """Return the name of the entry in a table that starts Statehold, None if there is none."""
        own = [name for name, entry in table.items() if starts_statehold(self.settings(entry))]
        return ENTRY if ENTRY in own else own[0] if own else None

    def entry(self, words: Sequence[str]) -> JSON:
        """Return an entry with a command line."""
        command, *args = words
        entry: JSON = {"command": command, "args": args}
        match self.form:
            case "typed":
                return {"type": "stdio", **entry}
            case "zed":
                return {"source": "custom", **entry, "env": {}}
            case "codex":
                # Its own default is 10 s.
                return {**entry, "startup_timeout_sec": 60}
            case "opencode":
                return {"type": "local", "command": [*words], "enabled": True}
            case "goose":
                names: JSON = {"name": ENTRY, "description": "Sessions that stay"}
                start: JSON = {"cmd": command, "args": args, "envs": {}}
                return {**names, "type": "stdio", "enabled": True, **start, "timeout": 300}
            case _:
                return entry


def known_clients(environ: Mapping[str, str], home: Path) -> list[KnownClient]:
    """Return all clients, with their files in the folders of a user."""

    def named(variable: str, default: Path) -> Path:
        path = Path(environ.get(variable, ""))
        return path if path.is_absolute() else default

    is_mac = sys.platform == "darwin"
    config = home / ".config" if is_mac else named("XDG_CONFIG_HOME", home / ".config")
    folders = {
        "home": home,
        "config": config,
        "support": home / "Library" / "Application Support" if is_mac else config,
        "claude": named("CLAUDE_CONFIG_DIR", home / ".claude"),
        "claude_json": named("CLAUDE_CONFIG_DIR", home),
        "codex": named("CODEX_HOME", home / ".codex"),
    }

    def path_of(place: str) -> Path:
        first, _, rest = place.partition("/")
        return folders[first] / rest

    clients: list[KnownClient] = []
    for name, title, key, form, place in _TABLE:
        other = _OTHER_FILES.get(name)
        files = (path_of(place), *([path_of(other)] if other else []))
        folder = path_of(_FOLDERS[name]) if name in _FOLDERS else files[0].parent
        rules = tuple(map(path_of, _RULES.get(name, ())))
        clients.append(KnownClient(name, title, key, form, files, folder, rules))
    return clients
