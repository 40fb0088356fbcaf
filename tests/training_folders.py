"""A scripted training run for tests of `assay watch`: checkpoints with real safetensors files, and a model that reads them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.making import write_task

from assay import api, models
from assay.core.errors import AssayError
from assay.core.ports import Traits
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome, Response
from assay.engine.watching.checkpoints import Checkpoint, CheckpointFinder
from assay.engine.watching.run_options import build_run_options, complete_watch_options
from assay.engine.watching.watcher import Watcher, WatchLimits
from assay.store.runs.watches import CheckpointRecord, Watch, WatchSettings

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]
"""Forty sums."""

MODEL = "checkpoint_of_a_test"


def build_safetensors(content: bytes = b"weights!") -> bytes:
    """Return a safetensors file with one tensor of these bytes."""
    header = {"w": {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}}
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + content


def write_checkpoint(folder: Path, step: int, wrong: Collection[int] = (), *, finished: bool = True) -> Path:
    """Write a checkpoint in the layout of the Trainer of transformers; its model answers these documents wrongly."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    (path / "wrong.json").write_text(json.dumps(sorted(wrong)))
    (path / "model.safetensors").write_bytes(build_safetensors(f"{step} {sorted(wrong)}".encode()))
    if finished:
        (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return path


class CheckpointModel:
    """Answers the sums of `ROWS`, some of them wrongly, as the files of a checkpoint say."""

    name = MODEL
    traits = Traits(abilities=frozenset({"generate"}), window=8)

    def __init__(self, pretrained: str, delay_ms: float = 0.0) -> None:
        self._folder = Path(pretrained)
        self._delay_s = delay_ms / 1000
        self._wrong: set[int] = set()

    async def identify(self) -> Mapping[str, str]:
        weights = (self._folder / "model.safetensors").read_bytes()
        return {"name": self.name, "sha256": hashlib.sha256(weights).hexdigest()}

    async def open(self) -> None:
        self._wrong = set(json.loads((self._folder / "wrong.json").read_text()))

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            number = int(request.prompt.text.partition("What is ")[2].partition(" +")[0])
            text = "?" if number in self._wrong else str(number + 1)
            await asyncio.sleep(self._delay_s)
            yield Response(request_id=request.id, value=text, finish="stop")

    async def close(self) -> None:
        """Nothing to release."""


if MODEL not in models.MODELS:
    models.MODELS.add(MODEL, CheckpointModel)


@dataclass
class FinishedRun:
    """A run that was executed when it was started."""

    code: int
    error: str = ""

    def poll(self) -> int | None:
        return self.code

    def read_error(self) -> str:
        return self.error


@dataclass
class InProcessLauncher:
    """Executes runs in this process."""

    options: dict[str, Any]
    started: list[str] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    before_start: Callable[[Checkpoint], None] = lambda checkpoint: None
    """Called before a run starts; an `AssayError` is a failed run."""

    after_run: Callable[[Checkpoint], None] = lambda checkpoint: None

    def plan(self, checkpoint: Checkpoint, *, refresh: bool) -> Path:
        return api.plan(**build_run_options(self.options, checkpoint)).folder

    def start(self, checkpoint: Checkpoint, *, refresh: bool) -> FinishedRun:
        self.started.append(checkpoint.name)
        self.refreshed += [checkpoint.name] if refresh else []
        try:
            self.before_start(checkpoint)
            api.run(**build_run_options(self.options, checkpoint, refresh=refresh))
        except (AssayError, OSError) as error:
            return FinishedRun(2, str(error))
        self.after_run(checkpoint)
        return FinishedRun(0)


class WatchedTraining:
    """A training run in a folder, with what is needed to watch it."""

    def __init__(self, folder: Path, **keys: Any) -> None:
        self.checkpoints = folder / "out"
        self.checkpoints.mkdir(parents=True)
        task = write_task(folder / "tasks", rows=ROWS, **keys)
        self.watch = Watch(folder / "runs" / "watch-test")
        self.watch.write_settings(WatchSettings(checkpoints=str(self.checkpoints), tasks=("sums",)))
        self.launcher = InProcessLauncher(
            complete_watch_options(
                {
                    "model": MODEL,
                    "model_args": {"pretrained": "{checkpoint}"},
                    "tasks": [str(task)],
                    "output_path": str(folder / "runs"),
                    "no_cache": True,
                }
            )
        )
        self.outcomes: list[CheckpointRecord] = []
        self.problems: list[str] = []

    def build_watcher(self, **limits: Any) -> Watcher:
        """Return a watcher that ends when everything is evaluated, unless other limits are given."""
        chosen = {"once": True, "poll_s": 0.01, "retry_s": 0.0, **limits}
        return Watcher(
            CheckpointFinder(self.checkpoints, settle_s=0.0),
            self.watch,
            self.launcher,
            WatchLimits(**chosen),
            on_outcome=self.outcomes.append,
            on_problem=self.problems.append,
        )
