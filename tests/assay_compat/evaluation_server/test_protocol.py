"""Conversion and checks of request bodies; the expected errors are responses of lmms_eval 0.7.3's server."""

from __future__ import annotations

from typing import Any

import pytest

from assay_compat.evaluation_server.protocol import (
    EvaluateRequest,
    InvalidBody,
    JobInfo,
    JobStatus,
    MergeRequest,
)
from assay_compat.evaluation_server.server_args import ServerArgs

MINIMAL = {"model": "m", "tasks": ["t"]}
MISSING = "Field required"
INTEGER = "Input should be a valid integer"
NUMBER = "Input should be a valid number"

ERRORS: list[tuple[Any, list[tuple[str, list[Any], str]]]] = [
    (None, [("missing", ["body"], MISSING)]),
    ({}, [("missing", ["body", "model"], MISSING), ("missing", ["body", "tasks"], MISSING)]),
    (
        "text",
        [
            (
                "model_attributes_type",
                ["body"],
                "Input should be a valid dictionary or object to extract fields from",
            )
        ],
    ),
    (
        {"model": 5, "tasks": "a"},
        [
            ("string_type", ["body", "model"], "Input should be a valid string"),
            ("list_type", ["body", "tasks"], "Input should be a valid list"),
        ],
    ),
    ({"model": "m", "tasks": [1]}, [("string_type", ["body", "tasks", 0], "Input should be a valid string")]),
    (
        {**MINIMAL, "limit": "x"},
        [
            ("int_parsing", ["body", "limit", "int"], f"{INTEGER}, unable to parse string as an integer"),
            ("float_parsing", ["body", "limit", "float"], f"{NUMBER}, unable to parse string as a number"),
        ],
    ),
    (
        {**MINIMAL, "batch_size": {}},
        [
            ("int_type", ["body", "batch_size", "int"], INTEGER),
            ("string_type", ["body", "batch_size", "str"], "Input should be a valid string"),
        ],
    ),
    (
        {**MINIMAL, "num_fewshot": 1.5},
        [("int_from_float", ["body", "num_fewshot"], f"{INTEGER}, got a number with a fractional part")],
    ),
    (
        {**MINIMAL, "log_samples": "maybe"},
        [
            (
                "bool_parsing",
                ["body", "log_samples"],
                "Input should be a valid boolean, unable to interpret input",
            )
        ],
    ),
    (
        {**MINIMAL, "model_args": "a=b"},
        [("dict_type", ["body", "model_args"], "Input should be a valid dictionary")],
    ),
    ({**MINIMAL, "num_gpus": None}, [("int_type", ["body", "num_gpus"], INTEGER)]),
]


@pytest.mark.parametrize(("body", "expected"), ERRORS)
def test_errors_have_the_form_of_the_harness(body: Any, expected: list[Any]) -> None:
    with pytest.raises(InvalidBody) as caught:
        EvaluateRequest.from_body(body)
    assert [(one["type"], one["loc"], one["msg"]) for one in caught.value.errors] == expected
    assert all("input" in one for one in caught.value.errors)


def test_error_inside_a_list_shows_the_item() -> None:
    with pytest.raises(InvalidBody) as caught:
        EvaluateRequest.from_body({"model": "m", "tasks": ["a", 7]})
    assert caught.value.errors[0]["input"] == 7


def test_values_are_converted_as_in_the_harness() -> None:
    body = {
        **MINIMAL,
        "limit": "3",
        "batch_size": "4",
        "num_fewshot": "2",
        "log_samples": "no",
        "num_gpus": 2.0,
    }
    found = EvaluateRequest.from_body(body)
    assert (found.limit, found.batch_size, found.num_fewshot, found.log_samples, found.num_gpus) == (
        3,
        "4",
        2,
        False,
        2,
    )
    assert EvaluateRequest.from_body({**MINIMAL, "limit": 0.5}).limit == 0.5
    assert EvaluateRequest.from_body({**MINIMAL, "limit": "0.5"}).limit == 0.5


def test_unknown_keys_have_no_effect_and_are_listed() -> None:
    body = {**MINIMAL, "limits": 3}
    assert EvaluateRequest.from_body(body).limit is None
    assert EvaluateRequest.list_unknown(body) == ["limits"]


def test_job_is_written_with_all_fields() -> None:
    job = JobInfo(
        job_id="1", status=JobStatus.QUEUED, created_at="now", request=EvaluateRequest.from_body(MINIMAL)
    )
    written = job.model_dump()
    assert written["status"] == "queued" and written["result"] is None
    assert written["request"] == {
        **dict.fromkeys(
            ("model_args", "num_fewshot", "batch_size", "device", "limit", "gen_kwargs", "output_dir")
        ),
        **MINIMAL,
        "log_samples": True,
        "predict_only": False,
        "num_gpus": 1,
    }


def test_unknown_checkpoint_type_is_an_error() -> None:
    with pytest.raises(InvalidBody, match="'regular' or 'ema'"):
        MergeRequest.from_body({"checkpoint_path": "x", "checkpoint_type": "best"})


def test_server_arguments() -> None:
    args = ServerArgs.from_dict({"port": 8001, "other": 1})
    assert args.to_dict() == {
        "host": "localhost",
        "port": 8001,
        "max_completed_jobs": 100,
        "temp_dir_prefix": "lmms_eval_",
    }
    for wrong in ({"port": 0}, {"port": "80"}, {"max_completed_jobs": 0}):
        with pytest.raises(ValueError, match="got"):
            ServerArgs.from_dict(wrong)
