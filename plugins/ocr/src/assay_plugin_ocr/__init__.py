"""The model `ocr`: reads the text in images with RapidOCR (PP-OCR networks on ONNX Runtime), in reading order.

A small real model from PyPI that needs neither torch nor a GPU nor a download: the package contains the weights.
It follows no instructions and ignores the text of a prompt; the answer is all text in the images, one line each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from assay.core.errors import InvalidOption
from assay.core.ports import Traits
from assay.core.records.messages import Image, Media
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.media import picture
from assay.models.file_digests import hash_files
from assay.models.media_to_text import transcribe_media
from assay.models.packages import find_package_versions, require_package

__all__ = ["OcrModel"]

_PACKAGE = "rapidocr_onnxruntime"


class OcrModel:
    """Reads the text in images with RapidOCR.

    >>> OcrModel(min_score=0.7).name
    'ocr'
    """

    def __init__(
        self, *, min_score: float | str = 0.5, shortest_side: int | str = 736, threads: int | str = -1
    ) -> None:
        """`min_score`: drop lines with a lower confidence. `shortest_side`: enlarge smaller images to this many
        pixels. `threads`: threads of ONNX Runtime (-1: its default)."""
        try:
            self._min_score = float(min_score)
            self._shortest_side, self._threads = int(shortest_side), int(threads)
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"an argument of `ocr` is not a number: {error}", where="--model_args"
            ) from None
        if not 0 <= self._min_score <= 1 or self._shortest_side < 32:
            raise InvalidOption(
                f"`min_score` is between 0 and 1 and `shortest_side` at least 32, got {min_score} and {shortest_side}",
                where="--model_args",
            )
        self._reader: Any = None

    @property
    def name(self) -> str:
        return "ocr"

    @property
    def traits(self) -> Traits:
        """Images only, one window at a time; a prompt must contain an image."""
        return Traits(
            abilities=frozenset({"generate", "chat", "image"}),
            needs=frozenset({"image"}),
            window=8,
            in_flight=1,
        )

    async def identify(self) -> Mapping[str, str]:
        """Package versions, a hash of the networks, and all settings that affect answers."""
        own = require_package(_PACKAGE, "", "the model `ocr`")
        sha256 = await asyncio.to_thread(hash_files, *_weights())
        return {
            "name": self.name,
            _PACKAGE: own,
            **find_package_versions("onnxruntime", "opencv-python", "opencv-python-headless"),
            "weights_sha256": sha256,
            "min_score": str(self._min_score),
            "shortest_side": str(self._shortest_side),
        }

    async def open(self) -> None:
        """Load the three networks, which takes about a second."""
        require_package(_PACKAGE, "", "the model `ocr`")
        if self._reader is None:
            self._reader = await asyncio.to_thread(self._load)

    def _load(self) -> Any:
        settings: dict[str, Any] = {"text_score": self._min_score, "det_limit_side_len": self._shortest_side}
        if self._threads > 0:
            settings |= {"intra_op_num_threads": self._threads, "inter_op_num_threads": 1}
        return import_module(_PACKAGE).RapidOCR(**settings)

    def prepare(self, part: Media) -> None:
        """Decode an image ahead of time."""
        if isinstance(part, Image):
            picture(part)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Read all text in the images of each request."""
        async for outcome in transcribe_media(window, self._read, Image):
            yield outcome

    async def close(self) -> None:
        """Release the networks."""
        self._reader = None

    def _read(self, media: tuple[Media, ...]) -> str:
        import numpy

        lines: list[str] = []
        for part in media:
            pixels = numpy.asarray(picture(cast(Image, part)).convert("RGB"))[:, :, ::-1]
            found, _ = self._reader(numpy.ascontiguousarray(pixels))
            lines += [str(text) for _, text, _ in found or ()]
        return "\n".join(lines)


def _weights() -> list[Path]:
    """Return the network files of the package without importing it."""
    found = find_spec(_PACKAGE)
    folder = Path(str(found.origin)).parent if found else Path(_PACKAGE)
    return sorted((folder / "models").glob("*.onnx"))
