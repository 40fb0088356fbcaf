"""A stand-in for the model of a stored run: its name, identity and abilities, and no responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, get_args

from assay.core.ports import Ability, Traits
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Outcome

__all__ = ["NOT_ASKED", "RecordedModel"]

NOT_ASKED = "not asked"
"""The failure kind of a request that the stored run has no response to."""


class RecordedModel:
    """Represents the model of a stored run. Every request fails."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._about = manifest["model"]
        self._tokens = bool(manifest["options"].get("token_logprobs"))

    @property
    def name(self) -> str:
        return str(self._about["name"])

    @property
    def traits(self) -> Traits:
        abilities: frozenset[Ability] = frozenset(self._about.get("abilities") or get_args(Ability))
        return Traits(abilities=abilities, window=256, tokens=self._tokens)

    async def identify(self) -> Mapping[str, str]:
        return dict(self._about["identity"])

    async def open(self) -> None:
        """Nothing to open."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            message = "the stored run has no response to this request"
            yield Failure(request_id=request.id, kind=NOT_ASKED, message=message)

    async def close(self) -> None:
        """Nothing to close."""
