"""The files of a release that describe it to others, all from pyproject.toml: `python release.py files DIST`.

Into DIST, which has the wheel, it writes statehold.mcpb (a bundle for desktop clients: the wheel, and the versions of
uv.lock), server.json (the entry in the MCP registry), server-card.json and ai-catalog.json (discovery over HTTP).
`python release.py notes TAG` prints the section of CHANGELOG.md for a tag, and `python release.py readme` the README for
PyPI: its links lead to the repository, and its last line proves to the registry that the package is ours. Only
GITHUB_REPOSITORY says where the repository is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION: str = PROJECT["version"]
REPOSITORY = os.environ.get("GITHUB_REPOSITORY") or "OWNER/statehold"
OWNER = REPOSITORY.partition("/")[0]
ADDRESS = f"https://github.com/{REPOSITORY}"
NAME = f"io.github.{OWNER}/statehold"
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
DATE = (1980, 1, 1, 0, 0, 0)
"""The time of all files of the bundle, the first that ZIP knows: the same commit makes the same bundle."""

SERVER = '''\
"""Starts Statehold as the client of a desktop: on stdin and stdout, with the sessions of all others."""

import sys

from statehold.shell.entry import main

sys.argv[1:] = sys.argv[1:] or ["--shared"]
sys.exit(main())
'''


def files(dist: Path) -> None:
    """Write the bundle and the three documents."""
    (wheel,) = dist.glob(f"statehold-{VERSION}-*.whl")
    bundle = dist / "statehold.mcpb"
    write_bundle(bundle, wheel)
    publisher = f"{OWNER}.github.io"
    cards = runpy.run_path(str(ROOT / "server" / "http" / "server_card.py"))
    described = {
        **cards["describe"](publisher, PROJECT["description"], VERSION),
        "repository": {"url": ADDRESS, "source": "github"},
    }
    shared = [{"type": "named", "name": "--shared"}]
    stdio = {"type": "stdio"}
    python = {"registryType": "pypi", "identifier": "statehold", "version": VERSION}
    released = {
        "registryType": "mcpb",
        "identifier": f"{ADDRESS}/releases/download/v{VERSION}/{bundle.name}",
        "fileSha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
    }
    server = {
        "$schema": SCHEMA,
        **described,
        "packages": [
            {**python, "runtimeHint": "uvx", "transport": stdio, "packageArguments": shared},
            {**released, "transport": stdio},
        ],
    }
    origin = {
        "description": "where your Statehold listens",
        "isRequired": True,
        "default": "http://127.0.0.1:8931",
    }
    card = cards["card"](described, "{origin}/mcp", variables={"origin": origin})
    write_json(dist / "server.json", server)
    write_json(dist / "server-card.json", card)
    write_json(dist / "ai-catalog.json", cards["catalog"](publisher, data=card))


def write_bundle(bundle: Path, wheel: Path) -> None:
    """Write the bundle: uv makes its environment where it is unpacked, with the versions that the wheel was tested with."""
    manifest = {
        "manifest_version": "0.4",
        "name": "statehold",
        "display_name": "Statehold",
        "version": VERSION,
        "description": PROJECT["description"],
        "author": {"name": "The Statehold authors", "url": ADDRESS},
        "repository": {"type": "git", "url": ADDRESS},
        "license": PROJECT["license"],
        "keywords": PROJECT["keywords"],
        "icon": "icon.png",
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "server.py"],
            },
        },
        "tools_generated": True,
        "compatibility": {
            "platforms": ["darwin", "linux"],
            "runtimes": {"python": PROJECT["requires-python"]},
        },
    }
    command = [
        "uv",
        "export",
        "--quiet",
        "--locked",
        "--no-dev",
        "--no-emit-project",
        "--no-hashes",
    ]
    command += ["--no-annotate", "--no-header", "--project", str(ROOT)]
    pins = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    project = f"""\
[project]
name = "statehold-bundle"
version = "{VERSION}"
requires-python = "{PROJECT["requires-python"]}"
dependencies = ["statehold"]

[tool.uv]
package = false
sources.statehold.path = "{wheel.name}"
constraint-dependencies = {json.dumps(pins, indent=4)}
"""
    contents = {
        "manifest.json": json.dumps(manifest, indent=2).encode(),
        "pyproject.toml": project.encode(),
        "server.py": SERVER.encode(),
        "icon.png": (ROOT / "deploy" / "bundle" / "icon.png").read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            file = zipfile.ZipInfo(name, DATE)
            file.external_attr = 0o100644 << 16
            archive.writestr(file, content, zipfile.ZIP_DEFLATED)


def write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def readme() -> str:
    """Return README.md for a reader who has no clone."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files = f"https://raw.githubusercontent.com/{REPOSITORY}/v{VERSION}/"
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{files}", text)
    text = re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{ADDRESS}/blob/v{VERSION}/", text)
    return f"{text}\n<!-- mcp-name: {NAME} -->\n"


def notes(tag: str) -> str:
    """Return the section of the changelog for a tag, which must be that of the version."""
    if tag != f"v{VERSION}":
        sys.exit(f"release: the tag is {tag}, the version in pyproject.toml {VERSION}")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(VERSION)}\][^\n]*\n(.*?)(?=^## |\Z)"
    section = re.search(heading, changes, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        sys.exit(f"release: CHANGELOG.md has no section [{VERSION}]; give [Unreleased] this name")
    return section[1].strip()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["files", folder]:
            files(Path(folder))
        case ["notes", tag]:
            sys.stdout.write(f"{notes(tag)}\n")
        case ["readme"]:
            sys.stdout.write(readme())
        case _:
            sys.exit(__doc__)
