"""The data folder is found without the settings, and is the one that the settings name."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from statehold.access.config.types import ConfigError
from statehold.server.config.data_folder import default_data_folder, find_data_folder
from statehold.server.config.load import load

CONFIGS = {
    "none": None,
    "empty": "",
    "absolute": 'data = "/tmp/a"',
    "relative": 'data = "b/c"',
    "home": 'data = "~/d"',
    "marked": "\ufeffdata = 'e'",
}


FLAGS = [None, "/tmp/flag", "flag", "~/flag"]
VARIABLES: list[dict[str, str]] = [
    {},
    {"STATEHOLD_DATA": "variable"},
    {"statehold_data": "~/v"},
    {"STATEHOLD_DATA": ""},
]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_the_folder_is_that_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    path = "settings/statehold.toml"
    if config is not None:
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(config, encoding="utf-8")
    option = None if config is None else path
    for flag, variables in product(FLAGS, VARIABLES):
        flags = {} if flag is None else {"data": flag}
        named = {**variables, "STATEHOLD_CONFIG": option} if option else variables
        for argument, environ in ((option, variables), (None, named)):
            expected = load(config=argument, flags=flags, environ=environ).data
            folder = find_data_folder(data=flag, config=argument, environ=environ)
            assert Path(folder) == expected, (flag, argument, environ)


@pytest.mark.parametrize("text", ["data = 5", "data =", None])
def test_a_file_that_cannot_be_read_raises_in_both(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "statehold.toml"
    if text is not None:
        path.write_text(text)
    for config, environ in ((str(path), {}), (None, {"STATEHOLD_CONFIG": str(path)})):
        with pytest.raises(ValueError, match=r"correct|should be") as caught:
            find_data_folder(config=config, environ=environ)
        assert str(path) in str(caught.value)
    with pytest.raises(ConfigError):
        load(config=path, environ={})


def test_the_default_is_that_of_the_settings() -> None:
    assert load(environ={}).data == Path(default_data_folder())
