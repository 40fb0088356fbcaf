"""The notes below a table of results."""

from __future__ import annotations

from pathlib import Path

from tests.making import write_choices

import assay
from assay.viewer.results.notes import format_group_notes


def test_a_metric_that_some_tasks_of_a_group_lack_is_a_warning(tmp_path: Path) -> None:
    write_choices(tmp_path, "first")
    write_choices(tmp_path, "second", metric_list=[{"metric": "acc_norm"}])
    path = tmp_path / "both.yaml"
    path.write_text("group: both\ntask: [first, second]\naggregate_metric_list: [{metric: acc}]\n")
    run = assay.run(model="oracle", tasks=[str(path)], no_cache=True, output_path=str(tmp_path / "out"))
    assert format_group_notes(run) == ["warning: both: acc (none) is missing in 1 of 2 tasks: second"]
    assert "acc (none) is missing in 1 of 2 tasks" in run.table()
