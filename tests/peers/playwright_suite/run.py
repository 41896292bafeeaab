"""Runs Playwright's own `tests/mcp` against the tools of our browser: `python tests/peers/playwright_suite/run.py CHECKOUT`.

CHECKOUT is a checkout of github.com/microsoft/playwright. Its tests are copied into a temporary folder, and run there by the
Playwright of `tests/peers/node_modules` with our server in place of theirs. More arguments choose files, as in `core tabs`.
The last line gives the tests that pass at each level of `responses.cjs`. A test does not count if the suite leaves it out on
this system, or if it passes without a start of our server. Exit 1 if a test fails that `expected_failures.toml` does not
name, or if one passes that it names.
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

import playwright

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
EXECUTABLE = f"executablePath: process.env.{CHROMIUM},"
DRIVER = Path(playwright.__file__).parent / "driver" / "package"
"""The Playwright that our server uses: one of another version serves it no browser."""
REWRITES = (
    (
        "[require.resolve('../../packages/playwright-core/lib/entry/mcp.js')]",
        f"ours.program({json.dumps(str(HERE / 'server.cjs'))})",
    ),
    (
        "export const { parseResponse } = tools;",
        f"export const ours = require({json.dumps(str(HERE / 'responses.cjs'))});\nexport const {{ parseResponse }} = ours;",
    ),
    ("clients.push(client);", "clients.push(client);\n      ours.adaptCalls(client);"),
    ("stderr: () => stderrBuffer", "stderr: () => ours.inWordsOfPeer(stderrBuffer)"),
    (
        "PW_TMPDIR_FOR_TEST: testInfo.outputPath('tmp'),",
        "PW_TMPDIR_FOR_TEST: testInfo.outputPath('tmp'),\n        ...(options?.roots ? { SUITE_HAS_ROOTS: '1' } : {}),",
    ),
    (
        "toHaveResponse(response: Response, object: any) {",
        "toHaveResponse(response: Response, object: any) {\n    return ours.toHaveResponse.call(this, response, object);",
    ),
    (
        "export function formatLog(stderr: string) {",
        "export function formatLog(stderr: string) {\n  return ours.formatLog();",
    ),
    (
        "export async function consoleEntries(response: any) {",
        "export async function consoleEntries(response: any) {\n  return ours.consoleEntries(response);",
    ),
    ("channel: mcpBrowser,", EXECUTABLE),
    ("channel: mcpBrowser === 'chromium' ? 'chrome-for-testing' : mcpBrowser,", EXECUTABLE),
    (
        "chromium.launchServer()",
        f"require({json.dumps(str(DRIVER))}).chromium.launchServer({{ {EXECUTABLE} }})",
    ),
    (
        "path.join(__dirname, '..', '..', 'packages', 'playwright-core', 'cli.js')",
        json.dumps(str(DRIVER / "cli.js")),
    ),
    (
        "import { test, expect } from './fixtures';\n\nconst BLOCK_MESSAGE",
        "import { ours, test, expect } from './fixtures';\n\nconst BLOCK_MESSAGE",
    ),
    (
        "return JSON.stringify(result, null, 2);",
        "return ours.inWordsOfPeer(JSON.stringify(result, null, 2));",
    ),
)
"""Texts in the files of the tests, and those in their place."""
CONFIG = """export default {{
  testDir: __dirname, fullyParallel: true, workers: {workers}, timeout: 120000, outputDir: {results},
  reporter: [['list'], ['json', {{ outputFile: {report} }}]],
  projects: [{{ name: 'chromium', use: {{ mcpBrowser: 'chromium', headless: true }} }}],
}};
"""


@dataclass(frozen=True)
class SuiteOutcome:
    """The levels at which one test passed."""

    name: str
    fails: bool
    """Whether it ran and failed, or compares nothing any more."""
    counts: bool
    """Whether it is a test of our server that the suite does not leave out on this system."""
    strict: bool
    adapted: bool

    @property
    def relaxed(self) -> bool:
        return self.counts and not self.fails


def build(checkout: Path, folder: Path) -> Path:
    """Copy the tests into `folder`, with the packages that they import. Return the configuration of the test runner."""
    tests = folder / "tests"
    for part in ("mcp", "config", "assets", "third_party/proxy"):
        shutil.copytree(checkout / "tests" / part, tests / part)
    for file in (tests / "mcp").glob("*.spec.ts"):
        if file.name.startswith(LEFT_OUT):
            file.unlink()
    sources = {
        file: file.read_text()
        for file in (*tests.glob("mcp/*.ts"), tests / "config" / "remoteServer.ts")
    }
    for old, new in REWRITES:
        found = [file for file, text in sources.items() if old in text]
        if not found:
            raise SystemExit(f"The tests of this checkout have no text {old!r}")
        sources.update({file: sources[file].replace(old, new) for file in found})
    for file, text in sources.items():
        file.write_text(text)
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
        levels: dict[str, bool] = json.loads(notes[-1]) if notes else {}
        fails = run["status"] == "unexpected" or not levels.get("compared", True)
        counts = run["status"] != "skipped" and (bool(notes) or fails)
        passed = counts and not fails
        yield SuiteOutcome(
            " > ".join(name for name in (*names, spec["title"]) if name),
            fails,
            counts,
            passed and levels["strict"],
            passed and levels["adapted"],
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
        if subprocess.run(command, cwd=folder, env=environment, check=False).returncode not in (
            0,
            1,
        ):
            raise SystemExit("The tests did not run to their end")
        report = json.loads((folder / "report").read_text())
    found = sorted(outcomes(report), key=lambda outcome: outcome.name)
    groups: dict[str, list[str]] = tomllib.loads((HERE / "expected_failures.toml").read_text())
    reasons = {test: reason for reason, tests in groups.items() for test in tests}
    failed = [outcome.name for outcome in found if outcome.fails and outcome.name not in reasons]
    passed = [outcome.name for outcome in found if not outcome.fails and outcome.name in reasons]
    lines = [f"fails, and is not expected to: {test}" for test in failed]
    lines += [f"passes, and is expected to fail: {test}" for test in passed]
    if not chosen:
        absent = sorted(reasons.keys() - {outcome.name for outcome in found})
        lines += [
            f"is expected to fail, and is no test of this checkout: {test}" for test in absent
        ]
    lines += [f"does not count: {outcome.name}" for outcome in found if not outcome.counts]
    lines.append(
        f"{len(found)} tests, of which {sum(outcome.counts for outcome in found)} count: "
        f"strict {sum(outcome.strict for outcome in found)}, "
        f"adapted {sum(outcome.adapted for outcome in found)}, relaxed {sum(outcome.relaxed for outcome in found)}"
    )
    sys.stdout.write("\n".join([*lines, ""]))
    return 1 if failed or passed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
