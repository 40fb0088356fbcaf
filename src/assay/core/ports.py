"""Interfaces between the packages: protocols with a few methods, no base classes.

The `Supports…` protocols are optional features of a model. The test double of a port is a normal adapter
(`assay.testing.ScriptedModel`), not a mock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from assay.core.records.documents import Document
from assay.core.records.messages import Media
from assay.core.records.programs import Execution, IsolationReport, Program
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import LogProbability, Outcome

__all__ = [
    "Ability",
    "ComputeCounters",
    "ComputeLimits",
    "ComputeMeter",
    "Filter",
    "Model",
    "Sandbox",
    "Services",
    "Sink",
    "SupportsComputeMeter",
    "SupportsDocuments",
    "SupportsRandomStates",
    "SupportsMediaPreparation",
    "SupportsPreview",
    "SupportsOutputLimit",
    "SupportsPricing",
    "SupportsPromptedAs",
    "SupportsTargets",
    "SupportsToolProbing",
    "SupportsTokenLogprobs",
    "SupportsTruncationPreview",
    "Traits",
    "SupportsTokenCounts",
    "TruncatedPrompt",
]

Ability = Literal["generate", "likelihood", "rolling", "chat", "image", "audio", "video", "tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Capabilities and batching preferences of a model. Available without loading it."""

    abilities: frozenset[Ability]

    needs: frozenset[Ability] = frozenset()
    """Media that every request must contain: an OCR model needs an image."""

    system: bool = True
    """Whether it accepts system messages in chats: some chat templates reject them."""

    answers_without_system: bool = False
    """Whether an unsupported system message is dropped, as lm-eval does, instead of rejecting the task."""

    window: int = 1
    """Requests per call of `answer`: many for local models, which sort and batch; one for remote models."""

    keeps_order: bool = False
    """Whether requests must arrive in the order of the tasks. Other windows are sorted by prompt."""

    in_flight: int = 1
    """Number of concurrent calls of `answer`."""

    tokens: bool = False
    """Whether it can return the log probability of every token (`SupportsTokenLogprobs`)."""

    interactive: bool = False
    """Whether it uses the terminal, so that no progress is displayed."""


@runtime_checkable
class Model(Protocol):
    """Answers requests. Does not know about tasks, documents or scores.

    The constructor does no work. `traits` and `identify()` work before `open()`, so that a finished run can be shown
    without loading the model.
    """

    @property
    def name(self) -> str:
        """The name shown in tables and file names."""
        ...

    @property
    def traits(self) -> Traits: ...

    async def identify(self) -> Mapping[str, str]:
        """Return everything that determines its responses: name, revision, weight and template hashes, dtype."""
        ...

    async def open(self) -> None:
        """Load the weights or connect. Called once, before the first `answer`."""
        ...

    def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Yield one outcome per request, in any order, as soon as it is available.

        The `request_id` of an outcome identifies its request. An error of one request is a `Failure`; raise only if the
        whole model is broken.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class SupportsPreview(Protocol):
    """A model that can show its exact input without being opened, for `assay show`."""

    def preview(self, request: Request) -> str:
        """Return the text after the chat template, with placeholders for media."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedPrompt:
    """What a model reads of a prompt that exceeds its context length."""

    text: str
    """The text that remains."""

    tokens: int
    """The tokens that remain."""

    truncated_tokens: int
    """The tokens that are removed."""


@runtime_checkable
class SupportsTruncationPreview(Protocol):
    """A model that knows which prompts it truncates without being opened, for `assay plan` and `assay show`."""

    def preview_truncation(self, request: Request) -> TruncatedPrompt | None:
        """Return what remains of a prompt that exceeds the context length; None if it fits or if this is unknown."""
        ...


@runtime_checkable
class SupportsTokenCounts(Protocol):
    """A model that can count the tokens of a prompt without being opened, for `assay plan`."""

    def count_input_tokens(self, request: Request) -> int | None:
        """Return the tokens of the prompt that the model will read, as in `Usage.input_tokens`; None if this is unknown."""
        ...


@runtime_checkable
class SupportsTokenLogprobs(Protocol):
    """A model that can return the log probability of every token. It sets `Traits.tokens`; its responses are the same
    with and without."""

    def give_tokens(self) -> None:
        """Include `tokens` in every response from now on. Called before `open`."""
        ...


@runtime_checkable
class SupportsMediaPreparation(Protocol):
    """A model that can preprocess media, so that the engine can do it ahead of time."""

    def prepare(self, part: Media) -> None:
        """Decode a part with `assay.media` as `answer` will. Called in a thread before the part is first used."""
        ...


@runtime_checkable
class SupportsHolding(Protocol):
    """A model that queues requests itself and can stop sending them, because the disk is too slow to store the answers."""

    def hold_requests(self, held: bool) -> None:
        """Start no calls while `held`; calls in flight continue. Called between `open` and `close`."""
        ...


@runtime_checkable
class SupportsQueueing(Protocol):
    """A model that adapts its number of calls to the server and queues the others.

    It gets few requests at first, and more whenever its queue is short, up to `traits.in_flight` windows.
    """

    def count_queued(self) -> int:
        """Return how many calls wait in its queue."""
        ...


@runtime_checkable
class SupportsPricing(Protocol):
    """A model that charges by the token. Models without it are free."""

    @property
    def billed_as(self) -> str:
        """Its key in price tables: `provider/model` (`openai/gpt-4o-mini`) or the host; empty if it is free."""
        ...


@runtime_checkable
class SupportsOutputLimit(Protocol):
    """A model that knows how many tokens a request can generate, for `--max_cost`."""

    def find_output_limit(self, request: Generate) -> int | None:
        """Return the largest number of tokens of the answer, reasoning included; None if there is no limit."""
        ...


@runtime_checkable
class SupportsProbing(Protocol):
    """A server whose capabilities are found by probing. Awaited before a plan is checked against `traits`."""

    async def probe(self) -> Sequence[str]:
        """Detect the capabilities of the server, or read them from a cache; return notes for the user.

        Afterwards `traits` reflects them. An unreachable server is not an error here, because the run may be finished;
        `open` raises it.
        """
        ...

    @property
    def seen(self) -> Mapping[str, Any]:
        """The detected capabilities, for the manifest of the run."""
        ...


@runtime_checkable
class SupportsToolProbing(Protocol):
    """A server that may or may not support tools. Awaited after `probe`, only if a task has tools."""

    async def probe_tools(self) -> Sequence[str]:
        """Find out whether the server supports tools; return notes for the user. Afterwards `traits` reflects it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeLimits:
    """The size of a local model and the measured speed of its device."""

    device: str
    dtype: str
    parameters: int
    matmul_flops_per_s: float | None
    """Floating-point operations per second of large matrix products at this dtype; None if they do not limit the model."""

    unknown_because: str = ""
    """Why the rate is None."""

    is_asynchronous: bool = False
    """Whether the device computes after a call has returned, so that `model_seconds` is a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCounters:
    """What a local model computed since the last reading."""

    computed_tokens: int
    """Tokens that went through the model: without those that a shared prefix saves, with padding."""

    model_seconds: float
    """Time inside the model."""

    peak_device_bytes: int | None
    """Largest memory of the device in use; None without such a device."""


class ComputeMeter(Protocol):
    """Counts what a local model computes."""

    limits: ComputeLimits

    def read(self) -> ComputeCounters:
        """Return what was computed since the last call."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class SupportsComputeMeter(Protocol):
    """A local model that can count what it computes, for `assay bench model`."""

    async def start_compute_meter(self) -> ComputeMeter | None:
        """Measure the device and start to count. Called after `open`; None if the backend cannot count."""
        ...


@runtime_checkable
class SupportsPromptedAs(Protocol):
    """A model that replaces another one (`replay`), so that tasks must prompt it like that one."""

    @property
    def prompted_as(self) -> str:
        """The name of the other model in task files; empty if unknown."""
        ...


@runtime_checkable
class SupportsTargets(Protocol):
    """A model that receives the targets before the requests: the `oracle`. No other model receives them.

    Its responses depend on more than its requests, so the engine does not share them between runs.
    """

    def tell(self, task: str, document: int, answers: Sequence[str | LogProbability]) -> None:
        """Receive the correct response to each request of a document, by the `index` of the request."""
        ...


@runtime_checkable
class SupportsDocuments(Protocol):
    """A model that receives the documents before the requests: the model classes of other harnesses expect them."""

    def receive_documents(self, split: str, documents: Sequence[Document]) -> None:
        """Receive the documents of the requests that follow, and the split that they come from."""
        ...


@runtime_checkable
class SupportsRandomStates(Protocol):
    """A model that draws from the global random generators, from where the loading of the tasks stopped."""

    def receive_random_states(self, states: tuple[Any, Any]) -> None:
        """Receive the states of the generators of Python and NumPy before the first prompt."""
        ...


class Filter(Protocol):
    """Converts responses to answers. `responses[i]` are the response values of document i, one per repeat."""

    def apply(
        self, responses: Sequence[Sequence[Any]], documents: Sequence[Mapping[str, Any]]
    ) -> Sequence[Any]: ...


class Services(Protocol):
    """External services for scoring. The engine implements them, so that judge requests are scheduled, rate-limited,
    cached, journalled and shown like those of any other model."""

    async def ask(self, model: str, request: Request) -> Outcome: ...

    async def execute(self, program: Program) -> Execution: ...


@runtime_checkable
class Sandbox(Protocol):
    """Runs untrusted programs, several at a time. Does not know where they come from or how they are scored."""

    @property
    def name(self) -> str: ...

    async def inspect(self) -> IsolationReport:
        """Return what it isolates on this machine, determined by running a test program.

        Raises:
            SandboxError: It does not work on this machine; the message gives the reason.
        """
        ...

    async def execute(self, program: Program) -> Execution:
        """Run a program until it ends or exceeds a limit. All its child processes have ended afterwards.

        Raises:
            SandboxError: The program could not be started.
        """
        ...


class Sink(Protocol):
    """Receives the events of a run. A failing sink does not stop the run."""

    def emit(self, event: str, facts: Mapping[str, Any]) -> None: ...
