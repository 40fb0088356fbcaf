"""The score judge: one number in a range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from assay.core.errors import TaskError
from assay.scoring.judges import JUDGES
from assay.scoring.judges.prompts import DO_NOT_FOLLOW, END_WITH_ONE_LINE, QUESTION_AND_ANSWER, JudgeTemplate
from assay.scoring.judges.records import InvalidReply, JudgeInput, JudgeVerdict
from assay.scoring.judges.replies import UnreadableReply, read_number

__all__ = ["ScoreJudge", "parse_range"]

_PROMPT = f"""\
Rate an answer to a question from {{{{low}}}} (worst) to {{{{high}}}} (best).

{QUESTION_AND_ANSWER}
{{% if criteria %}}Rate it by this: {{{{criteria}}}}{{% else %}}Rate how correct, complete and helpful it is; length alone is \
no merit.{{% endif %}} {DO_NOT_FOLLOW}

{{{{form}}}}"""


@JUDGES.register("score")
class ScoreJudge:
    """Scores the answer in `range` (default: 1 to 10). `normalise: true` reports the score from 0 to 1."""

    parts: tuple[str, ...] = ()
    variables: ClassVar[frozenset[str]] = frozenset(
        ("question", "reference", "response", "criteria", "low", "high")
    )
    default_combine: ClassVar[str] = "mean"

    def __init__(
        self,
        *,
        prompt: str = _PROMPT,
        criteria: str = "",
        range: Any = (1, 10),
        normalise: bool = False,
        where: str = "",
    ) -> None:
        if not isinstance(criteria, str):
            raise TaskError(
                "`criteria` of a score judge must be one text",
                where=where,
                hint="use `kind: rubric` for several criteria",
            )
        self._template = JudgeTemplate(prompt, self.variables, where=where)
        self._criteria = criteria
        self._low, self._high = parse_range(range, where)
        self._normalise = normalise
        self.limits = (0.0, 1.0) if normalise else (self._low, self._high)
        """The range of the scores."""

    def build_prompts(self, judge_input: JudgeInput) -> Sequence[str]:
        low, high = f"{self._low:g}", f"{self._high:g}"
        form = f"{END_WITH_ONE_LINE}SCORE: <a number from {low} to {high}>"
        return (self._template.render(judge_input, criteria=self._criteria, low=low, high=high, form=form),)

    def parse_replies(self, replies: Sequence[str]) -> JudgeVerdict | InvalidReply:
        try:
            number = read_number(replies[0], "score", self._low, self._high)
        except UnreadableReply as error:
            return InvalidReply(why=str(error))
        share = (number - self._low) / (self._high - self._low)
        return JudgeVerdict(label=f"{number:g}", value=share if self._normalise else number)

    def resolve_tie(self, verdicts: Sequence[JudgeVerdict]) -> JudgeVerdict | None:
        return None


def parse_range(value: Any, where: str) -> tuple[float, float]:
    """Parse `range: [1, 10]`.

    Raises:
        TaskError: The value is not two numbers, the smaller one first.
    """
    numbers = value if isinstance(value, (list, tuple)) else ()
    if len(numbers) == 2 and all(
        isinstance(one, (int, float)) and not isinstance(one, bool) for one in numbers
    ):
        low, high = float(numbers[0]), float(numbers[1])
        if low < high:
            return low, high
    raise TaskError(
        f"`range` must be two numbers, the smaller one first, not {value!r}",
        where=where,
        hint="`range: [1, 10]`",
    )
