"""The built-in browser in the configuration: when it is offered, how it is set, and the messages about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load
from statehold.server.config.model import Config
from statehold.tools.browser.config import BrowserConfig
from statehold.tools.upstream.config import UpstreamConfig

SECRET = "s3cr3t-of-the-test"


def written(folder: Path, text: str) -> Path:
    path = folder / "statehold.toml"
    path.write_text(text)
    return path


def test_browser_is_there_when_nothing_is_configured() -> None:
    assert list(load(environ={}).browsers()) == ["browser"]
    assert list(Config().enabled_services()) == ["browser"]


def test_configured_services_are_all_there_is(tmp_path: Path) -> None:
    config = load(config=written(tmp_path, "[services.a]\ncommand = 'ls'"), environ={})
    assert (list(config.upstreams()), config.browsers()) == (["a"], {})
    assert load(config=written(tmp_path, "[services]"), environ={}).enabled_services() == {}


def test_browser_stands_beside_other_services_in_their_order(tmp_path: Path) -> None:
    text = "[services.a]\ncommand = 'ls'\n[services.browser]\n[services.b]\nurl = 'http://x'"
    config = load(config=written(tmp_path, text), environ={})
    assert list(config.enabled_services()) == ["a", "browser", "b"]
    assert list(config.browsers()) == ["browser"]


def test_browser_can_be_turned_off(tmp_path: Path) -> None:
    config = load(config=written(tmp_path, "[services.browser]\ndisabled = true"), environ={})
    assert config.enabled_services() == {}


def test_any_name_may_be_a_browser_and_the_name_may_be_something_else(tmp_path: Path) -> None:
    text = "[services.second]\ntype = 'browser'\nprefix = 'x_'\n[services.browser]\ncommand = 'ls'"
    services = load(config=written(tmp_path, text), environ={}).services
    assert isinstance(services["second"], BrowserConfig)
    assert isinstance(services["browser"], UpstreamConfig)


def test_environment_gives_settings_of_the_browser() -> None:
    environ = {
        "STATEHOLD_SERVICES__BROWSER__HEADLESS": "false",
        "STATEHOLD_SERVICES__BROWSER__ALLOW": "example.com, *.example.org",
        "STATEHOLD_SERVICES__BROWSER__CAPS": '["pdf", "vision"]',
        "STATEHOLD_SERVICES__BROWSER__VIEWPORT": "800x600",
        "STATEHOLD_SERVICES__BROWSER__TABS": "3",
    }
    browser = load(environ=environ).browsers()["browser"]
    assert not browser.headless
    assert browser.allow == ["example.com", "*.example.org"]
    assert browser.caps == ["pdf", "vision"]
    assert browser.viewport == (800, 600)
    assert browser.tabs == 3


def test_browser_has_the_times_of_all_services_unless_it_sets_its_own(tmp_path: Path) -> None:
    text = "[timeouts]\nconnect = 7\ncall = 8\n[services.browser]\n"
    browser = load(config=written(tmp_path, text), environ={}).browsers()["browser"]
    assert (browser.connect_seconds, browser.call_seconds) == (7, 8)
    path = written(tmp_path, text + "connect_seconds = 1\ncall_seconds = 2")
    browser = load(config=path, environ={}).browsers()["browser"]
    assert (browser.connect_seconds, browser.call_seconds) == (1, 2)


def test_paths_of_the_browser_are_relative_to_the_file_and_variables_are_replaced(
    tmp_path: Path,
) -> None:
    (tmp_path / "up").mkdir()
    (tmp_path / "first.js").touch()
    (tmp_path / "my.env").touch()
    (tmp_path / "first.py").touch()
    (tmp_path / "login.json").write_text("{}")
    text = "[services.browser]\nuploads = ['up']\ninit_script = 'first.js'\nkey = '${KEY}'\nsecrets = 'my.env'"
    text += "\ninit_page = ['first.py']\noutput_dir = 'shots'\nstorage_state = 'login.json'"
    browser = load(config=written(tmp_path, text), environ={"KEY": SECRET}).browsers()["browser"]
    assert browser.uploads == [str(tmp_path / "up")]
    assert browser.init_script == [str(tmp_path / "first.js")]
    assert browser.init_page == [str(tmp_path / "first.py")]
    assert browser.output_dir == str(tmp_path / "shots")
    assert browser.storage_state == str(tmp_path / "login.json")
    assert browser.secrets == str(tmp_path / "my.env")
    assert browser.key == SECRET
    assert SECRET not in repr(browser)
    text = "[services.browser]\nsecrets_command = ['./secrets.sh', './argument']"
    browser = load(config=written(tmp_path, text), environ={}).browsers()["browser"]
    assert browser.secrets_command == [str(tmp_path / "secrets.sh"), "./argument"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("headles = true", ".headles: is not a setting; did you mean services.browser.headless?"),
        ("snapshots = 'full'", "did you mean services.browser.snapshot?"),
        ("era = 'modern'", "services.browser.era: is not a setting;"),
        ("headless = 'perhaps'", "services.browser.headless: should be a valid boolean"),
        ("caps = ['all']", "services.browser.caps.0: should be 'core', "),
        ("viewport = [0, 1]", "services.browser.viewport.0: should be greater than or equal to 1"),
        ("allow = ['http//x']", "services.browser.allow.0: 'http//x' "),
        (
            "block = ['10.0.0.1/8']",
            "services.browser.block.0: '10.0.0.1/8' is no network; write 10",
        ),
        ("cdp_endpoint = 'x:1'", "services.browser.cdp_endpoint: is no address such as http://"),
        ("ws_endpoint = 'http://x'", "services.browser.ws_endpoint: is no address such as ws://"),
        (
            "cdp_endpoint = 'http://x'\nws_endpoint = 'ws://x'",
            "services.browser.ws_endpoint: excludes `cdp_endpoint`",
        ),
        ("ws_endpoint = 'ws://x'\nchannel = 'chrome'", "names a browser here and one elsewhere"),
        ("channel = 'chrome'\nexecutable = '/bin/sh'", "services.browser.channel: excludes"),
        (f"proxy = 'socks5://u:{SECRET}@x:1'", "services.browser.proxy: is no HTTP proxy; write"),
        (f"proxy = 'http://u:{SECRET}@'", "services.browser.proxy: is no address of a proxy;"),
        (f"key = '{SECRET[:15]}'", "services.browser.key: is shorter than 16 characters; make one"),
        (
            "cdp_endpoint = 'wss://farm.example'\nblock = ['x.example']",
            "services.browser.block: cannot be held for a browser on another machine",
        ),
        (
            "ws_endpoint = 'ws://10.0.0.3:3000/'\nprivate = false",
            "services.browser.private: cannot be held for a browser on another machine",
        ),
        ("key = '${NO_KEY}'", "the environment variable NO_KEY is not set"),
        ("uploads = ['gone']", "services.browser.uploads: there is no folder"),
        ("executable = './gone'", "services.browser.executable: there is no program"),
        ("init_script = 'gone.js'", "services.browser.init_script: there is no file"),
        ("init_page = ['gone.py']", "services.browser.init_page: there is no file"),
        ("storage_state = 'gone.json'", "services.browser.storage_state: there is no file"),
        ("secrets = 'gone.env'", "gone.env: it cannot be read: No such file"),
        (
            "secrets = 'wrong.env'",
            "wrong.env: line 1: a name has letters, digits and _ only",
        ),
        (
            f"http_credentials = {{ 'https://a.test/x' = 'u:{SECRET}' }}",
            "http_credentials: is no table",
        ),
        ("secrets = 'x'\nsecrets_command = ['x']", "secrets_command: excludes `secrets`"),
    ],
)
def test_a_mistake_is_reported_in_one_line_that_names_it(
    text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong.env").write_text("P-IN=12345")
    path = written(tmp_path, f"[services.browser]\n{text}")
    with pytest.raises(ConfigError) as error_info:
        load(config=path, environ={}, flags={"strict": True})
    message = str(error_info.value)
    assert said in message
    assert message.startswith(f"{path}: services.browser")
    assert "\n" not in message
    assert SECRET not in message


def test_an_incomplete_section_is_accepted_while_it_is_off(tmp_path: Path) -> None:
    text = "[services.browser]\ndisabled = true\nkey = '${NO_KEY}'\nuploads = ['gone']\nproxy = 'x'"
    assert load(config=written(tmp_path, text), environ={}).enabled_services() == {}
