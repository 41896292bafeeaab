"""The page as a document to print."""

from __future__ import annotations

from ..call import Call, named
from ..session.failures import ToolFailed, in_words
from ..tool import BrowserArguments, BrowserTool, Filename, tool


class SavePdf(BrowserArguments):
    filename: Filename = None


@tool("browser_pdf_save", title="Save as PDF", cap="pdf", read_only=True, limit="navigation")
async def pdf_save(call: Call, given: SavePdf) -> None:
    """Print the page into a PDF, a file of the session."""
    from playwright.async_api import Error

    tab = await call.arrived()
    try:
        data = await tab.page.pdf()
    except Error as error:
        raise ToolFailed(f"The page cannot be printed: {in_words(error)}") from None
    await call.keep(named(given.filename, "page.pdf"), data, label="Page as pdf")
    call.answer.code("await page.pdf()")


TOOLS: list[BrowserTool] = [pdf_save]
