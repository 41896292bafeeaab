"""The page as a document to print."""

from __future__ import annotations

from ..call import BrowserCall
from ..errors import BrowserToolFailed, describe_error
from ..session.files import file_name
from ..tool import BrowserArguments, BrowserTool, Filename, tool


class SavePdf(BrowserArguments):
    filename: Filename = None


@tool("browser_pdf_save", title="Save as PDF", cap="pdf", read_only=True, limit="navigation")
async def pdf_save(call: BrowserCall, arguments: SavePdf) -> None:
    """Print the page into a PDF, a file of the session."""
    from playwright.async_api import Error

    tab = await call.ready_tab()
    try:
        data = await tab.page.pdf()
    except Error as error:
        raise BrowserToolFailed(f"The page cannot be printed: {describe_error(error)}") from None
    name, is_chosen = file_name(arguments.filename, "page.pdf"), bool(arguments.filename)
    await call.add_file(name, data, label="Page as pdf", is_chosen=is_chosen)
    call.answer.code("await page.pdf()")


TOOLS: list[BrowserTool] = [pdf_save]
