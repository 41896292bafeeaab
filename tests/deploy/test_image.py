"""The recipe of the images agrees with the project that it builds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_image_gets_everything_that_the_wheel_is_built_from() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    build = project["tool"]["hatch"]["build"]["targets"]
    needed = {Path(path).parts[0] for path in build["wheel"]["only-include"]}
    needed |= {"pyproject.toml", "uv.lock", project["project"]["readme"]}
    needed |= set(project["project"]["license-files"])
    lines = (DEPLOY / "image" / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert needed <= sent
    recipe = (DEPLOY / "image" / "Dockerfile").read_text()
    extras = set(re.findall(r"--extra (\w+)", recipe))
    assert extras <= project["project"]["optional-dependencies"].keys()
