"""`statehold skill`: the skill for coding agents, whose allowed commands are those of the configured services."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ..exit_codes import OK
from .command_line import CommandLine
from .output import complain, say

if TYPE_CHECKING:
    from ..config.model import Config

_ALLOWED = re.compile(r"^allowed-tools: .*$", re.MULTILINE)
READING = ("statehold tools:*", "statehold sessions list:*", "statehold sessions show:*")
"""The commands that change nothing."""
BROWSER = "statehold call * browser_*"


def show_skill(config: Config, arguments: CommandLine) -> int:
    """Print the skill, or write it below the folder of --install. Return the exit code."""
    text = skill_text(config)
    if arguments.install is None:
        sys.stdout.write(text)
        return OK
    path = Path(arguments.install).expanduser() / "statehold" / "SKILL.md"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return complain(f"{error.filename or path}: {error.strerror}")
    say(f"wrote {path}")
    return OK


def skill_text(config: Config) -> str:
    """Return the skill. An agent may read with it and use the browser; what other services do is for a person to allow."""
    text = files("statehold.server.call").joinpath("skill/SKILL.md").read_text(encoding="utf-8")
    allowed = [*READING, *_browsers(config)]
    line = f"allowed-tools: {', '.join(f'Bash({command})' for command in allowed)}"
    return _ALLOWED.sub(line, text, count=1)


def _browsers(config: Config) -> list[str]:
    """Return the commands of the browser, if one is configured."""
    kinds = [service.type for service in config.enabled_services().values()]
    return [BROWSER] if "browser" in kinds else []


__all__ = ["show_skill", "skill_text"]
