"""Sources of media: files, bytes and URLs, read on demand."""

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

__all__ = ["MAX_DOWNLOAD_BYTES", "MediaFile", "open_container", "open_media_file"]

MAX_DOWNLOAD_BYTES = 512 * 2**20
"""Maximum size of a downloaded media file."""

_DOWNLOAD_TIMEOUT_S = 30.0
_DOWNLOAD_BLOCK_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaFile:
    """A media file: a path, bytes or a URL."""

    digest: str
    """SHA-256 of the content, or of the URL if the content is not downloaded yet."""

    name: str
    """Path, URL or origin of the bytes, for display and errors."""

    path: Path | None = None
    data: bytes | None = field(default=None, repr=False)
    url: str = ""

    def read(self) -> bytes:
        """Return all bytes. Raises `MediaError` if the file is gone or the URL cannot be downloaded."""
        if self.data is not None:
            return self.data
        if self.path is None:
            return _fetch(self.url)
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise MediaError(f"cannot read the media file: {error.strerror}", where=self.name) from None

    def open(self) -> str | BinaryIO:
        """Return a path for decoders, so that long videos are not read at once; without a path, a stream."""
        return str(self.path) if self.path is not None else io.BytesIO(self.read())


def open_media_file(value: Any, *, where: str = "") -> MediaFile:
    """Return the media file for bytes, a path, or a `file:`, `data:`, `http:` or `https:` URL.

    Raises:
        MediaError: The file does not exist, or the URL is not supported.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _media_file_from_bytes(bytes(value), where or "bytes")
    text = str(value)
    scheme = text.partition(":")[0].lower() if ":" in text[:8] else ""
    match scheme:
        case "http" | "https":
            digest = hashlib.sha256(f"url:{text}".encode("utf-8", "surrogatepass")).hexdigest()
            return MediaFile(digest=digest, name=text, url=text)
        case "data":
            return _media_file_from_bytes(_decode_data_url(text, where), where or "a data URL")
        case "file":
            path = _resolve_path(unquote(urlsplit(text).path), where)
        case _:
            path = _resolve_path(value, where)
    return MediaFile(digest=_hash_file(path), name=str(path), path=path)


def _media_file_from_bytes(data: bytes, name: str) -> MediaFile:
    return MediaFile(digest=hashlib.sha256(data).hexdigest(), name=name, data=data)


def _resolve_path(value: Any, where: str) -> Path:
    try:
        path = Path(str(value)).expanduser()
        if path.is_file():
            return path
    except (OSError, RuntimeError, ValueError):  # not a valid file name
        pass
    text = str(value)
    shown = (
        text if len(text) <= 300 else f"{text[:120]}…{text[-120:]}"
    )  # the end of a path is the most specific part
    raise MediaError(f"media file not found: `{shown}`", where=where)


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MediaError(f"cannot read the media file: {error.strerror}", where=str(path)) from None


def _decode_data_url(url: str, where: str) -> bytes:
    """Return the content of a URL such as `data:image/png;base64,…`."""
    head, comma, body = url.partition(",")
    try:
        if not comma:
            raise ValueError("missing comma")
        if head.endswith(";base64"):
            return base64.b64decode(unquote(body), validate=True)
        return unquote_to_bytes(body)
    except (ValueError, binascii.Error) as error:
        raise MediaError(
            f"invalid data URL: {error}", where=where, hint=f"it starts with `{url[:40]}`"
        ) from None


def _fetch(url: str) -> bytes:
    """Download a URL, up to the maximum size."""
    import urllib.error  # imports forty modules that few runs need
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "assay"})
    blocks: list[bytes] = []
    size = 0
    try:
        with urllib.request.urlopen(request, timeout=_DOWNLOAD_TIMEOUT_S) as response:
            while block := response.read(_DOWNLOAD_BLOCK_BYTES):
                size += len(block)
                if size > MAX_DOWNLOAD_BYTES:
                    raise MediaError(
                        f"the media file is larger than {MAX_DOWNLOAD_BYTES // 2**20} MB", where=url
                    )
                blocks.append(block)
    except urllib.error.HTTPError as error:
        error.close()
        raise MediaError(f"cannot download the media file: {error.code} {error.reason}", where=url) from None
    except (OSError, ValueError) as error:  # no network, unknown host, connection lost, invalid URL
        reason = getattr(error, "reason", None) or error
        raise MediaError(f"cannot download the media file: {reason}", where=url) from None
    return b"".join(blocks)


def open_container(av: Any, source: MediaFile) -> Any:
    """Open an audio or video file with PyAV.

    Titles that are not UTF-8 do not matter. PyAV 19 always accepts them, and has no setting for it.
    """
    settings = {"metadata_errors": "ignore"} if int(av.__version__.partition(".")[0]) < 19 else {}
    return av.open(source.open(), **settings)
