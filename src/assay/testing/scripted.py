"""A test model that answers from a table or a function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from assay.core.errors import AssayError
from assay.core.fingerprints import digest_text
from assay.core.ports import Ability, Traits
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import Failure, LogProbability, Outcome, Response

__all__ = ["ScriptedModel"]

Answer = str | LogProbability | Failure | Response
_ALL_ABILITIES: frozenset[Ability] = frozenset(
    ("generate", "likelihood", "rolling", "chat", "image", "audio", "video")
)


class ScriptedModel:
    """Answers from `answers`: a table by prompt text, or a function of the request.

    Without answers, it generates a fixed text and returns log probabilities derived from a hash of the request, which are
    the same in every process.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer] | Callable[[Request], Answer] | None = None,
        *,
        name: str = "scripted",
        abilities: frozenset[Ability] = _ALL_ABILITIES,
        window: int = 64,
        in_flight: int = 1,
    ) -> None:
        self._answers = answers
        self._name = name
        self._traits = Traits(abilities=abilities, window=window, in_flight=in_flight)
        self.asked: list[Request] = []
        """Every request received, in order."""

        self.opened = 0
        """Number of calls of `open`."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def traits(self) -> Traits:
        return self._traits

    async def identify(self) -> Mapping[str, str]:
        return {"name": self._name}

    async def open(self) -> None:
        self.opened += 1

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            self.asked.append(request)
            value = self.choose_answer(request)
            if isinstance(value, Failure):
                yield Failure(request_id=request.id, kind=value.kind, message=value.message)
            elif isinstance(value, Response):
                yield replace(value, request_id=request.id)
            else:
                yield Response(
                    request_id=request.id, value=value, finish="stop" if isinstance(value, str) else ""
                )

    async def close(self) -> None:
        """Do nothing."""

    def choose_answer(self, request: Request) -> Answer:
        missing = _list_required_abilities(request) - self._traits.abilities
        if missing:
            return Failure(
                request_id="", kind="bad request", message=f"unsupported: {', '.join(sorted(missing))}"
            )
        try:
            for part in request.prompt.media:
                part.load()
        except (AssayError, OSError, ValueError) as error:
            return Failure(request_id="", kind="bad media", message=str(error))
        if callable(self._answers):
            return self._answers(request)
        if self._answers is not None:
            unknown = Failure(
                request_id="", kind="bad request", message="the script has no answer for this prompt"
            )
            return self._answers.get(request.prompt.text, unknown)
        if isinstance(request, Generate):
            return "yes"
        number = int(digest_text(request.id)[:8], 16)
        return LogProbability(-1.0 - number % 10_000 / 1000, bool(number & 1))


def _list_required_abilities(request: Request) -> set[str]:
    """Return the abilities that a request needs."""
    kind = (
        "generate"
        if isinstance(request, Generate)
        else "likelihood"
        if isinstance(request, Likelihood)
        else "rolling"
    )
    return {kind, *(type(part).__name__.lower() for part in request.prompt.media)}
