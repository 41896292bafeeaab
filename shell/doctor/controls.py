"""The controls of the levels L1 to L3: the MUST rows of the profile that Statehold can see, in its order."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp_types import CLIENT_CAPABILITIES_META_KEY, HEADER_MISMATCH, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION as MODERN

from ...keeper.confinement import landlock_abi
from ...server.protocol.request_checks import MAX_DEPTH
from ...sessions.calls.approval import unused_patterns
from ...sessions.journal.redaction import Redactor
from ...sessions.json_codec import JSON
from ...sessions.one_line import plural
from ...tools.browser.config import BrowserConfig
from ...tools.browser.egress.addresses import is_loopback_host
from ...tools.browser.tools import toolset
from ...tools.outputs import is_safe_link
from ...tools.processes.sandbox import missing_features
from ...tools.upstream.config import UpstreamConfig
from ...tools.upstream.identity import config_hash
from ...tools.upstream.probe import Profile
from ...tools.upstream.profile_file import ProfileFile
from .assurance import Control, Evidence, Installation, Level, check
from .browser import check_sandbox
from .data import check_folder
from .issuers import check_issuers
from .system import Finding

_ACCOUNTS: Final = '[[auth.issuers]] with issuer = "https://login.example.org"'
_PATHS: Final = frozenset({"server.tls.key", "cluster.key"})
"""Settings that hold the path of a file with secrets."""
_KEYS: Final = frozenset({"key", "keys"})
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "bwrap", "firejail"})
_NO_SETTING: Final = "put a gateway in front; no setting of Statehold does that"


def find_accounts(site: Installation) -> Iterator[Evidence]:
    auth, tokens = site.config.auth, site.config.server.tokens
    issuers = [*(each.issuer for each in auth.issuers), auth.facade.issuer]
    found = f"tokens of {', '.join(filter(None, issuers))}"
    yield check(auth.enabled, found, "callers have no accounts", _ACCOUNTS)
    if tokens is not None:
        remedy = "take `tokens` out of [server], and give programs accounts"
        yield Evidence(f"the static tokens in {tokens} are no OAuth", remedy)


def find_issuers(site: Installation) -> Iterator[Evidence]:
    if not site.config.auth.enabled:
        yield Evidence("there is no issuer to validate", _ACCOUNTS)
    yield from map(_evidence_of, check_issuers(site.config))


def find_secrets(site: Installation) -> Iterator[Evidence]:
    file = site.config.file
    written = {} if file is None else tomllib.loads(file.read_text(encoding="utf-8-sig"))
    for key in _written_secrets(written, "", Redactor()):
        name = key.rpartition(".")[2]
        remedy = f'{name} = "${{NAME}}", a variable that a secrets manager sets'
        yield Evidence(f"{key} is written in {file}", remedy)
    yield Evidence(f"{plural(len(site.config.secrets), 'secret')} in use")


def _written_secrets(value: object, key: str, redactor: Redactor) -> Iterator[str]:
    """Yield the keys of the secrets that stand in a file as they are."""
    name = key.rpartition(".")[2]
    if isinstance(value, dict):
        for each, member in cast("JSON", value).items():
            yield from _written_secrets(member, f"{key}.{each}".lstrip("."), redactor)
    elif isinstance(value, list):
        for member in cast("list[object]", value):
            yield from _written_secrets(member, key, redactor)
    elif isinstance(value, str) and value and "${" not in value and key not in _PATHS:
        is_password = name == "url" and urlsplit(value).password
        if is_password or name in _KEYS or redactor.names_secret(name):
            yield key


def find_audience(site: Installation) -> Iterator[Evidence]:
    own = site.config.server.public_url or ""
    remedy = f'audience = ["{own}/mcp"] below [auth]'
    for audience in site.config.auth.audience:
        found = f"tokens for {audience} alone, of which services get none"
        is_own = urlsplit(audience)[:2] == urlsplit(own)[:2]
        yield check(is_own, found, f"tokens for {audience} are for another server", remedy)
    if not site.config.auth.enabled:
        yield Evidence("no caller has a token that a service might take")


def find_approvals(site: Installation) -> Iterator[Evidence]:
    for name, service in site.config.enabled_services().items():
        rule, names = service.approve, None
        tools = rule if isinstance(rule, str) else ", ".join(rule)
        gap, remedy = f"{name} asks no person", _at(name, 'approve = "destructive"')
        yield check(rule and rule != "never", f"{name} asks a person: {tools}", gap, remedy)
        if isinstance(service, BrowserConfig):
            names = [tool.name for tool in toolset(service)]
        elif profile := _profile_of(site, name, service):
            names = [tool.name for tool in profile.tools]
        for pattern in unused_patterns(rule, names or ()):
            yield Evidence(f"no tool of {name} is known as {pattern}", remedy)


def find_encryption(site: Installation) -> Iterator[Evidence]:
    server, cluster = site.config.server, site.config.cluster
    if server.tls is not None:
        yield Evidence(f"TLS with {server.tls.certificate}")
    elif server.trusted_proxies:
        yield Evidence(f"TLS of the proxy at {', '.join(server.trusted_proxies)}")
    else:
        yield from find_loopback(site)
    if cluster.enabled and not is_loopback_host(cluster.listen.rpartition(":")[0]):
        gap = f"nodes speak clear text at {cluster.listen}"
        remedy = "certificate, key and authority below [cluster]"
        yield check(cluster.certificate, "TLS 1.3 between nodes", gap, remedy)
    yield from _unsafe_addresses(site)


def find_binding(site: Installation) -> Iterator[Evidence]:
    host = site.config.server.host.strip("[]")
    try:
        address = ip_address(host)
        is_internal = not (address.is_unspecified or address.is_global)
    except ValueError:
        is_internal = True
    remedy = 'host = "10.0.0.7" below [server]: an internal address of this machine'
    yield check(is_internal, f"listens on {host}", f"listens on {host}, not internal", remedy)


def find_loopback(site: Installation) -> Iterator[Evidence]:
    server = site.config.server
    found, gap = f"only this machine reaches {server.host}", f"others reach {server.host}"
    yield check(server.loopback, found, gap, 'host = "127.0.0.1" below [server]')


def find_origins(site: Installation) -> Iterator[Evidence]:
    server = site.config.server
    for origin in server.allowed_origins:
        remedy = f'take "{origin}" out of allowed_origins below [server]'
        gap = f"pages of {origin} may be anybody's"
        yield check(is_safe_link(origin), f"pages of {origin} may call", gap, remedy)
    yield Evidence(f"Host is {' or '.join([server.host, *server.allowed_hosts])}")


def find_header_checks(site: Installation) -> Iterator[Evidence]:
    meta: JSON = {PROTOCOL_VERSION_META_KEY: MODERN, CLIENT_CAPABILITIES_META_KEY: {}}
    request: JSON = {"method": "tools/call", "params": {"name": "a", "_meta": meta}}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    verdict = classify_inbound_request(request, headers=headers)
    is_met = isinstance(verdict, InboundLadderRejection) and verdict.code == HEADER_MISMATCH
    found, gap = f"a contradiction in {MODERN} was refused", "a contradiction passed"
    yield check(is_met, found, gap, "pip install --upgrade statehold mcp")


def find_limits(site: Installation) -> Iterator[Evidence]:
    limits = site.config.limits
    for name in ("sessions_per_principal", "stored_bytes_per_principal", "free_disk_bytes"):
        limit, default = getattr(limits, name), type(limits).model_fields[name].default
        yield check(limit, f"{name} = {limit}", f"{name} = 0", f"{name} = {default} below [limits]")
    yield Evidence(f"{MAX_DEPTH} levels of nesting")


def find_confinement(site: Installation) -> Iterator[Evidence]:
    for name, browser in site.config.browsers().items():
        if browser.remote:
            yield Evidence(f"{name} is elsewhere")
        else:
            finding = check_sandbox(name, browser, site.machine)
            yield Evidence(f"sandbox of {name}: {finding.detail}", finding.remedy)
    yield from _confinement_of_programs(site)


def _confinement_of_programs(site: Installation) -> Iterator[Evidence]:
    for name, service in site.config.upstreams().items():
        if service.command is None:
            yield Evidence(f"{name} is elsewhere")
            continue
        program = Path(service.command).name
        if program in _CONTAINERS:
            yield Evidence(f"{name} is in {program}")
            continue
        lacks = " and ".join(missing_features(landlock_abi()))
        is_met = service.sandbox.is_on and not lacks
        gap = f"{name} may do what its user may" + (f"; no sandbox for {lacks}" if lacks else "")
        remedy = "a kernel from Linux 6.12 on" if lacks else _at(name, 'sandbox = "landlock"')
        yield check(is_met, f"{name} is in a sandbox of Landlock", gap, remedy)


def find_separation(site: Installation) -> Iterator[Evidence]:
    config = site.config
    gap = "all callers are one principal"
    yield check(config.needs_token, "each session has an owner", gap, _ACCOUNTS)
    for name, service in config.browsers().items():
        remedy, gap = _at(name, 'attach = "context"'), f"{name} uses the tabs of a person"
        yield check(service.attach == "context", f"a context each in {name}", gap, remedy)
    yield from map(_evidence_of, () if config.ephemeral else check_folder(config))


def find_audit(site: Installation) -> Iterator[Evidence]:
    audit, names = site.config.audit, site.config.redact
    yield check(audit != "off", f"audit = {audit}", "no audit log", 'audit = "required"')
    found = f"values under {plural(len(names), 'name')} are redacted"
    yield check(names, found, "nothing is redacted", "take `redact = []` out of the file")


def find_schemas(site: Installation) -> Iterator[Evidence]:
    """Look at the arguments that tools declare: of MCP servers, by their last start."""
    config = site.config
    for name, browser in config.browsers().items():
        tools = toolset(browser)
        strict = [each for each in tools if each.arguments.model_config.get("extra") == "forbid"]
        yield Evidence(f"{name}: {len(strict)} of {len(tools)} refuse undeclared arguments")
    for name, service in config.upstreams().items():
        profile = _profile_of(site, name, service)
        if profile is None:
            remedy = f"start Statehold once: it keeps the list of the tools of {name}"
            yield Evidence(f"the tools of {name} are not known", remedy)
            continue
        schemas: dict[str, JSON] = {
            each.name: each.definition["inputSchema"]
            for each in profile.tools
            if each.name in (service.include or [each.name]) and each.name not in service.exclude
        }
        loose = [
            tool
            for tool, schema in schemas.items()
            if "properties" not in schema and schema.get("additionalProperties") is not False
        ]
        remedy = _at(name, f"exclude = {json.dumps(loose)}")
        found = f"{name}: {len(schemas)} declare their arguments"
        yield check(not loose, found, f"{name}: {', '.join(loose)} take anything", remedy)


def _profile_of(site: Installation, name: str, service: UpstreamConfig) -> Profile | None:
    data = None if site.config.ephemeral else site.config.data
    return ProfileFile(data, name, config_hash(service)).read()


def find_paths(site: Installation) -> Iterator[Evidence]:
    own = (site.config.data.resolve(), Path.home())
    for name, service in site.config.browsers().items():
        folders = [Path(folder).expanduser().resolve() for folder in service.uploads]
        wide = [each for each in folders if any(other.is_relative_to(each) for other in own)]
        found, gap = f"{name} uploads from {len(folders)} folders", f"{name} uploads from {wide}"
        yield check(not wide, found, gap, _at(name, 'uploads = ["/srv/uploads"]'))
        remedy, gap = _at(name, 'take "unsafe" out of `caps`,'), f"{name} runs code of callers"
        yield check("unsafe" not in service.caps, f"{name} runs no code of callers", gap, remedy)
    yield from _confinement_of_programs(site)


def find_outputs(site: Installation) -> Iterator[Evidence]:
    for name, service in site.config.upstreams().items():
        remedy, gap = _at(name, 'text = "clean"'), f"texts of {name} pass as they are"
        yield check(service.text == "clean", f"texts of {name} are cleaned", gap, remedy)
    for name in site.config.browsers():
        yield Evidence(f"texts of pages of {name} are cleaned")


def find_https(site: Installation) -> Iterator[Evidence]:
    config = site.config
    found, gap = "links of servers are HTTPS", "links of servers may lead anywhere"
    yield check(config.pins_mode == "strict", found, gap, 'pins = "strict"')
    yield from _unsafe_addresses(site)
    urls = [each.url.get_secret_value() for each in config.notify if each.url is not None]
    if not all(map(is_safe_link, urls)):
        yield Evidence("notifications leave without TLS", 'url = "https://..." below [[notify]]')
    for name, service in config.browsers().items():
        is_met = not {"http://*", "http://*:*"}.isdisjoint(service.block)
        remedy, gap = _at(name, 'block = ["http://*:*"]'), f"{name} opens pages without TLS"
        yield check(is_met, f"{name} opens pages with TLS only", gap, remedy)


def find_handles(site: Installation) -> Iterator[Evidence]:
    config = site.config
    found, gap = "each request has the token of an owner", "the id of a session is enough"
    yield check(config.needs_token, found, gap, _ACCOUNTS)
    found, gap = "sessions are named by callers", "a transport session stands for its caller"
    remedy = "auto_session = false below [server]"
    yield check(not config.server.auto_session, found, gap, remedy)


def find_seal(site: Installation) -> Iterator[Evidence]:
    found, gap = "the store is sealed with a key for each principal", "the store is clear"
    remedy = '[sealing] with keys = ["${SEALING_KEY}"]'
    yield check(site.config.sealing.enabled, found, gap, remedy)
    for name in site.config.browsers():
        yield Evidence(f"downloads and recordings of {name} are clear", "an encrypted disk")


def find_kernel(site: Installation) -> Iterator[Evidence]:
    version = (site.machine.top / "proc/version").read_text()
    remedy = "runtimeClassName: gvisor of the pod"
    yield check("gVisor" in version, "gVisor", "the kernel of the host", remedy)


def find_full_audit(site: Installation) -> Iterator[Evidence]:
    audit, arguments = site.config.audit, site.config.audit_arguments
    found, remedy = "no request runs unrecorded", 'audit = "required"'
    yield check(audit == "required", found, f"audit = {audit}", remedy)
    yield check(arguments, "with arguments", "without arguments", "audit_arguments = true")


def find_pins(site: Installation) -> Iterator[Evidence]:
    mode = site.config.pins_mode
    yield check(mode == "strict", "pins = strict", f"pins = {mode}", 'pins = "strict"')


def find_private_addresses(site: Installation) -> Iterator[Evidence]:
    yield Evidence("webhooks reach public addresses only")
    for name, service in site.config.browsers().items():
        is_met = not service.private and (service.private is False or site.config.needs_token)
        gap, remedy = f"{name} reaches private addresses", _at(name, "private = false")
        yield check(is_met, f"{name} reaches public addresses only", gap, remedy)


def find_expiry(site: Installation) -> Iterator[Evidence]:
    timeouts = site.config.timeouts
    for name in ("paused", "paused_named", "lifetime", "retention"):
        seconds = getattr(timeouts, name)
        remedy = f"{name} = 2592000 below [timeouts]"
        yield check(seconds, f"{name} = {seconds:.0f}", f"{name} = 0: for ever", remedy)


def find_none(site: Installation) -> Iterator[Evidence]:
    """Say that Statehold has nothing for a control."""
    yield Evidence("nothing in Statehold does that", _NO_SETTING)


def _at(service: str, setting: str) -> str:
    return f"{setting} below [services.{service}]"


def _evidence_of(finding: Finding) -> Evidence:
    remedy = finding.remedy if finding.status == "fail" else ""
    return Evidence(f"{finding.name}: {finding.detail}", remedy)


def _unsafe_addresses(site: Installation) -> Iterator[Evidence]:
    for name, service in site.config.upstreams().items():
        if service.url is not None and not is_safe_link(service.url):
            yield Evidence(f"{name} is reached without TLS", _at(name, 'url = "https://..."'))


SANDBOX: Final[Mapping[str, Control]] = {
    "loopback only": find_loopback,
    "`Origin`, `Host`, CSRF": find_origins,
}
INTERNAL: Final[Mapping[str, Control]] = {
    "OAuth 2.1 with PKCE": find_accounts,
    "issuer metadata is validated": find_issuers,
    "secrets in a keychain or secrets manager": find_secrets,
    "no token passthrough": find_audience,
    "a person confirms destructive actions": find_approvals,
    "TLS": find_encryption,
    "internal interface, no 0.0.0.0": find_binding,
    "`Origin`, `Host`, CSRF": find_origins,
    "MCP headers are validated": find_header_checks,
    "limits of size and depth": find_limits,
    "sandbox or container with limits": find_confinement,
    "data of users is separate": find_separation,
    "structured log, redacted": find_audit,
    "arguments are validated": find_schemas,
    "paths are sanitized": find_paths,
    "outputs are sanitized": find_outputs,
    "URLs are HTTPS only": find_https,
    "handles belong to a principal, transport ids do not authenticate": find_handles,
}
PRODUCTION: Final[Mapping[str, Control]] = {
    **INTERNAL,
    "workload identity of agents": find_none,
    "token exchange with actor and subject": find_none,
    "tokens are bound to their client (DPoP, mTLS)": find_none,
    "messages are signed": find_none,
    "strong container isolation": find_kernel,
    "data of tenants is encrypted": find_seal,
    "full log, in OCSF or CEF": find_full_audit,
    "tool definitions are pinned": find_pins,
    "no private and metadata addresses": find_private_addresses,
    "handles expire": find_expiry,
}
CONTROLS: Final[Mapping[Level, Mapping[str, Control]]] = {
    "L1": SANDBOX,
    "L2": INTERNAL,
    "L3": PRODUCTION,
}
"""The controls by level; L3 includes L2."""
