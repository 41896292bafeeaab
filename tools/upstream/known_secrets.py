"""The secrets of a configuration: their detection, and their removal from errors, logs and lists."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ...sessions.attribution import LAST_WORDS
from ...sessions.journal.redaction import Redactor
from ...sessions.one_line import one_line
from ..processes.stderr import last_cause, without_sequences
from .config import UpstreamConfig

MAX_REASON_LENGTH: Final = 2048
MASK: Final = "***"

_SECRET_NAME: Final = re.compile(
    r"(?i)key|token|secret|passw|passphrase|credential|auth|dsn|bearer|signature|jwt|cvv|webhook"
    r"|(?<![a-z])(?:pass|pwd|pin|otp|code)(?![a-z])"
)
_SETTING_NAME: Final = re.compile(
    r"(?i)(?:^|[_-])(?:models?|mode|level|debug|verbose|host|hostname|port|region|locale|lang|language|timezone|tz"
    r"|dir|directory|folder|file|timeout|version|provider|engine|env|environment|stage)(?:[_-](?:name|id))?$"
    r"|^(?:accept|content-type|user-agent)$"
)
"""Names of variables and headers whose values are settings, such as the name of a model, and no secrets."""
_MIXED: Final = re.compile(r"(?i)[a-z]{6}\d|[a-z]\d+[a-z]{2}")
"""Digits among letters, as in a token; a value with them is no setting, whatever its name."""
_PLAIN_VALUE: Final = re.compile(r"(?i)true|false|yes|no|on|off|none|null|auto|default|-?\d{1,5}")
_PLAIN_USER: Final = re.compile(r"(?i)[a-z]{1,24}(?:[._-][a-z]{1,24}){0,3}\d{0,4}")
"""A user name of this form, beside a password, is a word, and no token."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_SECRET_LOOK: Final = re.compile(
    r"""(?x) (?<![A-Za-z0-9])
    (?: (?:sk|pk|rk|gh[opusr]|github_pat|glpat|xox[abeoprs]|xapp|npm|pypi|hf|shpat|lin_api|ntn|dop_v1|whsec) [_-] [\w-]{10,}
      | (?:AKIA|ASIA) [A-Z0-9]{12,}
      | AIza [\w-]{20,}
      | eyJ [\w-]{8,} \. [\w-]+ \. [\w-]*
    )"""
)
"""The prefixes of keys of well-known providers and of a JSON Web Token."""
_RANDOM: Final = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[\w~=+.-]{16,}")
"""A path segment of this form counts as a secret, because many hosted servers have a token in their address."""


class Secrets:
    """The secret values of a configuration. redact() removes them from texts, also as code, JSON and URLs spell them."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        secrets = set(values)
        # A header value is often "Bearer XYZ": the second word alone is secret too.
        secrets |= {word for value in secrets for word in value.split()}
        self._redactor = Redactor(keys=(), secrets=secrets)

    @classmethod
    def of(cls, config: UpstreamConfig, inherited_env: Mapping[str, str] | None = None) -> Secrets:
        """Return the secrets of a service: the values of its `env` and headers, and parts of its arguments and URL.

        Values of `env` and headers whose name or form shows that they are settings do not count. Of the inherited variables,
        only those with the name of a secret and passwords in URLs count.
        """
        return cls((*_secret_parts(config), *_of_inherited(inherited_env or {})))

    def __repr__(self) -> str:
        return "<Secrets>"

    def redact(self, text: str) -> str:
        return self._redactor.without_known(text, MASK)

    def describe_failure(self, cause: str, output: str = "") -> str:
        """Return a cause and the line of `output` that explains it, as one line without secrets and of bounded length.

        LAST_WORDS is between them, since the line holds words of the server.
        """
        cause = one_line(self.redact(cause))
        # Secrets may span lines, so redact before a line is selected.
        explanation = last_cause(self.redact(without_sequences(output)))
        return (f"{cause}{LAST_WORDS}{explanation}" if explanation else cause)[:MAX_REASON_LENGTH]


def named_secrets(config: UpstreamConfig, inherited_env: Mapping[str, str]) -> Generator[str]:
    """Yield the values that a name, a flag, a position in a URL or their form marks as secret."""
    yield from _of_inherited({**inherited_env, **config.env})
    for value in config.headers.values():
        yield value.rpartition(" ")[2]
    yield from _of_arguments(config.args)
    if config.url is not None:
        yield from _of_text(config.url)


def _secret_parts(config: UpstreamConfig) -> Generator[str]:
    for name, value in (*config.env.items(), *config.headers.items()):
        if is_setting(name, value):
            yield from _of_text(value)
        else:
            yield value
    if config.login.client_secret:
        yield config.login.client_secret
    yield from _of_arguments(config.args)
    if config.url is not None:
        yield from _of_text(config.url)


def is_setting(name: str, value: str) -> bool:
    """Whether a variable or a header holds a setting, and no secret."""
    if _SECRET_NAME.search(name):
        return False
    has_setting_name = _SETTING_NAME.search(name) and not _MIXED.search(value)
    return bool(has_setting_name or _PLAIN_VALUE.fullmatch(value))


def _of_inherited(variables: Mapping[str, str]) -> Generator[str]:
    for name, value in variables.items():
        if _SECRET_NAME.search(name):
            yield value
        yield from _of_text(value)


def _of_arguments(args: Iterable[str]) -> Generator[str]:
    """Yield the values of arguments such as `--api-key X`, `--token=X` and `--header "X-Key: Y"`, and known keys."""
    previous = ""
    for argument in args:
        yield from _of_text(argument)
        match = re.match(r"([^=:\s]+)\s*[=:]\s*(?!//)(.+)", argument, re.DOTALL)
        if match is not None and _SECRET_NAME.search(match[1]):
            yield match[2]
        elif previous.startswith("-") and "=" not in previous and _SECRET_NAME.search(previous):
            yield argument
        elif previous in ("-u", "--user") and ":" in argument:
            yield argument.partition(":")[2]
        previous = argument


def _of_text(text: str) -> Generator[str]:
    yield from _SECRET_LOOK.findall(text)
    for url in _URL.findall(text):
        yield from _of_url(url)


def _of_url(url: str) -> Generator[str]:
    try:
        parts = urlsplit(url)
        is_plain = parts.password and _PLAIN_USER.fullmatch(parts.username or "")
        user = None if is_plain else parts.username
        pieces = [user, parts.password, parts.query, parts.fragment]
    except ValueError:
        # Not a valid URL, but the part before an @ may still be a password.
        pieces = [url.partition("://")[2].rpartition("@")[0]]
        parts = None
    if parts is not None:
        pieces += (value for _, value in parse_qsl(parts.query))
        pieces += (piece for piece in parts.path.split("/") if _RANDOM.fullmatch(piece))
    for piece in pieces:
        if piece:
            # Messages of libraries contain it quoted or unquoted.
            yield piece
            yield unquote(piece)
