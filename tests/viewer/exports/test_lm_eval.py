"""The files of lm-eval: names, keys and hashes."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.making import ROWS, Function, make_model, write_choices, write_task, write_texts

import assay
from assay import models
from assay.core.errors import OutputError
from assay.core.records.responses import LogProbability
from assay.viewer.exports.lm_eval import (
    build_results,
    find_model_name,
    iterate_samples,
    sanitise_name,
    write_lm_eval,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def likely(request: Any) -> Any:
    return "1" if hasattr(request, "settings") else LogProbability(-1.5 - getattr(request, "index", 0), True)


def run(*paths: Path, **options: Any) -> assay.Run:
    return assay.run(model=make_model(likely), tasks=[str(path) for path in paths], **options)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("org/model", "org__model"),
        ("a:b", "a__b"),
        ('we"ird<>|?*[x]', "we__ird__x__"),
        ("plain-1.0", "plain-1.0"),
    ],
)
def test_a_model_name_becomes_a_folder(name: str, folder: str) -> None:
    assert sanitise_name(name) == folder


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"pretrained": "org/base"}, "org/base"),
        ({"pretrained": "org/base", "peft": "org/adapter"}, "org/adapter"),
        ({"model": "gpt"}, "gpt"),
        ({"dtype": "float32"}, "scripted"),
    ],
)
def test_the_model_name_is_chosen_as_in_lm_eval(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, str], name: str
) -> None:
    monkeypatch.setitem(models.MODELS._items, "any", lambda **given: make_model())
    finished = assay.run(model="any", model_args=arguments, tasks=[str(write_task(workspace))])
    assert find_model_name(finished) == name
    files = write_lm_eval(finished, "out")
    assert files[0].parent == Path("out") / sanitise_name(name)


def test_dates_have_no_colons_and_are_the_same_in_every_name(workspace: Path) -> None:
    files = write_lm_eval(run(write_task(workspace)), "out", now=NOW.replace(tzinfo=None))
    assert [file.name for file in files] == [
        "results_2026-01-02T03-04-05.678901.json",
        "samples_sums_2026-01-02T03-04-05.678901.jsonl",
    ]


def test_results_name_their_run_and_its_intervals(workspace: Path) -> None:
    done = run(write_task(workspace / "tasks"))
    results = build_results(done)
    assert (results["run_id"], results["run_folder"]) == (done.id, str(done.folder.resolve()))
    estimate = done.estimates[0]
    assert estimate.interval is not None
    interval = results["intervals"]["sums"]["exact_match,none"]
    assert (interval["low"], interval["high"]) == estimate.interval and interval["method"]


def test_a_group_is_in_the_results(workspace: Path) -> None:
    write_task(workspace, "a")
    group = {
        "group": "g",
        "task": ["a"],
        "aggregate_metric_list": [{"metric": "exact_match"}],
        "metadata": {"version": 2},
    }
    (workspace / "g.yaml").write_text(yaml.safe_dump(group))
    document = build_results(assay.run(model=make_model(), tasks=["g"], include_path=[str(workspace)]))
    assert document["groups"]["g"]["exact_match,none"] == 1.0
    assert document["results"]["g"] == document["groups"]["g"]
    assert document["group_subtasks"] == {"g": ["a"]}
    assert document["versions"] == {"a": 1.0, "g": "2"}


def test_without_groups_there_is_no_groups_key(workspace: Path) -> None:
    document = build_results(run(write_task(workspace, metadata=None)))
    assert "groups" not in document
    assert document["versions"] == {"sums": "Yaml"}


def test_an_unknown_standard_error_is_na(workspace: Path) -> None:
    entry = build_results(run(write_texts(workspace), bootstrap_iters=0))["results"]["texts"]
    assert entry["word_perplexity_stderr,none"] == "N/A"


def test_helper_functions_are_written_as_source(workspace: Path) -> None:
    helpers = "def text(doc):\n    return doc['question']\n"
    finished = run(write_task(workspace, helpers=helpers, doc_to_text=Function("utils.text")))
    assert build_results(finished)["configs"]["sums"]["doc_to_text"] == helpers


def test_the_identity_of_the_model_is_in_the_config(workspace: Path) -> None:
    finished = assay.run(tasks=["quickstart_copy"], limit=1)
    document = build_results(finished)
    assert document["config"]["model_sha"] == finished.facts["identity"]["weights_sha256"]
    assert document["config"]["model_dtype"] == "float32"
    assert document["chat_template_sha"] is None, "no template was applied"
    chat = build_results(assay.run(tasks=["quickstart_copy"], limit=1, apply_chat_template=True))
    assert chat["chat_template_sha"] == finished.facts["identity"]["template_sha256"]


def test_a_system_instruction_is_written_with_its_hash(workspace: Path) -> None:
    document = build_results(run(write_task(workspace), system_instruction="Be brief."))
    assert (document["system_instruction"], document["system_instruction_sha"]) == (
        "Be brief.",
        sha("Be brief."),
    )


def test_choice_rows_have_every_choice(workspace: Path) -> None:
    row = next(iterate_samples(run(write_choices(workspace)), "choices"))
    prompt = "Question: Is 0 even?\nAnswer:"
    assert row["arguments"] == {
        "gen_args_0": {"arg_0": prompt, "arg_1": " no"},
        "gen_args_1": {"arg_0": prompt, "arg_1": " yes"},
    }
    assert row["resps"] == [[["-1.5", "True"]], [["-2.5", "True"]]]
    assert row["filtered_resps"] == [["-1.5", "True"], ["-2.5", "True"]]
    assert (row["target"], row["target_hash"], row["prompt_hash"]) == ("1", sha("1"), sha(prompt))
    assert row["acc"] == 0.0


def test_the_hash_of_a_document_is_that_after_its_prompt(workspace: Path) -> None:
    """As in lm-eval, where helpers that sort a list of the document change what is hashed (`webqs`)."""
    helpers = "def choices(doc):\n    doc['choices'].sort(reverse=True)\n    return doc['choices']\n"
    path = write_choices(workspace, helpers=helpers, doc_to_choice=Function("utils.choices"))
    row = next(iterate_samples(run(path), "choices"))
    document = {"question": "Is 0 even?", "choices": ["no", "yes"], "answer": 1}
    assert row["doc"] == document, "the document itself stays as it was"
    changed = {**document, "choices": ["yes", "no"]}
    assert row["doc_hash"] == sha(json.dumps(changed, indent=2, ensure_ascii=False))
    assert "prompt_doc" not in row


def test_text_rows_have_one_argument(workspace: Path) -> None:
    row = next(iterate_samples(run(write_texts(workspace)), "texts"))
    assert row["arguments"] == {"gen_args_0": {"arg_0": "Once there were 0 frogs."}}
    assert row["resps"] == [["-1.5"]]
    assert row["metrics"] == ["word_perplexity", "bits_per_byte"]


def test_repeats_share_a_row_and_pipelines_have_their_own(workspace: Path) -> None:
    pipelines = [
        {"name": "z", "filter": [{"function": "take_first"}]},
        {"name": "a", "filter": [{"function": "majority_vote"}, {"function": "take_first"}]},
    ]
    finished = run(write_task(workspace, repeats=2, filter_list=pipelines))
    rows = list(iterate_samples(finished, "sums"))
    assert [(row["doc_id"], row["filter"]) for row in rows] == [
        *((index, "z") for index in range(6)),
        *((index, "a") for index in range(6)),
    ], "lm-eval lists the documents of one filter after those of another"
    assert rows[0]["resps"] == [["1", "1"]]
    assert list(rows[0]["arguments"]) == ["gen_args_0"]


def test_images_in_documents_are_described(workspace: Path) -> None:
    rows = list(iterate_samples(assay.run(tasks=["quickstart_shapes"], limit=2), "quickstart_shapes"))
    assert json.loads(json.dumps(rows)) == rows
    assert '"type": "image"' in rows[0]["arguments"]["gen_args_0"]["arg_0"]


def test_documents_without_a_value_are_not_counted_as_evaluated(workspace: Path) -> None:
    """As in lm-eval: the metric with the most values counts, also for the groups of the task."""
    helpers = "def score(doc, results):\n    return {'m': 1.0} if int(doc['answer']) < 4 else {}\n"
    metrics = [
        {"metric": name, "aggregation": "mean", "higher_is_better": name == "m"} for name in ("m", "n")
    ]
    write_task(
        workspace, "some", helpers=helpers, process_results=Function("utils.score"), metric_list=metrics[:1]
    )
    write_task(workspace, "all")
    listed = [{"metric": "m"}, {"metric": "exact_match", "filter_list": "none"}]
    group = {"group": "g", "task": ["some", "all"], "aggregate_metric_list": listed}
    (workspace / "g.yaml").write_text(yaml.safe_dump(group))
    document = build_results(assay.run(model=make_model(), tasks=["g"], include_path=[str(workspace)]))
    scored = sum(int(row["answer"]) < 4 for row in ROWS)
    assert 0 < scored < len(ROWS)
    assert document["n-samples"]["some"]["effective"] == document["results"]["some"]["sample_len"] == scored
    assert document["n-samples"]["all"]["effective"] == len(ROWS)
    found = document["groups"]["g"]
    assert (found["sample_len"], found["sample_count"]) == (
        scored + len(ROWS),
        {"m,none": scored, "exact_match,none": len(ROWS)},
    )


def test_directions_are_those_of_the_listed_metrics(workspace: Path) -> None:
    """Also of a function that reports its values by other names; a value that no entry lists has no direction."""
    helpers = (
        "def several(references, predictions):\n    return {'a': 1.0, 'b': 2.0}\n"
        "def mean(items):\n    return sum(items) / len(items)\n"
        "def unlisted(doc, results):\n    return {'m': 1.0, 'n': 2.0}\n"
    )
    listed = {
        "metric": Function("utils.several"),
        "aggregation": Function("utils.mean"),
        "higher_is_better": False,
    }
    expanded = write_task(workspace / "one", "expanded", helpers=helpers, metric_list=[listed])
    partly = write_task(
        workspace / "two",
        "partly",
        helpers=helpers,
        process_results=Function("utils.unlisted"),
        metric_list=[{"metric": "m", "aggregation": "mean", "higher_is_better": True}],
    )
    assert build_results(run(expanded, partly))["higher_is_better"] == {
        "expanded": {"several": False, "a": False, "b": False},
        "partly": {"m": True},
    }


def test_a_task_with_a_slash_in_its_name_gets_a_file(workspace: Path) -> None:
    path = write_task(workspace)
    path.write_text(path.read_text().replace("task: sums", "task: maths/sums"))
    files = write_lm_eval(run(path), "out", now=NOW)
    assert files[1].name.startswith("samples_maths__sums_")


def test_an_unwritable_folder_is_an_error(workspace: Path) -> None:
    finished = run(write_task(workspace))
    (workspace / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write the result files"):
        write_lm_eval(finished, "file/out")


def test_configs_have_the_settings_of_the_run(workspace: Path) -> None:
    """As in lm-eval, where options of a run change the config of a task."""
    path = write_task(workspace, generation_kwargs={"until": ["\n"], "max_gen_toks": 5}, num_fewshot=1)
    options = {"num_fewshot": 2, "repeats": 3, "gen_kwargs": {"temperature": 0.5, "max_gen_toks": 7}}
    config = build_results(run(path, write_choices(workspace), **options))["configs"]
    assert config["sums"]["num_fewshot"] == config["choices"]["num_fewshot"] == 2
    assert (config["sums"]["repeats"], config["choices"]["repeats"]) == (3, 1)
    assert config["sums"]["generation_kwargs"] == {"until": ["\n"], "max_gen_toks": 7, "temperature": 0.5}
    assert "generation_kwargs" not in config["choices"]
