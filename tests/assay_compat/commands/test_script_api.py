from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task

from assay.core.errors import InvalidOption, MissingPackage, UnknownName
from assay_compat.commands.evaluator_config import EvaluatorConfig
from assay_compat.commands.model_references import HFLM, VLLM
from assay_compat.commands.script_api import TaskManager, evaluate, get_task_dict, simple_evaluate
from assay_compat.lm_eval_task_bases import ConfigurableTask

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)]


class Adder:
    """A model as people write one for lm-eval."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def generate_until(self, requests: list[Any]) -> list[str]:
        self.asked += requests
        return [str(int(one.args[0].split()[-4]) + 1) for one in requests]

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        return [(-float(len(one.args[1])), False) for one in requests]


def test_the_results_have_the_keys_scripts_read(workspace: Path) -> None:
    results = simple_evaluate(
        model="embedded",
        model_args="",
        tasks=["quickstart_addition"],
        limit=3,
        batch_size=1,
        verbosity="INFO",
    )
    assert results["results"]["quickstart_addition"]["exact_match,get-sum"] == 1.0
    assert {
        "results",
        "configs",
        "versions",
        "n-shot",
        "higher_is_better",
        "n-samples",
        "config",
        "samples",
    } <= results.keys()
    samples = results["samples"]["quickstart_addition"]
    assert [sample["doc_id"] for sample in samples] == [0, 1, 2]
    assert "samples" not in simple_evaluate(
        "embedded", tasks="quickstart_addition", limit=3, log_samples=False
    )


def test_object_with_lm_eval_methods_is_a_model(workspace: Path) -> None:
    write_task(workspace / "tasks", "sums", ROWS)
    model = Adder()
    results = simple_evaluate(
        model, tasks=["sums"], task_manager=TaskManager(include_path=str(workspace / "tasks"))
    )
    assert results["results"]["sums"]["exact_match,none"] == 1.0
    assert [(one.request_type, one.doc_id, one.task_name) for one in model.asked] == [
        ("generate_until", number, "sums") for number in range(4)
    ]
    assert isinstance(model.asked[0].args[1], dict)


def test_two_objects_never_share_answers(workspace: Path) -> None:
    task = str(write_task(workspace, "sums", ROWS))
    models = [Adder(), Adder()]
    for model in models:
        simple_evaluate(model, tasks=[task])
    assert [len(model.asked) for model in models] == [4, 4]


def test_likelihood_requests_call_loglikelihood(workspace: Path) -> None:
    task = write_task(
        workspace, "picks", [{"q": "Which?", "gold": 1}], output_type="multiple_choice", doc_to_text="{{q}}",
        doc_to_choice=["long one", "b"], doc_to_target="gold", metric_list=[{"metric": "acc"}], generation_kwargs=None,
    )  # fmt: skip
    assert simple_evaluate(Adder(), tasks=[str(task)])["results"]["picks"]["acc,none"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"model": "embedded"}, "missing argument: tasks"),
        ({"model": "embedded", "tasks": [5]}, "not int"),
        ({"model": "embedded", "tasks": [{"dataset_path": "x"}]}, "needs `task: NAME`"),
        ({"model": "embedded", "tasks": ["x"], "wrong": 1}, "unknown argument `wrong`"),
        ({"model": object(), "tasks": ["x"]}, "object is not a model"),
    ],
)
def test_invalid_arguments_are_reported(workspace: Path, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidOption, match=what):
        simple_evaluate(**arguments)


def test_tasks_are_listed_and_matched() -> None:
    manager = TaskManager()
    assert "quickstart_addition" in manager.all_tasks
    assert manager.match_tasks(["quickstart_add*"]) == ["quickstart_addition"]


# --- tasks that a script defines -----------------------------------------------------------------------


def ask(document: dict[str, Any]) -> str:
    return f"What is {document['question'].split()[2]} + 1 ?"


@pytest.fixture
def inline(workspace: Path) -> dict[str, Any]:
    """A task as a dictionary, with a function of the script."""
    write_task(workspace / "tasks", "sums", ROWS)
    return {
        "task": "inline_sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "tasks/sums.jsonl"}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": ask,
        "doc_to_target": "answer",
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }


def test_a_task_may_be_a_dictionary_with_functions(inline: dict[str, Any], workspace: Path) -> None:
    results = simple_evaluate(
        Adder(), tasks=[inline, {"task": "quickstart_addition", "num_fewshot": 2}], limit=3
    )
    assert results["results"]["inline_sums"]["exact_match,none"] == 1.0
    assert results["samples"]["inline_sums"][0]["arguments"][0][0] == "What is 0 + 1 ?"
    assert results["n-shot"] == {"inline_sums": 0, "quickstart_addition": 2}
    again = simple_evaluate(Adder(), tasks=[inline], limit=3)
    assert again["results"]["inline_sums"] == results["results"]["inline_sums"]


def test_task_objects_have_documents_and_configuration_and_can_be_changed(
    inline: dict[str, Any], workspace: Path
) -> None:
    manager = TaskManager(include_path=str(workspace / "tasks"))
    tasks = get_task_dict(["sums", "quickstart", inline], task_manager=manager)
    assert list(tasks["quickstart"])[:1] == ["quickstart_addition"]
    task = tasks["sums"]
    assert (task.config.output_type, task.get_config("test_split"), task.VERSION) == (
        "generate_until",
        "test",
        1.0,
    )
    assert task.has_test_docs() and not task.has_training_docs()
    assert [task.doc_to_target(row) for row in task.test_docs()] == [row["answer"] for row in task.eval_docs]
    del tasks["quickstart"]
    task.set_config("generation_kwargs", {"until": ["stop"]})
    results = evaluate(Adder(), task_dict=tasks, limit=2)
    assert results["samples"]["sums"][0]["arguments"][0][1] == {"until": ["stop"]}
    assert results["results"]["inline_sums"]["exact_match,none"] == 1.0


def test_loaded_tasks_are_evaluated_with_their_groups(workspace: Path) -> None:
    write_task(workspace / "tasks", "sums", ROWS)
    write_task(workspace / "tasks", "more", ROWS)
    group = "group: both\ntask: [sums, more]\naggregate_metric_list: [{metric: exact_match}]\n"
    (workspace / "tasks" / "both.yaml").write_text(group)
    manager = TaskManager(include_path=str(workspace / "tasks"), include_defaults=False)
    assert (manager.all_subtasks, manager.all_groups) == (["more", "sums"], ["both"])
    assert manager._get_config("both")["task"] == ["sums", "more"]
    assert "|both |" in manager.list_all_tasks()
    loaded = manager.load("both")
    assert list(loaded["tasks"]) == ["sums", "more"] and loaded["group_map"] == {"both": ["sums", "more"]}
    results = evaluate(Adder(), loaded, task_manager=manager)
    assert results["groups"]["both"]["exact_match,none"] == 1.0


def test_a_task_may_be_an_object_of_a_class(inline: dict[str, Any], workspace: Path) -> None:
    del inline["task"]

    class Sums(ConfigurableTask):
        def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> str:
            return str(doc["answer"])

    results = simple_evaluate(Adder(), tasks=[Sums(config={**inline, "task": "class_sums"})], limit=2)
    assert results["results"]["class_sums"]["exact_match,none"] == 1.0
    Sums.CONFIG = {**inline, "task": "class_itself"}
    tasks = get_task_dict([Sums], TaskManager())
    assert evaluate(Adder(), tasks, limit=2)["results"]["class_itself"]["exact_match,none"] == 1.0
    plain = simple_evaluate(Adder(), tasks=[ConfigurableTask(config={**inline, "task": "plain"})], limit=2)
    assert plain["results"]["plain"]["exact_match,none"] == 1.0


def test_the_configuration_of_an_evaluation_is_read_from_a_file(workspace: Path) -> None:
    path = workspace / "config.yaml"
    path.write_text("model: embedded\nmodel_args: a=1,b=x\ntasks: quickstart_c*,quickstart_facts\nlimit: 2\n")
    config = EvaluatorConfig.from_config(path)
    manager = config.process_tasks()
    assert (config.model_args, config.tasks) == ({"a": 1, "b": "x"}, ["quickstart_copy", "quickstart_facts"])
    results = simple_evaluate(config.model, tasks=config.tasks, limit=config.limit, task_manager=manager)
    assert list(results["results"]) == config.tasks
    path.write_text("modle: embedded\n")
    with pytest.raises(InvalidOption, match="unknown key `modle`"):
        EvaluatorConfig.from_config(path)


def test_a_model_class_without_the_package_stands_for_a_model() -> None:
    model = HFLM("gpt2", batch_size=16, dtype="float32")
    assert (model.name, model.arguments, model.options) == (
        "hf",
        {"pretrained": "gpt2", "dtype": "float32"},
        {"batch_size": 16},
    )
    assert VLLM.create_from_arg_string("pretrained=gpt2").arguments == {"pretrained": "gpt2"}
    with pytest.raises(InvalidOption, match="a name, a folder or a loaded model, not object"):
        HFLM(pretrained=object())
    with pytest.raises(InvalidOption, match="name or folder of a checkpoint"):
        VLLM(pretrained=object())


@pytest.mark.torch
def test_a_model_that_the_script_loaded_is_evaluated(workspace: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tests.models.hf.tiny_checkpoints import tiny_checkpoint

    folder = str(tiny_checkpoint())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options: dict[str, Any] = {"tasks": ["quickstart_facts", "quickstart_copy"], "limit": 2}
    expected = simple_evaluate("hf", f"pretrained={folder},dtype=float32", device="cpu", **options)
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2)
    assert (wrapped.model, wrapped.tokenizer) == (model, tokenizer)
    arguments = {"pretrained": model, "tokenizer": tokenizer}
    for results in (
        simple_evaluate(wrapped, device="cpu", **options),
        simple_evaluate("hf-auto", arguments, write_out=True, **options),
        evaluate(wrapped, get_task_dict(options["tasks"]), limit=2),
    ):
        assert results["results"] == expected["results"]
        responses = [one["resps"] for one in results["samples"]["quickstart_copy"]]
        assert responses == [one["resps"] for one in expected["samples"]["quickstart_copy"]]


def test_samples_have_numbers_and_tuples_as_in_memory_of_lm_eval(workspace: Path) -> None:
    task = write_task(
        workspace, "picks", [{"q": "Which?", "gold": 1}], output_type="multiple_choice", doc_to_text="{{q}}",
        doc_to_choice=["long one", "b"], doc_to_target="gold", metric_list=[{"metric": "acc"}], generation_kwargs=None,
    )  # fmt: skip
    (sample,) = simple_evaluate(Adder(), tasks=[str(task)])["samples"]["picks"]
    assert sample["arguments"] == [("Which?", " long one"), ("Which?", " b")]
    assert sample["resps"] == [[(-9.0, False)], [(-2.0, False)]]
    assert (sample["filtered_resps"], sample["target"]) == ([(-9.0, False), (-2.0, False)], 1)


def test_subclass_of_a_reference_that_overrides_a_method_is_an_error() -> None:
    class Small(HFLM):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(pretrained="gpt2", **arguments)

    assert Small(dtype="float32").arguments == {"pretrained": "gpt2", "dtype": "float32"}
    with pytest.raises(MissingPackage, match="`Changed` overrides `generate_until`"):

        class Changed(HFLM):
            def generate_until(self, requests: Any) -> list[str]:
                return []


def test_get_model_returns_a_class_that_scripts_create_from_arguments(workspace: Path) -> None:
    from assay_compat.shims.lm_eval.api.registry import get_model

    assert get_model("hf") is HFLM
    embedded = get_model("embedded").create_from_arg_string("", {"batch_size": 1})
    results = simple_evaluate(model=embedded, tasks=["quickstart_addition"], limit=2)
    assert results["results"]["quickstart_addition"]["exact_match,get-sum"] == 1.0
    with pytest.raises(UnknownName, match="embeded"):
        get_model("embeded")


@pytest.mark.parametrize(
    ("tags", "score"), [('[["<think>", "</think>"]]', 1.0), (None, 0.0), ('[["<r>", "</r>"]]', 0.0)]
)
def test_reasoning_is_removed_as_the_arguments_of_lmms_eval_say(
    workspace: Path, tags: str | None, score: float
) -> None:
    class Thinker(Adder):
        def generate_until(self, requests: list[Any]) -> list[str]:
            return [f"<think>so</think>{answer}" for answer in super().generate_until(requests)]

    path = write_task(workspace, rows=ROWS, dialect="lmms_eval")
    results = simple_evaluate(Thinker(), tasks=[str(path)], cli_args=Namespace(reasoning_tags=tags))
    assert results["results"]["sums"]["exact_match,none"] == score
