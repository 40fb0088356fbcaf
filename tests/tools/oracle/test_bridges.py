"""Datasets of the comparison of model classes in their harness and in Assay."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tools.oracle import bridges

AUDIO = {
    "array": {"_type": "List", "feature": {"_type": "Value", "dtype": "float32"}},
    "sampling_rate": {},
    "path": {},
}


def make_record(**more: Any) -> dict[str, Any]:
    return {
        "yaml_relpath": "one.yaml",
        "output_type": "generate_until",
        "modality": "audio",
        "results": {"wer,none": 1.0},
        "requests": [],
        **more,
    }


def test_recorded_samples_become_an_audio_column(tmp_path: Path) -> None:
    datasets, soundfile = pytest.importorskip("datasets"), pytest.importorskip("soundfile")
    sound = {"array": [0.0, 0.5, -0.5], "sampling_rate": 8000, "path": "x.wav"}
    text = {"_type": "Value", "dtype": "string"}
    record = make_record(
        splits=["test"],
        docs=[{"audio": sound, "gt": "yes"}, {"audio": None, "gt": "no"}],
        features_hf={"audio": AUDIO, "gt": text},
    )
    rows = bridges._build_splits(record, "lmms_eval", tmp_path)["test"]
    assert isinstance(rows.features["audio"], datasets.Audio)
    first, second = rows.cast_column("audio", datasets.Audio(decode=False))["audio"]
    samples, rate_hz = soundfile.read(io.BytesIO(first["bytes"]))
    assert (samples.tolist(), rate_hz) == ([0.0, 0.5, -0.5], 8000)
    assert second is None


def test_lists_of_features_are_converted_for_older_versions_of_datasets() -> None:
    described = {
        "choices": {"_type": "List", "feature": {"_type": "Value", "dtype": "string"}},
        "n": {"_type": "Value"},
    }
    assert bridges._convert_lists(described) == {
        "choices": [{"_type": "Value", "dtype": "string"}],
        "n": {"_type": "Value"},
    }


@pytest.mark.parametrize(
    ("flags", "is_usable"),
    [
        ({}, True),
        ({"gold_sensitive": True, "score_varies": None}, True),
        ({"network_attempted": ["host"]}, False),
    ],
)
def test_flags_that_describe_scores_leave_out_no_task(
    tmp_path: Path, flags: dict[str, Any], is_usable: bool
) -> None:
    (tmp_path / "one.yaml").write_text("task: one\n")
    assert bridges._is_usable(make_record(flags=flags), "audio", tmp_path) is is_usable
