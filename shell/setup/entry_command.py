"""The command that clients get: the words that start this Statehold again, and a real exchange with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ..parser import PROGRAM

EXCHANGE_SECONDS: Final = 120.0
"""Seconds that the exchange may take: the first start of a server with `npx` downloads it."""
_OF_DESKTOP: Final = ("HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR")
"""The variables of programs that a desktop starts, besides a short PATH."""
_OF_UV: Final = frozenset({"archive-v0", "environments-v2"})
"""Folders of uv's cache, which may be emptied. The environments of `uvx` are there."""
_CLIENT: Final = {"name": "statehold-setup", "version": "1"}
_HELLO: Final = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": _CLIENT}
_MESSAGES: Final[tuple[dict[str, Any], ...]] = (
    {"id": 1, "method": "initialize", "params": _HELLO},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list", "params": {}},
)


def program() -> list[str]:
    """Return the words that start this Statehold from any folder, with any PATH."""
    script = Path(sysconfig.get_path("scripts")) / PROGRAM
    if not _OF_UV.isdisjoint(script.parts) and (uvx := shutil.which("uvx")):
        return [os.path.abspath(uvx), *_source(), PROGRAM]
    # A link such as that of `uv tool install` stays over upgrades.
    link = shutil.which(PROGRAM)
    if link is not None and os.path.realpath(link) == os.path.realpath(script):
        return [os.path.abspath(link)]
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", PROGRAM]


def _source() -> list[str]:
    """Return the option of uvx for a package that is from no index."""
    try:
        source: Any = json.loads(distribution(PROGRAM).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return []
    url = urlsplit(str(source.get("url", "")))
    place = unquote(url.path) if url.scheme == "file" else url.geturl()
    return ["--from", place] if place else []


def exchange(settings: Mapping[str, Any]) -> int:
    """Start the command of an entry as a desktop does, say hello, and return the number of tools that it lists. Blocks.

    Raises:
        RuntimeError: it gives no answer, or an error. Its text is one line.
    """
    environ = {name: os.environ[name] for name in _OF_DESKTOP if name in os.environ}
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in _MESSAGES)
    try:
        done = subprocess.run(
            [settings["command"], *settings.get("args", ())],
            input=lines.encode(),
            capture_output=True,
            timeout=EXCHANGE_SECONDS,
            check=False,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", **environ, **settings.get("env", {})},
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it gives no answer in {EXCHANGE_SECONDS:.0f} s") from None
    except OSError as error:
        raise RuntimeError(f"{error.filename}: {error.strerror}") from None
    reason = (done.stderr.decode(errors="replace").strip() or "it ended").splitlines()[-1]
    for line in done.stdout.splitlines():
        message: Any = json.loads(line) if line.startswith(b"{") else {}
        if "error" in message:
            reason = str(message["error"].get("message"))
        elif message.get("id") == 2:
            return len(message["result"]["tools"])
    raise RuntimeError(reason)
