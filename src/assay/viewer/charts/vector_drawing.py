"""Simple vector drawings of lines, dots and labels, written as SVG or, with Pillow, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

__all__ = ["Dot", "Drawing", "Label", "Line"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line from one point to another."""

    start: tuple[float, float]
    end: tuple[float, float]
    colour: str = "#57606a"
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle."""

    centre: tuple[float, float]
    radius: float
    colour: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text whose baseline starts at a point, or is centred on it."""

    position: tuple[float, float]
    text: str
    colour: str = "#1f2328"
    size: int = 13
    centred: bool = False


@dataclass(slots=True)
class Drawing:
    """Shapes on a white background."""

    width: int
    height: int
    shapes: list[Line | Dot | Label] = field(default_factory=list)

    def add(self, *shapes: Line | Dot | Label) -> None:
        """Add shapes on top of the others."""
        self.shapes += shapes

    def to_svg(self) -> str:
        """Return the drawing as SVG, without scripts and embedded fonts."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif">',
                f'<rect width="{self.width}" height="{self.height}" fill="white"/>',
                *map(_format_shape, self.shapes),
                "</svg>\n",
            ]
        )

    def to_png(self, scale: int = 2) -> bytes:
        """Return the drawing as PNG, `scale` times as large to stay sharp."""
        from PIL import Image, ImageDraw, ImageFont

        image = Image.new("RGB", (self.width * scale, self.height * scale), "white")
        pen = ImageDraw.Draw(image)
        for shape in self.shapes:
            match shape:
                case Line(start, end, colour, width):
                    pen.line([*_scale(start, scale), *_scale(end, scale)], colour, round(width * scale))
                case Dot((across, down), radius, colour):
                    corners = (across - radius, down - radius, across + radius, down + radius)
                    pen.ellipse(_scale(corners, scale), colour)
                case Label((across, down), text, colour, size, centred):
                    font = ImageFont.load_default(size * scale)
                    place = (across * scale, down * scale)
                    pen.text(place, _replace_unprintable(text), colour, font, "ms" if centred else "ls")
        stream = io.BytesIO()
        image.save(stream, "PNG")
        return stream.getvalue()


def _scale(numbers: Sequence[float], scale: int) -> list[float]:
    return [number * scale for number in numbers]


def _format_shape(shape: Line | Dot | Label) -> str:
    match shape:
        case Line((x1, y1), (x2, y2), colour, width):
            place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            return f'<line {place} stroke="{colour}" stroke-width="{width:g}"/>'
        case Dot((across, down), radius, colour):
            return f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius:g}" fill="{colour}"/>'
        case Label((across, down), text, colour, size, centred):
            anchor = ' text-anchor="middle"' if centred else ""
            place = f'x="{across:.1f}" y="{down:.1f}" font-size="{size}" fill="{colour}"{anchor}'
            return f"<text {place}>{escape(_replace_unprintable(text))}</text>"


def _replace_unprintable(text: str) -> str:
    return "".join(character if character.isprintable() else "�" for character in text)
