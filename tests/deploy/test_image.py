"""The recipe of the images agrees with the project that it builds, and its steps run where no container is needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "deploy" / "image" / "Containerfile"
SYSTEM = {"apt-get", "rm", "useradd"}
"""Commands that change the system of the image: they are not run here."""


def sent_to_the_builder() -> set[str]:
    lines = RECIPE.with_name("Containerfile.dockerignore").read_text().splitlines()
    return {line.removeprefix("!") for line in lines if line.startswith("!")}


def test_the_image_gets_everything_that_the_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {Path(path).parts[0] for path in (*wheel["only-include"], *wheel["shared-data"])}
    needed |= {"pyproject.toml", "uv.lock", project["project"]["readme"]}
    needed |= set(project["project"]["license-files"])
    assert needed <= sent_to_the_builder()
    extras = set(re.findall(r"--extra (\w+)", RECIPE.read_text()))
    assert extras <= project["project"]["optional-dependencies"].keys()


def steps() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the recipe with their arguments."""
    text = re.sub(r"^#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        yield word, " ".join(rest.split())


class ImageFolder:
    """A folder in place of the file system of an image: the steps run in it, with a virtual environment for Python."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.environment: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self.folder = top
        self.skipped: list[str] = []
        tools = top / "tools"
        tools.mkdir()
        # uv reads its cache, where pip would load 90 MB each time.
        (tools / "pip").write_text(
            f'#!/bin/sh\nexec uv pip "$@" --quiet --python {top}/python/bin/python\n'
        )
        (tools / "pip").chmod(0o755)
        # One that another user may start, too.
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3"
        subprocess.run(["uv", "venv", "--quiet", "--python", python, top / "python"], check=True)
        self.path = f"{tools}:{top}/python/bin:{os.environ['PATH']}"

    def here(self, text: str) -> str:
        """Return a text with the folders of the image below this one."""
        return re.sub(r"(?<![\w/.])/(source|wheels|opt|var)\b", rf"{self.top}/\1", text)

    def take(self, word: str, rest: str) -> None:
        match word:
            case "FROM" | "EXPOSE":
                pass
            case "WORKDIR":
                self.folder = Path(self.here(rest))
                self.folder.mkdir(parents=True, exist_ok=True)
            case "COPY":
                assert rest == ". ."
                for name in sent_to_the_builder() - {"**/__pycache__"}:
                    copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                    copy(ROOT / name, self.folder / name)
            case "ENV":
                self.environment |= dict(pair.split("=", 1) for pair in self.here(rest).split())
            case "USER" | "ENTRYPOINT" | "CMD":
                self.settings[word] = rest if word == "USER" else json.loads(self.here(rest))
            case "RUN":
                for command in re.sub(r"--mount=\S+ ", "", rest).split(" && "):
                    self.run(command)
            case _:
                raise AssertionError(f"the recipe has {word}, which this test does not know")

    def run(self, command: str) -> None:
        program = command.split()[0]
        if program in SYSTEM:
            self.skipped.append(command)
            return
        assert program in {"pip", "uv", "playwright"}, command
        if program == "playwright":
            # Tells the downloads: they come from elsewhere than packages.
            command = command.replace("--with-deps ", "") + " --dry-run"
        command = self.here(command.replace("--no-cache-dir ", ""))
        subprocess.run(
            ["sh", "-ec", command],
            cwd=self.folder,
            env={**os.environ, **self.environment, "PATH": self.path},
            check=True,
            stdout=subprocess.DEVNULL,
        )


@pytest.fixture
def image() -> Generator[ImageFolder]:
    # Not tmp_path: its parents are closed for other users.
    with tempfile.TemporaryDirectory(prefix="image") as name:
        top = Path(name)
        top.chmod(0o755)
        yield ImageFolder(top)


@pytest.mark.thorough
async def test_the_steps_of_the_recipe_lead_to_a_server_that_another_user_runs(
    image: ImageFolder,
) -> None:
    for word, rest in steps():
        image.take(word, rest)
    assert any("tini" in command for command in image.skipped)
    uid, gid = map(int, image.settings["USER"].split(":"))
    assert uid
    assert gid
    assert any(f"--uid {uid} " in command for command in image.skipped)
    program, *words = [*image.settings["ENTRYPOINT"], *image.settings["CMD"]]
    assert (program, words[0]) == ("tini", "--")
    home = Path(image.environment["HOME"])
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(home, uid, gid)
    process = subprocess.Popen(  # noqa: ASYNC220
        [image.top / "python" / "bin" / words[1], *words[2:], "--port", "0"],
        cwd=image.folder,
        env={**image.environment, "PATH": image.path},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        user=uid if is_root else None,
        group=gid if is_root else None,
        extra_groups=[] if is_root else None,
    )
    try:
        assert process.stderr is not None
        address = None
        for line in process.stderr:
            address = re.search(r"http://\S+/mcp", line.decode())
            if address:
                break
        assert address, "the server ended"
        async with Client(streamable_http_client(address[0])) as client:
            created = await client.call_tool("session_create", {"name": "first"})
            assert created.structured_content
            assert created.structured_content["session_id"].startswith("sh_")
        data = home / "data"
        assert not is_root or data.stat().st_uid == uid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0
