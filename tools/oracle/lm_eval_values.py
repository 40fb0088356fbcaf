"""Encode and decode values of an lm_eval corpus: images, special floats and sets in tagged forms.

This module does not import Assay: the recorder uses it inside the harness's environment.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from typing import Any

__all__ = ["decode_documents", "encode_document", "encode_value", "request_key"]


def request_key(kind: str, arguments: Any) -> str:
    """Return the key of a request's responses in a corpus; `arguments` are encoded already."""
    text = json.dumps([kind, arguments], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def decode_documents(value: Any) -> Any:
    """Decode recorded documents to the values a dataset returns."""
    if isinstance(value, list):
        return [decode_documents(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$png": text, **rest} if not rest:
            from PIL import Image

            return Image.open(io.BytesIO(base64.b64decode(text)))
        case {"$float": text, **rest} if not rest:
            return float(text)
        case {"$set": items, **rest} if not rest:
            return set(decode_documents(items))
    return {key: decode_documents(item) for key, item in value.items()}


def encode_document(value: Any) -> Any:
    """Encode a document with its images, so that it can be decoded again."""
    if _is_image(value):
        stream = io.BytesIO()
        value.save(stream, "PNG")
        return {"$png": base64.b64encode(stream.getvalue()).decode()}
    if isinstance(value, dict):
        return {_encode_key(key): encode_document(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode_document(item) for item in value]
    return encode_value(value)


def encode_value(value: Any) -> Any:
    """Encode a value in the format of an lm_eval corpus."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return {"$float": str(value)}
        return float(value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, dict):
        return {_encode_key(key): encode_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode_value(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {"$set": sorted((encode_value(item) for item in value), key=repr)}
    if _is_image(value):
        image = value.convert("RGB")
        return {"$image": hashlib.sha256(image.tobytes()).hexdigest(), "size": list(image.size)}
    if hasattr(value, "tolist"):
        return encode_value(value.tolist())
    return {"$repr": repr(value)}


def _encode_key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


def _is_image(value: Any) -> bool:
    return hasattr(value, "tobytes") and hasattr(value, "mode")
