"""Encode and decode values of an lmms_eval corpus: media by content hash, special floats in tagged forms."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.oracle.corpus import read_records

__all__ = ["Media", "encode_value", "expand_folders"]

_MAX_ARRAY_SIZE = 4096
"""Longer arrays are written as their hash."""


class Media:
    """The images and audio of a corpus, by hash; decoded on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows = {row["sha256"]: row for row in read_records(folder, "media.jsonl*")}

    def decode(self, value: Any) -> Any:
        """Decode a recorded value to the input of a dataset."""
        if isinstance(value, str):
            return expand_folders(value)
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"__media__": "image", "sha256": sha}:
                return self._read_image(sha)
            case {"__media__": "audio", "sha256": sha, "sampling_rate": rate}:
                return {"array": self._read_audio(sha), "sampling_rate": rate, **(value.get("rest") or {})}
            case {"__float__": text}:
                return float(text)
            case {"__bytes_b64__": text}:
                return base64.b64decode(text)
            case {"__set__": items}:
                return {self.decode(item) for item in items}
            case {"__dict__": pairs}:
                return {_decode_key(self.decode(key)): self.decode(item) for key, item in pairs}
        return {key: self.decode(item) for key, item in value.items()}

    def _read_image(self, sha: str) -> Any:
        from PIL import Image

        image = Image.open(io.BytesIO(base64.b64decode(self._rows[sha]["png_b64"])))
        return image.convert(self._rows[sha]["mode"]) if image.mode != self._rows[sha]["mode"] else image

    def _read_audio(self, sha: str) -> list[float]:
        import numpy

        data = base64.b64decode(self._rows[sha]["f32_b64"])
        samples: list[float] = numpy.frombuffer(data, dtype="<f4").tolist()
        return samples


def _decode_key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def encode_value(value: Any) -> Any:
    """Encode a value in the format of an lmms_eval corpus."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return _abbreviate_folders(value)
    if isinstance(value, float):
        odd = value != value or value in (float("inf"), float("-inf"))
        return {"__float__": "nan" if value != value else str(value)} if odd else float(value)
    if isinstance(value, Mapping):
        return _encode_mapping(value)
    if isinstance(value, (list, tuple)):
        return [encode_value(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {"__set__": sorted((encode_value(item) for item in value), key=str)}
    if isinstance(value, (bytes, bytearray)):
        return {"__bytes_b64__": base64.b64encode(bytes(value)).decode()}
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        width, height = value.size
        digest = hashlib.sha256(f"{value.mode}:{width}x{height}:".encode() + value.tobytes()).hexdigest()
        return {"__media__": "image", "sha256": digest, "size": [width, height], "mode": value.mode}
    return _encode_array(value)


def _encode_mapping(value: Mapping[Any, Any]) -> Any:
    if "array" in value and "sampling_rate" in value:
        import numpy

        samples = numpy.asarray(value["array"], dtype=numpy.float32)
        rest = {
            key: encode_value(item) for key, item in value.items() if key not in ("array", "sampling_rate")
        }
        return {
            "__media__": "audio",
            "sha256": hashlib.sha256(samples.tobytes()).hexdigest(),
            "sampling_rate": encode_value(value["sampling_rate"]),
            "n": int(samples.size),
            "rest": rest,
        }
    if all(isinstance(key, str) for key in value):
        return {key: encode_value(item) for key, item in value.items()}
    return {"__dict__": [[encode_value(key), encode_value(item)] for key, item in value.items()]}


def _encode_array(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        if value.shape == ():
            return encode_value(value.item())
        written: dict[str, Any] = {"__ndarray__": list(value.shape), "dtype": str(value.dtype)}
        if value.size > _MAX_ARRAY_SIZE:
            return {**written, "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
        return {**written, "data": encode_value(value.tolist())}
    if callable(value):
        return f"!function {getattr(value, '__qualname__', type(value).__name__)}"
    return {"__repr__": type(value).__name__}


def _abbreviate_folders(text: str) -> str:
    for name, folder in (("$HF_HOME", os.environ.get("HF_HOME")), ("$WORK", str(Path.cwd()))):
        if folder:
            text = text.replace(folder, name)
    return text


def expand_folders(text: str) -> str:
    """Replace `$HF_HOME` and `$WORK` by the folders of this process."""
    return text.replace("$HF_HOME", os.environ.get("HF_HOME", "$HF_HOME")).replace("$WORK", str(Path.cwd()))
