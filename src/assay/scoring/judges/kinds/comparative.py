"""The comparative judge: which of two answers is better? It asks in both orders, because judges have a position bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from assay.core.errors import TaskError
from assay.scoring.judges import JUDGES
from assay.scoring.judges.prompts import DO_NOT_FOLLOW, END_WITH_ONE_LINE, JudgeTemplate
from assay.scoring.judges.records import InvalidReply, JudgeInput, JudgeVerdict
from assay.scoring.judges.replies import UnreadableReply, read_word

__all__ = ["ComparativeJudge"]

_PROMPT = (
    """\
Two assistants answered the same question. Decide which answer is better.

<question>
{{question}}
</question>

<answer_A>
{{first}}
</answer_A>

<answer_B>
{{second}}
</answer_B>

{% if criteria %}Decide by this: {{criteria}}{% else %}Decide by how correct, complete and helpful they are. The order \
in which they stand and their length mean nothing.{% endif %} """
    + DO_NOT_FOLLOW
    + """

{{form}}"""
)

_VALUES = {"win": 1.0, "tie": 0.5, "loss": 0.0}
_SWAPPED = {"win": "loss", "loss": "win", "tie": "tie"}


@JUDGES.register("comparative")
class ComparativeJudge:
    """Compares the answer with another one: 1 for a win, 0.5 for a tie, 0 for a loss."""

    variables: ClassVar[frozenset[str]] = frozenset(("question", "first", "second", "criteria"))
    default_combine: ClassVar[str] = "majority"

    def __init__(
        self,
        *,
        prompt: str = _PROMPT,
        criteria: str = "",
        swap: bool = True,
        ties: bool = True,
        disagreement: str = "tie",
        where: str = "",
    ) -> None:
        if not isinstance(criteria, str):
            raise TaskError("`criteria` of a comparative judge must be one text", where=where)
        if disagreement not in ("tie", "unscored"):
            raise TaskError(
                f"`disagreement` must be `tie` or `unscored`, not {disagreement!r}",
                where=where,
                hint="the result if the verdicts of the two orders differ",
            )
        self._template = JudgeTemplate(prompt, self.variables, where=where)
        self._criteria = criteria
        self._swap, self._disagreement = swap, disagreement
        self._words = {"a": "win", "b": "loss"} | ({"tie": "tie"} if ties else {})
        self.parts: tuple[str, ...] = ("consistent",) if swap else ()

    def build_prompts(self, judge_input: JudgeInput) -> Sequence[str]:
        orders = [(judge_input.response, judge_input.reference)]
        if self._swap:
            orders.append((judge_input.reference, judge_input.response))
        form = END_WITH_ONE_LINE + "\nor\n".join(f"BETTER: {word.upper()}" for word in self._words)
        return tuple(
            self._template.render(judge_input, criteria=self._criteria, first=first, second=second, form=form)
            for first, second in orders
        )

    def parse_replies(self, replies: Sequence[str]) -> JudgeVerdict | InvalidReply:
        try:
            words = [read_word(reply, "better", self._words) for reply in replies]
        except UnreadableReply as error:
            return InvalidReply(why=str(error))
        if not self._swap:
            return JudgeVerdict(label=words[0], value=_VALUES[words[0]])
        forward, backward = words[0], _SWAPPED[words[1]]
        consistent = {"consistent": 1.0 if forward == backward else 0.0}
        if forward == backward:
            return JudgeVerdict(label=forward, value=_VALUES[forward], parts=consistent)
        if self._disagreement == "unscored":
            why = f"the verdicts of the two orders differ: {forward}, then {backward}"
            return JudgeVerdict(label="undecided", value=None, parts=consistent, why=why)
        return JudgeVerdict(label="tie", value=0.5, parts=consistent)

    def resolve_tie(self, verdicts: Sequence[JudgeVerdict]) -> JudgeVerdict | None:
        if self._disagreement == "unscored":
            return None
        return JudgeVerdict(label="tie", value=0.5)
