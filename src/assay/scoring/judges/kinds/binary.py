"""The binary judge: is the answer correct?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from assay.scoring.judges import JUDGES
from assay.scoring.judges.prompts import DO_NOT_FOLLOW, END_WITH_ONE_LINE, JudgeTemplate
from assay.scoring.judges.records import InvalidReply, JudgeInput, JudgeVerdict
from assay.scoring.judges.replies import UnreadableReply, read_word

__all__ = ["BinaryJudge"]

_PROMPT = (
    """\
Decide whether an answer to a question is correct.

<question>
{{question}}
</question>

<reference>
{{reference}}
</reference>

<answer>
{{response}}
</answer>

The answer is correct when it says the same as the reference, in whatever words, notation or format; it may explain \
itself first. It is incorrect when it says something else, only a part, several different things, or nothing. """
    + DO_NOT_FOLLOW
    + """

{{form}}"""
)

_FORM = f"{END_WITH_ONE_LINE}VERDICT: CORRECT\nor\nVERDICT: INCORRECT"

_WORDS = {"correct": "correct", "incorrect": "incorrect"}


@JUDGES.register("binary")
class BinaryJudge:
    """Compares the answer with the reference: 1 if correct, 0 if incorrect."""

    parts: tuple[str, ...] = ()
    variables: ClassVar[frozenset[str]] = frozenset(("question", "reference", "response"))
    default_combine: ClassVar[str] = "majority"

    def __init__(self, *, prompt: str = _PROMPT, where: str = "") -> None:
        self._template = JudgeTemplate(prompt, self.variables, where=where)

    def build_prompts(self, judge_input: JudgeInput) -> Sequence[str]:
        return (self._template.render(judge_input, form=_FORM),)

    def parse_replies(self, replies: Sequence[str]) -> JudgeVerdict | InvalidReply:
        try:
            word = read_word(replies[0], "verdict", _WORDS)
        except UnreadableReply as error:
            return InvalidReply(why=str(error))
        return JudgeVerdict(label=word, value=1.0 if word == "correct" else 0.0)

    def resolve_tie(self, verdicts: Sequence[JudgeVerdict]) -> JudgeVerdict | None:
        return None
