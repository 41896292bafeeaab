"""The file of the tools agrees with their modules. Run this file to write it."""

from __future__ import annotations

import json

from statehold.tools.browser.config import CAPABILITIES, BrowserConfig
from statehold.tools.browser.tool_list import FILE, tool_specs
from statehold.tools.browser.tools import toolset

CONFIG = BrowserConfig(caps=list(CAPABILITIES))


def content() -> str:
    tools = [
        {"toolset": tool.toolset, "secret": sorted(tool.secret), "definition": tool.definition()}
        for tool in toolset(CONFIG, logins=True)
    ]
    return json.dumps(tools, indent=1, ensure_ascii=False) + "\n"


def test_the_file_has_the_tools_of_the_modules() -> None:
    assert FILE.read_text(encoding="utf-8") == content(), f"run: python {__file__}"


def test_a_configuration_lists_the_same_tools_as_it_runs() -> None:
    for config in (BrowserConfig(), CONFIG):
        for logins in (False, True):
            specs = {tool.name: tool.spec() for tool in toolset(config, logins=logins)}
            listed = tool_specs(config, logins=logins)
            assert list(listed.items()) == list(specs.items())


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
