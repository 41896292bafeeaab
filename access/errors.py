"""The reasons for which a request is refused before it reaches a session."""

from __future__ import annotations

from typing import ClassVar

from ..sessions.records import Principal
from .scopes import Scope
from .wrong_tokens import WRONG


class AuthError(Exception):
    """Raised when a request is refused. The text is for the log, and has no part of a token."""

    code: ClassVar[str] = "token_invalid"
    """The name of the refusal in the audit log."""
    kind: str = WRONG
    """The kind of the refusal, for the log."""

    @property
    def detail(self) -> str:
        """The reason, for the log."""
        return f"({self})"


class TokenMissing(AuthError):
    """Raised when a request has no bearer token."""

    code = "token_missing"
    kind = "no token"

    @property
    def detail(self) -> str:
        return ""


class TokenMalformed(AuthError):
    """Raised when a request has several tokens, one in its URL, or one that cannot be a token."""

    code = "token_malformed"
    kind = "malformed token"


class TokenInvalid(AuthError):
    """Raised when a token is not accepted, with the reason, and the principal of a token that its issuer did sign."""

    def __init__(self, reason: str, kind: str = WRONG, *, who: str = "") -> None:
        super().__init__(reason)
        self.kind = kind
        self._who = who

    @property
    def detail(self) -> str:
        text = str(self)
        if text and self.kind == WRONG:
            text = f"({text})"
        return f"{text} of {self._who}" if self._who else text


class PrincipalRevoked(TokenInvalid):
    """Raised when a token is right, and the access of its principal is revoked."""

    code = "principal_revoked"

    def __init__(self, principal: Principal) -> None:
        super().__init__(principal.words, "token of a revoked principal:")
        self.principal = principal


class ScopeMissing(AuthError):
    """Raised when a token does not allow an operation."""

    code = "scope_missing"
    kind = "missing scope"

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"the operation needs {scope}")
        self.scope: Scope = scope


class VerifierUnavailable(AuthError):
    """Raised when a token cannot be checked now, because its issuer does not answer."""

    code = "verifier_unavailable"
    kind = "unchecked token"


class IssuerMismatch(VerifierUnavailable):
    """Raised when the metadata at the URL of an issuer is that of another one."""


class IssuerRefused(VerifierUnavailable):
    """Raised when an issuer answers that a request to it is wrong."""
