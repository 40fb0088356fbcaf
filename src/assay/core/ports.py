"""What the parts of Assay promise each other. Protocols of a few methods; no base classes.

The test double of a port is a normal adapter (`assay.testing.ScriptedModel`), not a mock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from assay.core.messages import Media
from assay.core.programs import Execution, Isolation, Program
from assay.core.requests import Request
from assay.core.responses import LogProbability, Outcome

__all__ = [
    "Ability",
    "Billed",
    "Filter",
    "GivesTokens",
    "Model",
    "Prepares",
    "Previews",
    "Sandbox",
    "Services",
    "Sink",
    "StandsIn",
    "ToldTargets",
    "Traits",
]

Ability = Literal["generate", "likelihood", "rolling", "chat", "image", "audio", "video"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a model can do and how it likes to be fed. Known without loading it."""

    abilities: frozenset[Ability]

    needs: frozenset[Ability] = frozenset()
    """Media without which it has nothing to answer: a reader of pictures needs one."""

    system: bool = True
    """Whether a system message reaches it, where it chats: some chat templates refuse one."""

    answers_without_system: bool = False
    """Where it does not: whether the message is left out, as lm-evaluation-harness does, instead of the task refused."""

    window: int = 1
    """Requests per call of `answer`: many for local models, which sort and batch; one for remote ones."""

    in_flight: int = 1
    """Calls of `answer` open at the same time."""

    tokens: bool = False
    """Whether it can tell the log-probability of every token, asked to (`GivesTokens`)."""

    interactive: bool = False
    """It uses the terminal itself, so that no progress is drawn over it."""


@runtime_checkable
class Model(Protocol):
    """Answers requests. Knows nothing of tasks, documents or scores.

    The constructor does no work. `traits` and `identify()` work before `open()`, so a finished run
    is shown without loading anything.
    """

    @property
    def name(self) -> str:
        """What people call it: goes into tables and file names."""
        ...

    @property
    def traits(self) -> Traits: ...

    async def identify(self) -> Mapping[str, str]:
        """The facts that make its answers its own: name, revision, weights and template hashes, dtype."""
        ...

    async def open(self) -> None:
        """Load weights or connect. Called once, before the first `answer`."""
        ...

    def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """One outcome per request, in any order, each as soon as it is known.

        An outcome names its request by `request_id`. What goes wrong with one request is that request's
        `Failure`; only what breaks the whole model may raise.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Previews(Protocol):
    """A model that can say what exactly it will read, without being opened. Optional; `assay show` uses it."""

    def preview(self, request: Request) -> str:
        """The text after the chat template, media as placeholders."""
        ...


@runtime_checkable
class GivesTokens(Protocol):
    """A model that tells the log-probability of every token, where somebody wants to know. Optional: it says so in
    `Traits.tokens`, and its answers are the same with and without."""

    def give_tokens(self) -> None:
        """From now on every response brings its `tokens`, where they are known; called before `open`."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A model that says what it will make of a medium, so that the engine can have it made ahead. Optional."""

    def prepare(self, part: Media) -> None:
        """Decode a part with `assay.media` as `answer` will; called in a thread, before the part's first use."""
        ...


@runtime_checkable
class Billed(Protocol):
    """A model somebody charges for by the token. Optional: a model without it costs nothing."""

    @property
    def billed_as(self) -> str:
        """What price tables call it: `provider/model` (`openai/gpt-4o-mini`), or the host; empty where nobody charges."""
        ...


@runtime_checkable
class Probes(Protocol):
    """A model whose abilities have to be seen: a server. Optional; awaited before a plan is checked against `traits`."""

    async def probe(self) -> Sequence[str]:
        """Try what it can do, or remember it; afterwards `traits` says what was seen. What is worth knowing is returned.

        A server that is not there is no error here: the run may be finished. `open` says so.
        """
        ...

    @property
    def seen(self) -> Mapping[str, Any]:
        """What was seen, for the run's manifest."""
        ...


@runtime_checkable
class StandsIn(Protocol):
    """A model that answers for another one, so that tasks have to prompt it as that one. Optional: `replay`."""

    @property
    def prompted_as(self) -> str:
        """The name under which task files know the other one; empty where it is not known."""
        ...


@runtime_checkable
class ToldTargets(Protocol):
    """A model that is told what is right before it is asked: the `oracle`. Optional; no other model ever hears it.

    Its answers depend on more than its requests, so the engine does not share them between runs.
    """

    def tell(self, task: str, document: int, answers: Sequence[str | LogProbability]) -> None:
        """The right answer to each request of a document, by the request's `index`; none where there is none."""
        ...


class Filter(Protocol):
    """Turns responses into answers. `responses[i]` are the values of document i's request, one per repeat."""

    def apply(
        self, responses: Sequence[Sequence[Any]], documents: Sequence[Mapping[str, Any]]
    ) -> Sequence[Any]: ...


class Services(Protocol):
    """What scoring may ask of the world. The engine implements it, so judges are scheduled,
    limited, cached, journalled and shown like any other model."""

    async def ask(self, model: str, request: Request) -> Outcome: ...

    async def execute(self, program: Program) -> Execution: ...


@runtime_checkable
class Sandbox(Protocol):
    """Runs programs nobody trusts, several at once. Knows nothing of who wrote them and what they are worth."""

    @property
    def name(self) -> str: ...

    async def inspect(self) -> Isolation:
        """What it isolates here and now, found by running a program that tries.

        Raises:
            NotExecuted: It does not work on this machine; the message says why.
        """
        ...

    async def execute(self, program: Program) -> Execution:
        """Run it to its end or to its bounds; nothing it started is alive afterwards.

        Raises:
            NotExecuted: It could not be started.
        """
        ...


class Sink(Protocol):
    """Hears what happens in a run. A sink that fails never stops it."""

    def emit(self, event: str, facts: Mapping[str, Any]) -> None: ...
