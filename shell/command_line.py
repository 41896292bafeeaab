"""The values of one command line."""

from __future__ import annotations

from types import SimpleNamespace


class CommandLine(SimpleNamespace):
    """The values of the arguments and options of one command line, by name.

    `command` and, for groups, `action` name the command. Every argument and option of that command has a value; a setting
    is there only if the command line gives it.
    """
