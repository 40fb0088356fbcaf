"""Responses per time step of a run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from assay.store.journal.journal import Journal
from assay.store.runs.run import Run
from assay.viewer.results.throughput import measure_throughput


def test_throughput_counts_every_response_and_excludes_pauses(tmp_path: Path) -> None:
    now = time.time()
    with_pause = [now + 5 * at for at in range(30)] + [now + 80_000 + 5 * at for at in range(30)]
    journal = Journal.open_for_writing(tmp_path)
    journal.set_facts({"started": now, "seconds": 300.0}).result()
    for number, at in enumerate(with_pause):
        row = [
            number + 1,
            f"mark{number}",
            "x",
            None,
            None,
            "cache" if number == 59 else "model",
            at,
            None,
            None,
        ]
        journal._submit(("INSERT INTO answered VALUES (?,?,?,?,?,?,?,?,?)", [tuple(row)])).result()
    journal.close()
    pace = measure_throughput(Run(tmp_path))
    assert pace is not None
    assert (sum(pace.model), sum(pace.cache), len(pace.pauses)) == (59, 1, 1)
    assert pace.pauses[0].seconds == pytest.approx(80_000 - 145, abs=2)
    assert pace.step_s * len(pace.model) < 400
