"""Reading a recorded corpus: compressed JSON lines, with pictures and odd numbers in tagged forms."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.core.errors import BadData, MissingPackage

__all__ = ["encode_value", "find_corpus", "plain_documents", "read_records"]


def find_corpus(folder: Path) -> str:
    """Which harness a corpus was recorded from: `lm_eval` or `lmms_eval`."""
    if any(folder.glob("tasks-*.jsonl*")):
        return "lm_eval"
    if any(folder.glob("records-*.jsonl*")):
        return "lmms_eval"
    raise BadData(
        f"there is no recorded corpus in `{folder}`",
        hint="it holds tasks-NN.jsonl.zst or records-NN.jsonl.zst",
    )


def read_records(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """Every record of the files that match, in order."""
    for path in sorted(folder.glob(pattern)):
        with _open(path) as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)


def _open(path: Path) -> io.TextIOBase:
    if path.suffix != ".zst":
        return path.open(encoding="utf-8")
    try:
        import zstandard
    except ModuleNotFoundError:
        raise MissingPackage.of("zstandard", "reading a compressed corpus", extra="test") from None
    reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(path.open("rb"), closefd=True)
    return io.TextIOWrapper(reader, encoding="utf-8")


def plain_documents(value: Any) -> Any:
    """Recorded documents as a dataset would give them: tagged forms turned back into what they stand for."""
    if isinstance(value, list):
        return [plain_documents(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$png": text, **rest} if not rest:
            from PIL import Image

            return Image.open(io.BytesIO(base64.b64decode(text)))
        case {"$float": text, **rest} if not rest:
            return float(text)
        case {"$set": items, **rest} if not rest:
            return set(plain_documents(items))
    return {key: plain_documents(item) for key, item in value.items()}


def encode_value(value: Any) -> Any:
    """A value as the corpus writes it, for comparison."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return {"$float": str(value)}
        return value
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else json.dumps(key): encode_value(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [encode_value(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {"$set": sorted((encode_value(item) for item in value), key=repr)}
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        picture = value.convert("RGB")
        return {"$image": hashlib.sha256(picture.tobytes()).hexdigest(), "size": list(picture.size)}
    if hasattr(value, "tolist"):
        return encode_value(value.tolist())
    return {"$repr": repr(value)}
