from __future__ import annotations

import io
import json
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pictures
from tests.making_media import make_image, make_png, make_wav

from assay.core.errors import MediaError
from assay.store.journal.rows import encode_fields
from assay.tasks.data.media_columns import MediaRow, decode_media_lazily, disable_missing_decoders
from assay.tasks.data.rows import Rows, iterate_rows
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.prompts.media_parts import to_media_part
from assay.tasks.prompts.templates import compile_template

datasets = pytest.importorskip("datasets", reason="assay-harness[datasets] is not installed")


def make_rotated_image() -> bytes:
    """A picture that a camera held upright wrote lying."""
    buffer = io.BytesIO()
    picture = Pictures.new("RGB", (4, 2), "red")
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(buffer, "JPEG", exif=exif)
    return buffer.getvalue()


@pytest.fixture
def rows() -> Any:
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "image": datasets.Image(),
            "grey": datasets.Image(mode="L"),
            "several": datasets.List(datasets.Image()),
            "nested": {"image": datasets.Image(), "name": datasets.Value("string")},
            "kept": datasets.Image(decode=False),
        }
    )
    first = {
        "question": "What?",
        "image": {"bytes": make_png(), "path": None},
        "grey": {"bytes": make_png(), "path": None},
        "several": [{"bytes": make_png(), "path": None}, {"bytes": make_png("blue"), "path": None}],
        "nested": {"image": {"bytes": make_png(), "path": None}, "name": "n"},
        "kept": {"bytes": make_png(), "path": "x.png"},
    }
    second = {**first, "image": {"bytes": make_rotated_image(), "path": "t.jpg"}, "several": [], "grey": None}
    return datasets.Dataset.from_list([first, second], features=features)


def same(one: Any, other: Any) -> bool:
    if hasattr(one, "tobytes") and hasattr(one, "mode"):
        return bool(one.mode == other.mode and one.size == other.size and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        return set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def test_rows_look_as_the_library_makes_them(rows: Any) -> None:
    ours = decode_media_lazily(rows)
    assert len(ours) == 2
    for index in range(-2, 2):
        assert list(ours[index]) == list(rows[index])
        assert same(dict(ours[index]), dict(rows[index]))
    assert all(same({**one}, {**other}) for one, other in zip(ours, rows, strict=True))
    assert ours[1]["image"].size == (2, 4), "turned the way the camera was held"
    with pytest.raises(IndexError):
        ours[2]


def test_everything_else_of_a_split_is_the_librarys(rows: Any) -> None:
    ours = decode_media_lazily(rows)
    assert ours.features == rows.features
    assert ours._fingerprint == rows._fingerprint
    assert ours.column_names == rows.column_names
    assert len(ours.select([0])) == 1


def test_rows_without_media_are_left_alone() -> None:
    plain = datasets.Dataset.from_list([{"a": 1}])
    assert decode_media_lazily(plain) is plain
    own = Rows([{"a": 1}])
    assert decode_media_lazily(own) is own


def broken() -> Any:
    features = datasets.Features({"q": datasets.Value("string"), "image": datasets.Image()})
    return decode_media_lazily(
        datasets.Dataset.from_list(
            [{"q": "What?", "image": {"bytes": make_png()[:30], "path": "bad.png"}}], features=features
        )
    )


def test_a_broken_picture_costs_only_whoever_looks_at_it() -> None:
    row = broken()[0]
    assert row["q"] == "What?"
    assert compile_template("{{ q | upper }}")(copy_fields(row)) == "WHAT?"
    assert json.loads(encode_fields(row)) == {"q": "What?", "image": "<picture that cannot be read>"}
    with pytest.raises(MediaError) as caught:
        row["image"]
    assert caught.value.where == "column `image`, row 0, `bad.png`"


def test_every_way_of_a_dictionary_sees_the_medium_decoded(rows: Any) -> None:
    row = decode_media_lazily(rows)[0]
    looks = [
        row.get("image"),
        dict(row)["image"],
        {**row}["image"],
        dict(row.items())["image"],
        list(row.values())[1],
        copy(row)["image"],
        deepcopy(row)["image"],
        (row | {})["image"],
        copy_fields(row)["image"],
        copy_fields(row).pop("image"),
    ]
    assert all(look.size == (3, 2) for look in looks)
    assert row.get("none") is None and row.pop("none", 5) == 5


def test_a_loan_decodes_once_and_the_row_keeps_nothing(rows: Any) -> None:
    row = decode_media_lazily(rows)[0]
    borrowed = copy_fields(row)
    assert isinstance(borrowed, MediaRow)
    assert borrowed["image"] is borrowed["image"]
    assert row["image"] is not row["image"]
    borrowed["question"] = "changed"
    borrowed["nested"]["name"] = "changed"
    assert (row["question"], row["nested"]["name"]) == ("What?", "n")


def test_a_document_is_written_down_with_words_for_its_media(rows: Any) -> None:
    written = json.loads(encode_fields(decode_media_lazily(rows)[0]))
    assert written["question"] == "What?"
    assert written["image"] == "<picture 3x2 RGB>"
    assert written["several"] == ["<picture 3x2 RGB>", "<picture 3x2 RGB>"]


# --- sounds ------------------------------------------------------------------------------------------


@pytest.fixture
def sounds(tmp_path: Path) -> Any:
    pytest.importorskip("soundfile", reason="assay-harness[media] is not installed")
    features = datasets.Features(
        {"id": datasets.Value("int32"), "audio": datasets.Audio(sampling_rate=16_000)}
    )
    data = pytest.importorskip("pyarrow").table(
        {
            "id": [0, 1],
            "audio": [{"bytes": make_wav(rate_hz=8000), "path": "a.wav"}, {"bytes": b"?", "path": "b.wav"}],
        }
    )
    return datasets.Dataset(data.cast(features.arrow_schema))


def test_a_sound_is_decoded_without_torchcodec_at_the_rate_of_its_column(sounds: Any) -> None:
    sound = decode_media_lazily(sounds)[0]["audio"]
    assert set(sound) == {"path", "array", "sampling_rate"}
    assert (sound["path"], sound["sampling_rate"]) == ("a.wav", 16_000)
    assert sound["array"].shape == (8000,)
    assert "array" in sound and isinstance(sound, dict)


def test_the_part_of_a_sound_is_named_by_its_file_and_decoded_later(sounds: Any) -> None:
    ours = decode_media_lazily(sounds)
    part = to_media_part(ours[0]["audio"])
    assert "a.wav" in part.source
    samples, rate_hz = part.load()
    assert (samples.shape, rate_hz) == ((4000,), 8000)
    bad = to_media_part(ours[1]["audio"])
    with pytest.raises(MediaError, match="cannot read the audio") as caught:
        bad.load()
    assert "b.wav" in caught.value.where


def test_code_of_a_task_may_read_all_rows_though_nothing_can_decode_them(sounds: Any) -> None:
    given, undecoded = disable_missing_decoders(sounds)
    if not undecoded:
        pytest.skip("torchcodec is installed: the library decodes sounds itself")
    ours = decode_media_lazily(given.filter(lambda row: row["id"] == 0), undecoded)
    assert ours[0]["audio"]["array"].shape == (8000,)
    assert np.abs(ours[0]["audio"]["array"]).max() == pytest.approx(0.5, abs=0.02)
    (row,) = iterate_rows(ours)  # its table holds nothing that the library would decode, but we do
    assert row["audio"]["array"].shape == (8000,)
    assert make_image("PNG")  # pictures stay the library's: it decodes them by itself
