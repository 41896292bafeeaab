"""Builds the site: `.ci/site FOLDER` calls it in the environment of the group `site`.

The README is the landing page, and docs/index.md is the navigation. A file outside of docs/ that a page links to becomes a
page too, so that no link leads out of the site, and each version has its own files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MERMAID = ROOT / "tests/peers/pictures/node_modules/mermaid/dist/mermaid.min.js"
LINK = re.compile(r"""(\]\(|src=")([^)#"\s]+)""")
PICTURES = (".svg", ".png")
LISTING = "---\nsearch:\n  exclude: true\n---\n\n# {}\n"
ENTRANCE = (
    '<!doctype html><title>Docs</title><meta http-equiv="refresh" content="0; url=latest/">\n'
)


def place(source: Path) -> Path:
    """Return where the site has a file of the repository."""
    path = source.relative_to(ROOT)
    if path.parts[0] == "docs":
        return Path("pages.md") if path.name == "index.md" else path.relative_to("docs")
    if path == Path("README.md"):
        return Path("index.md")
    return Path("files", path if path.suffix == ".md" else f"{path}.md")


def navigation() -> list[dict[str, Any]]:
    """Return the links of docs/index.md: a section for each heading, and one in it for a folder in its folder."""
    sections: dict[str, list[dict[str, Any]]] = {"Home": [{"Statehold": "index.md"}]}
    heading = "Home"
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    for title, label, link in re.findall(r"^## (.+)|\[([^\]]+)\]\(([^)#]+)\)", text, re.M):
        heading = title or heading
        entries = sections.setdefault(heading, [])
        if link in ("", "../README.md"):
            continue
        page = place((DOCS / link).resolve())
        name = label[0].upper() + label[1:]
        if len(page.parts) > 2 and page.parts[0] != "files":
            name = label
            folder = page.parts[1].capitalize()
            if not entries or folder not in entries[-1]:
                entries.append({folder: []})
            entries = entries[-1][folder]
        entries.append({name: str(page)})
    sections["Home"].append({"All pages": "pages.md"})
    return [{title: entries} for title, entries in sections.items()]


def listing(source: Path) -> str:
    """Return a page with the text of a file, or of each file of a folder."""
    page = LISTING.format(source.relative_to(ROOT))
    for file in [source] if source.is_file() else sorted(source.rglob("*.*")):
        if file.suffix not in PICTURES:
            title = "" if file == source else f"\n## {file.relative_to(source)}\n"
            page += f"{title}\n````{file.suffix[1:]}\n{file.read_text(encoding='utf-8')}````\n"
    return page


def write_pages(folder: Path) -> None:
    """Write the pages, and the pictures that they show, into `folder`."""
    waiting, written = {ROOT / "README.md", *DOCS.rglob("*.md")}, set[Path]()
    while waiting:
        source = waiting.pop()
        written.add(source)
        page = folder / place(source)

        def link(match: re.Match[str], source: Path = source, page: Path = page) -> str:
            target = (source.parent / match[2]).resolve()
            if "://" in match[2] or not target.exists():
                return match[0]
            if target.suffix in PICTURES:
                copy = folder / target.relative_to(DOCS)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(target, copy)
            else:
                copy = folder / place(target)
                waiting.update({target} - written)
            return f"{match[1]}{os.path.relpath(copy, page.parent)}"

        page.parent.mkdir(parents=True, exist_ok=True)
        is_page = source.suffix == ".md"
        text = LINK.sub(link, source.read_text("utf-8")) if is_page else listing(source)
        page.write_text(text, encoding="utf-8")


def build(site: Path) -> None:
    """Build the site of this version into the folder `site`, with the Markdown of each page beside it and an llms.txt."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch)
        pages = project / "docs"
        write_pages(pages)
        (pages / ".nav.yml").write_text(json.dumps({"nav": navigation()}), encoding="utf-8")
        shutil.copy(MERMAID, pages)
        shutil.copytree(DOCS / "site", project, dirs_exist_ok=True)
        shutil.move(project / "site.css", pages)
        program = [sys.executable, "-m", "zensical", "build", "--strict"]
        subprocess.run(program, cwd=project, check=True)
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(project / "site", site)
        for page in pages.rglob("*.md"):
            shutil.copy(page, site / page.relative_to(pages))
    index = (site / "pages.md").read_text("utf-8").replace("# Documentation", "# Statehold", 1)
    (site / "llms.txt").write_text(index, encoding="utf-8")


def publish(folder: Path) -> None:
    """Build the site of this version into `folder`, and make it the newest of those that are there."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    build(folder / version)
    versions, latest = folder / "versions.json", folder / "latest"
    entries: list[dict[str, Any]] = json.loads(versions.read_text()) if versions.exists() else []
    entries = [{**entry, "aliases": []} for entry in entries if entry["version"] != version]
    newest = {"version": version, "title": version, "aliases": ["latest"]}
    versions.write_text(json.dumps([newest, *entries]))
    latest.unlink(missing_ok=True)
    latest.symlink_to(version)
    (folder / "index.html").write_text(ENTRANCE)


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
