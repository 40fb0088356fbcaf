"""Where a medium comes from: a file, bytes, an address. Read when needed, never before."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from assay.core.errors import MediaError

__all__ = ["LARGEST_DOWNLOAD_BYTES", "Encoded", "encoded"]

LARGEST_DOWNLOAD_BYTES = 512 * 2**20
"""A medium behind an address is given up beyond this size."""

_PATIENCE_S = 30.0
_BLOCK = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The bytes of a media file, wherever they are."""

    digest: str
    """SHA-256 of the content; of the address where the content is not known before it is fetched."""

    name: str
    """For people, and for errors: a path, an address, or where the bytes came from."""

    path: Path | None = None
    data: bytes | None = field(default=None, repr=False)
    url: str = ""

    def read(self) -> bytes:
        """All bytes. Raises `MediaError` for a file that went away and an address that does not answer."""
        if self.data is not None:
            return self.data
        if self.path is None:
            return _fetch(self.url)
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise MediaError(f"the media file cannot be read: {error.strerror}", where=self.name) from None

    def open(self) -> str | BinaryIO:
        """What decoders open: a path where there is one, so that a long video is not read whole; else a stream."""
        return str(self.path) if self.path is not None else io.BytesIO(self.read())


def encoded(value: Any, *, where: str = "") -> Encoded:
    """From bytes, a path, or a `file:`, `data:`, `http:` or `https:` address.

    Raises:
        MediaError: There is no such file, or the address is not one of those.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _of_bytes(bytes(value), where or "bytes")
    text = str(value)
    scheme = text.partition(":")[0].lower() if ":" in text[:8] else ""
    match scheme:
        case "http" | "https":
            digest = hashlib.sha256(f"url:{text}".encode("utf-8", "surrogatepass")).hexdigest()
            return Encoded(digest=digest, name=text, url=text)
        case "data":
            return _of_bytes(_inline(text, where), where or "a data address")
        case "file":
            path = _existing(unquote(urlsplit(text).path), where)
        case _:
            path = _existing(value, where)
    return Encoded(digest=_file_digest(path), name=str(path), path=path)


def _of_bytes(data: bytes, name: str) -> Encoded:
    return Encoded(digest=hashlib.sha256(data).hexdigest(), name=name, data=data)


def _existing(value: Any, where: str) -> Path:
    try:
        path = Path(str(value)).expanduser()
        if path.is_file():
            return path
    except (OSError, RuntimeError, ValueError):  # a name no file can have
        pass
    text = str(value)
    shown = text if len(text) <= 300 else f"{text[:120]}…{text[-120:]}"  # the end of a path says most
    raise MediaError(f"the media file `{shown}` is not there", where=where)


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MediaError(f"the media file cannot be read: {error.strerror}", where=str(path)) from None


def _inline(address: str, where: str) -> bytes:
    """The content of `data:image/png;base64,…`."""
    head, comma, body = address.partition(",")
    try:
        if not comma:
            raise ValueError("it has no comma")
        if head.endswith(";base64"):
            return base64.b64decode(unquote(body), validate=True)
        return unquote_to_bytes(body)
    except (ValueError, binascii.Error) as error:
        raise MediaError(
            f"not a data address: {error}", where=where, hint=f"it begins `{address[:40]}`"
        ) from None


def _fetch(url: str) -> bytes:
    """The content behind an address, up to a size nobody needs."""
    import urllib.error  # forty modules that few runs need
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "assay"})
    blocks: list[bytes] = []
    size = 0
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            while block := answer.read(_BLOCK):
                size += len(block)
                if size > LARGEST_DOWNLOAD_BYTES:
                    raise MediaError(
                        f"the medium is larger than {LARGEST_DOWNLOAD_BYTES // 2**20} MB", where=url
                    )
                blocks.append(block)
    except urllib.error.HTTPError as error:
        error.close()
        raise MediaError(f"the medium cannot be fetched: {error.code} {error.reason}", where=url) from None
    except (OSError, ValueError) as error:  # no network, no such host, cut off, not an address
        reason = getattr(error, "reason", None) or error
        raise MediaError(f"the medium cannot be fetched: {reason}", where=url) from None
    return b"".join(blocks)
