"""Class tasks of lm_eval and lmms_eval."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.making import make_model, plan_run

import assay
from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import LogProbability
from assay.core.records.specs import TaskSpec
from assay.tasks.data.rows import Rows
from assay.tasks.files.index import TaskIndex
from assay.tasks.files.selection import select_tasks
from assay.tasks.files.task_loader import load_task
from assay.tasks.task import RenderingOptions, Task, open_task
from assay_compat.class_task_config import TaskConfig
from assay_compat.lm_eval_class_task import Context

CAPITALS = [
    {"country": "France", "capital": "Paris", "others": ["Lyon", "Nice"]},
    {"country": "Peru", "capital": "Lima", "others": ["Cusco", "Puno"]},
    {"country": "Chad", "capital": "", "others": ["Moundou", "Sarh"]},
]

ASKING_TWICE = """
    from lm_eval.api.instance import Instance
    from lm_eval.api.metrics import mean
    from lm_eval.api.task import ConfigurableTask

    class Capitals(ConfigurableTask):
        VERSION = 3
        DATASET_PATH = "json"

        def __init__(self, config=None):
            super().__init__(config={"metadata": {"version": self.VERSION}, "dataset_kwargs": config["files"]})

        def has_training_docs(self): return False
        def has_validation_docs(self): return True
        def has_test_docs(self): return False
        def validation_docs(self): return self.dataset["validation"]
        def doc_to_text(self, doc): return f"The capital of {doc['country']} is"
        def doc_to_target(self, doc): return doc["capital"] or "unknown"

        def construct_requests(self, doc, ctx, chat_template=None, apply_chat_template=False, **kwargs):
            return [
                Instance("generate_until", doc, (ctx, {"until": ["."]}), 0, **kwargs),
                Instance("loglikelihood", doc, (ctx + " not", " known"), 0, **kwargs),
            ]

        def process_results(self, doc, results):
            text, (logprob, greedy) = results
            return {"right": float(doc["capital"] == text), "doubt": (logprob, greedy)}

        def aggregation(self): return {"right": mean, "doubt": lambda items: min(one for one, _ in items)}
        def higher_is_better(self): return {"right": True, "doubt": False}
"""

BY_CONFIG = """
    from lm_eval.api.task import ConfigurableTask

    class Polite(ConfigurableTask):
        def __init__(self, config=None):
            super().__init__(config={
                "dataset_path": "json", "dataset_kwargs": config["files"], "validation_split": "validation",
                "output_type": "multiple_choice", "doc_to_text": "{{country}}?", "doc_to_target": 0,
                "doc_to_choice": "{{[capital] + others}}", "target_delimiter": " ",
                "metric_list": [{"metric": "acc"}],
            })

        def doc_to_text(self, doc):
            return "Please: " + super().doc_to_text(doc)
"""


def write_class(folder: Path, code: str, name: str, **keys: Any) -> Path:
    (folder / "task.py").write_text(dedent(code), "utf-8")
    data = folder / "capitals.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in CAPITALS), "utf-8")
    lines = [f"task: {name.lower()}", f"class: !function task.{name}"]
    lines += [
        f"{key}: {json.dumps(value)}"
        for key, value in {"files": {"data_files": {"validation": str(data)}}, **keys}.items()
    ]
    path = folder / f"{name.lower()}.yaml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def load_and_open(path: Path, **rendering: Any) -> Task:
    return open_task(load_task(path), RenderingOptions(**rendering))


def test_class_methods_build_the_requests(tmp_path: Path) -> None:
    task = load_and_open(write_class(tmp_path, ASKING_TWICE, "Capitals"))
    (_, requests), *_ = task.render()
    first, second = requests
    assert isinstance(first, Generate) and isinstance(second, Likelihood)
    assert (first.prompt.text, dict(first.settings.values)) == ("The capital of France is", {"until": ["."]})
    assert (second.prompt.text, second.continuation) == ("The capital of France is not", " known")
    assert (first.index, second.index, len(task)) == (0, 1, 3)
    assert (task.spec.version, task.spec.evaluated_split) == (3, "validation")


def test_class_methods_score_the_run(tmp_path: Path, workspace: Path) -> None:
    path = write_class(tmp_path, ASKING_TWICE, "Capitals")

    def answer(request: Request) -> str | LogProbability:
        if isinstance(request, Likelihood):
            return LogProbability(-2.5, True)
        return "Paris" if "France" in request.prompt.text else "somewhere"

    model = make_model(answer)
    run = assay.run(model=model, tasks=[str(path)])
    numbers = run.results["capitals"]
    assert numbers["right,none"] == pytest.approx(1 / 3)
    assert numbers["right_stderr,none"] == pytest.approx(1 / 3)
    assert (numbers["doubt,none"], numbers["doubt_stderr,none"]) == (-2.5, "N/A")


def test_fewshot_examples_and_chat_template_are_applied(tmp_path: Path) -> None:
    path = write_class(tmp_path, ASKING_TWICE, "Capitals", num_fewshot=1)
    (_, (request, second)), *_ = load_and_open(
        path, chat=True, multiturn=True, system_instruction="Be brief.", gen_kwargs={"temperature": 1.0}
    ).render()
    assert isinstance(request, Generate)
    roles = [message.role for message in request.prompt.messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert request.prompt.messages[-1].text == "The capital of France is"
    assert second.prompt.messages[-1].text == "The capital of France is not"
    assert request.settings.temperature == 1.0


def test_config_supplies_missing_methods(tmp_path: Path) -> None:
    task = load_and_open(write_class(tmp_path, BY_CONFIG, "Polite"))
    (document, requests), *_ = task.render()
    assert [request.continuation for request in requests if isinstance(request, Likelihood)] == [
        " Paris",
        " Lyon",
        " Nice",
    ]
    assert requests[0].prompt.text == "Please: France?"
    assert task.spec.process_results is not None
    assert task.spec.process_results(document.fields, [(-1.0, True), (-2.0, False), (-3.0, False)]) == {
        "acc": 1.0
    }
    assert [(metric.name, metric.higher_is_better) for metric in task.spec.metrics] == [("acc", True)]


def test_given_splits_replace_the_download(tmp_path: Path) -> None:
    path = write_class(tmp_path, ASKING_TWICE, "Capitals", files={})
    task = open_task(
        load_task(path),
        RenderingOptions(limit=1),
        {"validation": Rows([{"country": "Mali", "capital": "Bamako"}])},
    )
    assert [requests[0].prompt.text for _, requests in task.render()] == ["The capital of Mali is"]


def test_data_is_downloaded_on_first_access(tmp_path: Path) -> None:
    code = ASKING_TWICE + "\n        def download(self, *a, **k): raise RuntimeError('no network')\n"
    task = load_and_open(write_class(tmp_path, code, "Capitals"))
    assert task.spec.version == 3
    with pytest.raises(RuntimeError, match="no network"):
        len(task)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ("raise ValueError('recipe?')", TaskError, "failed: ValueError: recipe"),
        ("import not_there_at_all", MissingPackage, "not_there_at_all"),
    ],
)
def test_failing_class_is_reported_in_the_plan(
    tmp_path: Path, workspace: Path, change: str, error: type[AssayError], words: str
) -> None:
    code = ASKING_TWICE.replace("super().__init__(", f"{change}\n            super().__init__(", 1)
    with pytest.raises(AssayError) as caught:
        plan_run(make_model(), tasks=[str(write_class(tmp_path, code, "Capitals"))])
    assert words in str(caught.value)


def test_other_class_is_rejected(tmp_path: Path) -> None:
    path = write_class(tmp_path, "class Other: ...\n", "Other")
    with pytest.raises(TaskError, match="is not a task class"):
        load_and_open(path)


def test_class_of_the_installed_lm_eval_is_rejected(tmp_path: Path) -> None:
    code = "class Base: ...\nBase.__module__ = 'lm_eval.api.task'\n\nclass Real(Base): ...\n"
    with pytest.raises(TaskError, match="derives from the installed lm_eval"):
        load_and_open(write_class(tmp_path, code, "Real"))


def test_class_without_documents_is_rejected(tmp_path: Path) -> None:
    code = ASKING_TWICE.replace(
        "def has_validation_docs(self): return True", "def has_validation_docs(self): return False"
    )
    with pytest.raises(TaskError, match="neither test nor validation"):
        load_and_open(write_class(tmp_path, code, "Capitals")).spec  # noqa: B018


def test_class_must_be_a_reference(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("task: t\nclass: task.Mine\n", "utf-8")
    with pytest.raises(TaskError, match="`class` must name a class"):
        load_task(tmp_path / "t.yaml")


def test_chat_template_keeps_messages(tmp_path: Path) -> None:
    code = (
        ASKING_TWICE
        + """
        def fewshot_context(self, doc, **kwargs):
            if kwargs.get("apply_chat_template"):
                return kwargs["chat_template"]([{"role": "user", "content": "Hello " + doc["country"]}])
            return super().fewshot_context(doc=doc, **kwargs)
    """
    )
    path = write_class(tmp_path, code, "Capitals")
    (_, (request, _)), *_ = load_and_open(path, chat=True).render()
    assert request.prompt == Prompt((Message("user", (Text("Hello France"),)),), chat=True)
    (_, (plain, _)), *_ = load_and_open(path).render()
    assert plain.prompt.text == "The capital of France is"


def test_images_are_placed_as_in_the_text(tmp_path: Path) -> None:
    code = (
        ASKING_TWICE.replace(
            '(ctx, {"until": ["."]})', '(ctx, {"until": ["."]}, {"visual": [self.picture()]})'
        ).replace('f"The capital', 'f"<image>The capital')
        + """
        def picture(self):
            from PIL import Image
            return Image.new("RGB", (2, 2))
    """
    )
    (_, (request, _)), *_ = load_and_open(write_class(tmp_path, code, "Capitals")).render()
    assert [type(part).__name__ for part in request.prompt.messages[0].parts] == ["Image", "Text"]


def test_text_added_to_a_context_belongs_to_its_last_message() -> None:
    prompt = Prompt((Message("system", (Text("S"),)), Message("user", (Text("Q"),))), chat=True)
    longer = Context.of(prompt) + "!"
    assert (str(longer), longer.prompt.messages[-1].text) == ("SQ!", "Q!")


def test_config_has_all_task_keys_only() -> None:
    config = TaskConfig({"task": "t"}, fewshot_delimiter="\n")
    config.num_fewshot = 2
    assert (config["num_fewshot"], config.repeats, config.metadata) == (2, 1, None)
    assert config.generation_kwargs["until"] == ["\n"]
    assert config.to_dict()["task"] == "t"
    with pytest.raises(AttributeError):
        config.numfewshot  # noqa: B018
    with pytest.raises(KeyError):
        config["numfewshot"]


def test_task_without_class_is_not_a_class_task(tmp_path: Path) -> None:
    spec = TaskSpec(name="t", dataset_path="x", test_split="test")
    assert type(open_task(spec)) is Task


# --- lmms-eval ----------------------------------------------------------------------------------------

OWN_DATA = """
    from lmms_eval.api.task import ConfigurableTask

    class Capitals(ConfigurableTask):
        def __init__(self, *args, config=None, **kwargs):
            super().__init__(*args, config=config, **kwargs)

        def download(self, dataset_kwargs=None):
            rows = [{"country": "Peru", "capital": dataset_kwargs["capital"]}]
            self.dataset = {self.config.test_split: self.config.process_docs(rows)}

    class Stock(ConfigurableTask):
        pass

    def process(rows):
        from assay.tasks.data.rows import Rows
        return Rows({**row, "country": row["country"].upper()} for row in rows)

    def text(doc, keywords):
        return doc["country"] + keywords["post"]

    def nothing(doc):
        return []
"""


def lmms_yaml(tmp_path: Path, kind: str, **more: Any) -> Path:
    (tmp_path / "utils.py").write_text(dedent(OWN_DATA), "utf-8")
    (tmp_path / "rows.jsonl").write_text('{"country": "Chad", "capital": "N\'Djamena"}\n', "utf-8")
    path = tmp_path / "capitals.yaml"
    path.write_text(
        dedent(
            f"""
            task: capitals
            class: !function utils.{kind}
            dataset_path: json
            dataset_kwargs: {json.dumps(more)}
            test_split: test
            output_type: generate_until
            process_docs: !function utils.process
            doc_to_visual: !function utils.nothing
            doc_to_text: !function utils.text
            doc_to_target: capital
            lmms_eval_specific_kwargs: {{default: {{post: "?"}}}}
            """
        ),
        "utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("kind", "more", "asked", "target"),
    [
        ("Capitals", {"capital": "Lima"}, "PERU?", "Lima"),
        ("Stock", {"data_files": {"test": "rows.jsonl"}}, "CHAD?", "N'Djamena"),
    ],
)
def test_lmms_eval_class_supplies_the_data(
    tmp_path: Path, kind: str, more: dict[str, Any], asked: str, target: str
) -> None:
    task = open_task(load_task(lmms_yaml(tmp_path, kind, **more)), RenderingOptions())
    [(document, [request])] = task.render()
    assert request.prompt.text == asked
    assert task.target(document.fields) == target


def test_lmms_eval_class_does_not_know_the_model(tmp_path: Path) -> None:
    path = lmms_yaml(tmp_path, "Stock", data_files={"test": "rows.jsonl"})
    text = path.read_text("utf-8").replace(
        '{default: {post: "?"}}', '{default: {post: "?"}, seer: {post: "!"}}'
    )
    path.write_text(text, "utf-8")
    [(_, [request])] = open_task(load_task(path), RenderingOptions(model_name="seer")).render()
    assert request.prompt.text == "CHAD?"


def test_error_of_an_lmms_eval_class_has_a_location(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="the class of the task `capitals` failed: KeyError"):
        open_task(load_task(lmms_yaml(tmp_path, "Capitals")), RenderingOptions())


def test_an_instance_ignores_arguments_that_older_tasks_pass_on() -> None:
    from assay_compat.shims.lm_eval.api.instance import Instance

    made = Instance(
        request_type="generate_until",
        doc={},
        arguments=("q", {}),
        idx=0,
        metadata=("t", 3, 1),
        apply_chat_template=False,
        chat_template=None,
    )
    assert (made.task_name, made.doc_id, made.args) == ("t", 3, ("q", {}))


REGISTERED = """
    from lm_eval.api.instance import Instance
    from lm_eval.api.metrics import mean
    from lm_eval.api.registry import register_task
    from lm_eval.api.task import Task

    @register_task("registered")
    class Capitals(Task):
        VERSION = 2
        DATASET_PATH = "capitals"

        def has_validation_docs(self): return True
        def validation_docs(self): return self.dataset["validation"]
        def doc_to_text(self, doc): return doc["country"] + "?"
        def doc_to_target(self, doc): return " " + doc["capital"]
        def construct_requests(self, doc, ctx, **kwargs):
            return Instance(request_type="loglikelihood", doc=doc, arguments=(ctx, " x"), idx=0, **kwargs)
        def process_results(self, doc, results): return {"acc": results[0][0]}
        def aggregation(self): return {"acc": mean}
        def higher_is_better(self): return {"acc": True}
"""


def test_a_registered_class_of_lm_eval_0_4_0_asks_its_requests(tmp_path: Path) -> None:
    folder = tmp_path / "lm_eval" / "tasks"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from lm_eval.api.registry import GROUP_REGISTRY\n")
    (folder / "task.py").write_text(dedent(REGISTERED))
    spec = select_tasks(["registered"], TaskIndex.build([folder])).tasks["registered"]
    task = open_task(spec, RenderingOptions(), {"validation": Rows(CAPITALS)})
    asked = [request for _, requests in task.render() for request in requests]
    assert [request.prompt.text for request in asked] == [f"{row['country']}?" for row in CAPITALS]
    assert task.spec.metadata["version"] == 2
