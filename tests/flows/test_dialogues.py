"""Dialogues stopped at any moment go on from the journal: the helper hears the kept answers again, the model does not."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.dialogues import GUESSING, halve, ride, write_guessing, write_lift
from tests.flows.running import Bench, committed, contents, fingerprints, kill, wait_until

import assay
from assay.core.errors import AssayError
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.store.journal import FILE_NAME
from assay.testing import ScriptedModel

KILLS = 6
WINDOW = 4
SIX_ROUNDS = GUESSING.replace(
    "    if guess ==",
    "    if round_idx == 6:\n        return None, None, True, previous_output, info\n    if guess ==",
)


class Stopping(ScriptedModel):
    """Stops the whole run when it has answered so many requests."""

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


def test_dialogues_stopped_anywhere_go_on_and_ask_nothing_twice(workspace: Path) -> None:
    paths = [str(write_guessing(workspace, 5)), str(write_lift(workspace, 4, repeats=2))]
    model = ScriptedModel(play_or_ride, window=3)
    whole = assay.run(model=model, tasks=paths, output_path="whole", no_cache=True)
    expected, total = contents(workspace / "whole" / whole.id), len(model.asked)
    for stop_after in range(0, total, 6):
        output = f"stopped {stop_after}"
        first = Stopping(play_or_ride, stop_after)
        with pytest.raises(AssayError, match="stopped"):
            assay.run(model=first, tasks=paths, output_path=output, no_cache=True)
        second = ScriptedModel(play_or_ride, window=3)
        finished = assay.run(model=second, tasks=paths, output_path=output, no_cache=True)
        asked = Counter(request.id for request in (*first.asked, *second.asked))
        assert set(asked.values()) == {1} and len(asked) == total
        assert contents(workspace / output / finished.id) == expected


@pytest.mark.slow
def test_dialogues_killed_again_and_again_end_with_the_same_bits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    guessing = write_guessing(tmp_path, 24, helpers=SIX_ROUNDS, repeats=2)
    options = [str(guessing), str(write_lift(tmp_path, 12)), "--no_cache"]
    whole = bench.finish(bench.command(*options, "--output_path", "whole", window=WINDOW))
    assert whole.returncode == 0, whole.stderr
    expected, total = contents(bench.run_folder("whole")), len(bench.asked())
    assert max(number for _, _, number, *_ in expected["requests"]) == 5, "six rounds"
    bench.log.unlink()

    generator = random.Random(20250207)
    command = bench.command(*options, "--output_path", "killed", window=WINDOW)
    kept: set[str] = set()
    seen = kills = 0
    for target in sorted(generator.sample(range(1, total - 20), KILLS)):
        process = bench.start(command)
        wait_until(partial(bench.has_asked, max(1, target - len(kept)), since=seen), process)
        time.sleep(generator.uniform(0, 0.02))
        kill(process)
        kills += process.returncode == -9
        asked = bench.asked(seen)
        assert not fingerprints(asked) & kept, "what was on disk was asked again"
        seen += len(asked)
        journals = list((tmp_path / "killed").glob(f"*/{FILE_NAME}"))
        kept = committed(journals[0].parent) if journals else set()
    last = bench.finish(command)
    assert last.returncode == 0, last.stderr
    assert not fingerprints(bench.asked(seen)) & kept
    assert kills >= KILLS - 1, "the last one may come too late on a busy machine"
    assert contents(bench.run_folder("killed")) == expected
    assert len(bench.asked_times()) == total


def test_rounds_that_fail_for_a_while_are_asked_when_the_command_is_repeated(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    options = [str(write_guessing(tmp_path, 12, helpers=SIX_ROUNDS)), "--no_cache"]
    assert bench.finish(bench.command(*options, "--output_path", "whole", window=WINDOW)).returncode == 0
    expected = contents(bench.run_folder("whole"))
    bench.broken.touch()
    command = bench.command(*options, "--output_path", "mended", window=WINDOW)
    broken = bench.finish(command)
    assert broken.returncode == 1 and "Traceback" not in broken.stderr
    kept = committed(bench.run_folder("mended"))
    bench.broken.unlink()
    seen = len(bench.asked())
    assert bench.finish(command).returncode == 0
    assert contents(bench.run_folder("mended")) == expected
    assert not fingerprints(bench.asked(seen)) & kept
