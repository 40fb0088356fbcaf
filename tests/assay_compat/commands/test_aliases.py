"""The distribution in `aliases/`, installed and used like lm-eval and lmms-eval."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.making_media import make_png

ROOT = Path(__file__).parents[3]
ALIASES = ROOT / "aliases" / "src"
SHARED = Path(os.environ.get("ASSAY_SHARED", ROOT.parent / "shared"))
GUIDE = "Adding a New Task/Benchmark"

YAML = """
task: my_task
dataset_path: my-org/my-dataset
test_split: test
output_type: generate_until
doc_to_messages: !function utils.messages
doc_to_target: answer
process_results: !function utils.judge
metric_list: [{metric: accuracy, aggregation: !function utils.mean, higher_is_better: true}]
"""
UTILS = """
def messages(doc, lmms_eval_specific_kwargs=None):
    picture = {"type": "image", "url": doc["image"].convert("RGB")}
    return [{"role": "user", "content": [picture, {"type": "text", "text": doc["question"]}]}]


def judge(doc, results):
    return {"accuracy": float(results[0].strip() == doc["answer"])}


def mean(results):
    return sum(results) / len(results)
"""


def run(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ALIASES), os.environ.get("PYTHONPATH", ""), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "ASSAY_DATA": "data", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=workspace, env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


def write_data(workspace: Path) -> None:
    """`my-org/my-dataset` with pictures, as the hub keeps it."""
    datasets = pytest.importorskip("datasets")
    rows = [
        {
            "question": "What shape?",
            "answer": "circle",
            "options": ["circle", "square"],
            "image": {"bytes": make_png(), "path": None},
        }
    ] * 3
    folder = workspace / "data" / "my-org" / "my-dataset" / "data"
    folder.mkdir(parents=True)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    made = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    made.to_parquet(str(folder / "test-00000-of-00001.parquet"))


def guide_blocks() -> tuple[str, str, str]:
    """The YAML file, the helper file and the command of the guide, exactly as printed."""
    for path in sorted((SHARED / "seeds").glob("*.txt")) if SHARED.is_dir() else ():
        text = path.read_text("utf-8")
        if GUIDE in text.split("##")[0]:
            yaml = re.search(r"```yaml\n(task: \"my_task\"\n.*?)```", text, re.S)
            code = re.search(r"utils.py`:\n\n```python\n(.*?)```", text, re.S)
            command = re.search(r"```bash\n(python -m lmms_eval .*?)\n", text)
            assert yaml and code and command
            return yaml[1], code[1], command[1]
    pytest.skip("the guide is not here (ASSAY_SHARED)")


@pytest.mark.parametrize("source", ["the guide", "our own"])
def test_a_new_task_runs_with_the_command_of_the_guide(workspace: Path, source: str) -> None:
    yaml, code, command = (
        guide_blocks()
        if source == "the guide"
        else (YAML, UTILS, "python -m lmms_eval --model qwen2_5_vl --tasks my_task --limit 8 --batch_size 1")
    )
    pytest.importorskip("loguru")
    write_data(workspace)
    folder = workspace / "lmms_eval" / "tasks" / "my_task"
    folder.mkdir(parents=True)
    (folder / "my_task.yaml").write_text(yaml)
    (folder / "utils.py").write_text(code)
    words = command.replace("qwen2_5_vl", "embedded").split()[2:]
    done = run(workspace, *words)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\|my_task\|.*\|accuracy\|↑ ", done.stdout), done.stdout


def test_commands_print_the_table_and_write_the_files_of_the_harness(workspace: Path) -> None:
    words = ["--model", "embedded", "--tasks", "quickstart_copy", "--limit", "2", "--output_path", "out"]
    done = run(workspace, "lmms_eval", *words, "--log_samples")
    assert done.returncode == 0, done.stderr
    assert "|     Tasks     |Version|Filter|n-shot|  Metric   |" in done.stdout, done.stdout
    names = [re.sub(r"\d{8}_\d{6}", "DATE", path.name) for path in (workspace / "out").rglob("2*")]
    assert {"DATE_results.json", "DATE_samples_quickstart_copy.jsonl"} <= set(names)


def test_functions_have_upstream_names(workspace: Path) -> None:
    script = (
        "import json, lm_eval\n"
        "from lm_eval.tasks import TaskManager\n"
        "from lmms_eval.evaluator import simple_evaluate\n"
        "one = lm_eval.simple_evaluate(model='embedded', tasks=['quickstart_addition'], limit=2, task_manager=TaskManager())\n"
        "two = simple_evaluate('embedded', tasks=['quickstart_addition'], limit=2)\n"
        "print(json.dumps([found['results']['quickstart_addition']['exact_match,get-sum'] for found in (one, two)]))\n"
    )
    (workspace / "script.py").write_text(script)
    done = run(workspace, "script")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [1.0, 1.0]


def test_user_error_has_assay_format(workspace: Path) -> None:
    done = run(workspace, "lm_eval", "--modle", "embedded")
    assert done.returncode == 2
    assert "error: unrecognized arguments: --modle embedded" in done.stderr and "Traceback" not in done.stderr


def test_helpers_can_import_lm_eval_with_aliases(workspace: Path) -> None:
    folder = workspace / "tasks"
    folder.mkdir()
    (folder / "own.py").write_text(
        "from lm_eval.api.filter import Filter\nfrom lm_eval.utils import eval_logger\n\n\ndef text(doc):\n    assert Filter\n    return doc['q']\n"
    )
    (folder / "rows.jsonl").write_text('{"q": "2 + 3 =", "a": "5"}\n')
    (folder / "own.yaml").write_text(
        "task: own\ndataset_path: json\ndataset_kwargs: {data_files: tasks/rows.jsonl}\ntest_split: train\n"
        "doc_to_text: !function own.text\ndoc_to_target: a\noutput_type: generate_until\nmetric_list: [{metric: exact_match}]\n"
    )
    done = run(workspace, "lm_eval", "--model", "embedded", "--tasks", "own", "--include_path", "tasks")
    assert done.returncode == 0, done.stderr


def test_a_script_evaluates_its_own_model_and_prints_the_table(workspace: Path) -> None:
    script = (
        "import lm_eval\n"
        "from lm_eval.api.model import LM\n"
        "from lm_eval.tasks import TaskManager, get_task_dict\n"
        "from lm_eval.utils import make_table\n"
        "class Fixed(LM):\n"
        "    def generate_until(self, requests): return ['= 3' for one in requests]\n"
        "    def loglikelihood(self, requests): ...\n"
        "    def loglikelihood_rolling(self, requests): ...\n"
        "tasks = get_task_dict(['quickstart_addition'], TaskManager())\n"
        "results = lm_eval.evaluate(lm=Fixed(), task_dict=tasks, limit=2)\n"
        "print(lm_eval.__version__)\n"
        "print(make_table(results))\n"
    )
    (workspace / "script.py").write_text(script)
    done = run(workspace, "script")
    assert done.returncode == 0, done.stderr
    assert "|quickstart_addition|" in done.stdout and "|get-sum" in done.stdout


SUBMODULES = """
import lm_eval, lmms_eval
assert lm_eval.tasks.TaskManager and lm_eval.utils.make_table and lm_eval.models.huggingface.HFLM
assert lmms_eval.evaluator.simple_evaluate
assert not hasattr(lm_eval, "nothing")
assert lm_eval.api.model.LM and lmms_eval.api.model.lmms and not hasattr(lm_eval.api, "nothing")
from lmms_eval.entrypoints import AsyncEvalClient, EvalClient, JobScheduler, JobStatus, ServerArgs, launch_server
from lmms_eval.entrypoints.client import EvalClient as same_client
from lmms_eval.entrypoints.http_server import app
from lmms_eval.entrypoints.job_scheduler import JobScheduler as same_scheduler
from lmms_eval.entrypoints.protocol import EvaluateRequest
from lmms_eval.entrypoints.server_args import ServerArgs as same_args
from lmms_eval.launch_server import prepare_server_args
assert EvalClient is same_client and JobScheduler is same_scheduler and callable(app)
assert prepare_server_args(["--port", "8001"]) == same_args(port=8001) == ServerArgs(port=8001)
from lmms_eval.models.simple.qwen2_5_vl import Qwen2_5_VL
model = Qwen2_5_VL(pretrained="x/y", device="cpu")
print(model.name, model.arguments, model.options)
from assay.core.errors import MissingPackage
from assay_compat.models.registry import find_model
try:
    find_model("lm_eval/hf")
except MissingPackage as error:
    print(error)
"""


def test_scripts_import_modules_of_task_folders_that_a_variable_names(workspace: Path) -> None:
    folder = workspace / "unpacked" / "lm_eval" / "tasks" / "own_family"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text("VALUE = 3\n")
    (workspace / "script.py").write_text(
        "import os\nos.environ['ASSAY_TASKS'] = 'unpacked'\nfrom lm_eval.tasks.own_family import task\n"
        "from lm_eval.tasks import TaskManager\nprint(task.VALUE, task.__file__)\n"
        "import importlib.util\nassert importlib.util.find_spec('lm_eval.tasks.nothing') is None\n"
    )
    done = run(workspace, "script")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", str(folder / "task.py")]


def test_serve_reports_a_wrong_port(workspace: Path) -> None:
    for words in (["lmms_eval", "serve"], ["lmms_eval.launch_server"]):
        done = run(workspace, *words, "--port", "99999")
        assert done.returncode == 2, done.stderr
        assert "error: the port must be an integer from 1 to 65535, got 99999" in done.stderr
        assert "Traceback" not in done.stderr


def test_submodules_and_model_classes_have_the_import_locations_of_scripts(workspace: Path) -> None:
    pytest.importorskip("starlette")
    (workspace / "script.py").write_text(SUBMODULES)
    found = run(workspace, "script")
    assert found.returncode == 0, found.stderr
    first, second, *_ = found.stdout.splitlines()
    assert first == "qwen2_5_vl {'pretrained': 'x/y'} {'device': 'cpu'}"
    assert "the model `lm_eval/hf` needs the package `lm_eval`" in second
