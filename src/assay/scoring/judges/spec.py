"""What `judge:` in an entry of `metric_list` says: read once, every mistake with its place."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from assay.core.errors import TaskError
from assay.core.specs import MetricSpec
from assay.scoring.judges import JUDGES
from assay.scoring.judges.prompts import FieldText
from assay.scoring.judges.records import Judge

__all__ = ["JudgeModel", "JudgeSpec", "parse_judge"]

SETTINGS: Mapping[str, Any] = {"until": [], "temperature": 0.0, "max_gen_toks": 1024}
"""How a judge generates unless its `settings` say otherwise."""

_KEYS = frozenset(
    "kind model settings system question reference against media combine quorum repeats".split()
)


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A model that judges, as it is named: with which arguments."""

    model: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """A judged metric, checked."""

    metric: str
    judge: Judge
    models: tuple[JudgeModel, ...] = ()
    """Who judges; empty: whoever `--judge` names."""

    settings: Mapping[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    system: str = ""
    question: FieldText | None = None
    """None: the question the model was asked."""

    reference: FieldText | None = None
    """None: the task's target."""

    media: bool = False
    """Whether the judge sees the pictures and sounds the model saw."""

    combine: str = "mean"
    quorum: int | None = None
    """Valid verdicts it takes; None: all that are asked for."""

    repeats: int = 1
    where: str = ""


def parse_judge(entry: MetricSpec, where: str) -> JudgeSpec:
    """A judged metric from its entry in a task file.

    Raises:
        UnknownName: No kind of judge is called that.
        TaskError: A key nobody knows, or a value that makes no sense.
    """
    given = entry.arguments["judge"]
    place = f"{where}.judge"
    if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str):
        raise TaskError(
            "`judge` says at least its `kind`", where=place, hint=f"`judge: {{kind: {_kinds()}}}`"
        )
    others = sorted(set(entry.arguments) - {"judge"})
    if others:
        raise TaskError(
            f"a judged metric has no key `{others[0]}`",
            where=where,
            hint="what the judge needs stands below `judge:`",
        )
    make = JUDGES.get(given["kind"], where=place)
    own = set(inspect.signature(make).parameters) - {"where"}
    for key in given:
        if key not in _KEYS | own:
            close = get_close_matches(str(key), sorted(_KEYS | own), n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(sorted(_KEYS | own))}"
            raise TaskError(f"a {given['kind']} judge has no key `{key}`", where=f"{place}.{key}", hint=hint)
    chosen = {key: value for key, value in given.items() if key in own}
    for key, value in chosen.items():
        _check_kind(make, key, value, f"{place}.{key}")
    judge = make(**chosen, where=place)
    against = _text(given, "against", place)
    if against is not None and given["kind"] != "comparative":
        raise TaskError("only a comparative judge has something to compare with", where=f"{place}.against")
    reference = against or _text(given, "reference", place)
    return JudgeSpec(
        metric=entry.name,
        judge=judge,
        models=_jurors(given.get("model"), place),
        settings={**SETTINGS, **_take(given, "settings", Mapping, {}, place)},
        system=_take(given, "system", str, "", place),
        question=_text(given, "question", place),
        reference=reference,
        media=_take(given, "media", bool, False, place),
        combine=_combine(given.get("combine", judge.combines), place),
        quorum=_count(given, "quorum", place),
        repeats=_count(given, "repeats", place) or 1,
        where=place,
    )


def _kinds() -> str:
    return " | ".join(JUDGES.names())


def _check_kind(make: Any, key: str, value: Any, where: str) -> None:
    """A switch is true or false, a prompt is a text: told from the default the kind itself gives."""
    default = inspect.signature(make).parameters[key].default
    for kind, meaning in ((bool, "true or false"), (str, "a text")):
        if isinstance(default, kind) and not isinstance(value, kind):
            raise TaskError(f"`{key}` must be {meaning}, not {value!r:.60}", where=where)


def _take(given: Mapping[str, Any], key: str, kind: Any, default: Any, place: str) -> Any:
    value = given.get(key, default)
    if not isinstance(value, kind):
        meaning = {bool: "true or false", str: "a text"}.get(kind, "a mapping of keys")
        raise TaskError(f"`{key}` must be {meaning}, not {value!r:.60}", where=f"{place}.{key}")
    return value


def _text(given: Mapping[str, Any], key: str, place: str) -> FieldText | None:
    source = _take(given, key, str, "", place)
    return FieldText(source, where=f"{place}.{key}") if source else None


def _count(given: Mapping[str, Any], key: str, place: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TaskError(f"`{key}` must be a whole number above 0, not {value!r}", where=f"{place}.{key}")
    return value


def _combine(value: Any, place: str) -> str:
    if value not in ("mean", "majority"):
        raise TaskError(f"`combine` is `mean` or `majority`, not {value!r}", where=f"{place}.combine")
    return str(value)


def _jurors(value: Any, place: str) -> tuple[JudgeModel, ...]:
    entries = value if isinstance(value, list) else [] if value is None else [value]
    jurors = []
    for entry in entries:
        keys = entry if isinstance(entry, Mapping) else {"model": entry}
        arguments = keys.get("model_args") or {}
        if not isinstance(keys.get("model"), str) or set(keys) - {"model", "model_args"}:
            raise TaskError(
                f"a judge is named by its model, not {entry!r:.60}",
                where=f"{place}.model",
                hint="`model: NAME`, or `model: {model: NAME, model_args: {key: value}}`, or a list of them",
            )
        if not isinstance(arguments, Mapping):
            raise TaskError(
                f"`model_args` must be a mapping of keys, not {arguments!r:.60}", where=f"{place}.model"
            )
        jurors.append(JudgeModel(keys["model"], dict(arguments)))
    return tuple(jurors)
