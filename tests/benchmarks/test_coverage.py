from __future__ import annotations

from benchmarks.coverage import format_rows, simulate_rows


def test_every_interval_test_and_promise_is_simulated() -> None:
    rows = simulate_rows(20)
    assert {row.kind for row in rows} == {
        "mean", "corpus", "clusters", "group", "calibrate", "type I error", "power", "stop_when",
    }  # fmt: skip
    assert all(0 <= row.share <= 1 for row in rows)
    assert len(format_rows(rows, 20, 1.0).splitlines()) == len(rows) + 8 - 1
