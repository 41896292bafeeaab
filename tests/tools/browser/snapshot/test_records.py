"""Limits of the saved storage, and the losses that are reported by the names of their sites."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest
from changing import Changing
from support.browsing import Browse, opened

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import storage_records
from statehold.tools.browser.snapshot.storage_records import StorageRecords

pytestmark = pytest.mark.anyio

KEEP_FILES = """async () => {
  await (await caches.open("c")).put("/x", new Response("1"));
  await (await navigator.storage.getDirectory()).getFileHandle("f", {create: true});
}"""


@pytest.fixture
def site() -> Generator[Changing]:
    with Changing() as site:
        site.pages["/"] = "<p>hello</p><input id=field>"
        yield site


async def test_checkpoints_name_the_storage_that_is_never_saved(
    browse: Browse, site: Changing
) -> None:
    await browse.text("navigate", url=site.url)
    await browse.value(KEEP_FILES)
    lost = (await browse.saved(light=True)).data["lost"]
    assert lost == [f"Cache Storage of {site.url}", f"private files of {site.url}"]


def origin_state(number: int, *, items: str = "[]", other: Sequence[str] = ()) -> dict[str, Any]:
    """Return the state of an origin as page/storage.js reads it."""
    return {
        "origin": f"http://site{number}.test",
        "items": items,
        "databases": {},
        "cut": [],
        "other": list(other),
    }


def test_losses_of_many_sites_are_named_for_some_and_counted_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage_records, "MAX_NAMED_ORIGINS", 2)
    storage = StorageRecords({})
    for number in range(1, 6):
        lost = ["Cache Storage", "private files"] if number < 5 else []
        for _ in range(2):
            storage.note(origin_state(number, other=lost))
    assert storage.describe_losses() == [
        f"{part} of {origins}"
        for part in ("Cache Storage", "private files")
        for origins in ("http://site1.test", "http://site2.test", "2 more sites")
    ]


def test_the_list_of_lost_sites_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_records, "MAX_STORED_ORIGINS", 1)
    monkeypatch.setattr(storage_records, "MAX_REMEMBERED_ORIGINS", 2)
    storage = StorageRecords({})
    for number in range(1, 6):
        storage.note(origin_state(number, items="[1]"))
    assert storage.describe_losses() == [
        "storage of http://site3.test (too much)",
        "storage of http://site4.test (too much)",
    ]


async def test_a_checkpoint_drops_the_storage_that_was_read_longest_ago(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_records, "STORED_BYTES", 2500)
    monkeypatch.setattr(storage_records, "MAX_NAMED_ORIGINS", 1)
    for number in (1, 2, 3, 4, 1):
        await browse.text("navigate", url=site.at(number))
        await browse.value("() => { localStorage.large = 'x'.repeat(1000) }")
        snapshot = await browse.saved(light=True)
    assert set(snapshot.data["origins"]) == {site.at(4), site.at(1)}
    assert set(browse.connection.session.origins.records.stored) == {site.at(4), site.at(1)}
    assert snapshot.data["lost"] == [
        f"storage of {site.at(2)} (too much)",
        "storage of 1 more sites (too much)",
    ]


@pytest.mark.thorough
async def test_a_dropped_site_is_not_restored(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { localStorage.large = 'x'.repeat(1000) }")
        await browse.text("navigate", url=site.at(2))
        snapshot = await browse.saved()
    monkeypatch.setattr(storage_records, "STORED_BYTES", 1500)
    async with opened(service, browse.next_view(), snapshot) as resumed:
        await resumed.value("() => { localStorage.large = 'x'.repeat(1000) }")
        snapshot = await resumed.saved()
        assert set(snapshot.data["origins"]) == {site.at(2)}
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("() => localStorage.length") == 0
