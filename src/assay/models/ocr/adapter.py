"""RapidOCR behind the `Model` port: pictures in, the text in them out, in reading order.

A small real model from PyPI that needs neither torch nor a GPU nor a download: its weights are in the package.
It follows no instruction. The text of a prompt is not read; the answer is all text in the pictures, a line each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from assay.core.errors import BadOption
from assay.core.messages import Image, Media
from assay.core.ports import Traits
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.media import picture
from assay.models.reading import files_sha256, package_versions, read_each, wanted

__all__ = ["OcrModel"]

_PACKAGE = "rapidocr_onnxruntime"


class OcrModel:
    """Text in pictures, by RapidOCR.

    >>> OcrModel(min_score=0.7).name
    'ocr'
    """

    def __init__(
        self, *, min_score: float | str = 0.5, shortest_side: int | str = 736, threads: int | str = -1
    ) -> None:
        """`min_score`: lines less sure are left out. `shortest_side`: smaller pictures are enlarged to this many
        pixels before text is looked for. `threads`: of ONNX Runtime; by default it takes what it finds."""
        try:
            self._min_score = float(min_score)
            self._shortest_side, self._threads = int(shortest_side), int(threads)
        except (TypeError, ValueError) as error:
            raise BadOption(f"an argument of `ocr` is not a number: {error}", where="--model_args") from None
        if not 0 <= self._min_score <= 1 or self._shortest_side < 32:
            raise BadOption(
                f"`min_score` is between 0 and 1 and `shortest_side` at least 32, got {min_score} and {shortest_side}",
                where="--model_args",
            )
        self._reader: Any = None

    @property
    def name(self) -> str:
        return "ocr"

    @property
    def traits(self) -> Traits:
        """Pictures only, one at a time; without a picture there is nothing to read."""
        return Traits(
            abilities=frozenset({"generate", "chat", "image"}),
            needs=frozenset({"image"}),
            window=8,
            in_flight=1,
        )

    async def identify(self) -> Mapping[str, str]:
        """Package versions, a hash of the networks, and the score below which a line is left out."""
        own = wanted(_PACKAGE, "ocr", "the model `ocr`")
        sha256 = await asyncio.to_thread(files_sha256, *_weights())
        return {
            "name": self.name,
            _PACKAGE: own,
            **package_versions("onnxruntime", "opencv-python", "opencv-python-headless"),
            "weights_sha256": sha256,
            "min_score": str(self._min_score),
            "shortest_side": str(self._shortest_side),
        }

    async def open(self) -> None:
        """Load the three networks: about a second."""
        wanted(_PACKAGE, "ocr", "the model `ocr`")
        if self._reader is None:
            self._reader = await asyncio.to_thread(self._load)

    def _load(self) -> Any:
        settings: dict[str, Any] = {"text_score": self._min_score, "det_limit_side_len": self._shortest_side}
        if self._threads > 0:
            settings |= {"intra_op_num_threads": self._threads, "inter_op_num_threads": 1}
        return import_module(_PACKAGE).RapidOCR(**settings)

    def prepare(self, part: Media) -> None:
        """Decode a picture ahead of its turn."""
        if isinstance(part, Image):
            picture(part)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """All text in the pictures of each request."""
        async for outcome in read_each(window, self._read, Image):
            yield outcome

    async def close(self) -> None:
        """Forget the networks."""
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
    """The networks the package carries; found without importing it."""
    found = find_spec(_PACKAGE)
    folder = Path(str(found.origin)).parent if found else Path(_PACKAGE)
    return sorted((folder / "models").glob("*.onnx"))
