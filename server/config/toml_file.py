"""Parses TOML, with the position and a remedy in the error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ...access.config.types import ConfigError
from ...sessions.json_codec import JSON


def parse_toml(path: Path, text: str) -> JSON:
    """Return the tables of a TOML file.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        remedy = (
            "it looks like JSON: give a client's file as --services"
            if text.lstrip().startswith("{")
            else "correct the TOML"
        )
        position = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
        location = (
            f"line {position[1]}, column {position[2]}"
            if position and position[1]
            else "end of file"
        )
        problem = str(error).split(" (at ")[0]
        raise ConfigError(f"{path}: {location}: {problem}; {remedy}") from None
