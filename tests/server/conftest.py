"""The fixtures of `support.gateway_fixtures`."""

from support.gateway_fixtures import (
    client,
    config_file,
    forked_servers,
    gateway,
    http,
    log,
    mcp_server,
    memory,
    pytest_generate_tests,
    server,
    settings,
    use_fork_server,
    way,
)

__all__ = [
    "client",
    "config_file",
    "forked_servers",
    "gateway",
    "http",
    "log",
    "mcp_server",
    "memory",
    "pytest_generate_tests",
    "server",
    "settings",
    "use_fork_server",
    "way",
]
