"""The pages that browsers visit: the site of the tests with the pages of the measurements, in a process of its own.

`python -m benchmarks.browser.site` serves it until it is stopped.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from ..plan import ROOT, python
from ..processes import stop
from . import documents, effects, painting

MODULE: Final = "benchmarks.browser.site"
"""The name of this module, in the command line of the process that serves the site."""


@contextmanager
def served() -> Generator[str]:
    """Serve the site while the block runs; yield its address."""
    process = subprocess.Popen(
        python("-m", MODULE),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield f"http://127.0.0.1:{json.loads(line)['port']}"
    finally:
        stop(process)
        if process.stdout is not None:
            process.stdout.close()


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "site"))
    lab: Any = importlib.import_module("lab")
    lab.pages.PAGES |= effects.pages() | documents.pages() | painting.pages()
    lab.main()


if __name__ == "__main__":
    main()
