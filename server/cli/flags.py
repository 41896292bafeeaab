"""Flags that several commands have, and the commands that move sessions, as argparse takes them. Imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import Any, Final

Flag = tuple[tuple[str, ...], dict[str, Any]]

JSON_FLAG: Final[Flag] = (
    ("--json",),
    {"action": "store_true", "help": "print one JSON document"},
)
SESSION: Final[Flag] = (
    ("wanted",),  # "session" is the dest of --session
    {"metavar": "SESSION", "help": "id or name of a session"},
)
SESSIONS: Final[Flag] = (("wanted",), {**SESSION[1], "nargs": "+"})
FORCE: Final[Flag] = (
    ("--force",),
    {"action": "store_true", "help": "do not wait for running calls"},
)


def positive(text: str) -> int:
    """Read a count of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"should be a number from 1 on, found {text!r}")
    return int(text)


def version(text: str) -> int:
    """Read the version of a state."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"should be a number from 0 on, found {text!r}")
    return int(text)


CHOOSING: Final[list[Flag]] = [
    (("--name",), {"metavar": "TEXT", "help": "only those whose name begins so"}),
    *(
        ((f"--{label}",), {"metavar": "ID", "help": f"only those with this {label}_id"})
        for label in ("user", "agent", "team", "workflow")
    ),
    (
        ("--metadata",),
        {"metavar": "JSON", "help": "only those whose metadata has what this object has"},
    ),
    (("--since",), {"metavar": "TIME", "help": "only those used since, in ISO 8601"}),
    (
        ("--query",),
        {"metavar": "TEXT", "help": "only those with this text in what was said of them"},
    ),
]
"""The flags that select the sessions to list."""

MOVES: Final[list[tuple[str, str, str, list[Flag]]]] = [
    (
        "rename",
        "Give a session another name, or other metadata.",
        "rename work play",
        [
            SESSION,
            (("name",), {"nargs": "?", "metavar": "NAME", "help": "the new name"}),
            (("--unname",), {"action": "store_true", "help": "take its name away"}),
            (
                ("--metadata",),
                {"metavar": "JSON", "help": "merge this object into its metadata: null deletes"},
            ),
            JSON_FLAG,
        ],
    ),
    (
        "fork",
        "Make children of a session, from its state and from what its services can save.",
        "fork work --count 2 --name left --name right",
        [
            SESSION,
            (
                ("--count",),
                {"type": positive, "metavar": "N", "help": "how many (1, or one for each name)"},
            ),
            (
                ("--name",),
                {"action": "append", "metavar": "NAME", "help": "of a child; may be given again"},
            ),
            JSON_FLAG,
        ],
    ),
    (
        "merge",
        "Bring into the state of a session what its children changed in theirs.",
        "merge work left right --policy first_wins",
        [
            SESSION,
            (
                ("sources",),
                {
                    "nargs": "+",
                    "metavar": "CHILD",
                    "help": "ids or names, in the order that counts",
                },
            ),
            (
                ("--policy",),
                {
                    "choices": ("last_wins", "first_wins", "fail"),
                    "default": "last_wins",
                    "help": "what holds where they disagree (last_wins)",
                },
            ),
            JSON_FLAG,
        ],
    ),
    (
        "export",
        "Write all that is kept of a session into a file, as one JSON document.",
        "export work work.json --secrets",
        [
            SESSION,
            (
                ("file",),
                {
                    "nargs": "?",
                    "default": "-",
                    "metavar": "FILE",
                    "help": "where to put it (- for stdout)",
                },
            ),
            (
                ("--secrets",),
                {
                    "action": "store_true",
                    "help": "also what its services saved (logins), and what looks secret",
                },
            ),
            (("--force",), {"action": "store_true", "help": "replace a file that is there"}),
            JSON_FLAG,
        ],
    ),
    (
        "import",
        "Make a new session, paused, of a document that export wrote.",
        "import work.json --name again",
        [
            (("file",), {"metavar": "FILE", "help": "the document, - for stdin"}),
            (("--name",), {"metavar": "NAME", "help": "another name than the one in it"}),
            (("--owner",), {"metavar": "OWNER", "help": "whose it is to be (local)"}),
            (
                ("--lenient",),
                {
                    "action": "store_true",
                    "help": "leave out what is not possible here, such as unknown services",
                },
            ),
            JSON_FLAG,
        ],
    ),
    (
        "delete",
        "Close sessions that are open, and delete everything of them.",
        "delete work --force",
        [SESSIONS, FORCE, JSON_FLAG],
    ),
]
"""Name, what it does, an example, and flags."""
