"""The data folder is found without the settings, and is the one that the settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from statehold.server.config.data_folder import default_data_folder, find_data_folder
from statehold.server.config.load import load
from statehold.server.config.model import ConfigError

CONFIGS = {
    "none": None,
    "empty": "",
    "absolute": 'data = "/tmp/a"',
    "relative": 'data = "b/c"',
    "home": 'data = "~/d"',
    "marked": "\ufeffdata = 'e'",
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("flag", [None, "/tmp/flag", "flag", "~/flag"])
@pytest.mark.parametrize(
    "environ",
    [{}, {"STATEHOLD_DATA": "variable"}, {"statehold_data": "~/v"}, {"STATEHOLD_DATA": ""}],
    ids=str,
)
@pytest.mark.parametrize("is_named_by_variable", [False, True])
def test_the_folder_is_that_of_the_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str | None,
    flag: str | None,
    environ: dict[str, str],
    is_named_by_variable: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = "settings/statehold.toml"
    if config is not None:
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(config, encoding="utf-8")
    given = None if config is None else path
    if given and is_named_by_variable:
        environ, given = {**environ, "STATEHOLD_CONFIG": given}, None
    flags = {} if flag is None else {"data": flag}
    expected = load(config=given, flags=flags, environ=environ).data
    assert find_data_folder(data=flag, config=given, environ=environ) == expected


@pytest.mark.parametrize("text", ["data = 5", "data =", None])
def test_a_file_that_cannot_be_read_raises_in_both(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "statehold.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises((OSError, ValueError)):
        find_data_folder(config=str(path), environ={})
    with pytest.raises(ConfigError):
        load(config=path, environ={})


def test_the_default_is_that_of_the_settings() -> None:
    assert load(environ={}).data == default_data_folder()
