"""A person who pauses a session learns at once what could not be saved."""

from __future__ import annotations

import pytest
from support.gateway_process import service, toml
from support.selection import matrix
from support.tool_commands import Commands

from statehold.server.exit_codes import OK


@pytest.mark.parametrize(
    ("saving", "warning"),
    matrix(("fail", "asking is lost: saving it failed"), ("get", "")),
)
def test_a_pause_warns_of_a_service_that_could_not_be_saved(
    own_commands: Commands, saving: str, warning: str
) -> None:
    recipe = {
        "save": [{"tool": saving, "keep": {"n": "text:(.*)"}}],
        "restore": [{"tool": "inc", "arguments": {"n": "{n}"}}],
    }
    upstream = {**service("asking", "--era", "legacy"), "recipe": recipe}
    own_commands.shared.config.write_text(toml({"services": {"asking": upstream}}))
    own_commands.output("call", "saved", "inc")
    ran = own_commands("sessions", "pause", "saved")
    assert ran.returncode == OK
    assert ran.stdout.rstrip().endswith("(saved) is paused")
    assert warning in ran.stderr
    assert bool(ran.stderr) == bool(warning)
