"""A page that paints a number as bright and dark squares, and a script that reads it from the picture of a viewer."""

from __future__ import annotations

from typing import Final

PATH: Final = "/painting"
BITS: Final = 12
"""Squares of the number, the lowest bit first, from the top left corner of the page."""

_SIDE: Final = 40
_WORDS: Final = (
    "The quick brown fox jumps over the lazy dog while forty clerks copy the same long line. "
)
_BODY: Final = f"""
<style>body {{ margin: 0; font: 14px sans-serif }} i {{ position: absolute; top: 0; width: {_SIDE}px; height: {_SIDE}px }}
p {{ margin: 60px 20px 0 }}</style>
{"".join(f'<i style="left:{_SIDE * bit}px;background:#000"></i>' for bit in range(BITS))}<p>{_WORDS * 60}</p>
<script>
const squares = document.querySelectorAll("i");
window.painted = {{}};
let number = 0;
function paint() {{
  number = (number + 1) % {1 << BITS};
  squares.forEach((square, bit) => {{ square.style.background = number >> bit & 1 ? "#fff" : "#000"; }});
  window.painted[number] = performance.timeOrigin + performance.now();
}}
const rate = Number(new URLSearchParams(location.search).get("hz"));
const each = () => {{ requestAnimationFrame(each); paint(); }};
if (rate >= 60) each(); else if (rate > 0) setInterval(() => requestAnimationFrame(paint), 1000 / rate);
</script>"""

SAMPLE: Final = f"""selector => {{
    window.seen = {{}};
    window.drawn = 0;
    const side = {_SIDE};
    const look = () => {{
        window.sampling = requestAnimationFrame(look);
        const picture = document.querySelector(selector);
        const width = picture?.naturalWidth ?? picture?.width;
        if (!width) return;
        let canvas = picture;
        if (picture.tagName === "IMG") {{
            canvas = new OffscreenCanvas(width, side);
            canvas.getContext("2d", {{willReadFrequently: true}}).drawImage(picture, 0, 0);
        }}
        const scale = canvas.width / 1280;
        const row = canvas.getContext("2d", {{willReadFrequently: true}})
            .getImageData(0, Math.round(side / 2 * scale), Math.round({_SIDE * BITS} * scale), 1).data;
        let number = 0;
        for (let bit = 0; bit < {BITS}; bit++) {{
            if (row[4 * Math.round((bit + 0.5) * side * scale)] > 127) number |= 1 << bit;
        }}
        window.seen[number] ??= performance.timeOrigin + performance.now();
    }};
    look();
}}"""
"""Begin to note when each number first stands in the canvas or image that a selector finds, once per frame of the viewer."""


def pages() -> dict[str, tuple[str, str]]:
    """Return the title and the body by path. `?hz=` is the number of paints a second; 60: one with each frame."""
    return {PATH: ("Painting", _BODY)}
