"""A release by a tag: its documents say what pyproject.toml says, and its workflow runs in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
REPOSITORY = "Ada/statehold"


def release(*words: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / ".ci" / "release.py", *words],
        env={**os.environ, "GITHUB_REPOSITORY": REPOSITORY},
        capture_output=True,
        text=True,
    )


def test_the_files_of_a_release_say_what_the_project_says(tmp_path: Path) -> None:
    wheel = tmp_path / f"statehold-{VERSION}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    first = release("files", str(tmp_path))
    assert first.returncode == 0, first.stderr
    server = json.loads((tmp_path / "server.json").read_text())
    card = json.loads((tmp_path / "server-card.json").read_text())
    bundle = tmp_path / "statehold.mcpb"
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        inner = tomllib.loads(archive.read("pyproject.toml").decode())
        assert archive.read(wheel.name) == b"a wheel"
        assert archive.read(manifest["icon"]).startswith(b"\x89PNG")
    for document in (server, card, manifest):
        assert document["version"] == VERSION
        assert document["description"] == PROJECT["description"]
    # The registry and the cards take no more.
    assert len(PROJECT["description"]) <= 100
    assert server["name"] == card["name"] == "io.github.Ada/statehold"
    description = release("readme").stdout
    assert f"<!-- mcp-name: {server['name']} -->" in description
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert len(links) > 20
    assert all(link.startswith("https://") for link in links)
    assert any(pin.startswith("mcp==") for pin in inner["tool"]["uv"]["constraint-dependencies"])
    before = bundle.read_bytes()
    release("files", str(tmp_path))
    assert bundle.read_bytes() == before


def test_the_notes_are_the_section_of_the_tag(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release.py", tmp_path / ".ci")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## [Unreleased]\n\n- later\n")
    assert release("notes", f"v{VERSION}", root=tmp_path).returncode == 1
    changes.write_text(
        f"# Changelog\n\n## [Unreleased]\n\n- later\n\n## [{VERSION}] - 2026-12-01\n\n- now\n\n### Also\n\n"
        "- this\n\n## [0.0.1]\n\n- before\n"
    )
    done = release("notes", f"v{VERSION}", root=tmp_path)
    assert done.stdout == "- now\n\n### Also\n\n- this\n"
    assert release("notes", "v99.0.0", root=tmp_path).returncode == 1


def test_the_workflow_publishes_after_the_tests_and_with_no_more_rights_than_it_needs() -> None:
    def before(job: str) -> set[str]:
        needs = JOBS[job].get("needs", [])
        needs = [needs] if isinstance(needs, str) else needs
        return {*needs, *(earlier for need in needs for earlier in before(need))}

    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in ("image", "pypi", "release", "registry", "site"):
        assert {"test", "build"} <= before(job), job
    for job in JOBS.values():
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v1)", step.get("uses", "a/b@v1"))
            # A name of a branch or a tag is a value of the environment: in a script it would be code.
            assert "${{" not in step.get("run", "")
            subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=True)


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_the_steps_that_build_a_release_run(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        copy = tmp_path / "project" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, copy)
    project = tmp_path / "project"
    changes = (project / "CHANGELOG.md").read_text()
    (project / "CHANGELOG.md").write_text(changes.replace("[Unreleased]", f"[{VERSION}]", 1))
    # uv is here already.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "pipx").write_text("#!/bin/sh\n")
    (tools / "pipx").chmod(0o755)
    outputs = tmp_path / "outputs"
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_REF_NAME": f"v{VERSION}",
        "GITHUB_REF_TYPE": "tag",
        "GITHUB_OUTPUT": str(outputs),
        "TARGET": "browser",
    }
    by_names = [step for step in JOBS["image"]["steps"] if step.get("id") == "names"]
    packages = [step for step in JOBS["pypi"]["steps"] if "run" in step]
    for step in [*JOBS["build"]["steps"], *by_names, *packages]:
        if "run" in step:
            command = ["bash", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True
            )
            assert done.returncode == 0, (step["run"], done.stdout)
    told = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    assert told["sbom"] == f"dist/statehold-{VERSION}.cdx.json"
    assert told["tag"] == f"ghcr.io/ada/statehold:{VERSION}-browser"
    assert {path.suffix for path in (project / "packages").iterdir()} == {".whl", ".gz"}
    assert (project / "dist" / "NOTES.md").stat().st_size > 1000
