"""The end of the access of a principal: its sessions, its control of others' sessions, its shares, and its restoration."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from support.counting import Counting
from support.engine import Build, Engine
from support.waiting import until

from statehold.sessions.errors import OutcomeUnknown, SessionClosed, StoreUnavailable
from statehold.sessions.live.control_lease import user_of
from statehold.sessions.principals.rules import RevocationRecord
from statehold.sessions.records import (
    ControlEnd,
    CredentialKind,
    CredentialRecord,
    Grantee,
    Principal,
    SessionDriver,
    ShareRights,
)

ADA, BEN = Principal(subject="ada", issuer="https://id.example"), Principal(subject="ben")


async def revoke(engine: Engine, principal: Principal = ADA, **options: object) -> None:
    """Revoke a principal, and have the registry look."""
    values = {"owner": principal.key, "revoked_at": engine.clock.now(), "revoked_by": "eve"}
    record = RevocationRecord(**{**values, **options})  # pyright: ignore[reportArgumentType]
    await engine.store.access.revoke(record)
    await engine.registry.revocations.look()


async def restore(engine: Engine, principal: Principal = ADA) -> bool:
    is_restored = await engine.store.access.restore(principal.key)
    await engine.registry.revocations.look()
    return is_restored


async def wait_status(engine: Engine, session_id: str, status: str) -> None:
    async def is_reached() -> bool:
        return await engine.status(session_id, ADA) == status

    await until(is_reached)


async def test_a_revocation_cancels_calls_and_closes_open_and_paused_sessions(build: Build) -> None:
    async with build() as engine:
        running, paused = await engine.create(ADA), await engine.create(ADA)
        other = await engine.create(BEN)
        await engine.registry.pause(ADA, paused.id)

        async def call() -> None:
            with pytest.raises((OutcomeUnknown, SessionClosed)):
                await engine.call(running.id, "hold", principal=ADA)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await engine.counter.holding.wait()
                await revoke(engine)
        for session in (running, paused):
            await wait_status(engine, session.id, "closed")
            assert (await engine.registry.info(ADA, session.id))["reason"] == "revoked"
        assert await engine.status(other.id, BEN) == "idle"


async def test_a_session_that_begins_during_a_revocation_is_closed_by_the_next_look(
    build: Build,
) -> None:
    async with build() as engine:
        await revoke(engine)
        session = await engine.create(ADA)
        await engine.registry.revocations.look()
        await engine.until(lambda: session.ownership_ended.is_set())


@pytest.mark.parametrize("begins_paused", [False, True])
async def test_kept_sessions_are_paused_until_the_restoration(
    build: Build, begins_paused: bool
) -> None:
    async with build(Counting(pause="snapshot")) as engine:
        session = await engine.create(ADA)
        await engine.count(session.id, principal=ADA)
        if begins_paused:
            await engine.registry.pause(ADA, session.id)
        await revoke(engine, keeps_sessions=True)
        await engine.until(lambda: session.ownership_ended.is_set())
        assert await engine.status(session.id, ADA) == "paused"
        assert await restore(engine)
        assert not await restore(engine)
        assert await engine.count(session.id, principal=ADA) == 2


async def test_a_revocation_ends_by_its_time(build: Build) -> None:
    async with build() as engine:
        await revoke(engine, until=engine.clock.now() + 60, keeps_sessions=True)
        assert ADA.key in engine.registry.core.revoked
        engine.clock.advance(60)
        await engine.registry.revocations.look()
        assert not engine.registry.core.revoked


async def test_a_revoked_principal_loses_control_of_the_session_of_another(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(BEN)
        await engine.registry.controls.take(BEN, session.id, "ada", user=user_of(ADA.key))
        await revoke(engine)
        await engine.until(lambda: session.record.control.driver is SessionDriver.AGENT)
        assert session.record.control.end is ControlEnd.REVOKED
        assert await engine.count(session.id, principal=BEN) == 1


async def test_the_shares_of_a_revoked_owner_are_off_until_its_restoration(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(ADA)
        sharing, grantee = engine.registry.sharing, Grantee.principal(BEN)
        await sharing.share(ADA, session.id, grantee, ShareRights.USE, 60)
        assert await sharing.owner(session.id, [grantee], ShareRights.USE) == ADA
        await revoke(engine, keeps_sessions=True)
        assert await sharing.owner(session.id, [grantee], ShareRights.USE) is None
        assert await sharing.shared_with([grantee], 10) == []
        await restore(engine)
        assert await sharing.owner(session.id, [grantee], ShareRights.USE) == ADA
        assert len(await sharing.shared_with([grantee], 10)) == 1


async def test_a_revocation_deletes_logins_and_the_links_to_the_sessions(build: Build) -> None:
    async with build() as engine:
        own, other = await engine.create(ADA), await engine.create(BEN)
        kinds = {
            "login": (CredentialKind.LOGIN, ADA.key, None),
            "link": (CredentialKind.LINK, None, own.id),
            "guest": (CredentialKind.LOGIN, None, own.id),
            "bens": (CredentialKind.LOGIN, BEN.key, None),
            "machine": (CredentialKind.LOGIN, None, None),
            "bens link": (CredentialKind.LINK, None, other.id),
        }
        for name, (kind, principal, session_id) in kinds.items():
            record = CredentialRecord(
                id=name,
                kind=kind,
                digest=name,
                principal=principal,
                session_id=session_id,
                created_at=0,
                expires_at=9e9,
            )
            await engine.store.access.add_credential(record, most=10)
        await revoke(engine)
        found = await engine.store.access.open_credentials(list(kinds))
        assert found == {"bens", "machine", "bens link"}


async def test_revocations_hold_while_the_store_is_down(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build() as engine:
        await revoke(engine)
        session = await engine.create(ADA)

        async def refuse() -> list[RevocationRecord]:
            raise StoreUnavailable("The disk is full.")

        monkeypatch.setattr(engine.store.access, "revocations", refuse)
        with pytest.raises(StoreUnavailable):
            await engine.registry.revocations.look()
        await engine.until(lambda: session.ownership_ended.is_set())


async def test_the_next_start_closes_what_was_open_when_no_server_ran(
    build: Build, tmp_path: Path
) -> None:
    async with build(Counting(), folder=tmp_path) as engine:
        session = await engine.create(ADA)
    async with build(Counting(), folder=tmp_path) as engine:
        await revoke(engine)
        await wait_status(engine, session.id, "closed")
