"""Pictures: files and arrays to PIL images."""

from __future__ import annotations

import io
from typing import Any

from assay.core.errors import MediaError
from assay.media.encoded import Encoded

__all__ = ["decode_picture", "is_picture", "picture_bytes", "picture_of_array"]


_DEPTH = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}


def is_picture(value: Any) -> bool:
    """Whether it is a PIL image, without importing Pillow."""
    return hasattr(value, "tobytes") and hasattr(value, "mode") and hasattr(value, "size")


def picture_bytes(picture: Any) -> int:
    """The memory its pixels take: Pillow keeps four bytes for whatever has more than one.

    >>> from PIL import Image
    >>> picture_bytes(Image.new("RGB", (10, 20)))
    800
    """
    width, height = picture.size
    return int(width * height * _DEPTH.get(picture.mode, 4))


def decode_picture(source: Encoded) -> Any:
    """A PIL image with its pixels read; what the file is, its content says and not its name.

    Raises:
        MediaError: It is empty, cut off, not a picture, or too large to be one.
    """
    from PIL import Image as Pictures

    data = source.read()
    if not data:
        raise MediaError("the picture cannot be read: the file is empty", where=source.name)
    try:
        picture = Pictures.open(io.BytesIO(data))
        picture.load()
    except (
        Pictures.DecompressionBombError,
        Pictures.DecompressionBombWarning,  # where warnings are errors
        OSError,  # what Pillow cannot identify, too
        ValueError,
        SyntaxError,
        EOFError,
        MemoryError,
    ) as error:
        shown = str(error).replace(f"<_io.BytesIO object at {id(data):#x}>", "it")
        if "cannot identify image file" in shown:
            shown = "it is not a picture of a known kind"
        raise MediaError(f"the picture cannot be read: {shown}", where=source.name) from None
    return picture


def picture_of_array(array: Any, *, where: str = "") -> Any:
    """A PIL image of rows x columns (x 1, 3 or 4): bytes, or fractions of one."""
    import numpy
    from PIL import Image as Pictures

    pixels = numpy.asarray(array)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim not in (2, 3) or not pixels.size or (pixels.ndim == 3 and pixels.shape[-1] not in (3, 4)):
        raise MediaError(f"an array of shape {pixels.shape} is not a picture", where=where)
    if pixels.dtype.kind == "f" and float(pixels.min()) >= 0 and float(pixels.max()) <= 1:
        pixels = numpy.rint(pixels * 255)
    elif pixels.dtype.kind == "b":
        pixels = pixels * 255
    if pixels.dtype.kind not in "fiub" or float(pixels.min()) < 0 or float(pixels.max()) > 255:
        raise MediaError(f"an array of {pixels.dtype} beyond 0..255 is not a picture", where=where)
    return Pictures.fromarray(numpy.ascontiguousarray(pixels.astype(numpy.uint8)))
