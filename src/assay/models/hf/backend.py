"""What a kind of transformers model has to offer `HfModel`: the seam between text and multimodal models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.core.messages import Media
from assay.core.ports import Ability
from assay.core.requests import Request
from assay.core.responses import Outcome

__all__ = ["Backend", "Halts", "TellsTokens"]


class Backend(Protocol):
    """Loads and runs one kind of model. The constructor does no work; torch is imported by `load`.

    `encode` and `answer` run in two threads of their own, so that the tokens of the next window are made while the model
    computes this one.
    """

    @property
    def abilities(self) -> frozenset[Ability]:
        """Known from the checkpoint's small files."""
        ...

    @property
    def needs(self) -> frozenset[Ability]: ...

    @property
    def window(self) -> int:
        """Requests it likes to get at once, at most."""
        ...

    @property
    def model_seconds(self) -> float:
        """Seconds spent inside the model so far; the rest of the time it waited for Python."""
        ...

    def load(self) -> None: ...

    def identity(self) -> dict[str, str]:
        """What its answers depend on beside the files and the arguments all kinds share."""
        ...

    def prepare(self, part: Media) -> None:
        """Decode a medium ahead of its turn."""
        ...

    def preview(self, request: Request) -> str:
        """What the model will read; works without `load`."""
        ...

    def encode(self, window: Sequence[Request]) -> Any:
        """Whatever `answer` needs of a window: templates applied, texts to tokens, media decoded."""
        ...

    def answer(self, encoded: Any) -> Iterator[Outcome]:
        """One outcome per request of the window, in any order, each as soon as it is known."""
        ...

    def unload(self) -> None: ...


@runtime_checkable
class Halts(Protocol):
    """A backend that can be told, from another thread, to give up what it computes: Ctrl-C does not wait for an answer."""

    def halt(self) -> None: ...


@runtime_checkable
class TellsTokens(Protocol):
    """A backend that tells the log-probability of every token, where somebody wants to know; set before `load`."""

    gives_tokens: bool
