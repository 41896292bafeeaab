"""Recipes: tool calls that save the state of an upstream, and tool calls that restore it in a fresh one."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import anyio.to_thread

from ...sessions.errors import (
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    ServiceUnavailable,
    SessionError,
)
from ...sessions.json_codec import JSON, loads
from ...sessions.services import CallerOptions, RestoreReport, Snapshot
from ..foreign_file import read_foreign
from ..processes.workdir import private_folder
from .config import Recipe, RecipeStep
from .connection import UpstreamConnection
from .resource_updates import InternalContext

logger = logging.getLogger("statehold.upstream")

FILE_BYTES: Final = 64 * 2**20
_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


class StepFailed(ServiceUnavailable):
    """Raised when a step of a recipe failed; the connection is still open."""


async def save(recipe: Recipe, connection: UpstreamConnection, folder: Path) -> Snapshot:
    """Run the save steps and return the snapshot.

    Raises:
        ServiceUnavailable: A step failed. The previous snapshot stays, because it is better than a partial one.
    """
    snapshot = Snapshot()
    for step in recipe.save:
        result = await _run_step(step, connection, folder, _values(recipe, snapshot, folder))
        for name, source in step.keep.items():
            if source.startswith("file:"):
                path = _resolve_below(folder, source.removeprefix("file:"))
                snapshot.blobs[name] = await anyio.to_thread.run_sync(_read_file, path, step, name)
            else:
                snapshot.data[name] = _select_value(step, name, source, result)
    return snapshot


async def restore(
    recipe: Recipe | None,
    connection: UpstreamConnection,
    folder: Path | None,
    snapshot: Snapshot | None,
    generation: int,
) -> RestoreReport:
    """Write the saved files back and run the restore steps. The result reports a failed step; it is not raised.

    Without a snapshot, a connection that replaces another one has lost everything.

    Raises:
        OutcomeUnknown, ConnectionLost: The connection ended during a step.
    """
    if snapshot is None or recipe is None or folder is None:
        return _report_total_loss(recipe) if generation > 1 else RestoreReport()
    failed = "its files"
    try:
        for name, path in _files(recipe, folder).items():
            if name in snapshot.blobs:
                await anyio.to_thread.run_sync(_write_file, path, snapshot.blobs[name])
        for step in recipe.restore:
            failed = step.tool
            await _run_step(step, connection, folder, _values(recipe, snapshot, folder))
    except (OutcomeUnknown, ConnectionLost):
        raise
    except SessionError as error:
        # The words of the server belong to the log, not into our note.
        logger.warning("a restore step of %s failed: %s", connection.service, error.message)
        return RestoreReport("", f"{recipe.restores} ({failed} failed), {recipe.loses}")
    return RestoreReport(recipe.restores, recipe.loses)


def check_snapshot(recipe: Recipe | None, snapshot: Snapshot) -> Snapshot:
    """Return an imported snapshot reduced to the values that the recipe saves.

    Raises:
        InvalidArgument: A text is not a text, or a file is larger than a recipe may save.
    """
    if type(snapshot.data) is not dict:
        raise InvalidArgument("the saved values are not an object.")
    filtered = Snapshot()
    for name, source in _sources(recipe):
        if source.startswith("file:"):
            if name in snapshot.blobs:
                filtered.blobs[name] = snapshot.blobs[name]
                if len(snapshot.blobs[name]) > FILE_BYTES:
                    raise InvalidArgument(f"the file {name!r} has more than {FILE_BYTES} bytes.")
        elif name in snapshot.data:
            filtered.data[name] = snapshot.data[name]
            if not source.startswith("/") and not isinstance(snapshot.data[name], str):
                raise InvalidArgument(f"the value {name!r} is not a text.")
    return filtered


def _report_total_loss(recipe: Recipe | None) -> RestoreReport:
    """Return the report for a connection that is replaced without a snapshot."""
    if recipe is None:
        return RestoreReport("", "everything this server kept in memory")
    return RestoreReport("", f"{recipe.restores}, {recipe.loses}")


class StepContext(InternalContext):
    """The context of the call of a step, whose values are saved and restored as they are."""

    options = CallerOptions(is_owner=False, exact=True)


async def _run_step(
    step: RecipeStep, connection: UpstreamConnection, folder: Path, values: Mapping[str, Any]
) -> JSON:
    arguments = cast(JSON, fill_placeholders(step.arguments, {**values, "dir": str(folder)}))
    try:
        result = await connection.call(step.tool, arguments, StepContext())
    except (OutcomeUnknown, ConnectionLost):
        raise
    except SessionError as error:
        raise StepFailed(f"{step.tool} failed: {connection.quote(error.message)}") from error
    if result.is_error:
        words = connection.quote(_text(result.payload))
        raise StepFailed(f"{step.tool} failed: {words[:200]}")
    return result.payload


def fill_placeholders(value: object, values: Mapping[str, Any]) -> object:
    """Return a JSON value in which each `{name}` is replaced; unknown names are not changed."""
    if isinstance(value, dict):
        return {key: fill_placeholders(item, values) for key, item in cast(JSON, value).items()}
    if isinstance(value, list):
        return [fill_placeholders(item, values) for item in cast(list[object], value)]
    if not isinstance(value, str):
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    if whole is not None and whole[1] in values:
        return values[whole[1]]
    return _PLACEHOLDER.sub(
        lambda match: _as_text(values[match[1]]) if match[1] in values else match[0], value
    )


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _values(recipe: Recipe, snapshot: Snapshot, folder: Path) -> JSON:
    """Return the values of the `{name}` placeholders: the saved values, and the paths of the recipe's files.

    The paths come from the recipe, never from the snapshot, which may be an imported document.
    """
    names = {name for name, source in _sources(recipe) if not source.startswith("file:")}
    values = {name: value for name, value in snapshot.data.items() if name in names}
    return {**values, **{name: str(path) for name, path in _files(recipe, folder).items()}}


def _sources(recipe: Recipe | None) -> Iterator[tuple[str, str]]:
    for step in recipe.save if recipe is not None else ():
        yield from step.keep.items()


def _files(recipe: Recipe, folder: Path) -> dict[str, Path]:
    return {
        name: _resolve_below(folder, source.removeprefix("file:"))
        for name, source in _sources(recipe)
        if source.startswith("file:")
    }


def _resolve_below(folder: Path, path: str) -> Path:
    root = folder.resolve()
    try:
        target = (root / path.replace("{dir}", str(root))).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        # A loop of links, or an invalid path.
        raise StepFailed(f"{path!r} is not a file below {{dir}} ({error})") from None
    if not target.is_relative_to(root) or target == root:
        raise StepFailed("a kept file has to be below {dir}")
    return target


def _read_file(path: Path, step: RecipeStep, name: str) -> bytes:
    try:
        return read_foreign(path, FILE_BYTES)
    except OSError as error:
        raise StepFailed(f"{step.tool} left no file for {name!r} ({error.strerror})") from None


def _write_file(path: Path, content: bytes) -> None:
    try:
        private_folder(path.parent)
        path.write_bytes(content)
        path.chmod(0o600)
    except OSError as error:
        raise StepFailed(f"a saved file could not be written back ({error.strerror})") from None


def _select_value(step: RecipeStep, name: str, source: str, result: JSON) -> Any:
    if source == "text":
        return _text(result)
    if source.startswith("text:"):
        match = re.search(source.removeprefix("text:"), _text(result))
        if match is None:
            raise StepFailed(f"the text of {step.tool} holds nothing for {name!r}")
        return match[1] if match.re.groups else match[0]
    content = result.get("structuredContent")
    if content is None:
        try:
            # Many servers write the value of a tool without an output schema as text.
            content = loads(_text(result))
        except (ValueError, RecursionError):
            raise StepFailed(
                f"{step.tool} returned no structured content, and its text is not JSON; keep {name!r} with "
                '"text:REGEX", or give the tool an output schema'
            ) from None
    return _resolve_pointer(step, name, source, content)


def _resolve_pointer(step: RecipeStep, name: str, pointer: str, value: Any) -> Any:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdecimal() and int(key) < len(cast(list[Any], value)):
            value = cast(list[Any], value)[int(key)]
        elif isinstance(value, dict) and key in value:
            value = cast(JSON, value)[key]
        else:
            raise StepFailed(f"the result of {step.tool} holds nothing for {name!r} at {pointer}")
    return value


def _text(result: JSON) -> str:
    blocks = cast(list[JSON], result["content"])
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")
