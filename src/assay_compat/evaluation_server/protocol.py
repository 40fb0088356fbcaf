"""Requests and responses of the evaluation server: the fields of lmms-eval, and the checks of a request body.

A body is converted as lmms-eval does (`"4"` is a valid integer, `"no"` a valid boolean), and its errors have the same form:
a list with `type`, `loc`, `msg` and `input` for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, StrEnum
from typing import Any, Self

__all__ = [
    "EvaluateRequest",
    "HealthResponse",
    "InvalidBody",
    "JobInfo",
    "JobStatus",
    "JobSubmitResponse",
    "MergeRequest",
    "MergeResponse",
    "QueueStatusResponse",
    "Record",
]


class JobStatus(StrEnum):
    """Status of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class InvalidBody(ValueError):
    """A request body with wrong or missing fields."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in errors))
        self.errors = errors
        """Type, place, message and input of each error."""


class _Mismatch(Exception):
    """A value of another type. One entry for each type that was tried."""

    def __init__(self, *problems: tuple[str, str, tuple[Any, ...]]) -> None:
        super().__init__()
        self.problems = problems
        """Type, message and the place inside the field."""


Converter = Callable[[Any], Any]


def _mismatch(kind: str, message: str, *place: Any) -> _Mismatch:
    return _Mismatch((kind, f"Input should be a valid {message}", place))


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _mismatch("string_type", "string")
    return value


def _to_integer(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise _mismatch("int_parsing", "integer, unable to parse string as an integer") from None
    if isinstance(value, float):
        if not value.is_integer():
            raise _mismatch("int_from_float", "integer, got a number with a fractional part")
        return int(value)
    if not isinstance(value, int):
        raise _mismatch("int_type", "integer")
    return int(value)


def _to_number(value: Any) -> float:
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            raise _mismatch("float_parsing", "number, unable to parse string as a number") from None
        if not math.isfinite(number):
            raise _Mismatch(("finite_number", "Input should be a finite number", ()))
        return number
    if not isinstance(value, (int, float)):
        raise _mismatch("float_type", "number")
    return float(value)


_TRUE = frozenset("true t yes y on 1".split())
_FALSE = frozenset("false f no n off 0".split())


def _to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, (str, int, float)):
        raise _mismatch("bool_type", "boolean")
    word = str(int(value)) if value in (0, 1) else str(value).lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _mismatch("bool_parsing", "boolean, unable to interpret input")


def _to_arguments(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mismatch("dict_type", "dictionary")
    return value


def _to_names(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise _mismatch("list_type", "list")
    wrong = [index for index, item in enumerate(value) if not isinstance(item, str)]
    if wrong:
        raise _Mismatch(*(("string_type", "Input should be a valid string", (index,)) for index in wrong))
    return value


def _to_batch_size(value: Any) -> int | str:
    return value if isinstance(value, str) else _to_first(value, int=_to_integer, str=_to_text)


def _to_limit(value: Any) -> int | float:
    if isinstance(value, float) and math.isfinite(value):
        return value
    found: int | float = _to_first(value, int=_to_integer, float=_to_number)
    return found


def _to_first(value: Any, **converters: Converter) -> Any:
    """Convert a value to the first type that it fits."""
    problems = []
    for name, convert in converters.items():
        try:
            return convert(value)
        except _Mismatch as error:
            problems += [(kind, message, (name, *place)) for kind, message, place in error.problems]
    raise _Mismatch(*problems)


def _to_checkpoint_type(value: Any) -> str:
    if value not in ("regular", "ema"):
        raise _Mismatch(("literal_error", "Input should be 'regular' or 'ema'", ()))
    return str(value)


def _optional(convert: Converter) -> Converter:
    return lambda value: None if value is None else convert(value)


def _describe(convert: Converter, about: str) -> dict[str, Any]:
    """Return the metadata of a field of a request body: the function that converts its value, and its description."""
    return {"convert": convert, "about": about}


@dataclass(kw_only=True)
class Record:
    """A request or a response."""

    @classmethod
    def from_body(cls, body: Any) -> Self:
        """Create the record from a request body. Keys that are no fields have no effect.

        Raises:
            InvalidBody: A field is missing or has another type.
        """
        if body is None:
            raise InvalidBody([_build_error("missing", ["body"], "Field required", None)])
        if not isinstance(body, Mapping):
            message = "Input should be a valid dictionary or object to extract fields from"
            raise InvalidBody([_build_error("model_attributes_type", ["body"], message, body)])
        values, errors = {}, []
        for one in fields(cls):
            if one.name not in body:
                if one.default is MISSING:
                    errors.append(_build_error("missing", ["body", one.name], "Field required", body))
                continue
            try:
                values[one.name] = one.metadata["convert"](body[one.name])
            except _Mismatch as error:
                for kind, message, place in error.problems:
                    value = (
                        body[one.name][place[0]]
                        if kind == "string_type" and _is_index(place)
                        else body[one.name]
                    )
                    errors.append(_build_error(kind, ["body", one.name, *place], message, value))
        if errors:
            raise InvalidBody(errors)
        return cls(**values)

    @classmethod
    def list_unknown(cls, body: Any) -> list[str]:
        """Return the keys of a request body that are no fields."""
        known = {one.name for one in fields(cls)}
        return [str(key) for key in body if key not in known] if isinstance(body, Mapping) else []

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dictionary that JSON can represent."""
        return {one.name: _to_plain(getattr(self, one.name)) for one in fields(self)}


def _is_index(place: tuple[Any, ...]) -> bool:
    return len(place) == 1 and isinstance(place[0], int)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.model_dump()
    return value.value if isinstance(value, Enum) else value


def _build_error(kind: str, place: list[Any], message: str, value: Any) -> dict[str, Any]:
    error = {"type": kind, "loc": place, "msg": message, "input": value}
    if kind == "literal_error":
        error["ctx"] = {"expected": "'regular' or 'ema'"}
    return error


@dataclass(kw_only=True)
class EvaluateRequest(Record):
    """What a job evaluates."""

    model: str = field(metadata=_describe(_to_text, "Name of the model."))
    tasks: list[str] = field(metadata=_describe(_to_names, "Names of the tasks."))
    model_args: dict[str, Any] | None = field(
        default=None, metadata=_describe(_optional(_to_arguments), "Arguments of the model.")
    )
    num_fewshot: int | None = field(
        default=None, metadata=_describe(_optional(_to_integer), "Number of few-shot examples.")
    )
    batch_size: int | str | None = field(
        default=None, metadata=_describe(_optional(_to_batch_size), "Batch size.")
    )
    device: str | None = field(default=None, metadata=_describe(_optional(_to_text), "Device of the model."))
    limit: int | float | None = field(
        default=None, metadata=_describe(_optional(_to_limit), "Documents per task.")
    )
    gen_kwargs: str | None = field(
        default=None, metadata=_describe(_optional(_to_text), "Generation settings, key=value,…")
    )
    log_samples: bool = field(
        default=True, metadata=_describe(_to_boolean, "Write a samples file for each task.")
    )
    predict_only: bool = field(
        default=False, metadata=_describe(_to_boolean, "Only generate; compute no scores.")
    )
    num_gpus: int = field(
        default=1, metadata=_describe(_to_integer, "Number of copies of the model (`--replicas`).")
    )
    output_dir: str | None = field(
        default=None, metadata=_describe(_optional(_to_text), "Folder for the run and its results.")
    )


@dataclass(kw_only=True)
class JobInfo(Record):
    """A job, its status and its results."""

    job_id: str
    status: JobStatus
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    request: EvaluateRequest
    result: dict[str, Any] | None = None
    error: str | None = None
    position_in_queue: int | None = None


@dataclass(kw_only=True)
class JobSubmitResponse(Record):
    """The response to a submitted job."""

    job_id: str
    status: JobStatus
    position_in_queue: int
    message: str


@dataclass(kw_only=True)
class QueueStatusResponse(Record):
    """The state of the queue."""

    queue_size: int
    running_job: str | None = None
    queued_jobs: list[str]
    completed_jobs: int
    failed_jobs: int


@dataclass(kw_only=True)
class HealthResponse(Record):
    """The state of the server."""

    status: str
    timestamp: str
    queue_size: int


@dataclass(kw_only=True)
class MergeRequest(Record):
    """A sharded FSDP2 checkpoint to merge."""

    checkpoint_path: str = field(metadata=_describe(_to_text, "Folder of the checkpoint."))
    output_path: str | None = field(
        default=None, metadata=_describe(_optional(_to_text), "Folder for the merged checkpoint.")
    )
    checkpoint_type: str = field(
        default="regular", metadata=_describe(_to_checkpoint_type, "`regular` or `ema` weights.")
    )


@dataclass(kw_only=True)
class MergeResponse(Record):
    """The outcome of a merge."""

    success: bool
    message: str
    merged_path: str | None = None
