"""The settings that a client asks for, compared with those of a server."""

from __future__ import annotations

from pathlib import Path

from statehold.server.shared.requested_settings import requested_settings


def test_no_value_leaves_the_process(tmp_path: Path) -> None:
    digests = requested_settings({"--key": "sesame"}, {"STATEHOLD_TOKEN": "sesame"})
    assert "sesame" not in str(digests)
