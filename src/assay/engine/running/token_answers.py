"""Reuse cached responses of a run with `--token_logprobs` only if they have tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from assay.core.records.responses import Response
from assay.engine.planning.records import Plan
from assay.store.cache.response_cache import ResponseSource

__all__ = ["require_tokens"]


def require_tokens(plan: Plan, known: ResponseSource | None) -> ResponseSource | None:
    """Wrap the cache so that responses without tokens are ignored, if the plan needs tokens."""
    if known is None or not plan.spec.token_logprobs or not plan.model.traits.tokens:
        return known
    return _TokenCache(known, plan.model_digest[:16])


class _TokenCache:
    """A cache that finds responses of the model only with tokens; judges need none."""

    def __init__(self, known: ResponseSource, model: str) -> None:
        self._known = known
        self._model = model
        """The prefix of fingerprints of the model's responses."""

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        asked = [mark for mark in fingerprints if mark.startswith(self._model)]
        judged = [mark for mark in fingerprints if not mark.startswith(self._model)]
        found = self._known.find(asked, tokens=True) if asked else {}
        return found | (self._known.find(judged, tokens=tokens) if judged else {})

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        return self._known.add(responses, model=model)
