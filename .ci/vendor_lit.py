"""Writes the vendored modules of Lit: the files that npm publishes, with addresses in place of package names."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGES = {
    "lit-html@3.3.3": {
        "lit-html.js": "lit-html.js",
        "directive.js": "directive.js",
        "directive-helpers.js": "directive-helpers.js",
        "directives/repeat.js": "directives/repeat.js",
        "directives/live.js": "directives/live.js",
        "LICENSE": "LICENSE",
    },
    "@lit/reactive-element@2.1.2": {
        "reactive-element.js": "reactive-element.js",
        "css-tag.js": "css-tag.js",
    },
    "lit-element@4.2.2": {"lit-element.js": "lit-element.js"},
}
ADDRESSES = {"lit-html": "lit-html.js", "@lit/reactive-element": "reactive-element.js"}
FOLDER = Path(__file__).parents[1] / "console" / "static" / "vendor" / "lit"


def rewrite(source: str, name: str) -> str:
    """Return a module with relative addresses of its imports, and without the address of its source map."""
    base = "../" if "/" in name else "./"

    def address(match: re.Match[str]) -> str:
        return f'from"{base}{ADDRESSES[match[1]]}"'

    source = re.sub(r'from"(lit-html|@lit/reactive-element)"', address, source)
    return re.sub(r"\n?//# sourceMappingURL=.*\n?$", "\n", source)


def modules() -> dict[str, str]:
    """Download the packages and return the vendored files by their names."""
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for package, names in PACKAGES.items():
            command = ["npm", "pack", "--silent", "--json", package]
            output = subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
            archive = Path(folder) / json.loads(output)[0]["filename"]
            with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
                for source, name in names.items():
                    member = tar.extractfile(f"package/{source}")
                    assert member is not None
                    files[name] = rewrite(member.read().decode(), name)
    return files


def main() -> int:
    """Write the files; with --check, compare them only."""
    differing: list[str] = []
    for name, text in modules().items():
        path = FOLDER / name
        if "--check" in sys.argv:
            if not path.is_file() or path.read_text("utf-8") != text:
                differing.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    if differing:
        print(f"differ from the published packages: {', '.join(differing)}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
