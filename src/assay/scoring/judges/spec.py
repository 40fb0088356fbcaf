"""Parse `judge:` of an entry of `metric_list`. Errors name the key."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from assay.core.errors import TaskError
from assay.core.records.specs import MetricSpec
from assay.scoring.judges import JUDGES
from assay.scoring.judges.prompts import FieldText
from assay.scoring.judges.records import Judge

__all__ = ["JUDGE_KEYS", "JudgeModel", "JudgeSpec", "parse_judge"]

SETTINGS: Mapping[str, Any] = {"until": [], "temperature": 0.0, "max_gen_toks": 1024}
"""The default generation settings of a judge."""

JUDGE_KEYS = frozenset(
    "kind model settings system question reference against media combine quorum repeats".split()
)
"""The keys that every kind of judge has."""


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """The model of a judge and its arguments."""

    model: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """A metric that judges score."""

    metric: str
    judge: Judge
    models: tuple[JudgeModel, ...] = ()
    """The judges. Empty: the judges of `--judge`."""

    settings: Mapping[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    system: str = ""
    question: FieldText | None = None
    """None: the question of the document."""

    reference: FieldText | None = None
    """None: the target of the document."""

    media: bool = False
    """Whether the judge gets the media of the prompt."""

    combine: str = "mean"
    quorum: int | None = None
    """The number of valid verdicts required. None: all."""

    repeats: int = 1
    where: str = ""


def parse_judge(entry: MetricSpec, where: str) -> JudgeSpec:
    """Parse the entry of a judged metric.

    Raises:
        UnknownName: The kind of judge does not exist.
        TaskError: A key is unknown or a value is invalid.
    """
    given = entry.arguments["judge"]
    place = f"{where}.judge"
    if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str):
        raise TaskError("`judge` needs a `kind`", where=place, hint=f"`judge: {{kind: {_format_kinds()}}}`")
    others = sorted(set(entry.arguments) - {"judge"})
    if others:
        raise TaskError(
            f"a judged metric has no key `{others[0]}`",
            where=where,
            hint="settings of the judge go below `judge:`",
        )
    make = JUDGES.get(given["kind"], where=place)
    own = set(inspect.signature(make).parameters) - {"where"}
    for key in given:
        if key not in JUDGE_KEYS | own:
            close = get_close_matches(str(key), sorted(JUDGE_KEYS | own), n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(sorted(JUDGE_KEYS | own))}"
            raise TaskError(f"a {given['kind']} judge has no key `{key}`", where=f"{place}.{key}", hint=hint)
    chosen = {key: value for key, value in given.items() if key in own}
    for key, value in chosen.items():
        _check_type(make, key, value, f"{place}.{key}")
    judge = make(**chosen, where=place)
    against = _parse_text(given, "against", place)
    if against is not None and given["kind"] != "comparative":
        raise TaskError("only a comparative judge supports `against`", where=f"{place}.against")
    reference = against or _parse_text(given, "reference", place)
    return JudgeSpec(
        metric=entry.name,
        judge=judge,
        models=_parse_models(given.get("model"), place),
        settings={**SETTINGS, **_read_value(given, "settings", Mapping, {}, place)},
        system=_read_value(given, "system", str, "", place),
        question=_parse_text(given, "question", place),
        reference=reference,
        media=_read_value(given, "media", bool, False, place),
        combine=_parse_combine(given.get("combine", judge.default_combine), place),
        quorum=_parse_count(given, "quorum", place),
        repeats=_parse_count(given, "repeats", place) or 1,
        where=place,
    )


def _format_kinds() -> str:
    return " | ".join(JUDGES.names())


def _check_type(make: Any, key: str, value: Any, where: str) -> None:
    """Check the type of a value against the type of the default."""
    default = inspect.signature(make).parameters[key].default
    for kind, meaning in ((bool, "true or false"), (str, "a text")):
        if isinstance(default, kind) and not isinstance(value, kind):
            raise TaskError(f"`{key}` must be {meaning}, not {value!r:.60}", where=where)


def _read_value(given: Mapping[str, Any], key: str, kind: Any, default: Any, place: str) -> Any:
    value = given.get(key, default)
    if not isinstance(value, kind):
        meaning = {bool: "true or false", str: "a text"}.get(kind, "a mapping of keys")
        raise TaskError(f"`{key}` must be {meaning}, not {value!r:.60}", where=f"{place}.{key}")
    return value


def _parse_text(given: Mapping[str, Any], key: str, place: str) -> FieldText | None:
    source = _read_value(given, key, str, "", place)
    return FieldText(source, where=f"{place}.{key}") if source else None


def _parse_count(given: Mapping[str, Any], key: str, place: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TaskError(f"`{key}` must be a whole number above 0, not {value!r}", where=f"{place}.{key}")
    return value


def _parse_combine(value: Any, place: str) -> str:
    if value not in ("mean", "majority"):
        raise TaskError(f"`combine` must be `mean` or `majority`, not {value!r}", where=f"{place}.combine")
    return str(value)


def _parse_models(value: Any, place: str) -> tuple[JudgeModel, ...]:
    entries = value if isinstance(value, list) else [] if value is None else [value]
    models = []
    for entry in entries:
        keys = entry if isinstance(entry, Mapping) else {"model": entry}
        arguments = keys.get("model_args") or {}
        if not isinstance(keys.get("model"), str) or set(keys) - {"model", "model_args"}:
            raise TaskError(
                f"a judge needs the name of a model, not {entry!r:.60}",
                where=f"{place}.model",
                hint="`model: NAME`, or `model: {model: NAME, model_args: {key: value}}`, or a list of them",
            )
        if not isinstance(arguments, Mapping):
            raise TaskError(
                f"`model_args` must be a mapping of keys, not {arguments!r:.60}", where=f"{place}.model"
            )
        models.append(JudgeModel(keys["model"], dict(arguments)))
    return tuple(models)
