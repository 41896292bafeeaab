"""The findings of `statehold doctor` about the built-in browser."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statehold.server.config.model import Config
from statehold.shell.doctor.browser import check_browser
from statehold.shell.doctor.system import Finding
from statehold.tools.browser.process.executables import Machine, ffmpeg_path

Doctor = Callable[..., dict[str, Finding]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Look for the browser of a service with these settings, where PATH and home are folders of the test."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "PLAYWRIGHT_BROWSERS_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def look(**settings: object) -> dict[str, Finding]:
        config = Config.model_validate({"services": {"browser": settings}})
        findings = {finding.name: finding for finding in check_browser(config)}
        for finding in findings.values():
            assert finding.status == "ok" or finding.remedy
        return findings

    return look


@pytest.mark.peer
def test_the_browser_is_named_with_its_version_and_sandbox(
    doctor: Doctor, headless_shell: str
) -> None:
    findings = doctor(executable=headless_shell)
    browser = findings["service browser"]
    assert browser.status == "ok"
    assert browser.detail.startswith(("headless shell ", "Chromium "))
    assert browser.detail.endswith(f" at {headless_shell}")
    sandbox = findings["service browser sandbox"]
    if os.geteuid() == 0:
        assert sandbox.status == "warn"
        assert "root" in sandbox.detail
        assert "another user" in sandbox.remedy
    else:
        assert sandbox.detail.startswith("on, ")


@pytest.mark.parametrize(
    ("flag", "off"), [("--no-sandbox", True), ("-no-sandbox", True), ("--no-sandbox-x", False)]
)
def test_a_sandbox_that_is_turned_off_is_worth_a_warning(
    doctor: Doctor, tmp_path: Path, flag: str, off: bool
) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho Chromium 140.0.1.2\n")
    program.chmod(0o755)
    finding = doctor(executable=str(program), args=["--mute-audio", flag])[
        "service browser sandbox"
    ]
    assert (finding.detail == "off: `args` says so") is off
    if off:
        assert finding.status == "warn"


def test_a_missing_video_program_is_reported_to_services_that_record(
    doctor: Doctor, tmp_path: Path
) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho Chromium 140.0.1.2\n")
    program.chmod(0o755)
    assert "service browser videos" not in doctor(executable=str(program))
    settings: dict[str, object] = {"executable": str(program), "caps": ["devtools"]}
    missing = doctor(**settings)["service browser videos"]
    assert missing.status == "warn"
    assert "playwright install ffmpeg" in missing.remedy
    ffmpeg = ffmpeg_path(Machine())
    ffmpeg.parent.mkdir(parents=True)
    ffmpeg.write_text("")
    ffmpeg.chmod(0o755)
    assert doctor(**settings)["service browser videos"].status == "ok"


def test_a_configured_browser_that_is_missing_is_a_failure(doctor: Doctor) -> None:
    finding = doctor(executable="no-such-browser")["service browser"]
    assert finding.status == "fail"
    assert "`executable`" in finding.detail
    assert finding.remedy == "correct it, or leave it out"


def test_one_that_is_no_browser_is_a_failure(doctor: Doctor, tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    finding = doctor(executable=str(program))["service browser"]
    assert (finding.status, finding.detail) == ("fail", f"{program} does not start")


def test_one_that_can_be_installed_is_worth_a_warning(doctor: Doctor) -> None:
    finding = doctor(channel="chromium-headless-shell", install=True)["service browser"]
    assert finding.status == "warn"
    assert "installed when a session needs it" in finding.detail
    assert finding.remedy.endswith("-m playwright install --only-shell chromium")
    unasked = doctor(channel="chromium-headless-shell")["service browser"]
    assert unasked.status == "fail"
    assert "run: statehold doctor --install, or: " in unasked.remedy
    assert "playwright install" in unasked.remedy


def test_a_window_without_a_display_is_a_failure(doctor: Doctor) -> None:
    finding = doctor(headless=False)["service browser"]
    assert finding.status == "fail"
    assert "DISPLAY" in finding.remedy


def test_a_browser_elsewhere_is_named_without_its_secrets(doctor: Doctor) -> None:
    findings = doctor(cdp_endpoint="wss://farm.example/chromium?token=s3cret")
    assert list(findings) == ["service browser"]
    assert findings["service browser"].detail == "a browser at wss://farm.example"


def test_a_configuration_without_a_browser_is_ok() -> None:
    (finding,) = check_browser(Config(services={}))
    assert (finding.name, finding.status) == ("browser", "ok")
