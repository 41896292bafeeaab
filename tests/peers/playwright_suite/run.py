"""Runs Playwright's own `tests/mcp` against the tools of our browser: `python tests/peers/playwright_suite/run.py CHECKOUT`.

CHECKOUT is a checkout of github.com/microsoft/playwright. Its tests are copied into a temporary folder, and run there by the
Playwright of `tests/peers/node_modules` with our server in place of theirs. More arguments choose files, as in `core tabs`.
The last line gives the tests that pass at each level of `responses.cjs`. Exit 1 if a test fails that
`expected_failures.toml` does not name, or if one passes that it names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODULES = HERE.parent / "node_modules"
WORKERS = 2
LEFT_OUT = (
    "annotate",
    "cli-",
    "config-resolve",
    "dashboard",
    "generator",
    "init-agents",
    "planner",
    "seed-default-project",
    "semver",
    "test-",
    "trace-cli",
)
"""Files of tests of other programs: the command line of the peer, its test runner, its dashboard, its parts."""
ALIASES = {
    "@playwright/test": "module.exports = require('playwright/test');",
    "mime": "exports.getType = name => require('mime-types').lookup(name) || null;",
}
CHROMIUM = "PLAYWRIGHT_CHROMIUM_EXECUTABLE_PATH"
REWRITES = (
    (
        "[require.resolve('../../packages/playwright-core/lib/entry/mcp.js')]",
        f"[{json.dumps(str(HERE / 'server.cjs'))}]",
    ),
    (
        "export const { parseResponse } = tools;",
        f"const ours = require({json.dumps(str(HERE / 'responses.cjs'))});\nexport const {{ parseResponse }} = ours;",
    ),
    ("clients.push(client);", "clients.push(client);\n      ours.leaveOutLinks(client);"),
    ("channel: mcpBrowser,", f"executablePath: process.env.{CHROMIUM},"),
    (
        "toHaveResponse(response: Response, object: any) {",
        "toHaveResponse(response: Response, object: any) {\n    return ours.toHaveResponse.call(this, response, object);",
    ),
)
CONFIG = """export default {{
  testDir: __dirname, fullyParallel: true, workers: {workers}, timeout: 180000, outputDir: {results},
  reporter: [['dot'], ['json', {{ outputFile: {report} }}]],
  projects: [{{ name: 'chromium', use: {{ mcpBrowser: 'chromium', headless: true }} }}],
}};
"""


@dataclass(frozen=True)
class SuiteOutcome:
    """The levels at which one test passed."""

    name: str
    strict: bool
    adapted: bool
    relaxed: bool


def build(checkout: Path, folder: Path) -> Path:
    """Copy the tests into `folder`, with the packages that they import. Return the configuration of the test runner."""
    tests = folder / "tests"
    for part in ("mcp", "config", "assets", "third_party/proxy"):
        shutil.copytree(checkout / "tests" / part, tests / part)
    for file in (tests / "mcp").glob("*.spec.ts"):
        if file.name.startswith(LEFT_OUT):
            file.unlink()
    fixtures = tests / "mcp" / "fixtures.ts"
    text = fixtures.read_text()
    for old, new in REWRITES:
        if old not in text:
            raise SystemExit(f"{fixtures.name} of this checkout has no line {old!r}")
        text = text.replace(old, new)
    fixtures.write_text(text)
    modules = folder / "node_modules"
    (modules / "@playwright").mkdir(parents=True)
    for module in MODULES.iterdir():
        if module.name != "@playwright":
            (modules / module.name).symlink_to(module)
    for name, source in ALIASES.items():
        (modules / name).mkdir()
        (modules / name / "index.js").write_text(source)
    (folder / "packages" / "playwright-test").mkdir(parents=True)
    (folder / "packages" / "playwright-test" / "cli.js").touch()
    (folder / "packages" / "playwright-core").symlink_to(MODULES / "playwright-core")
    config = tests / "mcp" / "ours.config.ts"
    names = {name: json.dumps(str(folder / name)) for name in ("results", "report")}
    config.write_text(CONFIG.format(workers=WORKERS, **names))
    return config


def outcomes(suite: dict[str, Any], names: tuple[str, ...] = ()) -> Iterator[SuiteOutcome]:
    """Read the tests of a report of Playwright."""
    for inner in suite.get("suites", ()):
        yield from outcomes(inner, (*names, inner["title"]))
    for spec in suite.get("specs", ()):
        (run,) = spec["tests"]
        notes = [note["description"] for note in run["annotations"] if note["type"] == "levels"]
        levels = (
            json.loads(notes[-1]) if notes else {"strict": True, "adapted": True, "compared": True}
        )
        passed = run["results"][-1]["status"] == "passed" and levels["compared"]
        yield SuiteOutcome(
            " > ".join((*names, spec["title"])),
            passed and levels["strict"],
            passed and levels["adapted"],
            passed,
        )


def main(checkout: Path, chosen: list[str]) -> int:
    """Run the suite, print the tests that surprise and the counts."""
    if not (checkout / "tests" / "mcp" / "fixtures.ts").is_file():
        raise SystemExit(f"{checkout} is no checkout of github.com/microsoft/playwright")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    environment = {
        **os.environ,
        "STATEHOLD": str(Path(sys.executable).with_name("statehold")),
        "PWTEST_UNDER_TEST": "1",
        **({CHROMIUM: chromium} if chromium else {}),
    }
    with tempfile.TemporaryDirectory(prefix="playwright-suite-") as name:
        folder = Path(name)
        config = build(checkout, folder)
        command = [
            "node",
            str(MODULES / "playwright" / "cli.js"),
            "test",
            "--config",
            str(config),
            *chosen,
        ]
        subprocess.run(command, cwd=folder, env=environment, check=False)
        report = json.loads((folder / "report").read_text())
    found = sorted(outcomes(report), key=lambda outcome: outcome.name)
    groups: dict[str, list[str]] = tomllib.loads((HERE / "expected_failures.toml").read_text())
    reasons = {test: reason for reason, tests in groups.items() for test in tests}
    failed = [
        outcome.name for outcome in found if not outcome.relaxed and outcome.name not in reasons
    ]
    passed = [outcome.name for outcome in found if outcome.relaxed and outcome.name in reasons]
    lines = [f"fails, and is not expected to: {test}" for test in failed]
    lines += [f"passes, and is expected to fail: {test}" for test in passed]
    lines.append(
        f"{len(found)} tests: strict {sum(outcome.strict for outcome in found)}, "
        f"adapted {sum(outcome.adapted for outcome in found)}, relaxed {sum(outcome.relaxed for outcome in found)}"
    )
    sys.stdout.write("\n".join([*lines, ""]))
    return 1 if failed or passed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
