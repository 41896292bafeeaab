"""Pages as PDF."""

from __future__ import annotations

import pytest
from support.browsing import Browse

pytestmark = pytest.mark.peer


async def test_a_page_is_printed_into_a_file_of_the_session(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    result = await browse.call("pdf_save")
    link = result.payload["content"][1]
    assert (link["uri"], link["mimeType"]) == ("files/page.pdf", "application/pdf")
    data, _ = await browse.connection.session.files.read("files/page.pdf")
    assert data.startswith(b"%PDF-")
    assert len(data) == link["size"]


async def test_a_name_leads_nowhere_else(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    assert "/browser/files/evil.pdf)" in await browse.text("pdf_save", filename="../../evil")
    assert "/browser/files/evil.pdf)" in await browse.text("pdf_save", filename="/tmp/evil.pdf")
    assert await browse.connection.session.files.names() == ["evil.pdf"]


async def test_a_pdf_without_room_is_an_error_without_a_path(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    files = browse.connection.session.files
    files._largest = 10  # pyright: ignore[reportPrivateUsage]
    text = await browse.error("pdf_save")
    assert "there is no room" in text
    assert str(files.folder) not in text
