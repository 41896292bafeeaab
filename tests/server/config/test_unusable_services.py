"""A wrong service leaves the others running; with `strict` it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.selection import matrix
from support.settings import SECRET, client_file, refused, toml

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load

GOOD = {"command": "ls"}
WRONG: dict[str, tuple[dict[str, Any] | str, str]] = {
    "variable in env": ({**GOOD, "env": {"K": "${GONE}"}}, "services.bad.env.K: the environment"),
    "variable in args": ({**GOOD, "args": ["a", "${GONE}"]}, "services.bad.args: the environment"),
    "variable in cwd": ({**GOOD, "cwd": "${env:GONE}/x"}, "services.bad.cwd: the environment"),
    "variable in url": ({"url": "http://x/${GONE}"}, "services.bad.url: the environment"),
    "variable in headers": (
        {"url": "http://x", "headers": {"K": "${GONE}"}},
        "services.bad.headers.K: the environment",
    ),
    "input": (
        {**GOOD, "env": {"K": "${input:key}"}},
        "give the value as K = ... below [services.bad.env]",
    ),
    "command of the editor": ({**GOOD, "args": ["${command:x}"]}, "asked for by the editor only"),
    "no command": ({"args": ["x"]}, "services.bad: needs a `command`"),
    "both": ({**GOOD, "url": "http://x"}, "services.bad: has both"),
    "command of a wrong type": ({"command": 3}, "services.bad.command: should be a valid string"),
    "args of a wrong type": ({**GOOD, "args": "x"}, "services.bad.args: should be a valid list"),
    "env of a wrong type": ({**GOOD, "env": SECRET}, "services.bad.env: should be a table"),
    "not a table": (SECRET, "services.bad: should be a table of settings"),
    "no file of variables": ({**GOOD, "envFile": "none"}, "services.bad.envFile: there is no file"),
    "file of variables of a wrong type": ({**GOOD, "envFile": 3}, "should be the path of a file"),
    "no file of a value": ({**GOOD, "args": ["${file:none}"]}, "services.bad.args: "),
    "nested too deeply": ({**GOOD, "args": json.loads("[" * 900 + "]" * 900)}, "services.bad"),
    "surrogate": ({**GOOD, "args": ["\ud800"]}, "services.bad.args: a command line cannot"),
    "surrogate in env": ({**GOOD, "env": {"A": "\udfff"}}, "no environment can hold 'A'"),
    "wrong URL": ({"url": SECRET}, "services.bad.url: should start with http://"),
}


@pytest.mark.parametrize("case", matrix(*WRONG))
def test_one_wrong_service_of_a_client_leaves_the_others(tmp_path: Path, case: str) -> None:
    entry, problem = WRONG[case]
    path = client_file(tmp_path, {"mcpServers": {"first": GOOD, "bad": entry, "last": GOOD}})
    config = load(services=path, environ={})
    assert list(config.services) == ["first", "bad", "last"]
    assert config.unusable_services().keys() == {"bad"}
    text = config.unusable_services()["bad"]
    assert text.startswith(str(path))
    assert text.isprintable()
    assert problem in text
    assert SECRET not in text
    assert config.upstreams()["last"].command == "ls"
    assert problem in refused(services=path)


@pytest.mark.parametrize(
    ("table", "problem"),
    matrix(
        ("prefx = 'a'\ncommand = 'ls'", "services.bad.prefx: is not a setting; did you mean"),
        ("prefix = 'a b'\ncommand = 'ls'", "services.bad.prefix: string should match"),
        ("command = 'ls'\n[services.bad.recipe]\nsaev = []", "services.bad.recipe.saev: is not a"),
        ("type = 'browser'\nheadles = true", "services.bad.headles: is not a setting"),
        ("type = 'browser'\nproxy = '${GONE}'", "services.bad.proxy: the environment variable"),
    ),
)
def test_one_wrong_table_leaves_the_others(tmp_path: Path, table: str, problem: str) -> None:
    path = toml(tmp_path, f"[services.good]\ncommand = 'ls'\n[services.bad]\n{table}\n")
    config = load(config=path, environ={})
    assert problem in config.unusable_services()["bad"]
    assert config.upstreams()["good"].command == "ls"
    strict = toml(tmp_path, f"strict = true\n{path.read_text()}")
    with pytest.raises(ConfigError, match=r"services\.bad"):
        load(config=strict, environ={})


def test_several_wrong_services_and_names_have_a_problem_each(tmp_path: Path) -> None:
    entries: dict[str, Any] = {"a\nb": GOOD, "x" * 129: GOOD, "bad": {}, "good": GOOD}
    config = load(services=client_file(tmp_path, {"mcpServers": entries}), environ={})
    problems = config.unusable_services()
    assert list(problems) == ["unnamed 1", "unnamed 2", "bad"]
    assert "printable characters" in problems["unnamed 1"]


def test_a_wrong_setting_outside_of_the_services_is_refused(tmp_path: Path) -> None:
    path = toml(tmp_path, "[timeouts]\nidle = 'x'\n[services.bad]\nurl = 3\n")
    with pytest.raises(ConfigError, match=r"timeouts\.idle"):
        load(config=path, environ={})


def test_a_wrong_variable_of_the_environment_harms_its_service_only() -> None:
    environ = {"STATEHOLD_SERVICES__GOOD__COMMAND": "ls", "STATEHOLD_SERVICES__BAD__PREFX": "x"}
    config = load(environ=environ)
    assert config.unusable_services().keys() == {"bad"}
    assert config.upstreams()["good"].command == "ls"


def test_odd_yaml_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("extensions:\n  1: {cmd: ls, envs: {2: x}, on: 1, timeout: 1.0e+400}\n  x: 3\n")
    config = load(services=path, environ={})
    assert config.upstreams()["1"].env == {"2": "x"}
    assert "1: on, timeout" in config.notes[0]
    assert "should be a table" in config.unusable_services()["x"]
    for text in ("a: [", "extensions: &a {x: *a}", "- 1", "\x00"):
        path.write_text(text)
        assert refused(services=path).startswith(str(path))


def test_a_disabled_service_has_no_problem(tmp_path: Path) -> None:
    services = client_file(tmp_path, {"mcpServers": {"bad": {"command": "ls", "disabled": True}}})
    config = toml(tmp_path, "[services.bad]\nargs = ['${GONE}']")
    assert load(config=config, services=services, environ={}).unusable_services() == {}


def test_a_disabled_service_with_a_mistake_stays_disabled(tmp_path: Path) -> None:
    path = toml(tmp_path, "[services.bad]\ncommand = 'ls'\nbogus = 1\ndisabled = true\n")
    config = load(config=path, environ={})
    assert config.services["bad"].disabled
    assert config.enabled_services() == {}
    assert config.unusable_services() == {}
