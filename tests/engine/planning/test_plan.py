"""Tests of `make_plan`: it reports all problems together and determines the run id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.making import ROWS, Function, make_model, plan_run, write_choices, write_task, write_texts

from assay.core.errors import (
    AssayError,
    DatasetError,
    ErrorGroup,
    InvalidOption,
    OutputError,
    TaskError,
    UnknownName,
    UnsupportedRequest,
)
from assay.engine.planning.cost_forecast import forecast_cost
from assay.testing import ScriptedModel


def problems(error: AssayError) -> list[AssayError]:
    return list(error.errors) if isinstance(error, ErrorGroup) else [error]


# --- what is wrong -------------------------------------------------------------------------------------


def test_every_problem_is_reported_at_once(workspace: Path) -> None:
    write_task(workspace / "tasks", "misspelt", metric_list=[{"metric": "exact_macth"}])
    write_task(workspace / "tasks", "wrong_column", doc_to_text="{{qestion}}")
    write_task(workspace / "tasks", "no_data", dataset_kwargs={"data_files": {"test": "gone.jsonl"}})
    (workspace / "file").write_text("in the way")
    with pytest.raises(ErrorGroup) as caught:
        plan_run(
            model_args={"wieghts": "x"},
            tasks=["misspelt", "wrong_column", "no_data"],
            include_path=["tasks"],
            output_path="file/results",
        )
    kinds = sorted(type(problem).__name__ for problem in caught.value.errors)
    assert kinds == ["DatasetError", "InvalidOption", "OutputError", "TaskError", "UnknownName"]


def test_all_unknown_names_are_reported_together(workspace: Path) -> None:
    with pytest.raises(ErrorGroup) as caught:
        plan_run(model="embeded", tasks=["quickstart_adition", "nothing_like_it"])
    assert [problem.what for problem in caught.value.errors] == [
        "no task is called `quickstart_adition`",
        "no task is called `nothing_like_it`",
        "no model is called `embeded`",
    ]
    assert "did you mean `quickstart_addition`?" in caught.value.errors[0].hint


def test_one_problem_is_raised_as_itself(workspace: Path) -> None:
    with pytest.raises(UnknownName, match="no task is called `nowhere`"):
        plan_run(make_model(), tasks=["nowhere"])


def test_the_same_problem_is_reported_once(workspace: Path) -> None:
    with pytest.raises(UnknownName):
        plan_run(make_model(), tasks=["nowhere", "nowhere"])


def test_a_model_that_cannot_be_identified_is_one_of_the_problems(workspace: Path) -> None:
    with pytest.raises(ErrorGroup) as caught:
        plan_run(model_args={"weights": str(workspace / "nowhere")}, tasks=["unheard_of"])
    assert [type(problem) for problem in caught.value.errors] == [UnknownName, DatasetError]


@pytest.mark.parametrize(
    ("write", "abilities", "missing"),
    [
        (write_task, {"likelihood", "rolling"}, "generate"),
        (write_choices, {"generate"}, "likelihood"),
        (write_texts, {"generate", "likelihood"}, "rolling"),
    ],
)
def test_a_task_the_model_does_not_support_is_an_error(
    workspace: Path, write: Callable[[Path], Path], abilities: Any, missing: str
) -> None:
    model = ScriptedModel(abilities=frozenset(abilities))
    with pytest.raises(UnsupportedRequest, match=f"it does not support {missing}"):
        plan_run(model, tasks=[str(write(workspace))])
    assert model.opened == 0


def test_images_and_chat_are_capabilities_too(workspace: Path) -> None:
    model = ScriptedModel(abilities=frozenset({"generate"}))
    with pytest.raises(UnsupportedRequest, match="it does not support image"):
        plan_run(model, tasks=["quickstart_shapes"])
    with pytest.raises(UnsupportedRequest, match="it does not support chat"):
        plan_run(model, tasks=["quickstart_addition"], apply_chat_template=True)


FAULTS = [
    ({"doc_to_text": Function("utils.gone")}, "def text(doc): ...\n", TaskError, "no function `gone`"),
    ({"doc_to_text": Function("nowhere.text")}, "", TaskError, "helper file not found"),
    (
        {"doc_to_text": Function("utils.text")},
        "def text(doc:\n",
        TaskError,
        "syntax error in the helper file",
    ),
    ({"doc_to_text": Function("utils.text")}, "import no_such_package\n", AssayError, "no_such_package"),
    ({"doc_to_text": Function("utils.text")}, "def text(doc): return doc['x']\n", TaskError, "KeyError: 'x'"),
    (
        {"process_docs": Function("utils.pick")},
        "def pick(rows): return 1 / 0\n",
        TaskError,
        "ZeroDivisionError",
    ),
    ({"process_docs": Function("utils.pick")}, "def pick(rows): return []\n", AssayError, "no documents"),
    ({"metric_list": [{"metric": "exact_macth"}]}, "", UnknownName, "no metric is called `exact_macth`"),
    (
        {"metric_list": [{"metric": "exact_match", "aggregation": "meen"}]},
        "",
        UnknownName,
        "no aggregation is called `meen`",
    ),
    (
        {"filter_list": [{"name": "x", "filter": [{"function": "take_frist"}]}]},
        "",
        UnknownName,
        "no filter is called `take_frist`",
    ),
    (
        {"filter_list": [{"name": "x", "filter": [{"function": "regex", "patern": "a"}]}]},
        "",
        TaskError,
        "`regex`",
    ),
    (
        {"filter_list": [{"name": "x", "filter": [{"function": "regex", "regex_pattern": "("}]}]},
        "",
        TaskError,
        "`regex`",
    ),
    ({"doc_to_text": "{{question"}, "", TaskError, "invalid template"),
    ({"test_split": "dev"}, "", DatasetError, "no split `dev`"),
    ({"output_type": "multiple_chioce"}, "", TaskError, "not an output type"),
    ({"num_fewshot": 7}, "", TaskError, "7 few-shot examples"),
    ({"unsafe_code": True}, "", UnsupportedRequest, "executes code"),
]


@pytest.mark.parametrize(("keys", "helpers", "kind", "what"), FAULTS, ids=[fault[3] for fault in FAULTS])
def test_an_invalid_task_is_reported_before_the_model_is_opened(
    workspace: Path, keys: dict[str, Any], helpers: str, kind: type[AssayError], what: str
) -> None:
    model = make_model()
    path = write_task(workspace, "faulty", helpers=helpers, **keys)
    with pytest.raises(AssayError) as caught:
        plan_run(model, tasks=[str(path)])
    (problem,) = problems(caught.value)
    assert isinstance(problem, kind)
    assert what in problem.what
    assert problem.where, "an error says where"
    assert model.opened == 0


def test_an_error_of_helper_code_names_its_location(workspace: Path) -> None:
    helpers = "def text(doc):\n    row = dict(doc)\n    return row['x']\n"
    path = write_task(workspace, helpers=helpers, doc_to_text=Function("utils.text"))
    with pytest.raises(AssayError) as caught:
        plan_run(make_model(), tasks=[str(path)])
    (problem,) = problems(caught.value)
    assert problem.where == f"{workspace / 'utils.py'}:3, text"


def test_samples_must_name_existing_documents(workspace: Path) -> None:
    path = str(write_task(workspace))
    with pytest.raises(UnknownName, match="no task of this run is called `other`"):
        plan_run(make_model(), tasks=[path], samples={"other": [0]})
    with pytest.raises(AssayError, match="has 6 documents; index 6 does not exist"):
        plan_run(make_model(), tasks=[path], samples={"sums": [6]})
    with pytest.raises(AssayError, match="no document of `sums` is selected"):
        plan_run(make_model(), tasks=[path], samples={"sums": []})


def test_an_output_folder_that_cannot_be_created_is_an_error(workspace: Path) -> None:
    path = str(write_task(workspace / "tasks"))
    (workspace / "file").write_text("in the way")
    with pytest.raises(OutputError, match="is not a folder"):
        plan_run(make_model(), tasks=[path], output_path="file/results")
    plan_run(make_model(), tasks=[path], output_path="new/results")
    assert not (workspace / "new").exists()


# --- what is planned -----------------------------------------------------------------------------------


def test_a_plan_counts_documents_and_requests(workspace: Path) -> None:
    paths = [write_task(workspace, repeats=3), write_choices(workspace), write_texts(workspace)]
    plan = plan_run(make_model(), tasks=list(map(str, paths)))
    assert plan.documents == 6 + 4 + 3
    assert forecast_cost(plan).counts == {
        "sums": {"generate": 18},
        "choices": {"likelihood": 8},
        "texts": {"rolling": 3},
    }
    assert plan.top == ("sums", "choices", "texts")


def test_counting_names_every_task_with_a_document_that_cannot_be_rendered(workspace: Path) -> None:
    helpers = "def text(doc):\n    return doc['question'] if doc['answer'] != '4' else doc['x']\n"
    paths = [
        write_task(workspace / name, name, helpers=helpers, doc_to_text=Function("utils.text"))
        for name in ("one", "two")
    ]
    plan = plan_run(make_model(), tasks=list(map(str, paths)))
    with pytest.raises(ErrorGroup) as caught:
        _ = forecast_cost(plan).counts
    assert ["`one`" in caught.value.errors[0].what, "`two`" in caught.value.errors[1].what] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("options", "documents"),
    [
        ({"offset": 2}, [2, 3, 4, 5]),
        ({"offset": 2, "limit": 3}, [2, 3, 4]),
        ({"offset": 5, "limit": 3}, [5]),
        ({"offset": 3, "limit": 0.5}, [3, 4, 5]),
    ],
)
def test_an_offset_skips_the_first_documents(
    workspace: Path, options: dict[str, Any], documents: list[int]
) -> None:
    task = str(write_task(workspace))
    (found,) = plan_run(make_model(), tasks=[task], **options).tasks.values()
    assert [document.index for document in found.task.documents()] == documents


def test_an_offset_beyond_the_last_document_is_an_error(workspace: Path) -> None:
    with pytest.raises(AssayError, match="no document of `sums` is selected"):
        plan_run(make_model(), tasks=[str(write_task(workspace))], offset=6)


def test_the_repeats_option_overrides_the_task(workspace: Path) -> None:
    tasks = [str(write_task(workspace, repeats=2)), str(write_choices(workspace))]
    counts = forecast_cost(plan_run(make_model(), tasks=tasks, repeats=3)).counts
    assert counts == {"sums": {"generate": 18}, "choices": {"likelihood": 8}}


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (0.5, 3), (0.01, 1), (100, 6), (None, 6)])
def test_a_limit_is_a_count_or_a_share(workspace: Path, limit: float | None, count: int) -> None:
    assert plan_run(make_model(), tasks=[str(write_task(workspace))], limit=limit).documents == count


@pytest.mark.parametrize(
    ("output_path", "folder"), [(None, "assay-runs"), ("out", "out"), ("out/results.json", "out")]
)
def test_the_run_folder_is_in_the_output_folder(
    workspace: Path, output_path: str | None, folder: str
) -> None:
    plan = plan_run(make_model(), tasks=[str(write_task(workspace))], output_path=output_path)
    assert plan.folder == Path(folder) / plan.run_id


# --- its name ------------------------------------------------------------------------------------------


def base(workspace: Path, model: ScriptedModel | None = None, **options: Any) -> str:
    write_task(
        workspace / "tasks", helpers="def clean(rows): return rows\n", process_docs=Function("utils.clean")
    )
    return name(workspace, model, **options)


def name(workspace: Path, model: ScriptedModel | None = None, **options: Any) -> str:
    given = {"tasks": ["sums"], "include_path": [str(workspace / "tasks")], **options}
    return plan_run(model or make_model(), **given).run_id


def test_the_run_id_names_model_and_task(workspace: Path) -> None:
    path = write_task(workspace / "Llama-3.1", "my_sums")
    plan = plan_run(make_model(name="org/Llama-3.1"), tasks=[str(path), "quickstart_facts"])
    assert plan.run_id.startswith("Llama-3.1-my-sums-and-1-more-")


SAME = {
    "max_failures": {"max_failures": 0.5},
    "max_cost": {"max_cost": 5},
    "batch_api": {"batch_api": True},
    "retry_failed": {"retry_failed": False},
    "helper_timeout": {"helper_timeout": 5},
    "batch_size": {"batch_size": 8},
    "rpm": {"rpm": 60},
    "tpm": {"tpm": 10000},
    "device": {"device": "cpu"},
    "sink": {"sink": ["jsonl,path=events.jsonl"]},
    "output_path": {"output_path": "elsewhere"},
    "log_samples": {"log_samples": False},
    "use_cache": {"use_cache": "cache.sqlite"},
    "no_cache": {"no_cache": True},
    "media_memory_mb": {"media_memory_mb": 16},
    "keep_media_mb": {"keep_media_mb": 0},
    "max_rounds": {"max_rounds": 7},
    "sandbox": {"sandbox": "limits"},
    "i_know": {"i_know": True},
    "sandbox_args": {"sandbox_args": {"python": "python3"}},
    "refresh": {"refresh": True},
    "max_retry_wait": {"max_retry_wait": 10},
    "replicas": {"replicas": 3},
    "ray": {"ray": "auto"},
    "workers": {"workers": 2},
    "replica_resources": {"replicas": 3, "replica_resources": "gpu=1,cpu=4"},
}
OTHER: dict[str, dict[str, Any]] = {
    "num_fewshot": {"num_fewshot": 1},
    "limit": {"limit": 2},
    "offset": {"offset": 2},
    "repeats": {"repeats": 2},
    "samples": {"samples": {"sums": [0, 1]}},
    "gen_kwargs": {"gen_kwargs": {"temperature": 0.5}},
    "seed": {"seed": 7},
    "judge": {"judge": "embedded"},
    "judge_args": {"judge": "embedded", "judge_args": {"seed": 5}},
    "system_instruction": {"system_instruction": "Be brief."},
    "apply_chat_template": {"apply_chat_template": True},
    "predict_only": {"predict_only": True},
    "bootstrap_iters": {"bootstrap_iters": 10},
    "bootstrap_draws": {"bootstrap_draws": "own"},
    "stop_when": {"stop_when": "ci<=2.5"},
    "reasoning_tags": {"reasoning_tags": "none"},
    "process_with_media": {"process_with_media": True},
    "decontamination_ngrams_path": {"decontamination_ngrams_path": "."},
    "agentic_trace_mode": {"agentic_trace_mode": "full"},
}


def test_the_same_plan_has_the_same_run_id(workspace: Path) -> None:
    assert base(workspace) == base(workspace)


@pytest.mark.parametrize("options", SAME.values(), ids=SAME)
def test_options_that_cannot_change_a_score_do_not_change_the_run_id(
    workspace: Path, options: dict[str, Any]
) -> None:
    assert base(workspace, **options) == base(workspace)


@pytest.mark.parametrize("options", OTHER.values(), ids=OTHER)
def test_options_that_can_change_a_score_change_the_run_id(workspace: Path, options: dict[str, Any]) -> None:
    assert base(workspace, **options) != base(workspace)


def test_every_option_that_shapes_results_is_in_one_of_these_tables() -> None:
    from assay.core.options.run_spec import list_options

    told = {*OTHER, "mc_as_generation", "model", "model_args", "tasks", "fewshot_as_multiturn", "metadata"}
    told |= {"vary", "variants", "variant_seed"}
    told |= {"reasoning_effort", "thinking_budget", "include_reasoning", "tool_calls", "user"}
    told |= {
        "reasoning_effort",
        "thinking_budget",
        "include_reasoning",
        "tool_calls",
        "user",
        "budget",
        "subset",
    }
    switches = {"trust_remote_code", "confirm_run_unsafe_code"}
    assert {option for option, _, details in list_options() if details.affects_results} == told | switches


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sums.yaml", "Question:", "Q:"),
        ("utils.py", "return rows", "return rows[:3]"),
        ("sums.jsonl", "What is 0", "What's 0"),
    ],
)
def test_a_changed_task_file_helper_or_dataset_changes_the_run_id(
    workspace: Path, file: str, old: str, new: str
) -> None:
    first = base(workspace)
    path = workspace / "tasks" / file
    before = path.read_text()
    path.write_text(before.replace(old, new))
    assert name(workspace) != first
    path.write_text(before)
    assert name(workspace) == first


def test_few_shot_examples_change_the_run_id_if_used(workspace: Path) -> None:
    keys: dict[str, Any] = {
        "dataset_kwargs": {"data_files": {"test": "sums.jsonl", "examples": "more.jsonl"}},
        "fewshot_split": "examples",
    }
    write_task(workspace / "tasks", "more", ROWS[:4])
    write_task(workspace / "tasks", **keys)
    none, some = name(workspace), name(workspace, num_fewshot=2)
    write_task(workspace / "tasks", "more", ROWS[1:5])
    assert name(workspace) == none
    assert name(workspace, num_fewshot=2) != some


def test_a_different_model_identity_changes_the_run_id(workspace: Path) -> None:
    class RevisedModel(ScriptedModel):
        async def identify(self) -> dict[str, str]:
            return {"name": self.name, "revision": "2"}

    assert base(workspace, RevisedModel()) != base(workspace, ScriptedModel())


def test_the_folder_of_a_task_does_not_change_the_run_id(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = base(workspace)
    (workspace / "moved").mkdir()
    (workspace / "tasks").rename(workspace / "moved" / "tasks")
    monkeypatch.chdir(workspace / "moved")
    assert name(workspace / "moved") == first
    assert plan_run(make_model(), tasks=["sums"], include_path=["tasks"]).run_id == first


def test_invalid_options_are_an_error(workspace: Path) -> None:
    with pytest.raises(InvalidOption, match="cannot be used together"):
        plan_run(make_model(), tasks=["quickstart"], limit=3, samples={"quickstart_facts": [0]})
    with pytest.raises(InvalidOption, match="task folder not found: `nowhere`"):
        plan_run(make_model(), tasks=["quickstart"], include_path=["nowhere"])


def test_one_mistake_in_a_task_file_does_not_hide_the_others(workspace: Path) -> None:
    (workspace / "d.jsonl").write_text('{"q": "a", "a": "b"}\n')
    path = workspace / "four.yaml"
    path.write_text(
        "task: four\ndataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\ntest_split: tset\n"
        "doc_to_txt: '{{q}}'\ndoc_to_target: a\nfilter_list: [{name: x, filter: [{function: take_frist}]}]\n"
        "metric_list: [{metric: exact_macth}]\n"
    )
    with pytest.raises(ErrorGroup) as caught:
        plan_run(make_model(), tasks=[str(path)])
    told = str(caught.value)
    for word in ("doc_to_txt", "take_frist", "exact_macth", "tset"):
        assert told.count(f"`{word}`") == 1
