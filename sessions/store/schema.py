"""The tables, as the newest migration leaves them.

Columns are text, 64-bit integer and double only (plus some bytes), so that no value needs a converter for any
database. JSON is text. A change here needs a migration and a new HEAD; a test compares the two.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from ..records import LABELS

HEAD: Final = "0122"
"""The revision this program reads and writes."""

FORM: Final = "sealed"
"""The key in the info of a column with content of callers, which a store may seal; see sealing/keyring.py."""
CONTENT, NAME, CONTROL = "content", "name", "control"
"""How it is sealed: a content differently each time, a name of one owner always the same, a control but for its driver."""

metadata: Final = MetaData()


def _name(key: str, *, primary: bool = False) -> Column[str]:
    return Column(key, String(128), primary_key=primary, nullable=False)


def _text(key: str, *, null: bool = False) -> Column[str]:
    return Column(key, Text, nullable=null)


def _content(key: str, *, null: bool = False, form: str = CONTENT) -> Column[str]:
    """A text of callers, which is sealed if the store seals."""
    return Column(key, Text, nullable=null, info={FORM: form})


def _integer(key: str, *, primary: bool = False) -> Column[int]:
    return Column(key, BigInteger, primary_key=primary, autoincrement=False, nullable=False)


def _time(key: str, *, null: bool = False) -> Column[float]:
    return Column(key, Double, nullable=null)


node: Final = Table(
    "node",
    metadata,
    _name("id", primary=True),
    _text("proof_key"),
    _text("address"),
    _text("state"),
    _time("started_at"),
    _integer("pid"),
    # For nodes on other machines, whose death only a lease can show.
    _integer("beat"),
    _time("lease_ends_at", null=True),
    # With defaults, for nodes that run the program before them.
    Column("peer", String(255), nullable=False, server_default=text("''")),
    Column("sessions", BigInteger, nullable=False, server_default=text("0")),
    Column("capacity", BigInteger, nullable=False, server_default=text("0")),
    Column("version", String(64), nullable=False, server_default=text("''")),
    Column("lease_seconds", Double, nullable=False, server_default=text("0")),
)

# Sealed, a label is longer. SQLite bounds no text.
_LABEL: Final = String(128).with_variant(Text(), "postgresql")

session: Final = Table(
    "session",
    metadata,
    _name("id", primary=True),
    _text("owner"),
    _text("namespace"),
    _content("name", null=True, form=NAME),
    _text("status"),
    _content("reason", null=True),
    _time("created_at"),
    _time("used_at"),
    _time("status_at"),
    _time("closed_at", null=True),
    _time("due_at", null=True),
    _time("idle_seconds"),
    _time("paused_seconds"),
    _time("lifetime_seconds"),
    _time("lifetime_ends_at", null=True),
    _content("metadata"),
    _text("parent", null=True),
    _text("node", null=True),
    _integer("epoch"),
    _text("services"),
    *(Column(label, _LABEL, nullable=True, info={FORM: CONTENT}) for label in LABELS),
    # The lease of control as JSON; NULL while the agent drives and no person ever did. Filters read the driver.
    _content("control", null=True, form=CONTROL),
)

IS_OPEN: Final = text("status NOT IN ('closing', 'closed')")
"""The condition of the index of open sessions. SQLite uses it for queries with these very words only."""


def _partial(where: Any) -> dict[str, Any]:
    # Naming PostgreSQL here would load its dialect at every start; it takes over the condition given for SQLite.
    return {"sqlite_where": where}


Index(
    "session_name",
    session.c.owner,
    session.c.namespace,
    session.c.name,
    unique=True,
    **_partial(IS_OPEN),
)
Index("session_named", session.c.owner, session.c.name, **_partial(text("name IS NOT NULL")))
Index("session_used", session.c.owner, session.c.used_at)
Index("session_status", session.c.owner, session.c.status, session.c.used_at)
Index("session_due", session.c.due_at, **_partial(text("node IS NULL")))
Index("session_node", session.c.node, **_partial(text("node IS NOT NULL")))
for _label in LABELS:
    # Sessions without a label are in none of these, and cost nothing there.
    Index(
        f"session_{_label}",
        session.c.owner,
        session.c[_label],
        session.c.used_at,
        **_partial(text(f"{_label} IS NOT NULL")),
    )

binding: Final = Table(
    "binding",
    metadata,
    _name("session_id", primary=True),
    _name("service", primary=True),
    _text("status"),
    _integer("generation"),
    _integer("told_generation"),
    _text("config_hash"),
    _content("last_error", null=True),
    _time("since"),
    _content("resume_token", null=True),
)

state: Final = Table(
    "state",
    metadata,
    _name("session_id", primary=True),
    _integer("version"),
    _content("value"),
    _content("json_schema", null=True),
)

journal: Final = Table(
    "journal",
    metadata,
    _name("session_id", primary=True),
    _integer("seq", primary=True),
    _text("kind"),
    _integer("epoch"),
    _text("service", null=True),
    _text("tool", null=True),
    _text("status", null=True),
    _text("run", null=True),
    _text("role", null=True),
    _text("operation_id", null=True),
    _time("started_at"),
    _time("ended_at", null=True),
    _integer("generation"),
    _content("request", null=True),
    _content("result", null=True),
    _content("error", null=True),
    Column("bytes", BigInteger, nullable=False, server_default=text("0")),
    _content("facts", null=True),
)
# One narrow index answers every filter: it is read from its end, instead of the entries.
Index(
    "journal_look",
    journal.c.session_id,
    journal.c.seq,
    journal.c.kind,
    journal.c.tool,
    journal.c.status,
    journal.c.run,
    journal.c.role,
)
Index("journal_started", journal.c.session_id, **_partial(text("status = 'started'")))

tally: Final = Table(
    "tally",
    metadata,
    _name("session_id", primary=True),
    _integer("entries"),
    _integer("bytes"),
)
"""Number and bytes of the entries of each journal, so that keeping it bounded needs no counting."""

receipt: Final = Table(
    "receipt",
    metadata,
    _name("session_id", primary=True),
    _name("operation_id", primary=True),
    _text("digest"),
    _text("status"),
    _integer("seq"),
    _integer("epoch"),
    _time("started_at"),
    _time("ended_at", null=True),
    _integer("bytes"),
    _content("result", null=True),
    _content("error", null=True),
    _content("upstream", null=True),
    _time("expires_at", null=True),
)
Index("receipt_expiry", receipt.c.expires_at, **_partial(text("expires_at IS NOT NULL")))
Index("receipt_started", receipt.c.session_id, **_partial(text("status = 'started'")))

summary: Final = Table(
    "summary",
    metadata,
    _name("session_id", primary=True),
    _content("text"),
    _content("topics"),
    _time("updated_at"),
    _integer("through_seq"),
)

snapshot: Final = Table(
    "snapshot",
    metadata,
    _name("session_id", primary=True),
    _name("service", primary=True),
    _integer("seq", primary=True),
    _time("taken_at"),
    _integer("epoch"),
    Column("data", LargeBinary, nullable=False, info={FORM: CONTENT}),
)

credential: Final = Table(
    "credential",
    metadata,
    _name("digest", primary=True),
    _name("id"),
    _name("kind"),
    _text("name"),
    _text("principal", null=True),
    _text("rights"),
    _text("session_id", null=True),
    _text("link", null=True),
    _text("created_by", null=True),
    _time("created_at"),
    _time("expires_at"),
    _time("used_at", null=True),
    _text("claims", null=True),
)
"""Codes, links and logins of the console. There are few rows, so the primary key is their only index."""

oauth: Final = Table(
    "oauth",
    metadata,
    _name("digest", primary=True),
    _name("secret"),
    _text("owner"),
    _text("document"),
    _time("expires_at"),
)
"""Logins of the authorization server. There are few rows, so the primary key is their only index."""

session_share: Final = Table(
    "session_share",
    metadata,
    _name("session_id", primary=True),
    # The digest of kind, issuer and name, whose lengths have no bound.
    _name("grantee", primary=True),
    _text("kind"),
    _text("issuer"),
    _text("name"),
    _text("rights"),
    _text("created_by"),
    _time("created_at"),
    _time("expires_at"),
)
Index("session_share_grantee", session_share.c.grantee)

principal: Final = Table(
    "principal",
    metadata,
    # The digest of kind, issuer and name, whose lengths have no bound.
    _name("digest", primary=True),
    _text("kind"),
    _text("issuer"),
    _text("name"),
    _text("policy"),
    _text("member_of"),
    _text("role"),
    _integer("version"),
    _time("changed_at"),
)
"""The memberships of principals. `policy` has limits of earlier versions, which are logged and not used."""

revocation: Final = Table(
    "revocation",
    metadata,
    # The digest of the owner, whose length has no bound.
    _name("digest", primary=True),
    _text("owner"),
    _time("revoked_at"),
    _text("revoked_by"),
    _text("reason", null=True),
    _time("until", null=True),
    _integer("keeps_sessions"),
)
"""The principals whose access has ended, by their keys."""

subscription: Final = Table(
    "subscription",
    metadata,
    # The digest of its owner, URL, event and arguments.
    _name("id", primary=True),
    _text("owner"),
    # Empty for all sessions of the owner.
    _name("session_id"),
    _text("name"),
    _content("url"),
    Column("host", String(255), nullable=False),
    _content("secret"),
    _content("old_secret", null=True),
    _time("old_secret_ends_at"),
    _time("created_at"),
    _time("expires_at"),
    # JSON, if it is to an event of a service.
    _content("source", null=True),
)
"""The subscriptions to events by webhook. `secret` signs what is sent to the URL."""
Index("subscription_session", subscription.c.session_id, subscription.c.owner)

delivery: Final = Table(
    "delivery",
    metadata,
    _name("subscription_id", primary=True),
    Column("event_id", String(255), primary_key=True, nullable=False),
    Column("host", String(255), nullable=False),
    _content("body"),
    _integer("attempts"),
    # NULL when it was given up.
    _time("due_at", null=True),
)
"""The events that wait to be sent, each for one subscription."""
Index("delivery_due", delivery.c.host, delivery.c.due_at)
Index("delivery_turn", delivery.c.subscription_id, delivery.c.due_at)

login: Final = Table(
    "login",
    metadata,
    # The digest of its owner and its name.
    _name("id", primary=True),
    _text("owner"),
    _text("name"),
    _text("kind"),
    _text("site"),
    _text("issuer"),
    _text("state"),
    _time("since"),
    Column("sealed", LargeBinary, nullable=False),
    _text("reason"),
    _integer("version"),
    _time("expires_at", null=True),
    _time("lease_ends_at"),
    Column("session", String(128), nullable=False, server_default=""),
    _time("used_at", null=True),
    _time("checked_at", null=True),
    # With defaults, for nodes that run the program before them.
    Column("in_check", BigInteger, nullable=False, server_default="0"),
    Column("renewals", String(64), nullable=False, server_default=""),
)
"""The logins of principals. `sealed` is always sealed."""

data_key: Final = Table(
    "data_key",
    metadata,
    # The digest of the owner, whose length has no bound.
    _name("digest", primary=True),
    _name("id"),
    Column("wrapped", LargeBinary, nullable=False),
)
"""The data keys of principals, encrypted with the sealing key; see sealing/keyring.py."""
Index("data_key_id", data_key.c.id)

pin: Final = Table(
    "pin",
    metadata,
    # The digest of the four that follow.
    _name("id", primary=True),
    _name("service"),
    _name("config_hash"),
    _text("kind"),
    _text("name"),
    _text("digest"),
    _text("definition"),
    _time("since"),
    # Those of the definition that the service offers instead; empty if it offers none or this one.
    _text("offered_digest"),
    _text("offered"),
    _time("offered_at", null=True),
)
"""The definitions of what services offer, as they were first seen or accepted last."""
Index("pin_service", pin.c.service)

approval: Final = Table(
    "approval",
    metadata,
    _name("id", primary=True),
    _text("owner"),
    _name("session_id"),
    _text("service"),
    _text("tool"),
    _name("digest"),
    _name("standing"),
    _content("arguments"),
    _text("state"),
    _time("created_at"),
    _time("ends_at"),
)
"""The approvals of calls by people."""
Index("approval_standing", approval.c.standing)

OF_A_SESSION: Final = (
    *(binding, state, journal, snapshot, tally, receipt, summary),
    *(session_share, approval),
)
"""The tables whose rows are deleted with their session."""

audit: Final = Table(
    "audit",
    metadata,
    _integer("seq", primary=True),
    _content("document"),
    _text("hash"),
)

audit_head: Final = Table(
    "audit_head",
    metadata,
    # One row, which its writers lock.
    _integer("id", primary=True),
    _integer("seq"),
    _text("hash"),
)

version: Final = Table(
    "alembic_version",
    metadata,
    Column("version_num", String(32), primary_key=True, nullable=False),
)
"""Alembic's own table, so that an empty database can be created without loading Alembic."""
