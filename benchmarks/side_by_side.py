"""Compare the results of lm_eval and Assay on real tasks with the same model.

    python benchmarks/side_by_side.py --data_root HUB --task_root LM_EVAL [--limit 20] [--record FILE]

Runs lm_eval 0.4.13 in a separate environment and Assay in this one, both with Assay's embedded model, on datasets laid out as on
the hub. Prints every number of both and whether they agree to 1e-9. `--record` stores the numbers of lm_eval for a test that
does not need lm_eval.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from measurements import Goal, Measurement, Report, add_json_option
from peers import measure_script, require_peer

TASKS = (
    "gsm8k", "gsm8k_cot_self_consistency", "arc_easy", "hellaswag", "mmlu", "truthfulqa_mc2", "boolq", "lambada_openai",
    "wikitext", "ifeval", "bbh_cot_zeroshot", "winogrande", "arc_challenge", "openbookqa",
)  # fmt: skip

THEIRS = """
import asyncio, json, logging, os, sys
from pathlib import Path
import datasets
import lm_eval
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
logging.disable(logging.WARNING)
tasks, limit, root, source = sys.argv[1].split(","), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
sys.path.insert(0, source)
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, RollingLikelihood, Settings
from assay.models.embedded import EmbeddedModel

real_load = datasets.load_dataset
def load_dataset(path, name=None, **kwargs):
    for folder in (root / path, root / "bare" / path):
        if folder.is_dir():
            return real_load(str(folder), name, **kwargs)
    return real_load(path, name, **kwargs)
datasets.load_dataset = load_dataset

class Embedded(LM):
    def __init__(self):
        super().__init__()
        self.model = EmbeddedModel()
    def ask(self, requests):
        async def answers():
            await self.model.open()
            return {o.request_id: o async for o in self.model.answer(requests)}
        found = asyncio.run(answers())
        return [found[r.id].value for r in requests]
    def loglikelihood(self, requests, **kwargs):
        converted = [Likelihood(task="", document=0, prompt=Prompt.of_text(r.args[0]), continuation=r.args[1]) for r in requests]
        return [(v.total, v.greedy) for v in self.ask(converted)]
    def loglikelihood_rolling(self, requests, **kwargs):
        converted = [RollingLikelihood(task="", document=0, prompt=Prompt.of_text(r.args[0])) for r in requests]
        return [v.total for v in self.ask(converted)]
    def generate_until(self, requests, **kwargs):
        seen, converted = {}, []
        for r in requests:
            repeat = seen[id(r)] = seen.get(id(r), -1) + 1
            converted.append(Generate(task="", document=0, repeat=repeat, prompt=Prompt.of_text(r.args[0]), settings=Settings(r.args[1])))
        return self.ask(converted)

manager, found = TaskManager(), {}
for task in tasks:
    results = lm_eval.simple_evaluate(model=Embedded(), tasks=[task], task_manager=manager, limit=limit, bootstrap_iters=1000)
    numbers = {name: {k: v for k, v in entry.items() if "," in k} for name, entry in results["results"].items()}
    found[task] = {"results": numbers, "n-shot": results["n-shot"]}
print(json.dumps(found))
"""

OURS = """
import json, sys
import assay
found = {}
for task in sys.argv[1].split(","):
    run = assay.run(tasks=[task], limit=int(sys.argv[2]), data_root=sys.argv[3], include_path=[sys.argv[4]],
                    output_path=sys.argv[5], log_samples=False, no_cache=True, bootstrap_iters=1000)
    found[task] = {"results": run.results, "n-shot": {name: facts["n_shot"] for name, facts in run.tasks.items()}}
print(json.dumps(found))
"""


def is_same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
    return bool(ours == theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_root", type=Path, required=True)
    parser.add_argument("--task_root", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--record", type=Path)
    add_json_option(parser)
    options = parser.parse_args()
    report = Report(options.json)
    source = str(Path(__file__).resolve().parent.parent / "src")
    words = (",".join(options.tasks), str(options.limit), str(options.data_root.resolve()))
    with tempfile.TemporaryDirectory() as name:
        folder, offline = Path(name), {"HF_HUB_OFFLINE": "1", "HF_HOME": name}
        theirs = measure_script(require_peer("lm_eval"), THEIRS, *words, source, cwd=folder, **offline)
        ours = measure_script(
            sys.executable, OURS, *words, str(options.task_root.resolve()), name, cwd=folder, **offline
        )
    different = 0
    for task in options.tasks:
        numbers, apart = compare(task, ours[task]["results"], theirs[task]["results"])
        different += apart
        what = f"{task}, {options.limit} documents per task: numbers that differ"
        details = {"numbers compared": numbers, "tasks and groups": len(theirs[task]["results"])}
        report.add(Measurement(what=what, ours=apart, unit="numbers", goal=Goal(most=0), details=details))
    print(f"{different} numbers differ")
    if options.record:
        recorded = {"limit": options.limit, "tasks": {task: theirs[task] for task in options.tasks}}
        options.record.write_text(json.dumps(recorded, indent=1))


def compare(task: str, ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[int, int]:
    """Return how many numbers lm_eval reports, and how many of them differ."""
    numbers = different = 0
    for name, entry in theirs.items():
        for key, value in entry.items():
            mine = ours.get(name, {}).get(key)
            agrees = is_same(mine, value)
            numbers, different = numbers + 1, different + (not agrees)
            if not agrees or name == task:
                print(f"{'same' if agrees else 'DIFFERENT':<10} {name:<40} {key:<36} {mine!s:<24} {value}")
    return numbers, different


if __name__ == "__main__":
    main()
