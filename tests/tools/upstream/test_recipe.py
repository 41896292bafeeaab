"""Recipes: content of an upstream is restored in a new process, and any other loss is reported."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from callers import Caller, Serving, text_of, view
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable
from statehold.sessions.records import Principal
from statehold.sessions.services import RestoreReport, Snapshot
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.identity import config_hash
from statehold.tools.upstream.recipe import fill_placeholders
from statehold.tools.upstream.service import UpstreamService

BY_FILE = {
    "save": [
        {
            "tool": "write",
            "arguments": {"path": "{dir}/deep/value.json"},
            "keep": {"value_file": "file:deep/value.json"},
        }
    ],
    "restore": [{"tool": "read", "arguments": {"path": "{value_file}"}}],
    "restores": "the value",
    "loses": "the count",
}
BY_VALUE = {
    "save": [{"tool": "tell", "keep": {"value": "/a~1b/0/value"}}],
    "restore": [{"tool": "put", "arguments": {"value": "{value}"}}],
}
BY_TEXT = {
    "save": [{"tool": "tell", "keep": {"value": "text:<(.*)>", "all": "text"}}],
    "restore": [{"tool": "put", "arguments": {"value": "{value} of {all}"}}],
}


async def open_next_generation(
    service: UpstreamService, snapshot: Snapshot | None
) -> tuple[RestoreReport, str]:
    """Open the next generation from a snapshot; return its notice and its value."""
    connection = await service.open(view(generation=2), snapshot)
    try:
        return connection.restore_report, text_of(await connection.call("take", {}, Caller()))
    finally:
        await connection.aclose()


async def save_value(service: UpstreamService, value: Any) -> Snapshot | None:
    connection = await service.open(view(), None)
    try:
        assert connection.restore_report == RestoreReport()
        await connection.call("put", {"value": value}, Caller())
        return await connection.snapshot()
    finally:
        await connection.aclose()


@pytest.mark.parametrize("recipe", matrix(BY_FILE, BY_VALUE))
async def test_a_value_survives_its_process(serving: Serving, recipe: Any) -> None:
    service = serving("keeper", recipe=recipe)
    assert service.pause == "snapshot"
    assert service.checkpoint_seconds == 5.0
    snapshot = await save_value(service, {"login": [1, None, 2**60]})
    assert snapshot is not None
    await service.forget("sh_one")
    report, value = await open_next_generation(service, snapshot)
    assert value == '{"login": [1, null, 1152921504606846976]}'
    assert report.restored == recipe.get("restores", "what its recipe saved")
    assert report.lost == recipe.get("loses", "everything else")


async def test_a_value_is_saved_with_what_a_model_does_not_read(serving: Serving) -> None:
    service = serving("keeper", recipe=BY_VALUE)
    snapshot = await save_value(service, "\u2066a\U000e0041\u2069")
    _, value = await open_next_generation(service, snapshot)
    assert value == json.dumps("\u2066a\U000e0041\u2069")


async def test_saved_texts_fill_longer_ones(serving: Serving) -> None:
    service = serving("keeper", recipe=BY_TEXT)
    snapshot = await save_value(service, 5)
    _, value = await open_next_generation(service, snapshot)
    assert value == '"5 of The value is <5>."'


async def test_a_text_that_is_json_has_parts(serving: Serving) -> None:
    recipe = {
        "save": [{"tool": "take", "keep": {"value": "/login/1"}}],
        "restore": [{"tool": "put", "arguments": {"value": "{value}"}}],
    }
    service = serving("keeper", recipe=recipe)
    snapshot = await save_value(service, {"login": ["a", 2**60]})
    _, value = await open_next_generation(service, snapshot)
    assert value == "1152921504606846976"


async def test_without_a_recipe_everything_is_lost(serving: Serving) -> None:
    service = serving("keeper")
    assert service.pause == "keep"
    assert service.checkpoint_seconds is None
    assert await save_value(service, 1) is None
    report, value = await open_next_generation(service, None)
    assert report == RestoreReport("", "everything this server kept in memory")
    assert value == "null"


async def test_without_a_snapshot_a_recipe_restores_nothing(serving: Serving) -> None:
    report, _ = await open_next_generation(serving("keeper", recipe=BY_FILE), None)
    assert report == RestoreReport("", "the value, the count")


async def test_a_step_that_fails_while_restoring_is_reported_and_not_raised(
    serving: Serving,
) -> None:
    recipe = {**BY_FILE, "restore": [{"tool": "refuse"}]}
    service = serving("keeper", recipe=recipe)
    report, _ = await open_next_generation(service, await save_value(service, 1))
    assert report.restored == ""
    assert report.lost == "the value (refuse failed), the count"


async def test_a_step_that_fails_while_saving_quotes_no_secret(serving: Serving) -> None:
    arguments = {"words": "not for s3cret-v4lue"}
    step = {"tool": "refuse", "arguments": arguments, "keep": {"all": "text"}}
    recipe = {"save": [step], "restore": []}
    service = serving("keeper", recipe=recipe, env={"KEY": "s3cret-v4lue"})
    connection = await service.open(view(), None)
    try:
        with pytest.raises(ServiceUnavailable, match=r"refuse failed: not for \*\*\*"):
            await connection.snapshot()
    finally:
        await connection.aclose()


async def test_a_connection_that_dies_of_restoring_is_not_open(
    serving: Serving, leaks: Any
) -> None:
    service = serving("keeper", recipe={**BY_FILE, "restore": [{"tool": "end"}]})
    snapshot = await save_value(service, 1)
    with pytest.raises(ServiceUnavailable) as unavailable:
        await open_next_generation(service, snapshot)
    assert "exited with code 9; it last said: keeper: the end" in unavailable.value.message


@pytest.mark.parametrize(
    "step",
    matrix(
        {"tool": "refuse"},
        {"tool": "no_such_tool"},
        {"tool": "tell", "keep": {"x": "/nowhere"}},
        {"tool": "tell", "keep": {"x": "/a~1b/7"}},
        {"tool": "tell", "keep": {"x": "text:(no match)"}},
        {"tool": "tell", "keep": {"x": "file:not-there"}},
        {
            "tool": "link",
            "arguments": {"target": "/etc/hostname", "path": "{dir}/l"},
            "keep": {"x": "file:l"},
        },
        {
            "tool": "link",
            "arguments": {"target": "{dir}/l", "path": "{dir}/l"},
            "keep": {"x": "file:l"},
        },
        {"tool": "tell", "keep": {"x": "file:\0"}},
        {"tool": "pipe", "arguments": {"path": "{dir}/p"}, "keep": {"x": "file:p"}},
        quick=3,
    ),
)
async def test_a_step_that_fails_while_saving_leaves_no_snapshot(
    serving: Serving, step: Any
) -> None:
    service = serving("keeper", recipe={"save": [step]})
    connection = await service.open(view(), None)
    try:
        with pytest.raises(ServiceUnavailable):
            await connection.snapshot()
        assert text_of(await connection.call("take", {}, Caller())) == "null"
    finally:
        await connection.aclose()


async def test_placeholders_stand_for_the_session_and_its_folder(
    serving: Serving, tmp_path: Path
) -> None:
    service = serving(
        "keeper",
        "{session_name}",
        "{session_id}",
        '{"a": "{dir}"}',
        cwd="{dir}",
        env={"D": "{dir}"},
    )
    connection = await service.open(view(name="../-evil name"), None)
    try:
        result = await connection.call("surroundings", {}, Caller())
        session_argument = result.payload["structuredContent"]
        folder = tmp_path / "data" / "work" / "sh_one" / "keeper"
        assert session_argument["cwd"] == str(folder)
        assert session_argument["env"]["D"] == str(folder)
        assert session_argument["args"][1:] == ["sh_one", f'{{"a": "{folder}"}}']
        assert re.fullmatch("__-evil_name~[0-9a-f]{24}", session_argument["args"][0])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        await connection.aclose()
    await service.forget("sh_one")
    await service.forget("sh_one")
    assert not (tmp_path / "data" / "work" / "sh_one").exists()


@pytest.mark.thorough
async def test_a_session_name_stands_for_one_session_of_one_owner(serving: Serving) -> None:
    service = serving("keeper", "{session_name}")

    async def session_argument(**views: Any) -> str:
        connection = await service.open(view(**views), None)
        try:
            result = await connection.call("surroundings", {}, Caller())
            return result.payload["structuredContent"]["args"][0]
        finally:
            await connection.aclose()

    assert await session_argument(name="work") == "work"
    ann, bob = Principal(subject="ann").key, Principal(subject="bob").key
    views: list[dict[str, str]] = [
        *({"name": name} for name in ("work", "a b", "a:b", "a_b", "a~b", "x" * 121, "x" * 122)),
        *({"name": "work", "owner": owner} for owner in (ann, bob)),
        *({"owner": owner} for owner in (ann, bob)),
        {"name": "work", "namespace": "other"},
    ]
    names = [await session_argument(**options) for options in views]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w@+~-][\w.@+~-]*", name) for name in names)
    assert (
        await session_argument(name="work", owner=ann)
        == names[views.index({"name": "work", "owner": ann})]
    )


async def test_a_probe_leaves_no_folder(serving: Serving, tmp_path: Path) -> None:
    assert await serving("keeper", recipe=BY_FILE).tools()
    assert not list((tmp_path / "data" / "work").iterdir())


async def test_a_service_without_a_data_folder_uses_a_temporary_one() -> None:
    service = UpstreamService("cat", UpstreamConfig(command="cat", cwd="{dir}", era="legacy"))
    with pytest.raises(ServiceUnavailable):
        await service.open(view(), None)
    await service.forget("sh_one")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{n}", 5),
        ("n={n}", "n=5"),
        ("{o}", {"a": [1]}),
        ("o={o}", 'o={"a": [1]}'),
        ("{unknown} {n}", "{unknown} 5"),
        ('{"json": "{s}"}', '{"json": "text"}'),
        (["{n}", {"k": "{s}"}, 1, None], [5, {"k": "text"}, 1, None]),
    ],
)
def test_placeholders_are_filled_with_values_of_their_type(value: Any, expected: Any) -> None:
    assert fill_placeholders(value, {"n": 5, "o": {"a": [1]}, "s": "text"}) == expected


def test_the_hash_of_a_configuration_changes_with_what_matters_and_shows_no_secret() -> None:
    base = UpstreamConfig(command="c", args=["a"], env={"K": "v"})
    same = base.model_copy(update={"concurrency": 3, "prefix": "x_"})
    assert config_hash(base) == config_hash(same)
    for change in ({"args": ["b"]}, {"env": {"K": "other"}}, {"cwd": "/"}, {"era": "modern"}):
        assert config_hash(base) != config_hash(base.model_copy(update=change))
