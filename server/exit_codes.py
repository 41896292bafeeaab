"""The exit codes of the commands."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
BUSY: Final = 4
FENCED: Final = 75
INTERRUPTED: Final = 130

EXIT_CODES: Final = {
    OK: "it worked",
    FAILURE: "it failed, or doctor found something wrong",
    USAGE: "the command line or the configuration is wrong",
    NOT_FOUND: "there is no such session or node",
    BUSY: "the session is open in another running process, or has calls in flight; or the node lives",
    FENCED: "other nodes took over the sessions of this server: start it again (`[cluster]`)",
    INTERRUPTED: "interrupted with Ctrl-C",
}

__all__ = ["BUSY", "EXIT_CODES", "FAILURE", "FENCED", "INTERRUPTED", "NOT_FOUND", "OK", "USAGE"]
