from __future__ import annotations

from benchmarks.coverage import HELD_OUT_FAMILIES, LATER_FAMILIES, format_rows, simulate_rows
from benchmarks.width_bounds import Bound


def test_every_interval_test_and_promise_is_simulated() -> None:
    rows = simulate_rows(20)
    assert {row.kind for row in rows} == {
        "mean", "corpus", "clusters", "group", "calibrate", "difference", "type I error", "power", "stop_when",
    }  # fmt: skip
    assert all(0 <= row.share <= 1 for row in rows)
    assert {row.kind for row in rows if row.best} == {"mean", "corpus", "clusters", "group"}
    assert {row.name for row in rows if row.table == "held out"} >= set(HELD_OUT_FAMILIES)
    later = {row.name for row in rows if row.table == "later"}
    assert later >= set(LATER_FAMILIES)
    assert any("smollm2" in name for name in later)
    bound = Bound(width=1.0, error=0.1, multipliers=(1.0,))
    titles = ("losses, 5", "losses, 10", "unlimited, 5")
    page = format_rows(rows, 20, 1.0, dict.fromkeys(titles, (bound, bound)))
    assert page.count("at least 1.00 ± 0.10 wide") == 6
    summary, _, rest = page.partition("## One method for all rows")
    methods, _, tables = rest.partition("## Families used for tuning")
    assert "coverage, error rates and power met in" in summary
    assert tables.count("\n| ") == len(rows) + 3
    assert methods.count("| Assay |") == 4
    names = {name for row in rows for name in row.references}
    assert all(f"| {name} |" in methods for name in names)
    assert page.index("## Families used for tuning") < page.index("## Held-out families")
