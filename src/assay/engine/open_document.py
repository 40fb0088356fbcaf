"""Records that the stages of a run pass on: pending documents and their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from assay.core.records.documents import Document
from assay.core.records.messages import Media, Prompt
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import Failure, Outcome, Response
from assay.core.records.verdicts import Answer, RepeatScores, Verdict

__all__ = ["Dialogues", "JudgedBatch", "OpenDocument"]


class Dialogues(Protocol):
    """The dialogues about one document, under way or finished."""

    @property
    def answers(self) -> Sequence[Any]:
        """The result of each dialogue that ended."""
        ...


@dataclass(slots=True)
class OpenDocument:
    """A document that waits for its responses."""

    document: Document
    requests: tuple[Request, ...]
    fingerprints: tuple[str, ...]
    outcomes: list[Outcome | None]
    missing: int
    target: Any = None
    """The value of `doc_to_target`; None where there is none or it failed."""

    judge_media: tuple[Media, ...] = ()
    """The media of its first prompt, if an LLM judge gets them too."""

    dialogues: Dialogues | None = None
    """Its dialogues, if answers lead to further requests."""

    @property
    def key(self) -> str:
        """Its name within the run."""
        return f"{self.document.task}:{self.document.index}"

    @property
    def answered_count(self) -> int:
        """How many of its requests have an outcome; those are the first ones."""
        return len(self.requests) - self.missing

    @property
    def failure(self) -> Failure | None:
        """The first failed request, if any."""
        for outcome in self.outcomes:
            if type(outcome) is Failure:
                return outcome
        return None

    def release_prompts(self) -> None:
        """Drop the prompts of a document that waits for other documents; what is needed to read its responses remains."""
        if self.dialogues is not None:
            return
        self.fingerprints = ()
        if all(map(_is_plain, self.requests)):
            self.requests = _build_empty_requests(
                *[(type(request), request.repeat) for request in self.requests]
            )

    def select_answered(self) -> OpenDocument:
        """Return a copy with only the requests that have a response."""
        rows = zip(self.requests, self.fingerprints, self.outcomes, strict=True)
        kept = [row for row in rows if type(row[2]) is Response]
        requests, marks, outcomes = zip(*kept, strict=True) if kept else ((), (), ())
        return replace(self, requests=requests, fingerprints=marks, outcomes=list(outcomes))


def _is_plain(request: Request) -> bool:
    """Return whether a request has neither tools nor an answer format, by which its response is read."""
    return type(request) is not Generate or (request.tools is None and request.response_format is None)


@lru_cache(maxsize=1024)
def _build_empty_requests(*kinds: tuple[type[Request], int]) -> tuple[Request, ...]:
    """Return requests of these kinds and repeats without content, which documents share."""
    empty = []
    for kind, repeat in kinds:
        given: dict[str, Any] = {"task": "", "document": 0, "repeat": repeat, "prompt": Prompt.of_text("")}
        if kind is Generate:
            given["settings"] = Settings()
        elif kind is Likelihood:
            given["continuation"] = ""
        empty.append(kind(**given))
    return tuple(empty)


@dataclass(slots=True)
class JudgedBatch:
    """The result of judging some documents of one task."""

    outcomes: list[tuple[int, str, str]] = field(default_factory=list)
    """(document, ending, reason)."""

    answers: list[Answer] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    repeats: list[RepeatScores] = field(default_factory=list)

    def extend(self, other: JudgedBatch) -> None:
        """Add the results of other documents."""
        self.outcomes += other.outcomes
        self.answers += other.answers
        self.verdicts += other.verdicts
        self.repeats += other.repeats
