from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pictures
from tests.making_media import make_image, make_noise_jpeg, make_png

from assay.core.errors import MediaError
from assay.media.images import count_pixel_bytes, decode_image, image_from_array
from assay.media.media_files import open_media_file


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP"])
def test_pictures_of_many_kinds_are_read(kind: str) -> None:
    found = decode_image(open_media_file(make_image(kind)))
    assert (found.size, found.convert("RGB").getpixel((5, 5))[0] > 250) == ((32, 24), True)


def test_what_a_file_is_its_content_says_and_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(make_png())
    assert decode_image(open_media_file(path)).format == "PNG"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x00" * 100, "unknown image format"),
        (make_noise_jpeg()[:5000], "truncated"),
        (make_png()[:40], "cannot read the image"),
    ],
    ids=["empty", "not a picture", "a cut JPEG", "a cut PNG"],
)
def test_a_damaged_image_is_rejected_with_its_path(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(data)
    with pytest.raises(MediaError, match=message) as caught:
        decode_image(open_media_file(path))
    assert caught.value.where == str(path)


def test_a_picture_too_large_to_be_one_is_refused_before_it_takes_the_memory() -> None:
    """Sixteen gigapixels in a file of a few bytes: only the head says so."""
    head = bytearray(make_image("BMP", size=(1, 1)))
    head[18:26] = (2**17).to_bytes(4, "little") * 2
    with pytest.raises(MediaError, match="decompression bomb"):
        decode_image(open_media_file(bytes(head)))


@pytest.mark.parametrize(
    ("array", "mode", "pixel"),
    [
        (np.full((4, 6, 3), 200, np.uint8), "RGB", (200, 200, 200)),
        (np.full((4, 6), 7, np.uint8), "L", 7),
        (np.full((4, 6, 1), 7, np.int64), "L", 7),
        (np.full((4, 6, 4), 9, np.uint8), "RGBA", (9, 9, 9, 9)),
        (np.full((4, 6, 3), 0.5), "RGB", (128, 128, 128)),
        (np.ones((4, 6), bool), "L", 255),
    ],
)
def test_an_array_becomes_a_picture(array: Any, mode: str, pixel: Any) -> None:
    found = image_from_array(array)
    assert (found.size, found.mode, found.getpixel((0, 0))) == ((6, 4), mode, pixel)


@pytest.mark.parametrize(
    "array", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((0, 4)), np.full((2, 2), 300), np.full((2, 2), -1.0)]
)
def test_an_array_that_is_no_picture_is_refused(array: Any) -> None:
    with pytest.raises(MediaError, match="is not an image"):
        image_from_array(array)


@pytest.mark.parametrize(("mode", "size"), [("RGB", 800), ("L", 200), ("RGBA", 800), ("F", 800), ("1", 200)])
def test_the_memory_of_a_picture_is_known(mode: str, size: int) -> None:
    assert count_pixel_bytes(Pictures.new(mode, (10, 20))) == size
