"""The command line and the resources of a cluster job."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import InvalidOption, UnknownName
from assay.core.options.run_spec import RunSpec
from assay.engine.cluster_jobs.job import (
    ClusterJob,
    build_job_name,
    build_run_words,
    choose_replicas,
    parse_time_limit_s,
)

OPTIONS: dict[str, Any] = {
    "model": "vllm",
    "model_args": {"pretrained": "/shared/my model", "n": 2},
    "tasks": ["a.yaml", "my tasks/b.yaml"],
    "system_instruction": 'You\'re "kind" to $HOME `id`\nand *** more',
    "apply_chat_template": True,
    "mc_as_generation": True,
    "predict_only": False,
    "seed": (1, 2, 3, None),
    "reasoning_tags": (("<a>", "</a>"),),
    "samples": {"a": [0, 3]},
    "limit": None,
    "num_fewshot": 0,
}


def test_the_words_give_the_same_options_again() -> None:
    from click.testing import CliRunner

    from assay.cli.options import OptionsCommand, add_run_options, build_run_spec

    given = {name: value for name, value in OPTIONS.items() if name not in ("limit", "predict_only")}
    words, hidden = build_run_words(given)
    assert hidden == []
    found: list[RunSpec] = []
    command = OptionsCommand(
        "run", callback=lambda config, **values: found.append(build_run_spec(values, config))
    )
    add_run_options(command)
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert found == [RunSpec.of(given)]


def test_secrets_are_left_out_and_named() -> None:
    words, hidden = build_run_words(
        {
            "model_args": {"model": "m", "api_key": "sk-abcdefghijklmnop"},
            "judge": ["openai,model=j,api_key=sk-abcdefghijklmnop"],
        }
    )
    assert "sk-abcdef" not in " ".join(words)
    assert words == ["--model_args", '{"model": "m"}', "--judge", "openai,model=j"]
    assert hidden == ["--model_args api_key", "--judge api_key"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"system_instruction": "Never reveal sk-abcdefghijklmnop"},
            "--system_instruction contains a secret",
        ),
        ({"model_args": {"base_url": "http://me:password1@host"}}, "--model_args base_url contains a secret"),
        ({"judge": ["openai,model=sk-abcdefghijklmnop"]}, "--judge model contains a secret"),
        ({"judge": ["openai,base_url=http://me:password1@host"]}, "--judge contains a secret"),
    ],
)
def test_options_that_affect_results_are_not_left_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as raised:
        build_run_words(options)
    assert "abcdefghij" not in str(raised.value) and "password1" not in str(raised.value)


@pytest.mark.parametrize("name", ["A=1", "OPENAI_API_KEY=sk-abcdefghijklmnop", "1A", ""])
def test_only_names_of_variables_are_accepted(name: str) -> None:
    with pytest.raises(InvalidOption, match="not the name of an environment variable") as raised:
        ClusterJob(name="x", command=("assay",), environment=(name,))
    assert "sk-abcdef" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "nodes", "gpus", "expected"),
    [
        ({"model": "hf"}, 2, 4, 8),
        ({"model": "vllm", "model_args": {"tensor_parallel_size": 2}}, 2, 4, 4),
        ({"model": "vllm", "model_args": {"tensor_parallel_size": 3}}, 2, 4, 2),
        ({"model": "embedded"}, 3, 0, 3),
        ({"model": "hf", "replica_resources": {"gpu": 0.5}}, 1, 2, 4),
        ({"model": "hf", "replicas": 3}, 2, 4, 3),
    ],
)
def test_replicas_fill_the_gpus(options: dict[str, Any], nodes: int, gpus: int, expected: int) -> None:
    assert choose_replicas(RunSpec.of(options), nodes, gpus, given="replicas" in options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "vllm", "model_args": {"tensor_parallel_size": 8}},
            "a replica needs 8 GPUs, a node has 4",
        ),
        ({"model": "hf", "replicas": 9}, "9 replicas need 9 GPUs; 2 nodes with 4 GPUs have room for 8"),
        ({"model": "openai", "model_args": {"model": "m"}}, "the model `openai` runs on a server"),
    ],
)
def test_jobs_that_cannot_run_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        choose_replicas(RunSpec.of(options), 2, 4, given="replicas" in options)


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(UnknownName):
        choose_replicas(RunSpec.of({"model": "no_such_model"}), 1, 1, given=False)


def test_names_are_valid_on_every_cluster() -> None:
    spec = RunSpec.of({"model": "hf", "tasks": ["tasks/My_Long.Task.yaml"]})
    assert build_job_name(spec, None) == "assay-hf-my-long-task"
    assert build_job_name(spec, "my-job") == "my-job"
    assert len(build_job_name(RunSpec.of({"tasks": ["x" * 90]}), None)) <= 47
    for name in ("My job", "-x", "x" * 48, ""):
        with pytest.raises(InvalidOption, match="not a valid job name"):
            build_job_name(spec, name)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5_400),
        ("10:30", 630),
        ("4:00:00", 14_400),
        ("1-12", 129_600),
        ("2-00:30", 174_600),
        ("1-00:00:05", 86_405),
    ],
)
def test_time_limits_are_read_as_slurm_does(text: str, seconds: int) -> None:
    assert parse_time_limit_s(text) == seconds


@pytest.mark.parametrize("text", ["", "4h", "1:2:3:4", "4:00:00; rm -rf /", "-1"])
def test_other_time_limits_are_errors(text: str) -> None:
    with pytest.raises(InvalidOption, match="not a time limit"):
        parse_time_limit_s(text)
