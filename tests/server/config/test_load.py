"""Settings: their sources, their order, and their defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from support.settings import client_file, refused, toml

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load
from statehold.server.config.model import Config
from statehold.server.config.sections import ServerSettings, TimeoutSettings
from statehold.sessions.json_codec import JSON
from statehold.sessions.policy import Policy
from statehold.sessions.records import Timeouts
from statehold.tools.logins.config import KeyConfig
from statehold.tools.upstream.service import UpstreamService


def test_the_default_settings_give_the_default_policy_without_a_bound_on_requested_time() -> None:
    assert Config().policy() == Policy()
    assert Policy().longest == Timeouts(idle=0, paused=0, lifetime=0)


def test_a_service_says_whether_its_sessions_are_closed_when_it_stays_away(tmp_path: Path) -> None:
    text = "[services.a]\ncommand = 'a'\non_lost = 'close'\n[services.b]\ncommand = 'b'\n"
    upstreams = load(config=toml(tmp_path, text), environ={}).upstreams()
    services = [UpstreamService(name, upstreams[name]) for name in ("a", "b")]
    assert [service.on_lost for service in services] == ["close", "pause"]
    # It changes nothing that a snapshot depends on.
    other = upstreams["a"].model_copy(update={"on_lost": "pause"})
    assert UpstreamService("a", other).config_hash == services[0].config_hash


def test_last_backoff_repeats_until_the_attempts_are_used_up(tmp_path: Path) -> None:
    path = toml(tmp_path, "[recovery]\nattempts = 4\nbackoff = [1, 2]\n")
    assert load(config=path, environ={}).policy().recovery_backoff == (1, 2, 2, 2)
    assert load(environ={"STATEHOLD_RECOVERY__ATTEMPTS": "0"}).policy().recovery_backoff == ()


def test_maximum_is_never_below_the_default() -> None:
    settings = TimeoutSettings(idle=100_000, max_idle=60, paused=0, max_lifetime=3600)
    assert settings.maximum() == Timeouts(idle=100_000, paused=0, lifetime=3600)
    # A session without an end would be above the maximum.
    assert settings.session() == Timeouts(idle=100_000, paused=0, lifetime=3600)


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    path = toml(tmp_path, "[server]\nport = 1\nhost = '::1'\n[timeouts]\nidle = 1\ncall = 1\n")
    environ = {"STATEHOLD_SERVER__PORT": "2", "STATEHOLD_TIMEOUTS__IDLE": "2"}
    config = load(config=path, environ=environ, flags={"server": {"port": "3"}})
    assert config.server.port == 3
    assert config.timeouts.idle == 2
    assert config.timeouts.call == 1
    assert config.server.host == "::1"


def test_files_can_be_named_by_the_environment(tmp_path: Path) -> None:
    environ = {
        "STATEHOLD_CONFIG": str(toml(tmp_path, "on_idle = 'close'")),
        "STATEHOLD_SERVICES_FILE": str(
            client_file(tmp_path, {"servers": {"a": {"command": "ls"}}})
        ),
    }
    config = load(environ=environ)
    assert config.on_idle == "close"
    assert list(config.services) == ["a"]


def test_environment_gives_lists_tables_and_services() -> None:
    config = load(
        environ={
            "STATEHOLD_TOOLSETS": "core, admin",
            "STATEHOLD_SERVER__ALLOWED_HOSTS": '["a.example", "b.example:*"]',
            "STATEHOLD_RECOVERY__BACKOFF": "[1, 2.5]",
            "STATEHOLD_EPHEMERAL": "true",
            "STATEHOLD_SERVICES__LOCAL__COMMAND": "ls",
            "STATEHOLD_SERVICES__LOCAL__ARGS": '["-l"]',
            "STATEHOLD_NAMESPACE": "",
        }
    )
    assert config.toolsets == ["core", "admin"]
    assert config.server.allowed_hosts == ["a.example", "b.example:*"]
    assert config.recovery.backoff == [1, 2.5]
    assert config.ephemeral
    assert config.upstreams()["local"].args == ["-l"]


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://statehold.example.org", "https://statehold.example.org"),
        ("https://example.org:8443/statehold/", "https://example.org:8443/statehold"),
        ("http://127.0.0.1:8931", "http://127.0.0.1:8931"),
        ("http://statehold.example.org", None),
        ("https://example.org?session=1", None),
        ("https://example.org/#", None),
        ("https://ada:secret@example.org", None),
        ("https://example.org:port", None),
        ("javascript:alert(1)", None),
        ("https://", None),
    ],
)
def test_the_public_address_is_one_that_people_open_safely(url: str, kept: str | None) -> None:
    environ = {"STATEHOLD_SERVER__PUBLIC_URL": url}
    if kept is None:
        with pytest.raises(ConfigError, match="PUBLIC_URL"):
            load(environ=environ)
    else:
        assert load(environ=environ).server.public_url == kept


def test_variables_of_kubernetes_and_of_a_statehold_above_are_no_settings() -> None:
    load(
        environ={
            "STATEHOLD_PORT": "tcp://10.0.0.1:8931",
            "STATEHOLD_PORT_8931_TCP_ADDR": "10.0.0.1",
            "STATEHOLD_SERVICE_HOST": "10.0.0.1",
            "STATEHOLD_SERVICE_PORT_HTTP": "8931",
            "STATEHOLD_CHILD": "n:1-1",
        }
    )


def test_relative_paths_are_relative_to_the_file_they_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "conf", tmp_path / "elsewhere"
    (folder / "work").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "run.sh").touch()
    (folder / "tokens").touch()
    path = toml(
        folder,
        "data = 'kept'\n[server]\ntokens = 'tokens'\n"
        "[services.a]\ncommand = './run.sh'\ncwd = 'work'\n[services.b]\ncommand = 'ls'\ncwd = '{dir}'\n"
        "[logins.a]\nkind = 'key'\nfile = 'a.key'\n[logins.b]\nkind = 'key'\ncommand = ['./run.sh', 'b']",
    )
    monkeypatch.chdir(elsewhere)
    config = load(config=path, environ={})
    assert config.data == folder / "kept"
    assert config.server.tokens == folder / "tokens"
    assert config.upstreams()["a"].command == str(folder / "run.sh")
    assert config.upstreams()["a"].cwd == str(folder / "work")
    assert config.logins == {
        "a": KeyConfig(kind="key", file=folder / "a.key"),
        "b": KeyConfig(kind="key", command=[str(folder / "run.sh"), "b"]),
    }
    assert (config.upstreams()["b"].command, config.upstreams()["b"].cwd) == ("ls", "{dir}")
    assert load(config=path, environ={}, flags={"data": "here"}).data == elsewhere / "here"
    assert load(config="../conf/statehold.toml", environ={}).upstreams()["a"].cwd is not None


def test_home_stands_for_the_home_folder(tmp_path: Path) -> None:
    config = load(config=toml(tmp_path, "data = '~/x'"), environ={})
    assert config.data == Path.home() / "x"


def test_upstreams_are_the_enabled_services_with_the_global_times(tmp_path: Path) -> None:
    path = toml(
        tmp_path,
        "[timeouts]\nconnect = 7\ncall = 8\n[services.b]\ncommand = 'ls'\n"
        "[services.a]\ncommand = 'ls'\nconnect_seconds = 1\ncall_seconds = 2\n"
        "[services.off]\ndisabled = true\n",
    )
    upstreams = load(config=path, environ={}).upstreams()
    assert list(upstreams) == ["b", "a"]
    assert (upstreams["b"].connect_seconds, upstreams["b"].call_seconds) == (7, 8)
    assert (upstreams["a"].connect_seconds, upstreams["a"].call_seconds) == (1, 2)
    assert (upstreams["b"].first_connect_seconds, upstreams["a"].first_connect_seconds) == (7, None)


def test_toml_given_as_a_clients_file_is_refused_with_the_right_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give it as --config"):
        load(services=toml(tmp_path, "[services.a]\ncommand = 'ls'\n"), environ={})


def test_the_first_start_of_a_command_has_longer_by_default(tmp_path: Path) -> None:
    path = toml(tmp_path, "[services.a]\ncommand = 'npx'\n")
    upstream = load(config=path, environ={}).upstreams()["a"]
    assert (upstream.connect_seconds, upstream.first_connect_seconds) == (30, 120)
    service = UpstreamService("a", upstream)
    assert service.connect_seconds == 120


# Exposure.


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST"]
)
def test_loopback_needs_no_tokens(host: str) -> None:
    config = load(environ={}, flags={"server": {"host": host}, "timeouts": {"lifetime": 0}})
    assert config.server.loopback


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "mcp.example.org", "localhost.example.org"]
)
def test_address_that_others_can_reach_needs_tokens(host: str, tmp_path: Path) -> None:
    message = refused(flags={"server": {"host": host}})
    assert message.startswith("--host: ")
    assert (
        "give server.tokens (--token-file FILE) or auth.issuers, or listen on 127.0.0.1" in message
    )
    tokens = tmp_path / "tokens"
    tokens.touch()
    server: JSON = {"host": host, "tokens": str(tokens)}
    message = refused(flags={"server": server})
    assert "server.tls" in message
    assert "server.trusted_proxies" in message
    tls = {"certificate": "server.pem", "key": "server.key"}
    for remedy in ({"tls": tls}, {"trusted_proxies": ["10.0.0.5", "10.1.0.0/16"]}):
        load(environ={}, flags={"server": {**server, **remedy}})


@pytest.mark.parametrize(
    ("proxies", "found"),
    [
        (["0.0.0.0/0"], "is every address"),
        (["::/0"], "is every address"),
        (["proxy.example.org"], "addresses or networks"),
        (["10.0.0.1/8"], "addresses or networks"),
    ],
)
def test_trusted_proxies_are_some_addresses(proxies: list[str], found: str) -> None:
    assert found in refused(flags={"server": {"trusted_proxies": proxies}})


def test_the_files_of_a_certificate_are_relative_to_the_file_they_stand_in(tmp_path: Path) -> None:
    path = toml(tmp_path, "[server.tls]\ncertificate = 'a.pem'\nkey = '/b.key'\n")
    tls = load(config=path, environ={}).server.tls
    assert tls is not None
    assert (tls.certificate, tls.key) == (tmp_path / "a.pem", Path("/b.key"))
    message = refused(config=toml(tmp_path, "[server.tls]\ncertificate = 'a.pem'\n"))
    assert "server.tls.key" in message


def test_unlimited_lifetime_is_named_when_callers_are_unauthenticated(tmp_path: Path) -> None:
    flags = {"server": {"host": "0.0.0.0"}}
    message = refused(flags=flags, config=toml(tmp_path, "[timeouts]\nlifetime = 0"))
    assert "timeouts.lifetime = 0" in message


def test_settings_made_in_code_read_nothing_and_are_checked_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATEHOLD_ON_IDLE", "close")
    assert Config().on_idle == "pause"
    with pytest.raises(ValidationError, match="without authentication"):
        Config(server=ServerSettings(host="0.0.0.0"))
