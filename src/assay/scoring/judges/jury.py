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
from assay.scoring.judges.records import Case, Invalid, Ruling
from assay.scoring.judges.spec import JudgeSpec

__all__ = ["Decision", "Heard", "Jury", "Seat", "judge_prompt"]


class Seat(NamedTuple):
    """A place on a jury: the judge's name with `Services`, and whether it takes chat messages."""

    name: str
    chat: bool


class Heard(NamedTuple):
    """What one judge said about one case."""

    judge: str
    replies: tuple[str, ...] = ()
    """One for each prompt."""

    failed: str = ""
    """Why it did not answer, where it did not."""

    cut: bool = False
    """Whether a reply came to its length limit."""


class Decision(NamedTuple):
    """What became of one case."""

    verdicts: tuple[Verdict, ...]
    failed: str = ""
    """Why no judge answered, where none did: to be asked again. Empty otherwise."""


class _Failed(NamedTuple):
    why: str


_Opinion = Ruling | Invalid | _Failed


@dataclass(frozen=True, slots=True)
class Jury:
    """Those who judge one metric of one task."""

    spec: JudgeSpec
    seats: tuple[Seat, ...] = ()

    def seated(self, seats: Sequence[Seat]) -> Jury:
        """The same jury with these judges."""
        return replace(self, seats=tuple(seats))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every name it reports under: the metric, its parts, and how far the judges agree where there are several."""
        metric = self.spec.metric
        names = [metric, *(f"{metric}_{part}" for part in self.spec.judge.parts)]
        if len(self.seats) * self.spec.repeats > 1:
            names.append(f"{metric}_agreement")
        return tuple(names)

    def requests(self, case: Case, task: str, document: int) -> list[tuple[Seat, list[list[Generate]]]]:
        """What each judge is asked: for each repeat, one request for each prompt."""
        settings = Settings(self.spec.settings)
        texts = list(self.spec.judge.prompts(case))
        asked = []
        for seat in self.seats:
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

    async def hear(self, case: Case, services: Services, *, task: str, document: int) -> list[Heard]:
        """Ask every judge at once."""
        hearings = [
            _hear(seat, requests, services)
            for seat, rounds in self.requests(case, task, document)
            for requests in rounds
        ]
        return await asyncio.gather(*hearings)

    def decide(self, heard: Sequence[Heard], *, document: int, pipeline: str) -> Decision:
        """Make one verdict of what the judges said."""
        opinions = [(one.judge, self._opinion(one)) for one in heard]
        rulings = [opinion for _, opinion in opinions if isinstance(opinion, Ruling)]
        quorum = self.spec.quorum or len(opinions)
        if len(rulings) < min(quorum, len(opinions)):
            failed = [f"{name}: {one.why}" for name, one in opinions if isinstance(one, _Failed)]
            invalid = [f"{name}: {one.why}" for name, one in opinions if isinstance(one, Invalid)]
            if failed:
                return self.without(f"judge failed: {failed[0]}", document, pipeline, failed=True)
            return self.without(f"invalid verdict of the judge {invalid[0]}", document, pipeline)
        ruling = self._combined(rulings)
        if ruling is None:
            split = ", ".join(f"{count} {label}" for label, count in _labels(rulings).most_common())
            return self.without(f"the judges are split: {split}", document, pipeline)
        why = "; ".join(f"{name}: {one.label}" for name, one in opinions if isinstance(one, Ruling))
        metric = self.spec.metric
        numbers = {metric: ruling.value} | {f"{metric}_{part}": value for part, value in ruling.parts.items()}
        if f"{metric}_agreement" in self.metrics and len(rulings) > 1:
            numbers[f"{metric}_agreement"] = _agreement(rulings)
        return Decision(
            tuple(
                Score(document=document, metric=name, pipeline=pipeline, value=value, why=why)
                for name, value in numbers.items()
            )
        )

    def _opinion(self, heard: Heard) -> _Opinion:
        if heard.failed:
            return _Failed(heard.failed)
        opinion = self.spec.judge.rule(heard.replies)
        if isinstance(opinion, Invalid) and heard.cut:
            return Invalid(why=f"{opinion.why}; the reply was cut at its length limit")
        return opinion

    def _combined(self, rulings: Sequence[Ruling]) -> Ruling | None:
        """One ruling of several; None when they are split and that is no ruling."""
        if len(rulings) == 1:
            return rulings[0]
        parts = {
            part: sum(ruling.parts[part] for ruling in rulings) / len(rulings)
            for part in rulings[0].parts
        }  # fmt: skip
        if self.spec.combine == "mean":
            mean = sum(ruling.value for ruling in rulings) / len(rulings)
            return Ruling(label="mean", value=mean, parts=parts)
        (label, most), *others = _labels(rulings).most_common()
        if others and others[0][1] == most:
            undecided = self.spec.judge.undecided(rulings)
            return None if undecided is None else replace(undecided, parts=parts)
        chosen = [ruling for ruling in rulings if ruling.label == label]
        return replace(chosen[0], parts=parts)

    def without(self, why: str, document: int, pipeline: str, *, failed: bool = False) -> Decision:
        """No number, and why not."""
        verdicts = tuple(
            Unscored(document=document, metric=name, pipeline=pipeline, why=why) for name in self.metrics
        )
        return Decision(verdicts, why if failed else "")


def judge_prompt(text: str, case: Case, system: str, *, chat: bool) -> Prompt:
    """The prompt of a judge: what the model saw first, then the text; a system message where it can be one."""
    if not chat:
        text = f"{system}\n\n{text}" if system else text
        return Prompt((Message("user", (*case.media, Text(text))),))
    first = (Message("system", (Text(system),)),) if system else ()
    return Prompt((*first, Message("user", (*case.media, Text(text)))), chat=True)


async def _hear(seat: Seat, requests: Sequence[Generate], services: Services) -> Heard:
    outcomes = await asyncio.gather(*(services.ask(seat.name, request) for request in requests))
    replies = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            return Heard(seat.name, failed=f"{outcome.kind}: {outcome.message}")
        replies.append(str(outcome.value))
    return Heard(seat.name, tuple(replies), cut=_cut(outcomes))


def _cut(outcomes: Sequence[Response | Failure]) -> bool:
    return any(isinstance(outcome, Response) and outcome.finish == "length" for outcome in outcomes)


def _labels(rulings: Sequence[Ruling]) -> Counter[str]:
    return Counter(ruling.label for ruling in rulings)


def _agreement(rulings: Sequence[Ruling]) -> float:
    """The share of pairs of judges that say the same."""
    pairs = list(combinations([ruling.label for ruling in rulings], 2))
    return sum(one == other for one, other in pairs) / len(pairs)
