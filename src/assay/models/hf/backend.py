"""The interface between `HfModel` and its two backends, text and multimodal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.core.ports import Ability, ComputeMeter, TruncatedPrompt
from assay.core.records.messages import Media
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome

__all__ = [
    "Backend",
    "InterruptibleBackend",
    "MeasurableBackend",
    "TokenReportingBackend",
    "TruncationPreviewBackend",
]


class Backend(Protocol):
    """Loads and runs one kind of model. The constructor does no work; `load` imports torch.

    `encode` and `answer` run in separate threads, so that the next window is tokenized while the model computes.
    """

    @property
    def abilities(self) -> frozenset[Ability]:
        """Read from the checkpoint's small files, without loading weights."""
        ...

    @property
    def needs(self) -> frozenset[Ability]: ...

    @property
    def window(self) -> int:
        """Maximum number of requests per window."""
        ...

    @property
    def model_seconds(self) -> float:
        """Seconds spent inside the model so far."""
        ...

    def load(self) -> None: ...

    def to_identity(self) -> dict[str, str]:
        """Return what answers depend on besides the files and the shared arguments."""
        ...

    def prepare(self, part: Media) -> None:
        """Decode a medium in advance."""
        ...

    def preview(self, request: Request) -> str:
        """Return the text that the model will read; works without `load`."""
        ...

    def encode(self, window: Sequence[Request]) -> Any:
        """Prepare a window for `answer`: apply templates, tokenize texts, decode media."""
        ...

    def answer(self, encoded: Any) -> Iterator[Outcome]:
        """Yield one outcome per request of the window, in any order, as soon as it is available."""
        ...

    def unload(self) -> None: ...


@runtime_checkable
class InterruptibleBackend(Protocol):
    """A backend whose computation another thread can interrupt, so that Ctrl-C does not wait for an answer."""

    def interrupt(self) -> None: ...


@runtime_checkable
class MeasurableBackend(Protocol):
    """A backend whose computation `assay bench model` can count."""

    def start_meter(self) -> ComputeMeter:
        """Measure the device and start to count. Called after `load`, in the thread of the model."""
        ...


@runtime_checkable
class TruncationPreviewBackend(Protocol):
    """A backend that knows the tokens of prompts, and which prompts it truncates, without `load`."""

    def preview_truncation(self, request: Request) -> TruncatedPrompt | None: ...

    def count_input_tokens(self, request: Request) -> int | None: ...


@runtime_checkable
class TokenReportingBackend(Protocol):
    """A backend that can report the log probability of every token. Set the attribute before `load`."""

    reports_tokens: bool
