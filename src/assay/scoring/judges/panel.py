"""`judge`, by models: a case goes to one judge or several, their replies become one verdict, or none with the reason.

    case -> hear: ask -> what was heard -> decide: read the replies -> decision

Everything asked goes through `Services`. A reply that is no ruling is counted and named, never a 0; a judge that does
not answer leaves the document to be judged again. Deciding asks nobody, so that it can be done in another process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from assay.core.messages import Message, Prompt, Text
from assay.core.ports import Services
from assay.core.requests import Generate, Settings
from assay.core.responses import Failure, Response
from assay.core.verdicts import Score, Unscored, Verdict
from assay.scoring.judges.records import InvalidReply, JudgeInput, JudgeVerdict
from assay.scoring.judges.spec import JudgeSpec

__all__ = ["JudgePanel", "MemberReplies", "PanelDecision", "PanelMember", "judge_prompt"]


class PanelMember(NamedTuple):
    """A place on a jury: the judge's name with `Services`, and whether it takes chat messages."""

    name: str
    chat: bool


class MemberReplies(NamedTuple):
    """What one judge said about one case."""

    judge: str
    replies: tuple[str, ...] = ()
    """One for each prompt."""

    failure: str = ""
    """Why it did not answer, where it did not."""

    truncated: bool = False
    """Whether a reply came to its length limit."""


class PanelDecision(NamedTuple):
    """What became of one case."""

    verdicts: tuple[Verdict, ...]
    failed: str = ""
    """Why no judge answered, where none did: to be asked again. Empty otherwise."""


class _Failed(NamedTuple):
    why: str


_Opinion = JudgeVerdict | InvalidReply | _Failed


@dataclass(frozen=True, slots=True)
class JudgePanel:
    """Those who judge one metric of one task."""

    spec: JudgeSpec
    members: tuple[PanelMember, ...] = ()

    def with_members(self, seats: Sequence[PanelMember]) -> JudgePanel:
        """The same jury with these judges."""
        return replace(self, members=tuple(seats))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every name it reports under: the metric, its parts, and how far the judges agree where there are several."""
        metric = self.spec.metric
        names = [metric, *(f"{metric}_{part}" for part in self.spec.judge.parts)]
        if len(self.members) * self.spec.repeats > 1:
            names.append(f"{metric}_agreement")
        return tuple(names)

    def requests(
        self, case: JudgeInput, task: str, document: int
    ) -> list[tuple[PanelMember, list[list[Generate]]]]:
        """What each judge is asked: for each repeat, one request for each prompt."""
        settings = Settings(self.spec.settings)
        texts = list(self.spec.judge.prompts(case))
        asked = []
        for seat in self.members:
            prompts = [judge_prompt(text, case, self.spec.system, chat=seat.chat) for text in texts]
            rounds = [
                [
                    Generate(
                        task=task,
                        document=document,
                        index=at,
                        repeat=repeat,
                        prompt=prompt,
                        settings=settings,
                    )
                    for at, prompt in enumerate(prompts)
                ]
                for repeat in range(self.spec.repeats)
            ]
            asked.append((seat, rounds))
        return asked

    async def collect_replies(
        self, case: JudgeInput, services: Services, *, task: str, document: int
    ) -> list[MemberReplies]:
        """Ask every judge at once."""
        hearings = [
            _hear(seat, requests, services)
            for seat, rounds in self.requests(case, task, document)
            for requests in rounds
        ]
        return await asyncio.gather(*hearings)

    def decide(self, heard: Sequence[MemberReplies], *, document: int, pipeline: str) -> PanelDecision:
        """Make one verdict of what the judges said."""
        opinions = [(one.judge, self._opinion(one)) for one in heard]
        rulings = [opinion for _, opinion in opinions if isinstance(opinion, JudgeVerdict)]
        quorum = self.spec.quorum or len(opinions)
        if len(rulings) < min(quorum, len(opinions)):
            failed = [f"{name}: {one.why}" for name, one in opinions if isinstance(one, _Failed)]
            invalid = [f"{name}: {one.why}" for name, one in opinions if isinstance(one, InvalidReply)]
            if failed:
                return self.leave_unscored(f"judge failed: {failed[0]}", document, pipeline, failed=True)
            return self.leave_unscored(f"invalid verdict of the judge {invalid[0]}", document, pipeline)
        ruling = self._combined(rulings)
        if ruling is None:
            split = ", ".join(f"{count} {label}" for label, count in _labels(rulings).most_common())
            return self.leave_unscored(f"the judges are split: {split}", document, pipeline)
        why = "; ".join(f"{name}: {one.label}" for name, one in opinions if isinstance(one, JudgeVerdict))
        metric = self.spec.metric
        numbers = {metric: ruling.value} | {f"{metric}_{part}": value for part, value in ruling.parts.items()}
        if f"{metric}_agreement" in self.metrics and len(rulings) > 1:
            numbers[f"{metric}_agreement"] = _agreement(rulings)
        return PanelDecision(
            tuple(
                Score(document=document, metric=name, pipeline=pipeline, value=value, why=why)
                for name, value in numbers.items()
            )
        )

    def _opinion(self, heard: MemberReplies) -> _Opinion:
        if heard.failure:
            return _Failed(heard.failure)
        opinion = self.spec.judge.rule(heard.replies)
        if isinstance(opinion, InvalidReply) and heard.truncated:
            return InvalidReply(why=f"{opinion.why}; the reply was cut at its length limit")
        return opinion

    def _combined(self, rulings: Sequence[JudgeVerdict]) -> JudgeVerdict | None:
        """One ruling of several; None when they are split and that is no ruling."""
        if len(rulings) == 1:
            return rulings[0]
        parts = {
            part: sum(ruling.parts[part] for ruling in rulings) / len(rulings)
            for part in rulings[0].parts
        }  # fmt: skip
        if self.spec.combine == "mean":
            mean = sum(ruling.value for ruling in rulings) / len(rulings)
            return JudgeVerdict(label="mean", value=mean, parts=parts)
        (label, most), *others = _labels(rulings).most_common()
        if others and others[0][1] == most:
            undecided = self.spec.judge.undecided(rulings)
            return None if undecided is None else replace(undecided, parts=parts)
        chosen = [ruling for ruling in rulings if ruling.label == label]
        return replace(chosen[0], parts=parts)

    def leave_unscored(
        self, why: str, document: int, pipeline: str, *, failed: bool = False
    ) -> PanelDecision:
        """No number, and why not."""
        verdicts = tuple(
            Unscored(document=document, metric=name, pipeline=pipeline, why=why) for name in self.metrics
        )
        return PanelDecision(verdicts, why if failed else "")


def judge_prompt(text: str, case: JudgeInput, system: str, *, chat: bool) -> Prompt:
    """The prompt of a judge: what the model saw first, then the text; a system message where it can be one."""
    if not chat:
        text = f"{system}\n\n{text}" if system else text
        return Prompt((Message("user", (*case.media, Text(text))),))
    first = (Message("system", (Text(system),)),) if system else ()
    return Prompt((*first, Message("user", (*case.media, Text(text)))), chat=True)


async def _hear(seat: PanelMember, requests: Sequence[Generate], services: Services) -> MemberReplies:
    outcomes = await asyncio.gather(*(services.ask(seat.name, request) for request in requests))
    replies = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            return MemberReplies(seat.name, failure=f"{outcome.kind}: {outcome.message}")
        replies.append(str(outcome.value))
    return MemberReplies(seat.name, tuple(replies), truncated=_cut(outcomes))


def _cut(outcomes: Sequence[Response | Failure]) -> bool:
    return any(isinstance(outcome, Response) and outcome.finish == "length" for outcome in outcomes)


def _labels(rulings: Sequence[JudgeVerdict]) -> Counter[str]:
    return Counter(ruling.label for ruling in rulings)


def _agreement(rulings: Sequence[JudgeVerdict]) -> float:
    """The share of pairs of judges that say the same."""
    pairs = list(combinations([ruling.label for ruling in rulings], 2))
    return sum(one == other for one, other in pairs) / len(pairs)
