"""Images: decodes files and arrays to PIL images."""

from __future__ import annotations

import io
from typing import Any

from assay.core.errors import MediaError
from assay.media.media_files import MediaFile

__all__ = ["count_pixel_bytes", "decode_image", "image_from_array", "is_image"]


_BYTES_PER_PIXEL = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}


def is_image(value: Any) -> bool:
    """Whether a value is a PIL image, without importing Pillow."""
    return hasattr(value, "tobytes") and hasattr(value, "mode") and hasattr(value, "size")


def count_pixel_bytes(image: Any) -> int:
    """Return the memory of the pixels: Pillow uses four bytes for modes with more than one channel.

    >>> from PIL import Image
    >>> count_pixel_bytes(Image.new("RGB", (10, 20)))
    800
    """
    width, height = image.size
    return int(width * height * _BYTES_PER_PIXEL.get(image.mode, 4))


def decode_image(source: MediaFile) -> Any:
    """Return a loaded PIL image; the format is detected from the content.

    Raises:
        MediaError: The file is empty, truncated, too large, or not an image.
    """
    from PIL import Image as PilImage

    data = source.read()
    if not data:
        raise MediaError("cannot read the image: the file is empty", where=source.name)
    try:
        image = PilImage.open(io.BytesIO(data))
        image.load()
    except (
        PilImage.DecompressionBombError,
        PilImage.DecompressionBombWarning,  # if warnings are errors
        OSError,  # includes UnidentifiedImageError
        ValueError,
        SyntaxError,
        EOFError,
        MemoryError,
    ) as error:
        shown = str(error).replace(f"<_io.BytesIO object at {id(data):#x}>", "it")
        if "cannot identify image file" in shown:
            shown = "unknown image format"
        raise MediaError(f"cannot read the image: {shown}", where=source.name) from None
    return image


def image_from_array(array: Any, *, where: str = "") -> Any:
    """Return a PIL image of an array of rows x columns (x 1, 3 or 4), with values 0..255 or 0..1."""
    import numpy
    from PIL import Image as PilImage

    pixels = numpy.asarray(array)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim not in (2, 3) or not pixels.size or (pixels.ndim == 3 and pixels.shape[-1] not in (3, 4)):
        raise MediaError(f"an array of shape {pixels.shape} is not an image", where=where)
    if pixels.dtype.kind == "f" and float(pixels.min()) >= 0 and float(pixels.max()) <= 1:
        pixels = numpy.rint(pixels * 255)
    elif pixels.dtype.kind == "b":
        pixels = pixels * 255
    if pixels.dtype.kind not in "fiub" or float(pixels.min()) < 0 or float(pixels.max()) > 255:
        raise MediaError(
            f"an array of {pixels.dtype} with values outside 0..255 is not an image", where=where
        )
    return PilImage.fromarray(numpy.ascontiguousarray(pixels.astype(numpy.uint8)))
