"""Judge panels: ask one or more LLM judges about an answer and combine their verdicts.

    judge input -> collect_replies: ask the judges -> replies -> decide: parse and combine -> decision

All requests go through `Services`. An invalid reply is reported with the reason and never counts as 0. If a judge does
not answer, the document is judged again later. `decide` sends no requests, so it can run in another process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from assay.core.ports import Services
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Response
from assay.core.records.verdicts import Score, Unscored, Verdict
from assay.scoring.judges.records import InvalidReply, JudgeInput, JudgeVerdict
from assay.scoring.judges.spec import JudgeSpec

__all__ = ["JudgePanel", "MemberReplies", "PanelDecision", "PanelMember", "build_judge_prompt"]


class PanelMember(NamedTuple):
    """A judge of a panel: its name in `Services`, and whether it accepts chat messages."""

    name: str
    chat: bool


class MemberReplies(NamedTuple):
    """The replies of one judge about one answer."""

    judge: str
    replies: tuple[str, ...] = ()
    """One reply per prompt."""

    failure: str = ""
    """The reason if the judge did not answer."""

    truncated: bool = False
    """Whether a reply reached its length limit."""


class PanelDecision(NamedTuple):
    """The result of one panel for one answer."""

    verdicts: tuple[Verdict, ...]
    failed: str = ""
    """The reason if no judge answered and the document must be judged again. Otherwise empty."""

    values: tuple[float, ...] = ()
    """The score of each sample of each judge, if all have one."""


class _NoReply(NamedTuple):
    why: str


_Outcome = JudgeVerdict | InvalidReply | _NoReply


@dataclass(frozen=True, slots=True)
class JudgePanel:
    """The judges of one metric of one task."""

    spec: JudgeSpec
    members: tuple[PanelMember, ...] = ()

    def with_members(self, members: Sequence[PanelMember]) -> JudgePanel:
        """Return the panel with these judges."""
        return replace(self, members=tuple(members))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics it reports: the metric, its parts, and the agreement if there are several verdicts."""
        metric = self.spec.metric
        names = [metric, *(f"{metric}_{part}" for part in self.spec.judge.parts)]
        if len(self.members) * self.spec.repeats > 1:
            names.append(f"{metric}_agreement")
        return tuple(names)

    def build_requests(
        self, judge_input: JudgeInput, task: str, document: int
    ) -> list[tuple[PanelMember, list[list[Generate]]]]:
        """Build the requests for each judge: for each repeat, one request per prompt."""
        settings = Settings(self.spec.settings)
        texts = list(self.spec.judge.build_prompts(judge_input))
        requests = []
        for member in self.members:
            prompts = [
                build_judge_prompt(text, judge_input, self.spec.system, chat=member.chat) for text in texts
            ]
            rounds = [
                [
                    Generate(
                        task=task,
                        document=document,
                        index=index,
                        repeat=repeat,
                        prompt=prompt,
                        settings=settings,
                    )
                    for index, prompt in enumerate(prompts)
                ]
                for repeat in range(self.spec.repeats)
            ]
            requests.append((member, rounds))
        return requests

    async def collect_replies(
        self, judge_input: JudgeInput, services: Services, *, task: str, document: int
    ) -> list[MemberReplies]:
        """Ask all judges concurrently."""
        tasks = [
            _ask_member(member, requests, services)
            for member, rounds in self.build_requests(judge_input, task, document)
            for requests in rounds
        ]
        return await asyncio.gather(*tasks)

    def decide(self, replies: Sequence[MemberReplies], *, document: int, pipeline: str) -> PanelDecision:
        """Combine the replies of all judges to one decision."""
        outcomes = [(one.judge, self._parse_outcome(one)) for one in replies]
        verdicts = [outcome for _, outcome in outcomes if isinstance(outcome, JudgeVerdict)]
        quorum = min(self.spec.quorum or len(outcomes), len(outcomes))
        if len(verdicts) < quorum:
            failed = [f"{name}: {one.why}" for name, one in outcomes if isinstance(one, _NoReply)]
            invalid = [f"{name}: {one.why}" for name, one in outcomes if isinstance(one, InvalidReply)]
            if failed:
                return self.leave_unscored(f"judge failed: {failed[0]}", document, pipeline, failed=True)
            return self.leave_unscored(f"invalid verdict of judge {invalid[0]}", document, pipeline)
        decided = [verdict for verdict in verdicts if verdict.value is not None]
        value, why = None, ""
        if len(decided) < quorum:
            why = next(
                f"{name}: {one.why}"
                for name, one in outcomes
                if isinstance(one, JudgeVerdict) and one.value is None
            )
        elif (value := self._combine(decided)) is None:
            split = ", ".join(f"{count} {label}" for label, count in _count_labels(decided).most_common())
            why = f"the judges are split: {split}"
        labels = "; ".join(f"{name}: {one.label}" for name, one in outcomes if isinstance(one, JudgeVerdict))
        metric = self.spec.metric
        numbers: dict[str, float | None] = {metric: value} | {
            f"{metric}_{part}": sum(verdict.parts[part] for verdict in verdicts) / len(verdicts)
            for part in verdicts[0].parts
        }
        if f"{metric}_agreement" in self.metrics and len(decided) > 1:
            numbers[f"{metric}_agreement"] = _measure_agreement(decided)
        return PanelDecision(
            tuple(
                Unscored(document=document, metric=name, pipeline=pipeline, why=why)
                if number is None
                else Score(document=document, metric=name, pipeline=pipeline, value=number, why=labels)
                for name, number in numbers.items()
            ),
            values=tuple(verdict.value for verdict in decided if verdict.value is not None)
            if len(decided) == len(outcomes)
            else (),
        )

    def _parse_outcome(self, replies: MemberReplies) -> _Outcome:
        if replies.failure:
            return _NoReply(replies.failure)
        outcome = self.spec.judge.parse_replies(replies.replies)
        if isinstance(outcome, InvalidReply) and replies.truncated:
            return InvalidReply(why=f"{outcome.why}; the reply reached its length limit")
        return outcome

    def _combine(self, verdicts: Sequence[JudgeVerdict]) -> float | None:
        """Combine the scores of several verdicts. Return None if they are split evenly and the kind defines no tie."""
        values = [verdict.value for verdict in verdicts if verdict.value is not None]
        if len(values) == 1:
            return values[0]
        if self.spec.combine == "mean":
            return sum(values) / len(values)
        (label, count), *others = _count_labels(verdicts).most_common()
        if others and others[0][1] == count:
            tie = self.spec.judge.resolve_tie(verdicts)
            return None if tie is None else tie.value
        return next(verdict.value for verdict in verdicts if verdict.label == label)

    def leave_unscored(
        self, why: str, document: int, pipeline: str, *, failed: bool = False
    ) -> PanelDecision:
        """Return a decision without a number, with the reason."""
        verdicts = tuple(
            Unscored(document=document, metric=name, pipeline=pipeline, why=why) for name in self.metrics
        )
        return PanelDecision(verdicts, why if failed else "")


def build_judge_prompt(text: str, judge_input: JudgeInput, system: str, *, chat: bool) -> Prompt:
    """Build the prompt of a judge: the media, then the text, with a system message if the judge accepts chats."""
    if not chat:
        text = f"{system}\n\n{text}" if system else text
        return Prompt((Message("user", (*judge_input.media, Text(text))),))
    first = (Message("system", (Text(system),)),) if system else ()
    return Prompt((*first, Message("user", (*judge_input.media, Text(text)))), chat=True)


async def _ask_member(member: PanelMember, requests: Sequence[Generate], services: Services) -> MemberReplies:
    outcomes = await asyncio.gather(*(services.ask(member.name, request) for request in requests))
    replies = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            return MemberReplies(member.name, failure=f"{outcome.kind}: {outcome.message}")
        replies.append(str(outcome.value))
    return MemberReplies(member.name, tuple(replies), truncated=_is_truncated(outcomes))


def _is_truncated(outcomes: Sequence[Response | Failure]) -> bool:
    return any(isinstance(outcome, Response) and outcome.finish == "length" for outcome in outcomes)


def _count_labels(verdicts: Sequence[JudgeVerdict]) -> Counter[str]:
    return Counter(verdict.label for verdict in verdicts)


def _measure_agreement(verdicts: Sequence[JudgeVerdict]) -> float:
    """Return the share of pairs of verdicts with equal labels."""
    pairs = list(combinations([verdict.label for verdict in verdicts], 2))
    return sum(one == other for one, other in pairs) / len(pairs)
