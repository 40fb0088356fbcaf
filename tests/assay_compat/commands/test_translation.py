from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.errors import InvalidOption
from assay.core.options.run_spec import list_options
from assay_compat.commands import lm_eval, lmms_eval


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--model hf --tasks a,b", "run --tasks a,b --model hf"),
        ("run --model hf --tasks a b", "run --tasks a,b --model hf"),
        ("--tasks a", "run --tasks a --model hf"),
        ("--tasks a -M hf -a x=1 y=2 -L 5", "run --tasks a --model hf --model_args x=1,y=2 --limit 5"),
        ("-t a -M x --apply_chat_template", "run --tasks a --model x --apply_chat_template"),
        (
            "-t a -M x --apply_chat_template chatml -s",
            "run --tasks a --model x --apply_chat_template chatml --log_samples",
        ),
        (
            "-M x -t a --wandb_args project=p,entity=e",
            "run --tasks a --model x --sink wandb,project=p,entity=e",
        ),
        ("-M x -t a --trackio_args project=p", "run --tasks a --model x --sink trackio,project=p"),
        (
            "-M x -t a --hf_hub_log_args hub_results_org=o,results_repo_name=r,push_results_to_hub=True",
            "run --tasks a --model x --sink hub,repo=o/r,samples=False,private=True",
        ),
        ("--tasks list", "ls tasks"),
        ("--tasks list_groups", "ls groups"),
        ("ls subtasks", "ls tasks"),
        ("validate --tasks a,b --include_path mine", "check a b --include_path mine"),
    ],
)
def test_lm_eval_command_is_translated(given: str, words: str) -> None:
    assert " ".join(lm_eval.translate_command(given.split()).arguments) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "--model qwen2_5_vl --tasks my_task --limit 8 --batch_size 1",
            "run --model qwen2_5_vl --tasks my_task --limit 8 --batch_size 1",
        ),
        ("eval --model hf --tasks a --limit -1", "run --model hf --tasks a"),
        ("--model x --tasks a --max_tokens 9", "run --model x --tasks a --gen_kwargs max_new_tokens=9"),
        ("--model x --tasks a --offset 4 -n 2", "run --model x --tasks a --offset 4 --repeats 2"),
        ("--tasks list", "ls tasks"),
        ("tasks groups", "ls groups"),
        ("models", "ls models"),
        ("version", "--version"),
    ],
)
def test_lmms_eval_command_is_translated(workspace: Path, given: str, words: str) -> None:
    assert " ".join(lmms_eval.translate_command(given.split()).arguments) == words


def test_ignored_flags_give_a_note() -> None:
    translated = lm_eval.translate_command(
        "-M x -t a --cache_requests true --check_integrity --write_out".split()
    )
    assert translated.arguments == ["run", "--tasks", "a", "--model", "x"]
    assert [remark.split(":")[0] for remark in translated.notes] == [
        "--cache_requests",
        "--check_integrity",
        "--write_out",
    ]


@pytest.mark.parametrize("given", ["--modle x", "--tasks a --limit", "stray"])
def test_unknown_flag_is_rejected(given: str) -> None:
    with pytest.raises(InvalidOption):
        lm_eval.translate_command(given.split())


@pytest.mark.parametrize("given", ["serve", "--model x --tasks a --frobnicate"])
def test_unsupported_command_is_rejected(given: str) -> None:
    with pytest.raises(InvalidOption):
        lmms_eval.translate_command(given.split())


def test_model_of_the_config_file_is_used(workspace: Path) -> None:
    (workspace / "a.yaml").write_text("model: dummy\n")
    (workspace / "b.yaml").write_text("limit: 3\n")
    assert lm_eval.translate_command(["--config", "a.yaml"]).arguments == ["run", "--config", "a.yaml"]
    assert lm_eval.translate_command(["--config", "b.yaml"]).arguments[-2:] == ["--model", "hf"]


def test_every_translated_flag_exists() -> None:
    known = {f"--{name}" for name, _, _ in list_options()} | {"--config", "--verbosity"}
    for flag in (*lm_eval.FLAGS, *lmms_eval.FLAGS):
        value: object = [] if flag.kind == "many" else "0" if flag.kind == "one" else True
        words = flag.translator(value)
        if isinstance(words, list) and words:
            assert words[0] in known, words


def test_tasks_of_a_checkout_are_found(workspace: Path) -> None:
    (workspace / "lmms_eval" / "tasks").mkdir(parents=True)
    assert lmms_eval.translate_command("--model x --tasks a".split()).arguments[-2:] == [
        "--include_path",
        ".",
    ]


def test_help_lists_the_flags_of_the_harness() -> None:
    text = lm_eval.translate_command(["--help"]).help_text
    assert "usage: lm_eval run" in text and "--wandb_config_args" in text and "--mc_as_generation" not in text
    assert "No effect: requests are rebuilt for each run." in " ".join(text.split())
    other = lmms_eval.translate_command(["eval", "--help"]).help_text
    assert "usage: lmms_eval eval" in other and "--process_with_media" in other
