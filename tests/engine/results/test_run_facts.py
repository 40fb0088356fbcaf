"""Tests of the facts that a journal stores about its run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.making import Function, make_model, plan_run, write_task

import assay
from assay.core.ports import Model
from assay.core.secrets import redact_fields
from assay.engine.results.run_facts import collect_facts, describe_group, get_num_fewshot


@pytest.mark.parametrize(
    "key", ["api_key", "OPENAI_API_KEY", "token", "hf_token", "password", "client_secret", "headers"]
)
def test_secrets_are_not_stored(key: str) -> None:
    assert redact_fields({key: "s3cret", "model": "m"}) == {key: "***", "model": "m"}


def test_the_facts_are_json_and_describe_the_run(workspace: Path) -> None:
    helpers = "def text(doc):\n    return 'What is ' + doc['question'][8:]\n"
    path = write_task(workspace, helpers=helpers, doc_to_text=Function("utils.text"), task_alias="Sums")
    plan = plan_run(make_model(), tasks=[str(path)], limit=3, seed=7, system_instruction="Be brief.")
    facts = json.loads(json.dumps(collect_facts(plan)))
    task = facts["tasks"]["sums"]
    assert (facts["run_id"], facts["model"], facts["identity"]) == (
        plan.run_id,
        "scripted",
        {"name": "scripted"},
    )
    assert (task["documents"], task["original"], task["alias"], task["version"]) == (3, 6, "Sums", 1.0)
    assert (task["metrics"], task["pipelines"]) == (["exact_match"], ["none"])
    assert task["config"]["doc_to_text"] == helpers
    assert facts["spec"]["seed"] == [7, 7, 7, 7]
    assert facts["spec"]["system_instruction"] == "Be brief."


def test_the_api_key_of_a_model_is_never_written_to_disk(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay import models

    def make(api_key: str) -> Model:
        return make_model()

    monkeypatch.setitem(models.MODELS._items, "keyed", make)
    run = assay.run(model="keyed", model_args={"api_key": "s3cret-value"}, tasks=[str(write_task(workspace))])
    run.close()
    for file in run.folder.iterdir():
        assert b"s3cret-value" not in file.read_bytes()


def test_a_resumed_run_keeps_its_first_start(workspace: Path) -> None:
    path = str(write_task(workspace))
    first = assay.run(model=make_model(), tasks=[path])
    again = assay.run(model=make_model(), tasks=[path])
    assert again.facts["started"] == first.facts["started"]
    assert again.facts["seconds"] >= first.facts["seconds"]


def test_metadata_counts_examples_of_tasks_without_others(workspace: Path) -> None:
    path = str(write_task(workspace, "a", metadata={"version": 1, "num_fewshot": 8}))
    planned = plan_run(make_model(), tasks=[path]).tasks["a"]
    assert get_num_fewshot(planned) == 8
    planned = plan_run(make_model(), tasks=[path], num_fewshot=2).tasks["a"]
    assert get_num_fewshot(planned) == 2


def test_a_group_shows_what_the_tasks_directly_in_it_share(workspace: Path) -> None:
    write_task(workspace, "a", num_fewshot=2)
    write_task(
        workspace, "b", num_fewshot=2, metric_list=[{"metric": "exact_match", "higher_is_better": False}]
    )
    write_task(workspace, "c", metric_list=[{"metric": "bleu"}])
    plan = plan_run(make_model(), tasks=[str(workspace / f"{name}.yaml") for name in "abc"])
    a, b, c = (plan.tasks[name] for name in "abc")
    assert describe_group([a, b]) == {"n_shot": 2, "higher_is_better": {"exact_match": None}}
    assert describe_group([a, c]) == {"n_shot": None, "higher_is_better": {"exact_match": True, "bleu": True}}
    assert describe_group([a, c], {"num_fewshot": 8})["n_shot"] == 8
    assert describe_group([]) == {"n_shot": None, "higher_is_better": {}}


@pytest.mark.parametrize(("given", "n_shot"), [(None, 8), (2, 2)], ids=["metadata", "option"])
def test_num_fewshot_overrides_that_of_a_group(workspace: Path, given: int | None, n_shot: int) -> None:
    write_task(workspace, "a")
    group = {"group": "g", "task": ["a"], "metadata": {"num_fewshot": 8}}
    (workspace / "g.yaml").write_text(yaml.safe_dump(group), encoding="utf-8")
    run = assay.run(model=make_model(), tasks=[str(workspace / "g.yaml")], num_fewshot=given)
    assert run.facts["groups"]["g"]["n_shot"] == n_shot
