"""The files of lm-eval: names, keys and hashes."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.making import Function, make_model, write_choices, write_task, write_texts

import assay
from assay import models
from assay.core.errors import BadOutput
from assay.core.responses import LogProbability
from assay.viewer.lm_eval_files import model_name, results_document, samples_rows, sanitised, write_files

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
    assert sanitised(name) == folder


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"pretrained": "org/base"}, "org/base"),
        ({"pretrained": "org/base", "peft": "org/adapter"}, "org/adapter"),
        ({"model": "gpt"}, "gpt"),
        ({"dtype": "float32"}, "scripted"),
    ],
)
def test_the_name_is_the_one_lm_eval_would_choose(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, str], name: str
) -> None:
    monkeypatch.setitem(models.MODELS._items, "any", lambda **given: make_model())
    finished = assay.run(model="any", model_args=arguments, tasks=[str(write_task(workspace))])
    assert model_name(finished) == name
    files = write_files(finished, "out")
    assert files[0].parent == Path("out") / sanitised(name)


def test_dates_have_no_colons_and_are_the_same_in_every_name(workspace: Path) -> None:
    files = write_files(run(write_task(workspace)), "out", now=NOW.replace(tzinfo=None))
    assert [file.name for file in files] == [
        "results_2026-01-02T03-04-05.678901.json",
        "samples_sums_2026-01-02T03-04-05.678901.jsonl",
    ]


def test_a_group_has_its_place_in_the_results(workspace: Path) -> None:
    write_task(workspace, "a")
    group = {
        "group": "g",
        "task": ["a"],
        "aggregate_metric_list": [{"metric": "exact_match"}],
        "metadata": {"version": 2},
    }
    (workspace / "g.yaml").write_text(yaml.safe_dump(group))
    document = results_document(assay.run(model=make_model(), tasks=["g"], include_path=[str(workspace)]))
    assert document["groups"]["g"]["exact_match,none"] == 1.0
    assert document["results"]["g"] == document["groups"]["g"]
    assert document["group_subtasks"] == {"g": ["a"]}
    assert document["versions"] == {"a": 1.0, "g": "2"}


def test_no_group_no_groups_key(workspace: Path) -> None:
    document = results_document(run(write_task(workspace, metadata=None)))
    assert "groups" not in document
    assert document["versions"] == {"sums": "Yaml"}


def test_a_standard_error_nobody_knows_is_not_a_number(workspace: Path) -> None:
    entry = results_document(run(write_texts(workspace), bootstrap_iters=0))["results"]["texts"]
    assert entry["word_perplexity_stderr,none"] == "N/A"


def test_helpers_are_shown_as_their_source(workspace: Path) -> None:
    helpers = "def text(doc):\n    return doc['question']\n"
    finished = run(write_task(workspace, helpers=helpers, doc_to_text=Function("utils.text")))
    assert results_document(finished)["configs"]["sums"]["doc_to_text"] == helpers


def test_the_identity_of_the_model_is_in_the_config(workspace: Path) -> None:
    finished = assay.run(tasks=["quickstart_copy"], limit=1)
    document = results_document(finished)
    assert document["config"]["model_sha"] == finished.facts["identity"]["weights_sha256"]
    assert document["config"]["model_dtype"] == "float32"
    assert document["chat_template_sha"] is None, "no template was applied"
    chat = results_document(assay.run(tasks=["quickstart_copy"], limit=1, apply_chat_template=True))
    assert chat["chat_template_sha"] == finished.facts["identity"]["template_sha256"]


def test_a_system_instruction_is_kept_with_its_hash(workspace: Path) -> None:
    document = results_document(run(write_task(workspace), system_instruction="Be brief."))
    assert (document["system_instruction"], document["system_instruction_sha"]) == (
        "Be brief.",
        sha("Be brief."),
    )


def test_the_rows_of_choices_show_every_choice(workspace: Path) -> None:
    row = next(samples_rows(run(write_choices(workspace)), "choices"))
    prompt = "Question: Is 0 even?\nAnswer:"
    assert row["arguments"] == {
        "gen_args_0": {"arg_0": prompt, "arg_1": " no"},
        "gen_args_1": {"arg_0": prompt, "arg_1": " yes"},
    }
    assert row["resps"] == [[["-1.5", "True"]], [["-2.5", "True"]]]
    assert row["filtered_resps"] == [["-1.5", "True"], ["-2.5", "True"]]
    assert (row["target"], row["target_hash"], row["prompt_hash"]) == ("1", sha("1"), sha(prompt))
    assert row["acc"] == 0.0


def test_the_rows_of_texts_have_one_argument(workspace: Path) -> None:
    row = next(samples_rows(run(write_texts(workspace)), "texts"))
    assert row["arguments"] == {"gen_args_0": {"arg_0": "Once there were 0 frogs."}}
    assert row["resps"] == [["-1.5"]]
    assert row["metrics"] == ["word_perplexity", "bits_per_byte"]


def test_repeats_and_pipelines_have_a_row_each(workspace: Path) -> None:
    pipelines = [
        {"name": "z", "filter": [{"function": "take_first"}]},
        {"name": "a", "filter": [{"function": "majority_vote"}, {"function": "take_first"}]},
    ]
    finished = run(write_task(workspace, repeats=2, filter_list=pipelines))
    rows = list(samples_rows(finished, "sums"))
    assert [(row["doc_id"], row["filter"]) for row in rows[:4]] == [(0, "z"), (0, "a"), (1, "z"), (1, "a")]
    assert rows[0]["resps"] == [["1", "1"]]
    assert list(rows[0]["arguments"]) == ["gen_args_0"]


def test_pictures_in_documents_are_described(workspace: Path) -> None:
    rows = list(samples_rows(assay.run(tasks=["quickstart_shapes"], limit=2), "quickstart_shapes"))
    assert json.loads(json.dumps(rows)) == rows
    assert '"type": "image"' in rows[0]["arguments"]["gen_args_0"]["arg_0"]


def test_a_task_with_a_slash_in_its_name_gets_a_file(workspace: Path) -> None:
    path = write_task(workspace)
    path.write_text(path.read_text().replace("task: sums", "task: maths/sums"))
    files = write_files(run(path), "out", now=NOW)
    assert files[1].name.startswith("samples_maths__sums_")


def test_a_folder_that_cannot_be_written_is_said_so(workspace: Path) -> None:
    finished = run(write_task(workspace))
    (workspace / "file").write_text("in the way")
    with pytest.raises(BadOutput, match="cannot write the result files"):
        write_files(finished, "file/out")
