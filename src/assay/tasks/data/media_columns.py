"""Decode media columns of the `datasets` library lazily, on first access.

The library decodes every picture of a row when it reads the row, and decodes sounds only with torchcodec (and torch).
With lazy decoding, ten thousand pictures are never in memory together, and an unreadable picture affects only the
document that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from assay.core.errors import MediaError
from assay.media.media_files import MediaFile, open_media_file

__all__ = ["MediaRow", "MediaRows", "decode_media_lazily", "disable_missing_decoders"]


class _LazyValue:
    """A value that is decoded on access."""

    __slots__ = ("decode", "describe")

    def __init__(self, decode: Callable[[], Any], describe: Callable[[], Any]) -> None:
        self.decode = decode
        self.describe = describe


class MediaRow(dict[str, Any]):
    """A row that decodes its media on access. All methods of a dictionary see decoded values.

    The row itself caches nothing. A copy from `copy_row()`, which lives as long as one document is processed, does.
    """

    caches_decoded = False

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if type(value) is not _LazyValue:
            return value
        decoded = value.decode()
        if self.caches_decoded:
            super().__setitem__(key, decoded)
        return decoded

    def __iter__(self) -> Iterator[str]:  # defined so that dict(row) and {**row} call `__getitem__`
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        """Compare decoded values; media are decoded only if all other values are equal."""
        if not isinstance(other, dict) or self.keys() != other.keys():
            return False
        lazy = [key for key, value in dict.items(self) if type(value) is _LazyValue]
        return all(
            dict.__getitem__(self, key) == dict.__getitem__(other, key) for key in self if key not in lazy
        ) and all(bool(self[key] == other[key]) for key in lazy)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - this is `get`

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def values(self) -> Any:
        return [self[key] for key in self]

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            value = self[key]
            del self[key]
            return value
        return super().pop(key, *default)

    def copy(self) -> MediaRow:
        return self.copy_row()

    def __copy__(self) -> MediaRow:
        return self.copy_row()

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        from copy import deepcopy

        return deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def copy_row(self) -> MediaRow:
        """Return a copy that task code may change and that decodes each value once."""
        copied = MediaRow()
        copied.caches_decoded = True
        for key, value in dict.items(self):
            plain = list(value) if type(value) is list else dict(value) if type(value) is dict else value
            dict.__setitem__(copied, key, plain)
        return copied

    def with_defaults(self, below: Mapping[str, Any]) -> MediaRow:
        """Return a copy with defaults for missing keys, still undecoded. Templates render such rows."""
        row = self.copy_row()
        for key, value in below.items():
            row.setdefault(key, value)
        return row

    def describe(self) -> dict[str, Any]:
        """Return the row with a short description in place of each media value, for the journal."""
        return {
            key: value.describe()
            if type(value) is _LazyValue
            else value.describe()
            if type(value) is MediaRow
            else value
            for key, value in dict.items(self)
        }


class Sound(MediaRow):
    """`{path, array, sampling_rate}`, as helper functions expect sounds. Decoded on access to `array` or the rate."""

    encoded: MediaFile

    @classmethod
    def from_encoded(cls, source: MediaFile, path: str | None, rate_hz: int | None) -> Sound:
        """Create a sound, resampled to the rate of its column."""

        def decode() -> tuple[Any, int]:
            from assay.media.audio import decode_audio, resample

            samples, own_hz = decode_audio(source)
            return (samples, own_hz) if rate_hz is None else (resample(samples, own_hz, rate_hz), rate_hz)

        cached: list[tuple[Any, int]] = []

        def read(part: int) -> Any:
            if not cached:
                cached.append(decode())
            return cached[0][part]

        sound = cls(path=path)
        dict.__setitem__(sound, "array", _LazyValue(lambda: read(0), lambda: "<sound>"))
        rate = _LazyValue(lambda: read(1), lambda: "") if rate_hz is None else rate_hz
        dict.__setitem__(sound, "sampling_rate", rate)
        sound.encoded = source
        return sound

    def describe(self) -> dict[str, Any]:
        return {"path": dict.get(self, "path"), "array": "<sound>"}


class MediaRows:
    """A split of the `datasets` library whose rows are `MediaRow`. Delegates everything else to the library."""

    def __init__(self, rows: Any, columns: Iterable[str], undecoded: frozenset[str]) -> None:
        self._rows = rows
        self._raw = rows.with_format("arrow")
        self._columns = tuple(columns)
        self._undecoded = undecoded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_rows"], name)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int):
            return self._rows[index]
        size = len(self._rows)
        if not -size <= index < size:
            raise IndexError(f"row {index} of {size}")
        position = index % size
        others = [name for name in self._rows.column_names if name not in self._columns]
        plain = self._select_plain(others)[position] if others else {}
        row = MediaRow()
        for name in self._rows.column_names:
            value = plain[name] if name in plain else self._lazy_value(position, name)
            dict.__setitem__(row, name, value)
        return row

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def _select_plain(self, names: list[str]) -> Any:
        if "_plain_rows" not in self.__dict__:
            self.__dict__["_plain_rows"] = self._rows.select_columns(names)
        return self.__dict__["_plain_rows"]

    def _lazy_value(self, index: int, name: str) -> _LazyValue:
        feature = self._rows.features[name]
        decode_all = name in self._undecoded
        return _LazyValue(
            lambda: _decode(
                feature, self._read_stored(index, name), f"column `{name}`, row {index}", decode_all
            ),
            lambda: _describe(feature, self._read_stored(index, name)),
        )

    def _read_stored(self, index: int, name: str) -> Any:
        """Read the stored value from the table: `{bytes, path}` for media."""
        return self._raw[index : index + 1].column(name)[0].as_py()


def decode_media_lazily(rows: Any, undecoded: frozenset[str] = frozenset()) -> Any:
    """Wrap a split so that its media columns are decoded on access. Return other splits unchanged.

    `undecoded` are the columns whose decoding `disable_missing_decoders` disabled.
    """
    features = getattr(rows, "features", None)
    if not isinstance(features, Mapping) or not all(
        hasattr(rows, name) for name in ("with_format", "select_columns")
    ):
        return rows
    columns = [name for name, feature in features.items() if name in undecoded or _has_media(feature)]
    return MediaRows(rows, columns, undecoded) if columns else rows


def disable_missing_decoders(rows: Any) -> tuple[Any, frozenset[str]]:
    """Disable decoding of sounds and videos if torchcodec is missing, because task code may read all rows."""
    features = getattr(rows, "features", None)
    if not isinstance(features, Mapping) or not hasattr(rows, "cast_column") or find_spec("torchcodec"):
        return rows, frozenset()
    names = [
        name
        for name, feature in features.items()
        if _feature_kind(feature) in ("Audio", "Video") and feature.decode
    ]
    for name in names:
        feature = features[name]
        given = {"sampling_rate": feature.sampling_rate} if _feature_kind(feature) == "Audio" else {}
        rows = rows.cast_column(name, type(feature)(decode=False, **given))
    return rows, frozenset(names)


def _feature_kind(feature: Any) -> str:
    return type(feature).__name__ if hasattr(feature, "decode_example") else ""


def _has_media(feature: Any) -> bool:
    if _feature_kind(feature) in ("Image", "Audio", "Video"):
        return bool(feature.decode)
    if isinstance(feature, Mapping):
        return any(_has_media(one) for one in feature.values())
    if isinstance(feature, (list, tuple)):
        return any(_has_media(one) for one in feature)
    inner = getattr(feature, "feature", None)
    return inner is not None and _has_media(inner)


def _decode(feature: Any, stored: Any, where: str, decode_all: bool = False) -> Any:
    """Decode a stored value as the library does, with Assay's decoders."""
    if stored is None:
        return None
    if isinstance(feature, Mapping):
        return {key: _decode(feature[key], value, where) for key, value in stored.items()}
    kind = _feature_kind(feature)
    if kind and not feature.decode and not decode_all:
        return stored
    match kind:
        case "Image":
            return _decode_picture(feature, _find_source(stored, where))
        case "Audio":
            return Sound.from_encoded(_find_source(stored, where), stored.get("path"), feature.sampling_rate)
        case "Video":
            return stored
        case "":
            inner = feature[0] if isinstance(feature, (list, tuple)) else getattr(feature, "feature", None)
            if inner is not None and isinstance(stored, list):
                return [_decode(inner, one, where) for one in stored]
            return stored
        case _:
            return feature.decode_example(stored)


def _find_source(stored: Mapping[str, Any], where: str) -> MediaFile:
    data, path = stored.get("bytes"), stored.get("path")
    if data is None:
        return open_media_file(path, where=where)
    return open_media_file(data, where=f"{where}, `{path}`" if path else where)


def _decode_picture(feature: Any, source: MediaFile) -> Any:
    """Decode a picture as the library does: apply the EXIF orientation and convert to the mode of the column."""
    from PIL import ExifTags, ImageOps

    from assay.media.images import decode_image

    picture = decode_image(source)
    if picture.getexif().get(ExifTags.Base.Orientation) is not None:
        picture = ImageOps.exif_transpose(picture)
    return picture.convert(feature.mode) if feature.mode and feature.mode != picture.mode else picture


def _describe(feature: Any, stored: Any) -> Any:
    """Describe a media value from its file header."""
    if stored is None:
        return None
    if _feature_kind(feature) == "Image":
        from io import BytesIO

        from PIL import Image as Pictures

        try:
            with Pictures.open(BytesIO(_find_source(stored, "").read())) as picture:
                return f"<picture {picture.size[0]}x{picture.size[1]} {picture.mode}>"
        except (MediaError, OSError, ValueError, SyntaxError, Pictures.DecompressionBombError):
            return "<picture that cannot be read>"
    if isinstance(stored, list):
        inner = feature[0] if isinstance(feature, (list, tuple)) else getattr(feature, "feature", None)
        return [_describe(inner, one) for one in stored]
    kind = _feature_kind(feature).lower() or "media"
    path = stored.get("path") if isinstance(stored, Mapping) else None
    return f"<{kind} {path}>" if path else f"<{kind}>"
