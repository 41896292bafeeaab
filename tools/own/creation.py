"""The description of session_create: the services, and the times after which a session ends."""

from __future__ import annotations

from collections.abc import Iterable

from ...sessions.policy import Policy
from ...sessions.times import format_duration


def describe_creation(policy: Policy, services: Iterable[str]) -> str:
    """Return the description of the tool for a policy and the names of the services."""
    times, longest = policy.timeouts, policy.longest
    idle = "paused" if policy.on_idle == "pause" else "closed"
    lifetime = f"; any at an age of {format_duration(times.lifetime)}" if times.lifetime else ""
    bounds = [
        f"{key}_seconds {format_duration(getattr(longest, key))}"
        for key in ("idle", "paused", "lifetime")
        if getattr(longest, key)
    ]
    most = f" Longest times: {', '.join(bounds)}." if bounds else ""
    return (
        "Create a session and get its session_id, which the other tools take. It keeps its live connections between calls. "
        f"Services: {', '.join(services) or 'none'}. Unused, it is {idle}: {_after(times.idle)}. The next call resumes a "
        f"paused one. One without a name is closed when unused: {_after(times.paused)}; one with a name: "
        f"{_after(policy.paused_named)}{lifetime}.{most} The session_id stays valid when your connection or the server "
        "restarts."
    )


def _after(seconds: float) -> str:
    return f"after {format_duration(seconds)}" if seconds else "never"
