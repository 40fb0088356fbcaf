"""What the guide shows works: its task is a task, its keys are all there are."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import yaml

from assay.core.records.specs import MetricSpec
from assay.scoring.judges import JUDGES
from assay.scoring.judges.spec import JUDGE_KEYS, parse_judge
from assay.scoring.scorer import Scorer
from assay.tasks.files.task_loader import load_task

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "judges.md").read_text("utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_task_that_is_shown_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "my_essays.yaml"
    path.write_text(BLOCKS[0], "utf-8")
    (jury,) = Scorer.from_spec(load_task(path)).panels
    assert jury.spec.metric == "correct"


def test_the_metrics_that_are_shown_are_read() -> None:
    for entry in yaml.safe_load(BLOCKS[1])["metric_list"]:
        parse_judge(MetricSpec(metric=entry["metric"], arguments={"judge": entry["judge"]}), "guide")


def test_every_key_and_every_kind_is_told() -> None:
    table = GUIDE.partition("## Keys")[2].partition("\n## ")[0]
    told = {
        key
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for key in re.findall(r"`(\w+)`", row)
    }
    own = {name for kind in JUDGES.names() for name in inspect.signature(JUDGES.get(kind)).parameters}
    assert told == {*JUDGE_KEYS, *own} - {"where"}
    assert all(f"| `{kind}` |" in GUIDE for kind in JUDGES.names())
