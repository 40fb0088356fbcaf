from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import AssayError, InvalidOption, UnknownName
from assay.core.fingerprints import digest_json
from assay.core.options import parsing
from assay.core.options.parsing import parse_arguments
from assay.core.options.run_spec import RunSpec, list_options

Parser = Callable[[str], Any]


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parsing.parse_value, "true", True),
        (parsing.parse_value, "False", False),
        (parsing.parse_value, "none", None),
        (parsing.parse_value, "3", 3),
        (parsing.parse_value, "1e-3", 0.001),
        (parsing.parse_value, "[1,2]", [1, 2]),
        (parsing.parse_value, "a/b", "a/b"),
        (parsing.parse_value, "float16", "float16"),
        (parse_arguments, "", {}),
        (parse_arguments, " a=1 , b = x ", {"a": 1, "b": "x"}),
        (parse_arguments, "url=http://h/v1?a=b", {"url": "http://h/v1?a=b"}),
        (parse_arguments, 'stop=["a,b","c"],n=1', {"stop": ["a,b", "c"], "n": 1}),
        (parse_arguments, "sizes=(1,2),more={'k':1}", {"sizes": (1, 2), "more": {"k": 1}}),
        (parse_arguments, '{"a": {"b": [1, null]}}', {"a": {"b": [1, None]}}),
        (parse_arguments, "name=it's,n=1", {"name": "it's", "n": 1}),
        (parsing.parse_limit, "10", 10),
        (parsing.parse_limit, "10.0", 10),
        (parsing.parse_limit, "0.25", 0.25),
        (parsing.parse_limit, "1", 1),
        (parsing.parse_limit, "-1", None),
        (parsing.parse_seed, "7", (7, 7, 7, 7)),
        (parsing.parse_seed, "0, 1,None,3", (0, 1, None, 3)),
        (parsing.parse_samples, '{"a": [0, "3"]}', {"a": [0, 3]}),
        (parsing.parse_batch_size, "8", 8),
        (parsing.parse_batch_size, "auto", "auto"),
        (parsing.parse_batch_size, "auto:4", "auto:4"),
        (parsing.parse_bool, "On", True),
        (parsing.parse_bool, "no", False),
        (parsing.parse_chat_template, "True", True),
        (parsing.parse_chat_template, "chatml", "chatml"),
        (parsing.parse_name_list, "a, b,,c", ["a", "b", "c"]),
        (parsing.parse_non_negative_integer, "0", 0),
    ],
)
def test_a_text_becomes_a_value(parse: Parser, text: str, expected: object) -> None:
    assert parse(text) == expected
    assert type(parse(text)) is type(expected)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_arguments, "a"),
        (parse_arguments, "a=1,b"),
        (parse_arguments, "=1"),
        (parse_arguments, '{"a": '),
        (parsing.parse_limit, "many"),
        (parsing.parse_limit, "0"),
        (parsing.parse_limit, "-3"),
        (parsing.parse_limit, "1.5"),
        (parsing.parse_seed, "one"),
        (parsing.parse_seed, "1,2"),
        (parsing.parse_samples, "[1]"),
        (parsing.parse_samples, '{"a": "b"}'),
        (parsing.parse_samples, "no-such-file.json"),
        (parsing.parse_batch_size, "0"),
        (parsing.parse_batch_size, "big"),
        (parsing.parse_bool, "perhaps"),
        (parsing.parse_non_negative_integer, "-1"),
        (parsing.parse_non_negative_integer, "1.5"),
    ],
)
def test_a_text_without_sense_is_a_bad_option(parse: Parser, text: str) -> None:
    with pytest.raises(InvalidOption):
        parse(text)


@pytest.mark.parametrize("text", ["nan", "inf"])
def test_a_limit_is_a_finite_number(text: str) -> None:
    with pytest.raises(InvalidOption):
        parsing.parse_limit(text)


def test_documents_can_be_named_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "documents.json"
    file.write_text('{"sums": [1, 2]}')
    assert parsing.parse_samples(str(file)) == {"sums": [1, 2]}


def test_without_settings_the_embedded_model_answers_the_embedded_tasks() -> None:
    spec = RunSpec()
    assert (spec.model, spec.tasks, spec.seed) == ("embedded", ["quickstart"], (0, 1234, 1234, 1234))
    assert RunSpec.of({}) == spec


def test_two_runs_share_no_lists() -> None:
    first, second = RunSpec(), RunSpec()
    first.tasks.append("more")
    assert second.tasks == ["quickstart"]


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        pytest.param({"tasks": "a,b"}, "tasks", ["a", "b"], id="a text is read as the CLI reads it"),
        pytest.param({"tasks": ["a,b", "c"]}, "tasks", ["a", "b", "c"], id="a list of texts too"),
        pytest.param({"include-path": "x,y"}, "include_path", ["x,y"], id="a folder may have a comma"),
        pytest.param({"num-fewshot": 3}, "num_fewshot", 3, id="dashes or underscores"),
        pytest.param({"limit": "0.5"}, "limit", 0.5, id="a number as text"),
        pytest.param({"limit": 10.0}, "limit", 10, id="a whole number as float"),
        pytest.param({"limit": -1}, "limit", None, id="all documents"),
        pytest.param({"seed": 3}, "seed", (3, 3, 3, 3), id="one seed"),
        pytest.param({"seed": [0, 1, None, 2]}, "seed", (0, 1, None, 2), id="four seeds"),
        pytest.param({"model_args": "a=1"}, "model_args", {"a": 1}, id="arguments as text"),
        pytest.param({"model_args": {"a": 1}}, "model_args", {"a": 1}, id="arguments as a mapping"),
        pytest.param({"predict_only": "yes"}, "predict_only", True, id="a switch as text"),
        pytest.param({"log_samples": False}, "log_samples", False, id="a switch as a value"),
        pytest.param(
            {"apply_chat_template": "chatml"}, "apply_chat_template", "chatml", id="a named template"
        ),
    ],
)
def test_a_run_is_read_from_a_config(settings: dict[str, Any], name: str, expected: object) -> None:
    assert getattr(RunSpec.of(settings), name) == expected


def test_an_unknown_key_is_an_error_with_place_and_nearest_name() -> None:
    with pytest.raises(UnknownName) as caught:
        RunSpec.of({"num_fewshots": 3}, where="run.yaml")
    assert caught.value.where == "run.yaml"
    assert "did you mean `num_fewshot`" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        pytest.param({"limit": "many"}, "--limit", id="the parser knows the flag"),
        pytest.param({"bootstrap_iters": "-1"}, "run.yaml", id="the file is named otherwise"),
    ],
)
def test_a_bad_value_is_an_error_with_its_place(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        RunSpec.of(settings, where="run.yaml")
    assert where in caught.value.where


def test_a_bad_value_without_a_file_names_the_option() -> None:
    with pytest.raises(InvalidOption) as caught:
        RunSpec.of({"bootstrap_iters": "-1"})
    assert caught.value.where == "bootstrap_iters"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"limit": 3, "samples": '{"a": [0]}'}, id="a limit and chosen documents"),
        pytest.param({"tasks": ""}, id="no task"),
        pytest.param({"tasks": []}, id="an empty list of tasks"),
        pytest.param({"fewshot_as_multiturn": True}, id="turns without a chat template"),
        pytest.param({"limit": 0}, id="no documents"),
        pytest.param({"limit": 1.5}, id="one and a half documents"),
    ],
)
def test_options_that_contradict_each_other_are_refused_with_a_hint(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        RunSpec.of(settings)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, False, id="off without a chat template"),
        pytest.param({"apply_chat_template": True}, True, id="on with one"),
        pytest.param({"apply_chat_template": True, "fewshot_as_multiturn": False}, False, id="off when told"),
    ],
)
def test_few_shot_examples_become_turns(settings: dict[str, Any], expected: bool) -> None:
    assert RunSpec.of(settings).multiturn is expected


NOT_SHAPING = {
    "batch_size": 64,
    "device": "cuda:0",
    "include_path": ["more"],
    "data_root": "data",
    "output_path": "out",
    "log_samples": False,
    "use_cache": "cache.sqlite",
    "no_cache": True,
}
SHAPING = {
    "model": "other",
    "model_args": {"a": 1},
    "gen_kwargs": {"temperature": 1},
    "apply_chat_template": True,
    "system_instruction": "Be brief.",
    "num_fewshot": 3,
    "tasks": ["sums"],
    "limit": 3,
    "samples": {"sums": [0]},
    "metadata": {"a": 1},
    "seed": (1, 1, 1, 1),
    "bootstrap_iters": 10,
    "bootstrap_draws": "own",
    "predict_only": True,
}


@pytest.mark.parametrize("name", NOT_SHAPING)
def test_how_and_where_a_run_runs_is_not_part_of_its_shape(name: str) -> None:
    assert name not in RunSpec().shape()
    assert digest_json(RunSpec.of({name: NOT_SHAPING[name]}).shape()) == digest_json(RunSpec().shape())


@pytest.mark.parametrize("name", SHAPING)
def test_what_can_change_a_score_is_part_of_its_shape(name: str) -> None:
    assert digest_json(RunSpec.of({name: SHAPING[name]}).shape()) != digest_json(RunSpec().shape())


def test_every_option_is_described() -> None:
    for name, _, option in list_options():
        assert option.help, name
        assert option.section in {"Model", "Prompt", "Tasks", "Run", "Output"}, name


def test_no_two_options_share_a_letter() -> None:
    letters = [option.short for _, _, option in list_options() if option.short]
    assert len(letters) == len(set(letters))


def test_every_default_is_what_its_own_text_would_give() -> None:
    """A default passes through a config file unharmed."""
    defaults = {name: default for name, default, _ in list_options() if default is not None}
    assert RunSpec.of(defaults) == RunSpec()


@pytest.mark.parametrize(
    "settings",
    [{"limit": [1]}, {"batch_size": 0}, {"num_fewshot": -1}, {"tasks": 3}, {"model_args": [1]}],
    ids=str,
)
def test_a_config_value_of_the_wrong_kind_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(AssayError):
        RunSpec.of(settings, where="run.yaml")


@pytest.mark.parametrize(("given", "expected"), [(True, True), ("true", True), (False, False), ("no", False)])
def test_an_option_with_true_or_false_as_value_accepts_both_from_config_files(
    given: Any, expected: bool
) -> None:
    assert RunSpec.read({"include_reasoning": given}) == {"include_reasoning": expected}
