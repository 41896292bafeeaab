"""`statehold doctor`: checks of the installation and the data, with a remedy for each problem.

Changes nothing, except that it installs a missing browser with consent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from ...access.config.types import ConfigError
from ...access.tokens import StaticTokens
from ...server.config.load import load_for
from ...server.config.model import Config
from ...server.exit_codes import FAILURE, OK
from ...sessions.one_line import one_line, plural
from ..output import say, say_json, table
from ..parser import CommandLine
from .assurance import Installation, assess, report
from .browser import check_browser, install_missing
from .data import check_children, check_folder, check_keeper, check_store
from .issuers import check_issuers
from .system import (
    Finding,
    check_files,
    check_programs,
    check_python,
    check_services,
    check_tool_names,
)

Check = Callable[[Config], Iterator[Finding]]


def run(arguments: CommandLine) -> int:
    """Print every finding; the exit code is 1 when one of them is a failure. With a level: its controls in their place."""
    config, configuration = _load_config(arguments)
    if arguments.assurance and configuration.status != "fail":
        # Imported here, since it imports the tools of the browser.
        from .controls import CONTROLS

        assessments = assess(Installation(config), CONTROLS[arguments.assurance])
        return report(arguments.assurance, assessments, is_json=arguments.json)
    checks: list[Check] = [check_python, check_programs]
    if configuration.status != "fail":
        checks += [check_services, check_browser, check_tokens, check_files]
    if configuration.status != "fail" and config.auth.enabled:
        checks.append(check_issuers)
    if not config.ephemeral:
        checks += [check_folder, check_store, check_children, check_keeper]
    if configuration.status != "fail" and not config.ephemeral:
        checks.append(check_tool_names)
    if configuration.status != "fail" and (arguments.install or not arguments.json):
        install_missing(config, consent=arguments.install, is_json=arguments.json)
    findings = [configuration]
    for check in checks:
        findings += _run_check(check, config)
    is_ok = all(finding.status != "fail" for finding in findings)
    if arguments.json:
        say_json({"ok": is_ok, "checks": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    return OK if is_ok else FAILURE


def _run_check(check: Check, config: Config) -> list[Finding]:
    findings: list[Finding] = []
    try:
        # One by one: findings before an error are still shown.
        for finding in check(config):
            findings.append(finding)  # noqa: PERF402
    except Exception as error:
        name = check.__name__.removeprefix("check_")
        detail = f"could not be checked: {type(error).__name__}: {error}"
        findings.append(Finding(name, "fail", detail, "report this"))
    return findings


def _load_config(arguments: CommandLine) -> tuple[Config, Finding]:
    try:
        config = load_for(arguments)
    except ConfigError as error:
        problem, _, remedy = str(error).rpartition("; ")
        data = getattr(arguments, "data", None)
        rest = Config(data=Path(data).absolute()) if data else Config()
        return rest, Finding("configuration", "fail", problem or remedy, remedy if problem else "")
    services = len(config.enabled_services())
    detail = plural(services, "service")
    if services == 0:
        remedy = "add [services.NAME] to the file of --config, or give --services FILE"
        return config, Finding("configuration", "warn", "no services", remedy)
    return config, Finding("configuration", "ok", detail)


def check_tokens(config: Config) -> Iterator[Finding]:
    """Read the token file, if there is one."""
    if config.server.tokens is None:
        return
    try:
        count = len(StaticTokens.read(config.server.tokens))
    except ConfigError as error:
        problem, _, remedy = str(error).rpartition("; ")
        yield Finding("tokens", "fail", problem, remedy)
    else:
        yield Finding("tokens", "ok", f"{count} in {config.server.tokens}")


def _print(findings: list[Finding]) -> None:
    rows = [(finding.status, finding.name, finding.detail) for finding in findings]
    say(table(("", "WHAT", "FOUND"), rows))
    fixable = [finding for finding in findings if finding.status != "ok" and finding.remedy]
    if fixable:
        say("\nwhat to do:")
    for finding in fixable:
        say(f"  {one_line(f'{finding.name}: {finding.remedy}')}")
    failures = sum(finding.status == "fail" for finding in findings)
    if failures:
        say(f"\n{failures} wrong")
    elif not fixable:
        say("\nnothing is wrong")
