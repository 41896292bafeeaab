"""The pages that browsers visit: the site of the tests, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from .plan import ROOT, python
from .processes import stop

LAB = ROOT / "tests" / "site" / "lab.py"


@contextmanager
def served() -> Generator[str]:
    """Serve the site while the block runs; yield its address."""
    process = subprocess.Popen(
        python(LAB, "--port", "0"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield f"http://127.0.0.1:{json.loads(line)['port']}"
    finally:
        stop(process)
        if process.stdout is not None:
            process.stdout.close()
