"""Limits of the saved storage, and the losses that are reported by the names of their sites."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from changing import Changing
from support.browsing import Browse, opened

from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot import records

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


async def test_losses_of_many_sites_are_named_for_some_and_counted_for_the_rest(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "NAMED_ORIGINS", 2)
    for number in range(1, 6):
        await browse.text("navigate", url=site.at(number))
        await browse.value(KEEP_FILES if number < 5 else "() => 1")
        await browse.saved(light=True)
    assert (await browse.saved()).data["lost"] == [
        f"{what} of {which}"
        for what in ("Cache Storage", "private files")
        for which in (site.at(1), site.at(2), "2 more sites")
    ]


async def test_the_sites_that_were_read_last_are_kept_when_there_are_too_many(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "STORED_BYTES", 2500)
    monkeypatch.setattr(records, "NAMED_ORIGINS", 1)
    for number in (1, 2, 3, 4, 1):
        await browse.text("navigate", url=site.at(number))
        await browse.value("() => { localStorage.large = 'x'.repeat(1000) }")
        found = await browse.saved(light=True)
    assert set(found.data["origins"]) == {site.at(4), site.at(1)}
    assert set(browse.connection.session.origins.records.stored) == {site.at(4), site.at(1)}
    assert found.data["lost"] == [
        f"storage of {site.at(2)} (too much)",
        "storage of 1 more sites (too much)",
    ]


async def test_the_list_of_lost_sites_is_bounded(
    browse: Browse, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "STORED_ORIGINS", 1)
    monkeypatch.setattr(records, "REMEMBERED_ORIGINS", 2)
    for number in range(1, 6):
        await browse.text("navigate", url=site.at(number))
        await browse.value("() => { localStorage.cart = 'full' }")
        await browse.saved(light=True)
    lost = (await browse.saved(light=True)).data["lost"]
    assert len(lost) == 2
    assert all(line.endswith("(too much)") for line in lost)


async def test_a_dropped_site_is_not_restored(
    service: BrowserService, site: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=site.url)
        await browse.value("() => { localStorage.large = 'x'.repeat(1000) }")
        await browse.text("navigate", url=site.at(2))
        found = await browse.saved()
    monkeypatch.setattr(records, "STORED_BYTES", 1500)
    async with opened(service, browse.loop_clock(), found) as resumed:
        await resumed.value("() => { localStorage.large = 'x'.repeat(1000) }")
        found = await resumed.saved()
        assert set(found.data["origins"]) == {site.at(2)}
        await resumed.text("navigate", url=site.url)
        assert await resumed.value("() => localStorage.length") == 0
