"""Simple pictures: lines, dots and texts, written as SVG or, with Pillow, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

__all__ = ["Dot", "Drawing", "Line", "Words"]


@dataclass(frozen=True, slots=True)
class Line:
    """From one point to another."""

    start: tuple[float, float]
    end: tuple[float, float]
    colour: str = "#57606a"
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle."""

    middle: tuple[float, float]
    radius: float
    colour: str


@dataclass(frozen=True, slots=True)
class Words:
    """A text, its baseline beginning (or centred) at a point."""

    at: tuple[float, float]
    text: str
    colour: str = "#1f2328"
    size: int = 13
    centred: bool = False


@dataclass(slots=True)
class Drawing:
    """Shapes on a white page."""

    width: int
    height: int
    shapes: list[Line | Dot | Words] = field(default_factory=list)

    def add(self, *shapes: Line | Dot | Words) -> None:
        """Put shapes above those that are there."""
        self.shapes += shapes

    def svg(self) -> str:
        """As SVG: no script, no font of its own."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif">',
                f'<rect width="{self.width}" height="{self.height}" fill="white"/>',
                *map(_svg, self.shapes),
                "</svg>\n",
            ]
        )

    def png(self, scale: int = 2) -> bytes:
        """As PNG, `scale` times as large so that it stays sharp."""
        from PIL import Image, ImageDraw, ImageFont

        image = Image.new("RGB", (self.width * scale, self.height * scale), "white")
        pen = ImageDraw.Draw(image)
        for shape in self.shapes:
            match shape:
                case Line(start, end, colour, width):
                    pen.line([*_scaled(start, scale), *_scaled(end, scale)], colour, round(width * scale))
                case Dot((across, down), radius, colour):
                    corners = (across - radius, down - radius, across + radius, down + radius)
                    pen.ellipse(_scaled(corners, scale), colour)
                case Words((across, down), text, colour, size, centred):
                    font = ImageFont.load_default(size * scale)
                    place = (across * scale, down * scale)
                    pen.text(place, _clean(text), colour, font, "ms" if centred else "ls")
        stream = io.BytesIO()
        image.save(stream, "PNG")
        return stream.getvalue()


def _scaled(numbers: Sequence[float], scale: int) -> list[float]:
    return [number * scale for number in numbers]


def _svg(shape: Line | Dot | Words) -> str:
    match shape:
        case Line((x1, y1), (x2, y2), colour, width):
            place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            return f'<line {place} stroke="{colour}" stroke-width="{width:g}"/>'
        case Dot((across, down), radius, colour):
            return f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius:g}" fill="{colour}"/>'
        case Words((across, down), text, colour, size, centred):
            anchor = ' text-anchor="middle"' if centred else ""
            place = f'x="{across:.1f}" y="{down:.1f}" font-size="{size}" fill="{colour}"{anchor}'
            return f"<text {place}>{escape(_clean(text))}</text>"


def _clean(text: str) -> str:
    return "".join(character if character.isprintable() else "�" for character in text)
