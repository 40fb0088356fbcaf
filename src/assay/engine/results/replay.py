"""A model that replays recorded responses: of a stored run, or of a samples file of lm-eval or lmms-eval.

    assay run --model replay --model_args run=latest --tasks my_task
    assay run --model replay --model_args file=samples_gsm8k_2026-01-01.jsonl --tasks gsm8k

It is asked like any other model, so filters, metrics and judges that are new are applied to answers that are old, and a task
file can be checked against what another harness recorded. An answer is found by the exact request. One that is not found is
that request's failure and says why; nothing is guessed. The adapter lives here because it reads the store, which models do
not know.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from assay.core.errors import InvalidOption
from assay.core.fingerprints import digest_json
from assay.core.ports import Ability, Traits
from assay.core.records.requests import Request, compute_fingerprint
from assay.core.records.responses import Failure, Outcome, Response
from assay.engine.planning.manifests.recorded_plan import get_manifest
from assay.engine.results.sample_files import ResponseNotFound, SampleFiles, find_sample_files
from assay.store.runs.lookup import find_run
from assay.store.runs.run import Run

__all__ = ["ReplayModel"]

_NOT_FOUND = "not found"


class ReplayModel:
    """Replays recorded responses.

    >>> ReplayModel(run="latest").name
    'replay'
    """

    def __init__(self, *, run: str | Path = "", file: str | Path = "") -> None:
        """`run`: the id, the start of the id or the folder of a run, or `latest`. `file`: a samples file, or a folder of
        them."""
        if bool(run) == bool(file):
            raise InvalidOption(
                "the model `replay` needs either a run or a file",
                where="--model_args",
                hint="--model_args run=latest, or file=samples_gsm8k.jsonl",
            )
        self._run, self._file = str(run), Path(file).expanduser()
        self._samples: SampleFiles | None = None

    @property
    def name(self) -> str:
        return "replay"

    @property
    def traits(self) -> Traits:
        """The traits of the recorded model, so that prompts are rendered as for it; a file supports everything but tools."""
        known = self._about.get("abilities") if self._run else None
        abilities: frozenset[Ability] = frozenset(known or set(get_args(Ability)) - {"tools"})
        return Traits(abilities=abilities, window=256)

    @property
    def prompted_as(self) -> str:
        """The model name that task files got when the run was recorded."""
        return str(self._manifest["options"].get("model", "")) if self._run else ""

    async def identify(self) -> Mapping[str, str]:
        """Identify the recorded model."""
        if not self._run:
            return {"name": self.name, "files_sha256": await asyncio.to_thread(_hash_files, self._paths)}
        identity = {f"model_{key}": str(value) for key, value in self._about["identity"].items()}
        return {"name": self.name, "run": str(self._manifest["digest"]), **identity}

    async def open(self) -> None:
        """Read the file; a run is read on demand."""
        if not self._run and self._samples is None:
            self._samples = await asyncio.to_thread(SampleFiles, self._paths)

    async def close(self) -> None:
        """Close the run and drop the file."""
        self._samples = None
        if "_source" in self.__dict__:
            self._source.close()
            del self.__dict__["_source"]

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        found = self._answer_from_run(window) if self._run else self._answer_from_files(window)
        for outcome in found:
            yield outcome

    def _answer_from_run(self, window: Sequence[Request]) -> list[Outcome]:
        digest = digest_json(dict(self._about["identity"]))
        marks = {request.id: compute_fingerprint(digest, request.id) for request in window}
        known = self._source.journal.find(list(marks.values()))
        outcomes: list[Outcome] = []
        for request in window:
            answer = known.get(marks[request.id])
            if answer is None:
                why = f"the run `{self._source.id}` has no response to this request"
                outcomes.append(Failure(request_id=request.id, kind=_NOT_FOUND, message=why))
            else:
                outcomes.append(replace(answer, request_id=request.id))
        return outcomes

    def _answer_from_files(self, window: Sequence[Request]) -> list[Outcome]:
        if self._samples is None:
            raise RuntimeError("answer() was called before open()")
        outcomes: list[Outcome] = []
        for request in window:
            try:
                outcomes.append(Response(request_id=request.id, value=self._samples.find(request)))
            except ResponseNotFound as error:
                outcomes.append(Failure(request_id=request.id, kind=_NOT_FOUND, message=str(error)))
        return outcomes

    # --- where they come from ----------------------------------------------------------------------

    @cached_property
    def _source(self) -> Run:
        return Run(find_run(self._run))

    @cached_property
    def _manifest(self) -> Mapping[str, Any]:
        return get_manifest(self._source)

    @property
    def _about(self) -> Mapping[str, Any]:
        return dict(self._manifest["model"])

    @property
    def _paths(self) -> list[Path]:
        return find_sample_files(self._file)


def _hash_files(paths: Sequence[Path]) -> str:
    hasher = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hasher.update(hashlib.file_digest(file, "sha256").digest())
    return hasher.hexdigest()
