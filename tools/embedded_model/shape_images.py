"""32x32 images of colored shapes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

SIDE = 32
SHAPES = ["circle", "square", "triangle", "cross"]
COLOURS = {
    "red": (215, 35, 35),
    "green": (35, 165, 55),
    "blue": (40, 70, 215),
    "yellow": (240, 220, 40),
    "purple": (140, 45, 170),
    "orange": (245, 140, 25),
}
BACKGROUNDS = [(250, 250, 250), (225, 225, 225), (15, 15, 15), (60, 60, 60)]
RGB = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Scene:
    """An image, its shapes as (shape, color) pairs, and the bounding box (left, top, size) of each."""

    picture: Image.Image
    things: tuple[tuple[str, str], ...]
    boxes: tuple[tuple[int, int, int], ...]


def draw_scene(random: Random, things: list[tuple[str, str]]) -> Scene:
    """Draw shapes: a large one anywhere, or several small ones in the cells of a 3x3 grid."""
    picture = Image.new("RGB", (SIDE, SIDE), _jitter(random, random.choice(BACKGROUNDS), 8))
    pen = ImageDraw.Draw(picture)
    if len(things) == 1:
        size = random.randint(9, 26)
        boxes = [(random.randint(1, SIDE - size - 1), random.randint(1, SIDE - size - 1), size)]
    else:
        boxes = []
        for cell in random.sample(range(9), len(things)):
            size = random.randint(7, 9)
            boxes.append(
                (
                    cell % 3 * 10 + 1 + random.randint(0, 9 - size),
                    cell // 3 * 10 + 1 + random.randint(0, 9 - size),
                    size,
                )
            )
    for (shape, colour), (left, top, size) in zip(things, boxes, strict=True):
        _draw(pen, shape, _jitter(random, COLOURS[colour], 14), left, top, size)
    return Scene(picture, tuple(things), tuple(boxes))


def draw_random_scene(random: Random, max_things: int = 5) -> Scene:
    """A scene of one to `max_things` things."""
    count = random.randint(1, max_things)
    return draw_scene(random, [(random.choice(SHAPES), random.choice(list(COLOURS))) for _ in range(count)])


def _draw(pen: ImageDraw.ImageDraw, shape: str, colour: RGB, left: int, top: int, size: int) -> None:
    right, bottom = left + size - 1, top + size - 1
    match shape:
        case "circle":
            pen.ellipse((left, top, right, bottom), fill=colour)
        case "square":
            pen.rectangle((left, top, right, bottom), fill=colour)
        case "triangle":
            pen.polygon([((left + right) / 2, top), (left, bottom), (right, bottom)], fill=colour)
        case _:
            arm = max(2, size // 3)
            middle = (size - arm) // 2
            pen.rectangle((left + middle, top, left + middle + arm - 1, bottom), fill=colour)
            pen.rectangle((left, top + middle, right, top + middle + arm - 1), fill=colour)


def _jitter(random: Random, colour: RGB, spread: int) -> RGB:
    red, green, blue = (min(255, max(0, part + random.randint(-spread, spread))) for part in colour)
    return red, green, blue
