"""Interrupted dialogues resume from the journal: the helper gets the stored answers again, without new requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.dialogues import halve, ride, write_guessing, write_lift
from tests.flows.running import CommandRunner, compute_fingerprints, read_committed_fingerprints, read_tables
from tests.flows.scenarios import SIX_ROUNDS

import assay
from assay.core.errors import AssayError
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.testing import ScriptedModel

WINDOW = 4


class StoppingModel(ScriptedModel):
    """Stops the run after a number of answers."""

    def __init__(self, answers: Any, stop_after: int) -> None:
        super().__init__(answers, window=3)
        self._left = stop_after

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            if self._left == 0:
                raise AssayError("stopped")
            self._left -= 1
            async for outcome in super().answer([request]):
                yield outcome


def play_or_ride(request: Any) -> str:
    return ride(request) if request.task == "lift" else halve(request)


def test_interrupted_dialogues_resume_without_repeated_requests(workspace: Path) -> None:
    paths = [str(write_guessing(workspace, 5)), str(write_lift(workspace, 4, repeats=2))]
    model = ScriptedModel(play_or_ride, window=3)
    whole = assay.run(model=model, tasks=paths, output_path="whole", no_cache=True)
    expected, total = read_tables(workspace / "whole" / whole.id), len(model.asked)
    for stop_after in range(0, total, 6):
        output = f"stopped {stop_after}"
        first = StoppingModel(play_or_ride, stop_after)
        with pytest.raises(AssayError, match="stopped"):
            assay.run(model=first, tasks=paths, output_path=output, no_cache=True)
        second = ScriptedModel(play_or_ride, window=3)
        finished = assay.run(model=second, tasks=paths, output_path=output, no_cache=True)
        asked = Counter(request.id for request in (*first.asked, *second.asked))
        assert set(asked.values()) == {1} and len(asked) == total
        assert read_tables(workspace / output / finished.id) == expected


def test_failed_rounds_are_retried_when_the_command_is_repeated(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    options = [str(write_guessing(tmp_path, 12, helpers=SIX_ROUNDS)), "--no_cache"]
    assert (
        runner.finish(runner.build_command(*options, "--output_path", "whole", window=WINDOW)).returncode == 0
    )
    expected = read_tables(runner.find_run_folder("whole"))
    runner.broken.touch()
    command = runner.build_command(*options, "--output_path", "mended", window=WINDOW)
    broken = runner.finish(command)
    assert broken.returncode == 1 and "Traceback" not in broken.stderr
    kept = read_committed_fingerprints(runner.find_run_folder("mended"))
    runner.broken.unlink()
    seen = len(runner.read_request_ids())
    assert runner.finish(command).returncode == 0
    assert read_tables(runner.find_run_folder("mended")) == expected
    assert not compute_fingerprints(runner.read_request_ids(seen)) & kept
