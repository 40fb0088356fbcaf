"""Values as a corpus of lmms-eval writes them, and back: media by content hash, odd numbers in tagged forms."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.testing.oracle.corpus import read_records

__all__ = ["Media", "encode", "media_of"]

_MOST_NUMBERS = 4096
"""Longer arrays are written as their hash."""


class Media:
    """The pictures and sounds of a corpus, by hash; decoded when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows = {row["sha256"]: row for row in read_records(folder, "media.jsonl*")}

    def decode(self, value: Any) -> Any:
        """A recorded value as a dataset is built from it."""
        if isinstance(value, str):
            return _from_places(value)
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"__media__": "image", "sha256": sha}:
                return self._picture(sha)
            case {"__media__": "audio", "sha256": sha, "sampling_rate": rate}:
                return {"array": self._sound(sha), "sampling_rate": rate, **(value.get("rest") or {})}
            case {"__float__": text}:
                return float(text)
            case {"__bytes_b64__": text}:
                return base64.b64decode(text)
            case {"__set__": items}:
                return {self.decode(item) for item in items}
            case {"__dict__": pairs}:
                return {_key(self.decode(key)): self.decode(item) for key, item in pairs}
        return {key: self.decode(item) for key, item in value.items()}

    def _picture(self, sha: str) -> Any:
        from PIL import Image

        picture = Image.open(io.BytesIO(base64.b64decode(self._rows[sha]["png_b64"])))
        return (
            picture.convert(self._rows[sha]["mode"]) if picture.mode != self._rows[sha]["mode"] else picture
        )

    def _sound(self, sha: str) -> list[float]:
        import numpy

        data = base64.b64decode(self._rows[sha]["f32_b64"])
        samples: list[float] = numpy.frombuffer(data, dtype="<f4").tolist()
        return samples


@lru_cache(maxsize=2)
def media_of(folder: Path) -> Media:
    """The media table of a corpus, read once."""
    return Media(folder)


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def encode(value: Any) -> Any:
    """A value as the corpus writes it, for comparison."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return _to_places(value)
    if isinstance(value, float):
        odd = value != value or value in (float("inf"), float("-inf"))
        return {"__float__": "nan" if value != value else str(value)} if odd else float(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {"__set__": sorted((encode(item) for item in value), key=str)}
    if isinstance(value, (bytes, bytearray)):
        return {"__bytes_b64__": base64.b64encode(bytes(value)).decode()}
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        width, height = value.size
        digest = hashlib.sha256(f"{value.mode}:{width}x{height}:".encode() + value.tobytes()).hexdigest()
        return {"__media__": "image", "sha256": digest, "size": [width, height], "mode": value.mode}
    return _array(value)


def _mapping(value: Mapping[Any, Any]) -> Any:
    if "array" in value and "sampling_rate" in value:
        import numpy

        samples = numpy.asarray(value["array"], dtype=numpy.float32)
        rest = {key: encode(item) for key, item in value.items() if key not in ("array", "sampling_rate")}
        return {
            "__media__": "audio",
            "sha256": hashlib.sha256(samples.tobytes()).hexdigest(),
            "sampling_rate": encode(value["sampling_rate"]),
            "n": int(samples.size),
            "rest": rest,
        }
    if all(isinstance(key, str) for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {"__dict__": [[encode(key), encode(item)] for key, item in value.items()]}


def _array(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        if value.shape == ():
            return encode(value.item())
        written: dict[str, Any] = {"__ndarray__": list(value.shape), "dtype": str(value.dtype)}
        if value.size > _MOST_NUMBERS:
            return {**written, "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
        return {**written, "data": encode(value.tolist())}
    if callable(value):
        return f"!function {getattr(value, '__qualname__', type(value).__name__)}"
    return {"__repr__": type(value).__name__}


def _to_places(text: str) -> str:
    for name, folder in (("$HF_HOME", os.environ.get("HF_HOME")), ("$WORK", str(Path.cwd()))):
        if folder:
            text = text.replace(folder, name)
    return text


def _from_places(text: str) -> str:
    return text.replace("$HF_HOME", os.environ.get("HF_HOME", "$HF_HOME")).replace("$WORK", str(Path.cwd()))
