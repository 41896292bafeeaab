"""The pixels of pictures, read by a page of a browser, and a page that paints a number as blocks."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from playwright.async_api import Page

BLOCK = 24
BITS = 10
COUNTER = (
    "<body style='margin:0'>"
    + "".join(
        f"<div style='position:fixed;top:0;left:{number * BLOCK}px;width:{BLOCK}px;height:{BLOCK}px'></div>"
        for number in range(BITS)
    )
    + """<script>
      function paint(number) {
        [...document.querySelectorAll("body > div")].forEach(
          (block, bit) => block.style.background = number >> bit & 1 ? "#fff" : "#000");
      }
      paint(0);
    </script>"""
)
"""A page with paint(NUMBER)."""

_READ = """async ([text, points]) => {
  const blob = await (await fetch("data:image/jpeg;base64," + text)).blob();
  const picture = await createImageBitmap(blob);
  const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
  context.drawImage(picture, 0, 0);
  const {data} = context.getImageData(0, 0, picture.width, picture.height);
  return [picture.width, picture.height, points.map(([x, y]) => {
    const at = 4 * (Math.floor(y * picture.height) * picture.width + Math.floor(x * picture.width));
    return [...data.slice(at, at + 3)];
  })];
}"""
_FIND = """async ([text, color]) => {
  const blob = await (await fetch("data:image/jpeg;base64," + text)).blob();
  const picture = await createImageBitmap(blob);
  const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
  context.drawImage(picture, 0, 0);
  const {data} = context.getImageData(0, 0, picture.width, picture.height);
  let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
  for (let at = 0; at < data.length; at += 4) {
    if (color.some((part, index) => Math.abs(data[at + index] - part) > 40)) continue;
    const [x, y] = [at / 4 % picture.width, Math.floor(at / 4 / picture.width)];
    [left, top] = [Math.min(left, x), Math.min(top, y)];
    [right, bottom] = [Math.max(right, x), Math.max(bottom, y)];
  }
  if (right < 0) return null;
  return [(left + right + 1) / 2 / picture.width, (top + bottom + 1) / 2 / picture.height];
}"""


class Pixels:
    """Reads pictures by a page of a browser."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def at(self, jpeg: bytes, points: Sequence[tuple[float, float]]) -> list[list[int]]:
        """Return the colours at points of a picture, each from 0 to 1."""
        return (await self._read(jpeg, points))[2]

    async def size(self, jpeg: bytes) -> tuple[int, int]:
        width, height, _ = await self._read(jpeg, [])
        return width, height

    async def find(self, jpeg: bytes, color: tuple[int, int, int]) -> tuple[float, float] | None:
        """Return the middle of all that has a colour in a picture, from 0 to 1; None if nothing has it."""
        found = await self._page.evaluate(_FIND, [base64.b64encode(jpeg).decode(), color])
        return None if found is None else (found[0], found[1])

    async def count(self, jpeg: bytes, width: float, height: float) -> int:
        """Return the number that COUNTER painted; the size is that of the page."""
        middles = [((number + 0.5) * BLOCK / width, BLOCK / 2 / height) for number in range(BITS)]
        colors = await self.at(jpeg, middles)
        return sum(1 << bit for bit, color in enumerate(colors) if color[1] > 127)

    async def _read(self, jpeg: bytes, points: Sequence[tuple[float, float]]) -> Any:
        return await self._page.evaluate(_READ, [base64.b64encode(jpeg).decode(), points])
