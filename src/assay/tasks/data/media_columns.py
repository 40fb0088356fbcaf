"""Media columns of the `datasets` library, read without decoding and decoded by Assay when looked at.

The library decodes every picture of a row it reads, and sounds only with torchcodec (and so torch) installed. Here a
row is cheap until somebody looks: ten thousand pictures are never in memory together, and a picture that cannot be
read costs the document that looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from assay.core.errors import MediaError
from assay.media.encoded import Encoded, encoded
from assay.media.pictures import decode_picture
from assay.media.sounds import decode_sound, resample

__all__ = ["MediaRow", "MediaRows", "decode_media_lazily", "disable_missing_decoders"]


class _LazyValue:
    """A value that is made when it is looked at."""

    __slots__ = ("make", "shown")

    def __init__(self, make: Callable[[], Any], shown: Callable[[], Any]) -> None:
        self.make = make
        self.shown = shown


class MediaRow(dict[str, Any]):
    """A row whose media are decoded when looked at. Everything a dictionary does sees them decoded.

    Nothing decoded stays in the row itself, only in what `loan()` gives: that lives as long as one look at a document.
    """

    caches_decoded = False

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if type(value) is not _LazyValue:
            return value
        made = value.make()
        if self.caches_decoded:
            super().__setitem__(key, made)
        return made

    def __iter__(self) -> Iterator[str]:  # defined, so that dict(row) and {**row} come by `__getitem__`
        return super().__iter__()

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
        """A copy that may be scribbled on, and that decodes each medium once."""
        copied = MediaRow()
        copied.caches_decoded = True
        for key, value in dict.items(self):
            plain = list(value) if type(value) is list else dict(value) if type(value) is dict else value
            dict.__setitem__(copied, key, plain)
        return copied

    def with_defaults(self, below: Mapping[str, Any]) -> MediaRow:
        """This row with further names under it, still undecoded: what a template sees."""
        row = self.copy_row()
        for key, value in below.items():
            row.setdefault(key, value)
        return row

    def describe(self) -> dict[str, Any]:
        """The row with a few words in the place of each medium: what is written down of a document."""
        return {
            key: value.shown()
            if type(value) is _LazyValue
            else value.describe()
            if type(value) is MediaRow
            else value
            for key, value in dict.items(self)
        }


class Sound(MediaRow):
    """`{path, array, sampling_rate}`, as helpers know sounds; decoded when `array` or the rate is looked at."""

    encoded: Encoded

    @classmethod
    def from_encoded(cls, source: Encoded, path: str | None, rate_hz: int | None) -> Sound:
        """A sound, at the rate its column asks for."""

        def decoded() -> tuple[Any, int]:
            samples, own_hz = decode_sound(source)
            return (samples, own_hz) if rate_hz is None else (resample(samples, own_hz, rate_hz), rate_hz)

        kept: list[tuple[Any, int]] = []

        def read(at: int) -> Any:
            if not kept:
                kept.append(decoded())
            return kept[0][at]

        sound = cls(path=path)
        dict.__setitem__(sound, "array", _LazyValue(lambda: read(0), lambda: "<sound>"))
        rate = _LazyValue(lambda: read(1), lambda: "") if rate_hz is None else rate_hz
        dict.__setitem__(sound, "sampling_rate", rate)
        sound.encoded = source
        return sound

    def describe(self) -> dict[str, Any]:
        return {"path": dict.get(self, "path"), "array": "<sound>"}


class MediaRows:
    """A split of the `datasets` library, its rows read without decoding. Everything else is the library's."""

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
        at = index % size
        others = [name for name in self._rows.column_names if name not in self._columns]
        plain = self._plain(others)[at] if others else {}
        row = MediaRow()
        for name in self._rows.column_names:
            value = plain[name] if name in plain else self._unread(at, name)
            dict.__setitem__(row, name, value)
        return row

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def _plain(self, names: list[str]) -> Any:
        if "_plain_rows" not in self.__dict__:
            self.__dict__["_plain_rows"] = self._rows.select_columns(names)
        return self.__dict__["_plain_rows"]

    def _unread(self, at: int, name: str) -> _LazyValue:
        feature = self._rows.features[name]
        decode_all = name in self._undecoded
        return _LazyValue(
            lambda: _decoded(feature, self._stored(at, name), f"column `{name}`, row {at}", decode_all),
            lambda: _shown(feature, self._stored(at, name)),
        )

    def _stored(self, at: int, name: str) -> Any:
        """What the table holds: `{bytes, path}` for a medium."""
        return self._raw[at : at + 1].column(name)[0].as_py()


def decode_media_lazily(rows: Any, undecoded: frozenset[str] = frozenset()) -> Any:
    """The same rows, their media columns decoded when looked at; other rows as they are.

    `undecoded` are the columns whose decoding `disable_missing_decoders` switched off.
    """
    features = getattr(rows, "features", None)
    if not isinstance(features, Mapping) or not all(
        hasattr(rows, name) for name in ("with_format", "select_columns")
    ):
        return rows
    columns = [name for name, feature in features.items() if name in undecoded or _has_media(feature)]
    return MediaRows(rows, columns, undecoded) if columns else rows


def disable_missing_decoders(rows: Any) -> tuple[Any, frozenset[str]]:
    """The rows with sounds and videos left undecoded where torchcodec is missing: code of a task may read them all."""
    features = getattr(rows, "features", None)
    if not isinstance(features, Mapping) or not hasattr(rows, "cast_column") or find_spec("torchcodec"):
        return rows, frozenset()
    names = [
        name for name, feature in features.items() if _kind(feature) in ("Audio", "Video") and feature.decode
    ]
    for name in names:
        feature = features[name]
        given = {"sampling_rate": feature.sampling_rate} if _kind(feature) == "Audio" else {}
        rows = rows.cast_column(name, type(feature)(decode=False, **given))
    return rows, frozenset(names)


def _kind(feature: Any) -> str:
    return type(feature).__name__ if hasattr(feature, "decode_example") else ""


def _has_media(feature: Any) -> bool:
    if _kind(feature) in ("Image", "Audio", "Video"):
        return bool(feature.decode)
    if isinstance(feature, Mapping):
        return any(_has_media(one) for one in feature.values())
    if isinstance(feature, (list, tuple)):
        return any(_has_media(one) for one in feature)
    inner = getattr(feature, "feature", None)
    return inner is not None and _has_media(inner)


def _decoded(feature: Any, stored: Any, where: str, decode_all: bool = False) -> Any:
    """What the library would make of a stored value, with our decoders."""
    if stored is None:
        return None
    if isinstance(feature, Mapping):
        return {key: _decoded(feature[key], value, where) for key, value in stored.items()}
    kind = _kind(feature)
    if kind and not feature.decode and not decode_all:
        return stored
    match kind:
        case "Image":
            return _picture(feature, _source(stored, where))
        case "Audio":
            return Sound.from_encoded(_source(stored, where), stored.get("path"), feature.sampling_rate)
        case "Video":
            return stored
        case "":
            inner = feature[0] if isinstance(feature, (list, tuple)) else getattr(feature, "feature", None)
            if inner is not None and isinstance(stored, list):
                return [_decoded(inner, one, where) for one in stored]
            return stored
        case _:
            return feature.decode_example(stored)


def _source(stored: Mapping[str, Any], where: str) -> Encoded:
    data, path = stored.get("bytes"), stored.get("path")
    if data is None:
        return encoded(path, where=where)
    return encoded(data, where=f"{where}, `{path}`" if path else where)


def _picture(feature: Any, source: Encoded) -> Any:
    """As the library does it: turned the way the camera was held, in the mode the column asks for."""
    from PIL import ExifTags, ImageOps

    picture = decode_picture(source)
    if picture.getexif().get(ExifTags.Base.Orientation) is not None:
        picture = ImageOps.exif_transpose(picture)
    return picture.convert(feature.mode) if feature.mode and feature.mode != picture.mode else picture


def _shown(feature: Any, stored: Any) -> Any:
    """A few words about a medium, from the head of its file."""
    if stored is None:
        return None
    if _kind(feature) == "Image":
        from io import BytesIO

        from PIL import Image as Pictures

        try:
            with Pictures.open(BytesIO(_source(stored, "").read())) as picture:
                return f"<picture {picture.size[0]}x{picture.size[1]} {picture.mode}>"
        except (MediaError, OSError, ValueError, SyntaxError, Pictures.DecompressionBombError):
            return "<picture that cannot be read>"
    if isinstance(stored, list):
        inner = feature[0] if isinstance(feature, (list, tuple)) else getattr(feature, "feature", None)
        return [_shown(inner, one) for one in stored]
    kind = _kind(feature).lower() or "media"
    path = stored.get("path") if isinstance(stored, Mapping) else None
    return f"<{kind} {path}>" if path else f"<{kind}>"
