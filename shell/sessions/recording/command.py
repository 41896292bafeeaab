"""`statehold sessions test`: reads the journal of a session and writes the test of it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread

from ....server.config.model import Config
from ....server.exit_codes import OK
from ....server.printing import complain, write
from ....sessions.one_line import plural
from ....sessions.records import HistoryFilter, JournalKind, JournalRecord, SessionRecord
from ....sessions.store.sql import SQLStore
from ....tools.browser.config import CAPABILITIES, BrowserConfig
from ....tools.browser.tools import toolset
from ...output import CommandError, plain, say, say_json
from ...parser import CommandLine
from .literals import lay_out
from .parameters import Parameters, is_free
from .recorded_test import RecordedTest, write_test
from .steps import StepReader

PAGE: Final = 1000
"""Entries that are read at once."""


async def write_recorded_test(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Write the test of a session to a file, or to stdout."""
    parameters = Parameters(_parse_parameters(arguments.param or ()))
    entries = [entry async for entry in _entries(store, record, arguments)]
    recorded = await anyio.to_thread.run_sync(_write, config, record, entries, parameters)
    if not recorded.steps:
        raise CommandError.usage(
            f"{record.id} has no steps for a test; see: statehold sessions history"
        )
    if parameters.unused:
        name = parameters.unused[0]
        raise CommandError.usage(
            f"--param {name}: no step has the value {parameters.values[name]!r}"
        )
    file: str | None = arguments.output
    if file is not None:
        await anyio.to_thread.run_sync(_save, Path(file), recorded.source)
    if arguments.json:
        say_json(_document(record, recorded, file))
    elif file is None:
        # Python reads an escape in a literal as the character.
        write(recorded.source, errors="backslashreplace")
    else:
        say(f"{file} has {plural(recorded.steps, 'step')} of {record.id}")
    for (tool, reason), entries in () if arguments.json else recorded.left_out_groups.items():
        places = ", ".join(map(str, entries))
        complain(f"left out: {plain(tool)}, since {reason} (entries {places})")
    for name in () if arguments.json else recorded.required:
        complain(f"the test needs the environment variable {name}: its value was not recorded")
    return OK


def _parse_parameters(words: Sequence[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not value or not is_free(name) or name in parameters:
            raise CommandError.usage(
                f"--param {word}: give each parameter once, as NAME=VALUE, with a name that Python allows"
            )
        parameters[name] = value
    return parameters


async def _entries(
    store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> AsyncGenerator[JournalRecord]:
    """Yield the calls of the chosen part of a session, the oldest first."""
    first: int = arguments.first or 1
    last: int | None = arguments.last
    pages: list[list[JournalRecord]] = []
    before = None if last is None else last + 1
    while True:
        runs = None if arguments.run is None else [arguments.run]
        history_filter = HistoryFilter(
            before=before, kinds=[JournalKind.CALL], runs=runs, limit=PAGE
        )
        page = await store.history(record.id, history_filter)
        pages.insert(0, [entry for entry in page if entry.seq >= first])
        if len(page) < PAGE or page[0].seq <= first:
            break
        before = page[0].seq
    for page in pages:
        for entry in page:
            yield entry


def _write(
    config: Config, record: SessionRecord, entries: Sequence[JournalRecord], parameters: Parameters
) -> RecordedTest:
    # Takes a tenth of a second.
    services = config.services
    every_tool = toolset(BrowserConfig(caps=list(CAPABILITIES)))
    reader = StepReader(
        parameters,
        prefixes={name: settings.prefix for name, settings in services.items()},
        browsers=frozenset(
            name for name, settings in services.items() if isinstance(settings, BrowserConfig)
        ),
        reads=frozenset(tool.name for tool in every_tool if tool.read_only),
    )
    recorded = write_test(entries, reader, parameters, name=record.name or record.id)
    return dataclasses.replace(recorded, source=lay_out(recorded.source))


def _save(file: Path, source: str) -> None:
    """Write a new file."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(source)
    except FileExistsError:
        raise CommandError.usage(f"{file} is there already; name another file") from None
    except OSError as error:
        raise CommandError.usage(f"{file}: {error.strerror}; name another file") from None


def _document(record: SessionRecord, recorded: RecordedTest, file: str | None) -> dict[str, object]:
    left_out = [
        {"seq": each.entry.seq, "tool": each.entry.tool, "reason": each.reason}
        for each in recorded.left_out
    ]
    return {
        "session_id": record.id,
        "file": file,
        "steps": recorded.steps,
        "left_out": left_out,
        "required": list(recorded.required),
        **({"source": recorded.source} if file is None else {}),
    }
