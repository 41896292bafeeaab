"""`statehold completion`: the scripts in share/ with which a shell completes words; call/completion.py finds the words."""

from __future__ import annotations

import os

from ..server.exit_codes import OK, USAGE
from ..server.printing import complain, write

SHELLS = ("bash", "zsh", "fish")


def show_script(shell: str) -> int:
    """Print the script of a shell. Return the exit code."""
    if shell not in SHELLS:
        return complain(
            f"there is no completion for {shell}; there is one for {', '.join(SHELLS)}", USAGE
        )
    path = os.path.join(os.path.dirname(__file__), "share", f"statehold.{shell}")
    with open(path, encoding="utf-8") as script:
        write(script.read())
    return OK
