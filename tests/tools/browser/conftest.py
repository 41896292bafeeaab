"""A running browser service per module, a session per test, and the site they visit."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from browsing import Browse, opened, running
from listening import listening

from statehold.tools.browser.service import BrowserService

LAB = Path(__file__).resolve().parents[2] / "site" / "lab.py"


@pytest.fixture(scope="session")
def shell(headless_shell: str) -> str:
    """The path of the headless shell."""
    return headless_shell


@pytest.fixture(scope="session")
def lab() -> Generator[str]:
    """The address of the site for browsers, as http://127.0.0.1:PORT."""
    with listening([sys.executable, str(LAB), "--port", "0"]) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def anyio_backend() -> Any:
    return "asyncio"


@pytest.fixture(scope="module")
async def service(
    anyio_backend: Any,
    tmp_path_factory: pytest.TempPathFactory,
    shell: str,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[BrowserService]:
    """The service of a module, with the capabilities that its CAPS names."""
    module: Any = request.node.getparent(pytest.Module)
    caps = getattr(module.module, "CAPS", [])
    async with running(tmp_path_factory.mktemp("data"), shell, caps=caps) as found:
        yield found


@pytest.fixture
async def browse(service: BrowserService) -> AsyncGenerator[Browse]:
    """The browser of a session of this test's own."""
    async with opened(service) as found:
        yield found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
