from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import AssayError, ErrorGroup, TaskError
from assay.core.records.specs import TaskSpec
from assay.tasks.files.task_loader import TASK_KEYS, load_task, parse_group_metrics

Write = Callable[..., Path]
LEAST = "task: a\ndataset_path: json\ntest_split: test\n"


@pytest.fixture
def load(write: Write) -> Callable[[str], TaskSpec]:
    """`load("key: value")`: a task with the least it needs, and this."""
    return lambda text: load_task(write("a.yaml", LEAST + text + "\n"))


Load = Callable[[str], TaskSpec]


def list_problems(load: Load, text: str) -> list[AssayError]:
    with pytest.raises(AssayError) as caught:
        load(text)
    return list(caught.value.errors) if isinstance(caught.value, ErrorGroup) else [caught.value]


def test_the_least_a_task_needs_is_a_name_a_dataset_and_a_split(load: Load) -> None:
    spec = load("")
    assert (spec.name, spec.dataset_path, spec.test_split) == ("a", "json", "test")
    assert (spec.output_type, spec.fewshot_delimiter, spec.target_delimiter) == (
        "generate_until",
        "\n\n",
        " ",
    )
    assert (spec.repeats, spec.num_fewshot, spec.description, spec.metrics, spec.pipelines) == (
        1,
        None,
        "",
        (),
        (),
    )
    assert spec.version == "Yaml"


# --- every key -------------------------------------------------------------------------------------

READ = [
    ("task_alias: A", "alias", "A"),
    ("tag: one", "tags", ("one",)),
    ("tag: [one, two]", "tags", ("one", "two")),
    ("group: older", "tags", ("older",)),
    ("tag: one\ngroup: [older, one]", "tags", ("one", "older")),
    ("dataset_name: main", "dataset_name", "main"),
    ("dataset_name: 2024", "dataset_name", "2024"),
    ("dataset_kwargs: {data_files: x.json}", "dataset_kwargs", {"data_files": "x.json"}),
    ("training_split: train", "training_split", "train"),
    ("validation_split: dev", "validation_split", "dev"),
    ("fewshot_split: train", "fewshot_split", "train"),
    ("use_prompt: 'promptsource:x'", "use_prompt", "promptsource:x"),
    ("description: 'About {{topic}}'", "description", "About {{topic}}"),
    ("doc_to_text: '{{q}}'", "doc_to_text", "{{q}}"),
    ("doc_to_text: ''", "doc_to_text", ""),
    ("doc_to_text: 0", "doc_to_text", 0),
    ("doc_to_target: 1", "doc_to_target", 1),
    ("doc_to_target: [x, y]", "doc_to_target", ["x", "y"]),
    ("doc_to_choice: [no, 'yes']", "doc_to_choice", [False, "yes"]),
    ("doc_to_choice: {A: x, B: y}", "doc_to_choice", {"A": "x", "B": "y"}),
    ("doc_to_image: [image]", "doc_to_image", ["image"]),
    ("doc_to_audio: sound", "doc_to_audio", "sound"),
    ("fewshot_delimiter: '###'", "fewshot_delimiter", "###"),
    ("target_delimiter: ''", "target_delimiter", ""),
    ("gen_prefix: 'Answer:'", "gen_prefix", "Answer:"),
    ("gen_prefix: 5", "gen_prefix", "5"),
    ("num_fewshot: 5", "num_fewshot", 5),
    ("num_fewshot: 0", "num_fewshot", 0),
    ("repeats: 64", "repeats", 64),
    ("batch_size: 4", "batch_size", 4),
    ("unsafe_code: true", "unsafe_code", True),
    ("should_decontaminate: true", "should_decontaminate", True),
    ("doc_to_decontamination_query: q", "doc_to_decontamination_query", "q"),
    ("process_results_use_image: true", "process_results_use_image", True),
    ("full_docs: true", "full_docs", True),
    ("cluster_key: videoID", "cluster_key", "videoID"),
    ("score_key: points", "score_key", "points"),
    ("reasoning_tags: [['<think>', '</think>']]", "reasoning_tags", [["<think>", "</think>"]]),
    ("lmms_eval_specific_kwargs: {default: {a: 1}}", "lmms_eval_specific_kwargs", {"default": {"a": 1}}),
    ("model_specific_generation_kwargs: {m: {a: 1}}", "model_specific_generation_kwargs", {"m": {"a": 1}}),
    ("model_specific_target_kwargs: {m: {a: 1}}", "model_specific_target_kwargs", {"m": {"a": 1}}),
    ("metadata: {version: 2.0, x: y}", "metadata", {"version": 2.0, "x": "y"}),
    ("metadata: [{version: 0.0}, {x: y}]", "metadata", {"version": 0.0, "x": "y"}),
    ("output_type: loglikelihood", "output_type", "loglikelihood"),
    ("output_type: loglikelihood_rolling", "output_type", "loglikelihood_rolling"),
    ("output_type: multiple_choice\ndoc_to_choice: [a]", "output_type", "multiple_choice"),
    ("output_type: generate_until_multi_round", "output_type", "generate_until_multi_round"),
]


@pytest.mark.parametrize(("text", "field", "expected"), READ, ids=[text for text, _, _ in READ])
def test_a_key_becomes_a_field(load: Load, text: str, field: str, expected: Any) -> None:
    assert getattr(load(text), field) == expected


FUNCTION_KEYS = "custom_dataset process_docs process_results doc_to_text doc_to_target doc_to_choice doc_to_visual doc_to_messages"


@pytest.mark.parametrize("key", FUNCTION_KEYS.split())
def test_a_function_stays_a_reference_until_it_is_called(load: Load, key: str) -> None:
    assert repr(getattr(load(f"{key}: !function nowhere.f"), key)) == "!function nowhere.f"


def test_null_means_not_said(load: Load) -> None:
    assert load(
        "\n".join(f"{key}: null" for key in sorted(TASK_KEYS - {"task", "dataset_path", "test_split"}))
    )


def test_the_mapping_is_kept_as_written_with_its_places(load: Load) -> None:
    spec = load("repeats: 2\nmetadata: [{version: 1}]")
    assert spec.config == {
        "task": "a",
        "dataset_path": "json",
        "test_split": "test",
        "repeats": 2,
        "metadata": [{"version": 1}],
    }
    assert spec.place("repeats").endswith("a.yaml:4, repeats")
    assert spec.place("not_there").endswith("a.yaml, not_there")


def test_the_evaluated_split_is_test_else_validation(load: Load, write: Write) -> None:
    assert load("validation_split: dev").evaluated_split == "test"
    spec = load_task(write("b.yaml", "task: b\ndataset_path: json\nvalidation_split: dev\n"))
    assert spec.evaluated_split == "dev"


def test_version_zero_is_a_version(load: Load) -> None:
    assert load("metadata: [{version: 0.0}]").version == 0.0


# --- generation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "",
            {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256, "until": ["\n\n"]},
            id="nothing said",
        ),
        pytest.param(
            "fewshot_delimiter: '|'",
            {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256, "until": ["|"]},
            id="another delimiter",
        ),
        pytest.param(
            "generation_kwargs: {max_gen_toks: 8}", {"max_gen_toks": 8, "until": ["\n\n"]}, id="no until"
        ),
        pytest.param("generation_kwargs: {}", {"until": ["\n\n"]}, id="an empty mapping"),
        pytest.param("generation_kwargs: {until: [Q]}", {"until": ["Q"]}, id="until is kept"),
        pytest.param("generation_kwargs: {until: []}", {"until": []}, id="no stop at all"),
        pytest.param(
            "generation_kwargs: {temperature: 1}",
            {"temperature": 1.0, "until": ["\n\n"]},
            id="temperature is a float",
        ),
        pytest.param(
            "generation_kwargs: {temperature: '0.5'}",
            {"temperature": 0.5, "until": ["\n\n"]},
            id="from a text",
        ),
        pytest.param(
            "output_type: loglikelihood\ngeneration_kwargs: {until: [x]}", {}, id="nothing is generated"
        ),
    ],
)
def test_generation_settings_have_lm_evals_defaults_in_lm_evals_order(
    load: Load, text: str, expected: dict[str, Any]
) -> None:
    settings = load(text).generation_kwargs
    assert list(settings.items()) == list(expected.items())
    assert isinstance(settings.get("temperature", 0.0), float)


# --- metrics, filters, examples --------------------------------------------------------------------


def test_a_metric_entry_has_a_name_an_aggregation_a_direction_and_arguments(load: Load) -> None:
    spec = load(
        "metric_list:\n"
        "  - metric: acc\n"
        "  - metric: exact_match\n"
        "    aggregation: mean\n"
        "    higher_is_better: true\n"
        "    ignore_case: true\n"
        "    regexes_to_ignore: [',']\n"
        "  - metric: !function utils.mine\n"
        "    aggregation: !function utils.sum_up\n"
    )
    acc, exact, mine = spec.metrics
    assert (acc.name, acc.aggregation, acc.higher_is_better, acc.arguments) == ("acc", None, None, {})
    assert (exact.aggregation, exact.higher_is_better) == ("mean", True)
    assert exact.arguments == {"ignore_case": True, "regexes_to_ignore": [","]}
    assert exact.where.endswith("a.yaml:6, metric_list[1]")
    assert (mine.name, repr(mine.aggregation)) == ("mine", "!function utils.sum_up")


def test_filter_pipelines_keep_their_order_and_arguments(load: Load) -> None:
    spec = load(
        "filter_list:\n"
        "  - name: first\n"
        "    filter:\n"
        "      - function: regex\n"
        "        regex_pattern: '(\\d+)'\n"
        "      - function: take_first\n"
        "  - name: maj@8\n"
        "    filter:\n"
        "      - {function: take_first_k, k: 8}\n"
        "      - {function: !function utils.Mine}\n"
    )
    first, majority = spec.pipelines
    assert [step.function for step in first.steps] == ["regex", "take_first"]
    assert first.steps[0].arguments == {"regex_pattern": "(\\d+)"}
    assert (majority.name, majority.steps[0].arguments) == ("maj@8", {"k": 8})
    assert repr(majority.steps[1].function) == "!function utils.Mine"
    assert majority.steps[0].where.endswith("a.yaml:12, filter_list[1].filter[0]")


def test_fewshot_config_overrides_what_the_task_says(load: Load) -> None:
    spec = load(
        "fewshot_config:\n"
        "  sampler: first_n\n"
        "  samples: [{q: x, a: y}]\n"
        "  doc_to_target: ''\n"
        "  target_delimiter: '->'\n"
        "  fewshot_indices: [1]\n"
    ).fewshot
    assert (spec.sampler, spec.samples, spec.doc_to_target, spec.target_delimiter) == (
        "first_n",
        [{"q": "x", "a": "y"}],
        "",
        "->",
    )
    assert (spec.doc_to_text, spec.split) == (None, None)


# --- mistakes --------------------------------------------------------------------------------------

MISTAKES = [
    ("metric_lst: []", "no key `metric_lst`", "a.yaml:4, metric_lst", "`metric_list`"),
    ("zzzzzzzz: 1", "no key `zzzzzzzz`", "a.yaml:4, zzzzzzzz", ""),
    ("5: x", "no key `5`", "a.yaml:4, 5", ""),
    ("output_type: generate_util", "not an output type", "a.yaml:4, output_type", "`generate_until`"),
    ("output_type: zzz", "not an output type", "a.yaml:4, output_type", "multiple_choice"),
    ("output_type: [x]", "not an output type", "a.yaml:4, output_type", ""),
    ("output_type: multiple_choice", "needs `doc_to_choice`", "a.yaml:4, output_type", ""),
    ("repeats: '2'", "`repeats` must be a whole number", "a.yaml:4, repeats", ""),
    ("repeats: 1.5", "`repeats` must be a whole number", "a.yaml:4, repeats", ""),
    ("repeats: true", "`repeats` must be a whole number", "a.yaml:4, repeats", ""),
    ("repeats: 0", "`repeats` must be", "a.yaml:4, repeats", ""),
    ("num_fewshot: five", "`num_fewshot` must be a whole number", "a.yaml:4, num_fewshot", ""),
    ("num_fewshot: -1", "`num_fewshot` must be", "a.yaml:4, num_fewshot", ""),
    ("unsafe_code: 'maybe'", "`unsafe_code` must be true or false", "a.yaml:4, unsafe_code", ""),
    ("training_split: [a]", "`training_split` must be a text", "a.yaml:4, training_split", ""),
    ("target_delimiter: 5", "`target_delimiter` must be a text", "a.yaml:4, target_delimiter", ""),
    ("generation_kwargs: [a]", "`generation_kwargs` must be a mapping", "a.yaml:4, generation_kwargs", ""),
    (
        "generation_kwargs: {temperature: hot}",
        "`temperature` must be a number",
        "a.yaml:4, generation_kwargs",
        "",
    ),
    ("dataset_kwargs: x", "`dataset_kwargs` must be a mapping", "a.yaml:4, dataset_kwargs", ""),
    ("process_docs: utils.f", "`process_docs` must be a function", "a.yaml:4, process_docs", "!function"),
    ("process_results: 5", "`process_results` must be a function", "a.yaml:4, process_results", "!function"),
    ("metric_list: acc", "`metric_list` must be a list", "a.yaml:4, metric_list", ""),
    ("metric_list: {metric: acc}", "`metric_list` must be a list", "a.yaml:4, metric_list", ""),
    ("metric_list:\n  - acc", "needs a `metric`", "a.yaml:5, metric_list[0]", "- metric:"),
    ("metric_list:\n  - aggregation: mean", "needs a `metric`", "a.yaml:5, metric_list[0]", "- metric:"),
    ("filter_list: x", "`filter_list` must be a list", "a.yaml:4, filter_list", ""),
    ("filter_list:\n  - filter: []", "needs a `name`", "a.yaml:5, filter_list[0]", ""),
    ("filter_list:\n  - name: x", "a list `filter`", "a.yaml:5, filter_list[0]", ""),
    (
        "filter_list:\n  - name: x\n    filter:\n      - regex",
        "needs a `function`",
        "a.yaml:7, filter_list[0].filter[0]",
        "",
    ),
    ("fewshot_config: x", "`fewshot_config` must be a mapping", "a.yaml:4, fewshot_config", ""),
    ("fewshot_config:\n  sample: []", "no key `sample`", "a.yaml:5, fewshot_config.sample", "`sample"),
    ("tag: 5", "tag", "a.yaml:4, tag", ""),
]


@pytest.mark.parametrize(("text", "what", "where", "hint"), MISTAKES, ids=[text for text, *_ in MISTAKES])
def test_a_mistake_says_what_where_and_a_hint(
    load: Load, text: str, what: str, where: str, hint: str
) -> None:
    [problem] = list_problems(load, text)
    assert isinstance(problem, TaskError)
    assert what in problem.what
    assert problem.where.endswith(where)
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("dataset_path: json\ntest_split: test\n", "needs a name"),
        ("task: ''\ndataset_path: json\ntest_split: test\n", "needs a name"),
        ("task: a\ntest_split: test\n", "has no dataset"),
        ("task: a\ndataset_path: json\n", "no split to evaluate"),
        ("task: a\ndataset_path: json\ntraining_split: train\n", "no split to evaluate"),
    ],
)
def test_what_a_task_cannot_do_without_is_asked_for(write: Write, text: str, what: str) -> None:
    with pytest.raises(TaskError, match=what) as caught:
        load_task(write("a.yaml", text))
    assert caught.value.hint
    assert "a.yaml" in caught.value.where


def test_a_custom_dataset_needs_no_path(write: Write) -> None:
    assert load_task(write("a.yaml", "task: a\ntest_split: test\ncustom_dataset: !function u.f\n"))


def test_all_mistakes_of_a_file_are_found_in_one_go(load: Load) -> None:
    found = list_problems(
        load, "metric_lst: []\nrepeats: x\noutput_type: typo\nprocess_docs: f\nfewshot_config: 1"
    )
    places = {problem.where.rpartition(" ")[2] for problem in found}
    assert places == {"metric_lst", "repeats", "process_docs", "output_type", "fewshot_config"}
    assert len(found) == 5


def test_a_mistake_in_an_included_file_is_placed_there(write: Write) -> None:
    base = write("base", "repeats: 1\nrepeet: 2\n")
    with pytest.raises(TaskError, match="repeet") as caught:
        load_task(write("a.yaml", "include: base\n" + LEAST))
    assert caught.value.where == f"{base}:2, repeet"


# --- groups and the guides -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, []),
        ([], []),
        ({"metric": "acc"}, [("acc", "mean", True, None)]),
        ([{"metric": "acc", "weight_by_size": False}], [("acc", "mean", False, None)]),
        ([{"metric": "acc", "filter_list": "strict"}], [("acc", "mean", True, ("strict",))]),
        ([{"metric": "acc", "filter_list": ["a", "b"]}], [("acc", "mean", True, ("a", "b"))]),
    ],
)
def test_group_metrics_are_a_list_or_one_mapping(given: Any, expected: list[tuple[Any, ...]]) -> None:
    made = [
        (one.metric, one.aggregation, one.weight_by_size, one.filter_list)
        for one in parse_group_metrics(given)
    ]
    assert made == expected


MME = """\
dataset_path: lmms-lab/MME
dataset_kwargs:
  token: True
task: "mme"
test_split: test
output_type: generate_until
doc_to_visual: !function utils.mme_doc_to_visual
doc_to_text: !function utils.mme_doc_to_text
doc_to_target: "answer"
generation_kwargs:
  max_new_tokens: 16
  temperature: 0
  top_p: 1.0
  num_beams: 1
  do_sample: false
process_results: !function utils.mme_process_results
metric_list:
  - metric: mme_percetion_score
    aggregation: !function utils.mme_aggregate_results
    higher_is_better: true
  - metric: mme_cognition_score
    aggregation: !function utils.mme_aggregate_results
    higher_is_better: true
lmms_eval_specific_kwargs:
  default:
    pre_prompt: ""
    post_prompt: "\\nAnswer the question using a single word or phrase."
  qwen_vl:
    pre_prompt: ""
    post_prompt: " Answer:"
metadata:
  - version: 0.0
"""

SEEDBENCH = """\
dataset_path: lmms-lab/SEED-Bench
dataset_kwargs:
  token: True
task: "seedbench_ppl"
test_split: test
output_type: multiple_choice
doc_to_visual: !function utils.seed_doc_to_visual
doc_to_text: !function utils.seed_doc_to_text_mc
doc_to_choice : !function utils.seed_doc_to_choice
doc_to_target: !function utils.seed_doc_to_mc_target
metric_list:
  - metric: acc
metadata:
  - version: 0.0
"""

MMSEARCH = """\
dataset_path: CaraJ/MMSearch
dataset_name: end2end
dataset_kwargs:
  token: False
task: "mmsearch_end2end"
test_split: end2end
output_type: generate_until_multi_round # multi-round inference
doc_to_visual: !function lmms_eval_utils.mmsearch_end2end_doc_to_visual
doc_to_text: !function lmms_eval_utils.mmsearch_end2end_doc_to_text
doc_to_target: "answer"
generation_kwargs:
  until:
    - "ASSISTANT:"
  max_new_tokens: 512
process_results: !function lmms_eval_utils.mmsearch_end2end_process_results
metric_list:
  - metric: end2end_f1_score
    aggregation: !function lmms_eval_utils.mmsearch_aggregate_results_f1_score
    higher_is_better: true
lmms_eval_specific_kwargs:
  middle_resules_dir: somewhere/mmsearch_middile_results
  result_cache_dir: somewhere/mmsearch_result_cache_dir
"""


def test_the_mme_example_of_the_guide_loads(write: Write) -> None:
    spec = load_task(write("mme.yaml", MME))
    assert (spec.name, spec.dataset_path, spec.version) == ("mme", "lmms-lab/MME", 0.0)
    assert repr(spec.doc_to_visual) == "!function utils.mme_doc_to_visual"
    assert spec.doc_to_target == "answer"
    assert list(spec.generation_kwargs.items()) == [
        ("max_new_tokens", 16),
        ("temperature", 0.0),
        ("top_p", 1.0),
        ("num_beams", 1),
        ("do_sample", False),
        ("until", ["\n\n"]),
    ]
    assert [metric.name for metric in spec.metrics] == ["mme_percetion_score", "mme_cognition_score"]
    assert spec.lmms_eval_specific_kwargs is not None
    assert spec.lmms_eval_specific_kwargs["qwen_vl"] == {"pre_prompt": "", "post_prompt": " Answer:"}


def test_the_seedbench_example_of_the_guide_loads(write: Write) -> None:
    spec = load_task(write("seedbench_ppl.yaml", SEEDBENCH))
    assert (spec.output_type, spec.generation_kwargs) == ("multiple_choice", {})
    assert repr(spec.doc_to_choice) == "!function utils.seed_doc_to_choice"
    assert [metric.name for metric in spec.metrics] == ["acc"]


def test_the_mmsearch_example_of_the_guide_loads(write: Write) -> None:
    spec = load_task(write("mmsearch_end2end.yaml", MMSEARCH))
    assert (spec.output_type, spec.dataset_name) == ("generate_until_multi_round", "end2end")
    assert spec.generation_kwargs["until"] == ["ASSISTANT:"]


def test_the_self_consistency_example_of_the_guide_loads(load: Load) -> None:
    pattern = "The answer is (\\\\-?[0-9\\\\.\\\\,]*[0-9]+)"
    spec = load(
        "repeats: 64\n"
        "filter_list:\n"
        '  - name: "score-first"\n'
        "    filter:\n"
        f'      - {{function: "regex", regex_pattern: "{pattern}"}}\n'
        '      - function: "take_first"\n'
        '  - name: "maj@8"\n'
        "    filter:\n"
        '      - function: "take_first_k"\n'
        "        k: 8\n"
        f'      - {{function: "regex", regex_pattern: "{pattern}"}}\n'
        '      - function: "majority_vote"\n'
        '      - function: "take_first"\n'
    )
    assert spec.repeats == 64
    assert [len(pipeline.steps) for pipeline in spec.pipelines] == [2, 4]
    assert spec.pipelines[0].steps[0].arguments["regex_pattern"] == "The answer is (\\-?[0-9\\.\\,]*[0-9]+)"


def test_keys_of_older_versions_are_known(load: Load) -> None:
    spec = load("group: g\ngroup_alias: A Group\nmodel_specific_prompt_kwargs: {default: {pre_prompt: x}}")
    assert spec.tags == ("g",)
    assert spec.lmms_eval_specific_kwargs == {"default": {"pre_prompt": "x"}}
    assert spec.dialect == "lmms_eval"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("generation_kwargs: {max_gen_toks: 5}", [None])],
    ids=["default", "settings"],
)
def test_a_delimiter_of_null_is_no_stop_string(load: Load, text: str, expected: Any) -> None:
    assert load(f"fewshot_delimiter: null\n{text}").generation_kwargs["until"] == expected
