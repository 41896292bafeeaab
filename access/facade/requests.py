"""The request of a client to a person."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class LoginRequest(BaseModel):
    """An authorization request that was checked. It travels in sealed form until the person is known."""

    model_config = ConfigDict(frozen=True)

    client_id: str
    redirect_uri: str
    state: str | None = None
    scopes: list[str]
    challenge: str
    """The code challenge of PKCE, by S256."""
    resource: str
