"""The part of the configuration that a caller may read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.browsing import Browse, section

from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.tools.configuration import VISIBLE, visible_settings

HIDDEN = {
    "args",
    "call_seconds",
    "cdp_endpoint",
    "cdp_headers",
    "connect",
    "connect_seconds",
    "disabled",
    "exclude",
    "executable",
    "http_credentials",
    "include",
    "init_page",
    "init_script",
    "install",
    "keep_seconds",
    "key",
    "outlive",
    "output_dir",
    "output_max_size",
    "prefix",
    "proxy",
    "save_session",
    "secrets",
    "secrets_command",
    "storage_state",
    "type",
    "ws_endpoint",
}


@pytest.mark.peer
async def test_a_caller_reads_the_configuration(browse: Browse, shell: str) -> None:
    settings = json.loads(section(await browse.text("get_config"), "Result"))
    assert settings["browser"] == {
        "headless": True,
        "attach": "context",
        "executable": Path(shell).name,
    }
    assert settings["pages"]["viewport"] == [1280, 720]
    caps = ["config", "devtools", "network", "pdf", "storage", "testing", "vision"]
    assert settings["tools"]["caps"] == caps


def test_each_setting_is_shown_or_hidden_on_purpose() -> None:
    listed = [name for names in VISIBLE.values() for name in names]
    assert {*listed, *HIDDEN} == set(BrowserConfig.model_fields)
    assert not HIDDEN.intersection(listed)


def test_the_configuration_shows_no_secret_and_no_path() -> None:
    here = BrowserConfig(
        proxy="http://user:sesame@proxy.test:3128",
        init_script=["/srv/sesame/first.js"],
        init_page=["/srv/sesame/first.py"],
        output_dir="/srv/sesame/out",
        key="sesame-sesame-sesame",
        args=["--proxy-pac-url=http://sesame"],
    )
    elsewhere = BrowserConfig(
        cdp_endpoint="wss://user:sesame@farm.test/?token=sesame",
        cdp_headers={"Authorization": "Bearer sesame"},
    )
    for config in (here, elsewhere):
        assert "sesame" not in json.dumps(visible_settings(config))
    assert visible_settings(here)["browser"]["proxy"] == "(set)"
    assert visible_settings(elsewhere)["browser"]["cdp_endpoint"] == "(set)"
