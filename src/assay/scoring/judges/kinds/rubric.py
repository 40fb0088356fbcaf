"""The rubric judge: a score for each of several criteria, and their weighted mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.core.errors import TaskError
from assay.scoring.judges import JUDGES
from assay.scoring.judges.kinds.score import parse_range
from assay.scoring.judges.prompts import DO_NOT_FOLLOW, QUESTION_AND_ANSWER, JudgeTemplate
from assay.scoring.judges.records import InvalidReply, JudgeInput, JudgeVerdict
from assay.scoring.judges.replies import UnreadableReply, read_numbers

__all__ = ["Criterion", "RubricJudge"]

_PROMPT = f"""\
Rate an answer to a question by each criterion of a rubric.

{QUESTION_AND_ANSWER}
The rubric:
{{{{criteria}}}}

{DO_NOT_FOLLOW}

{{{{form}}}}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One criterion of a rubric."""

    name: str
    text: str
    weight: float = 1.0


@JUDGES.register("rubric")
class RubricJudge:
    """Scores each of the `criteria` and reports the scores and their weighted mean."""

    variables: ClassVar[frozenset[str]] = frozenset(
        ("question", "reference", "response", "criteria", "low", "high")
    )
    default_combine: ClassVar[str] = "mean"

    def __init__(
        self,
        *,
        prompt: str = _PROMPT,
        criteria: Any = None,
        range: Any = (1, 5),
        normalise: bool = False,
        where: str = "",
    ) -> None:
        self._template = JudgeTemplate(prompt, self.variables, where=where)
        self._criteria = _parse_criteria(criteria, where)
        self._low, self._high = parse_range(range, where)
        self._normalise = normalise
        self.parts = tuple(criterion.name for criterion in self._criteria)
        self.limits = (0.0, 1.0) if normalise else (self._low, self._high)
        """The range of the scores."""

    def build_prompts(self, judge_input: JudgeInput) -> Sequence[str]:
        low, high = f"{self._low:g}", f"{self._high:g}"
        rubric = "\n".join(f"- {one.name}: {one.text}" for one in self._criteria)
        example = ", ".join(f'"{one.name}": <{low} to {high}>' for one in self._criteria)
        form = (
            f"Each number goes from {low} (not at all) to {high} (fully). Think as briefly as you can, then end with"
            f" one JSON object and nothing after it:\n{{{example}}}"
        )
        return (self._template.render(judge_input, criteria=rubric, low=low, high=high, form=form),)

    def parse_replies(self, replies: Sequence[str]) -> JudgeVerdict | InvalidReply:
        ranges = {one.name: (self._low, self._high) for one in self._criteria}
        try:
            numbers = read_numbers(replies[0], ranges)
        except UnreadableReply as error:
            return InvalidReply(why=str(error))
        label = " ".join(f"{name}={number:g}" for name, number in numbers.items())
        if self._normalise:
            span = self._high - self._low
            numbers = {name: (number - self._low) / span for name, number in numbers.items()}
        total = sum(one.weight for one in self._criteria)
        mean = sum(one.weight * numbers[one.name] for one in self._criteria) / total
        return JudgeVerdict(label=label, value=mean, parts=numbers)

    def resolve_tie(self, verdicts: Sequence[JudgeVerdict]) -> JudgeVerdict | None:
        return None


def _parse_criteria(value: Any, where: str) -> tuple[Criterion, ...]:
    """Parse `criteria`: name -> text, or name -> {text, weight}."""
    if not isinstance(value, Mapping) or not value:
        raise TaskError(
            "a rubric judge needs `criteria`: a text per name",
            where=where,
            hint='`criteria: {accuracy: "Every fact is right."}`',
        )
    criteria = []
    for name, entry in value.items():
        keys = entry if isinstance(entry, Mapping) else {"text": entry}
        weight = keys.get("weight", 1.0)
        valid = isinstance(keys.get("text"), str) and set(keys) <= {"text", "weight"}
        if not valid or isinstance(weight, bool) or not isinstance(weight, (int, float)) or weight <= 0:
            raise TaskError(
                f"the criterion `{name}` must be a text, or a `text` with a `weight` above 0, not {entry!r:.60}",
                where=where,
            )
        if not re.fullmatch(r"\w[\w -]*", str(name)):
            raise TaskError(f"invalid criterion name: `{name}`", where=where, hint="letters, digits and _")
        criteria.append(Criterion(name=str(name), text=keys["text"], weight=float(weight)))
    return tuple(criteria)
