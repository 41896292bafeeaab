"""The controls of `statehold doctor --assurance`: all are met by the example of a team, and each has a gap that it finds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import toml
from support.hostile_issuer import AUDIENCE, HostileIssuer, hostile_issuer
from support.token_file import write_tokens

from statehold.server.config.load import load
from statehold.server.exit_codes import FAILURE, OK
from statehold.sessions.services import ToolSpec
from statehold.shell.doctor import controls
from statehold.shell.doctor.assurance import Assessment, Installation, assess
from statehold.shell.main import main
from statehold.tools.browser.process.executables import Machine
from statehold.tools.upstream.identity import config_hash
from statehold.tools.upstream.negotiation import Peer
from statehold.tools.upstream.probe import Profile
from statehold.tools.upstream.profile_file import ProfileFile

ROOT = Path(__file__).resolve().parents[3]
TEAM = ROOT / "examples" / "team" / "team.toml"
PUBLIC_URL = AUDIENCE.removesuffix("/mcp")
CONFIRMS = "a person confirms destructive actions"


@pytest.fixture(scope="module")
def issuer() -> Generator[HostileIssuer]:
    with hostile_issuer() as running:
        yield running


@dataclass
class Draft:
    """The settings of a company that meets L2, with a service whose tools are known. A test changes them."""

    folder: Path
    issuer: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    has_started: bool = True
    schema: dict[str, Any] = field(default_factory=lambda: {"properties": {}})

    def __post_init__(self) -> None:
        self.settings = {
            "data": str(self.folder / "data"),
            "audit": "required",
            "server": {"public_url": PUBLIC_URL},
            "auth": {"issuers": [{"issuer": self.issuer}], "audience": [AUDIENCE]},
            "services": {
                "browser": {"block": ["http://*:*"], "approve": "destructive"},
                "notes": {"url": "https://notes.example.org/mcp", "approve": "destructive"},
            },
        }
        (self.folder / "data").mkdir(mode=0o700)

    @property
    def file(self) -> Path:
        path = self.folder / "statehold.toml"
        path.write_text(toml(self.settings))
        return path

    def assess(self) -> dict[str, Assessment]:
        config = load(config=self.file, environ={})
        notes = config.upstreams()["notes"]
        peer = Peer(version="2026-07-28", modern=True, info={}, capabilities={})
        tool = ToolSpec("note", {"name": "note", "inputSchema": {"type": "object", **self.schema}})
        if self.has_started:
            profiles = ProfileFile(config.data, "notes", config_hash(notes))
            profiles.write(Profile(peer, (tool,), (), "http"))
        site = Installation(config, Machine(root=False, top=self.folder, platform="linux"))
        return {each.name: each for each in assess(site, controls.INTERNAL)}


@pytest.fixture
def draft(tmp_path: Path, issuer: HostileIssuer) -> Draft:
    return Draft(tmp_path, issuer.url)


def test_the_settings_of_a_company_meet_each_control(draft: Draft) -> None:
    assessments = draft.assess()
    assert len(assessments) == 18
    assert {name for name, each in assessments.items() if each.gaps} == set()
    assert all(each.evidence for each in assessments.values())


def with_tokens(draft: Draft) -> None:
    tokens = write_tokens(draft.folder / "tokens", f"{'t' * 40} alice\n")
    draft.settings["server"]["tokens"] = str(tokens)


def set_at(*path: str, to: object) -> Callable[[Draft], None]:
    def change(draft: Draft) -> None:
        *tables, key = path
        section = draft.settings
        for name in tables:
            section = section.setdefault(name, {})
        section[key] = to

    return change


def on_all_interfaces(draft: Draft) -> None:
    draft.settings["server"] |= {"host": "0.0.0.0", "trusted_proxies": ["10.0.0.1"]}


GAPS: dict[str, tuple[Callable[[Draft], object], str]] = {
    "OAuth 2.1 with PKCE": (with_tokens, "take `tokens` out of [server]"),
    "issuer metadata is validated": (
        set_at("auth", "issuers", to=[{"issuer": "http://127.0.0.1:9"}]),
        "look whether this machine reaches the issuer",
    ),
    "secrets in a keychain or secrets manager": (
        set_at("auth", "console", to={"client_id": "console", "client_secret": "in-the-file"}),
        'client_secret = "${NAME}"',
    ),
    "no token passthrough": (
        set_at("auth", "audience", to=[AUDIENCE, "https://other.example.org/mcp"]),
        f'audience = ["{AUDIENCE}"] below [auth]',
    ),
    "TLS": (
        set_at("services", "notes", "url", to="http://10.0.0.9/mcp"),
        'url = "https://..." below [services.notes]',
    ),
    "internal interface, no 0.0.0.0": (on_all_interfaces, 'host = "10.0.0.7" below [server]'),
    "`Origin`, `Host`, CSRF": (
        set_at("server", "allowed_origins", to=["http://app.example.org"]),
        'take "http://app.example.org" out of allowed_origins',
    ),
    "limits of size and depth": (
        set_at("limits", "sessions_per_principal", to=0),
        "sessions_per_principal = 10000 below [limits]",
    ),
    "sandbox or container with limits": (
        set_at("services", "browser", "args", to=["--no-sandbox"]),
        "take --no-sandbox out of `args`",
    ),
    "data of users is separate": (
        lambda draft: (draft.folder / "data").chmod(0o755),
        "chmod 700",
    ),
    "structured log, redacted": (set_at("audit", to="off"), 'audit = "required"'),
    "arguments are validated": (
        lambda draft: draft.schema.clear(),
        'exclude = ["note"] below [services.notes]',
    ),
    "paths are sanitized": (
        set_at("services", "browser", "uploads", to=["/"]),
        'uploads = ["/srv/uploads"] below [services.browser]',
    ),
    "outputs are sanitized": (
        set_at("services", "notes", "text", to="exact"),
        'text = "clean" below [services.notes]',
    ),
    "URLs are HTTPS only": (set_at("pins", to="tell"), 'pins = "strict"'),
    "handles belong to a principal, transport ids do not authenticate": (
        set_at("server", "auto_session", to=True),
        "auto_session = false below [server]",
    ),
    CONFIRMS: (
        set_at("services", "browser", "approve", to="never"),
        'approve = "destructive" below [services.browser]',
    ),
}


@pytest.mark.parametrize("name", GAPS)
def test_a_gap_is_found_with_the_line_that_mends_it(draft: Draft, name: str) -> None:
    change, line = GAPS[name]
    change(draft)
    assessment = draft.assess()[name]
    assert assessment.status == "missing"
    assert line in "\n".join(gap.remedy for gap in assessment.gaps)


def test_the_tools_of_a_service_that_never_started_are_a_gap(draft: Draft) -> None:
    draft.has_started = False
    [gap] = draft.assess()["arguments are validated"].gaps
    assert gap.remedy.startswith("start Statehold once")


def test_an_approval_of_a_tool_that_does_not_exist_is_a_gap(draft: Draft) -> None:
    for name, pattern in (("notes", "not_*"), ("browser", "browser_clik")):
        draft.settings["services"][name]["approve"] = [pattern]
        found = draft.assess()[CONFIRMS]
        assert [gap.found for gap in found.gaps] == [f"no tool of {name} is known as {pattern}"]
        draft.settings["services"][name]["approve"] = "destructive"
    draft.settings["services"]["notes"]["approve"] = ["no*"]
    assert not draft.assess()[CONFIRMS].gaps


def test_a_library_that_does_not_compare_headers_is_a_gap(
    draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    def classify(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(controls, "classify_inbound_request", classify)
    found = draft.assess()["MCP headers are validated"]
    assert [gap.remedy for gap in found.gaps] == ["pip install --upgrade statehold mcp"]
    assert {*GAPS, found.name} == set(controls.INTERNAL)


def test_the_example_of_a_team_meets_each_control(tmp_path: Path, issuer: HostileIssuer) -> None:
    text = TEAM.read_text(encoding="utf-8").replace("http://127.0.0.1:8930", issuer.url)
    (tmp_path / "team.toml").write_text(text)
    config = load(config=tmp_path / "team.toml", environ={})
    site = Installation(config, Machine(root=False, top=tmp_path, platform="linux"))
    missing = {each.name for each in assess(site, controls.INTERNAL) if each.gaps}
    assert missing == set()


def test_the_page_for_companies_has_the_controls(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operate" / "team.md").read_text(encoding="utf-8")
    section = page.partition("## CoSAI")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| ", section, re.MULTILINE)
    assert [row for row in rows if row not in ("control", "---")] == [*controls.INTERNAL]


def test_the_command_ends_with_1_when_a_control_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEHOLD_DATA", str(tmp_path / "data"))
    assert main(["doctor", "--assurance", "L1"]) == OK
    assert capsys.readouterr().out.endswith("\n2 of 2 controls of L1 are met\n")
    assert main(["doctor", "--assurance", "L2", "--json"]) == FAILURE
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["level"]) == (False, "L2")
    controls_by_name = {each["name"]: each for each in document["controls"]}
    accounts = controls_by_name["OAuth 2.1 with PKCE"]
    assert accounts["status"] == "missing"
    [gap] = accounts["evidence"]
    assert "[[auth.issuers]]" in gap["remedy"]
    assert controls_by_name["MCP headers are validated"]["status"] == "met"
    assert main(["doctor", "--assurance", "L3"]) == FAILURE
    lines = capsys.readouterr().out.splitlines()
    assert "  OAuth 2.1 with PKCE: " + gap["remedy"] in lines
