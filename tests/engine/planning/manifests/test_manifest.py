"""Tests of the manifest: the inputs of a run, and changes since then."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.making import ROWS, Function, make_model, plan_run, write_task

import assay
from assay.core.errors import AssayError, DatasetError, InvalidOption
from assay.core.fingerprints import digest_json
from assay.engine.planning.manifests.environment import describe_hardware, find_commits, list_versions
from assay.engine.planning.manifests.manifest import make_manifest
from assay.engine.planning.manifests.manifest_diff import KINDS, compare_manifests
from assay.engine.planning.manifests.recorded_plan import (
    get_manifest,
    load_options,
    read_manifest,
)
from assay.engine.planning.setup.recorded_model import RecordedModel

HELPERS = "def text(doc):\n    return 'What is ' + doc['question'][8:]\n"


def manifest(workspace: Path, **options: Any) -> dict[str, Any]:
    path = workspace / "sums.yaml"
    made: dict[str, Any] = json.loads(
        json.dumps(make_manifest(plan_run(make_model(), tasks=[str(path)], **options), ["assay", "run"]))
    )
    return made


@pytest.fixture
def task(workspace: Path) -> Path:
    return write_task(workspace, helpers=HELPERS, doc_to_text=Function("utils.text"))


def test_a_run_stores_its_manifest_in_the_journal_and_as_a_file(task: Path) -> None:
    run = assay.run(model=make_model(), tasks=[str(task)], limit=3, command=["assay", "run", "--limit", "3"])
    kept, written = get_manifest(run), read_manifest(run.folder / "manifest.json")
    run.close()
    assert {key: value for key, value in written.items() if key != "check"} == kept
    assert written["check"] == digest_json(kept)
    assert kept["command"] == ["assay", "run", "--limit", "3"]
    assert kept["options"]["limit"] == 3
    assert kept["seeds"] == {"python": 0, "numpy": 1234, "torch": 1234, "fewshot": 1234}
    about = kept["tasks"]["sums"]
    assert list(kept["helpers"]) == about["helpers"] == [str(task.parent.resolve() / "utils.py")]
    assert about["dataset"]["documents"] == 6
    assert set(about["metrics"]) == {"exact_match"}
    assert set(about["filters"]) == {"none"}
    assert kept["model"]["identity"] == {"name": "scripted"}


def test_versions_and_hardware_are_those_of_this_machine() -> None:
    import platform

    assert list_versions()["python"] == platform.python_version()
    assert "numpy" in list_versions()["packages"]
    assert describe_hardware()["cpus"] >= 1


def test_the_manifest_contains_no_secrets(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay import models

    monkeypatch.setitem(models.MODELS._items, "keyed", lambda api_key, size: make_model())
    command = ["assay", "run", "--model_args", "api_key=s3cret,size=4"]
    run = assay.run(
        model="keyed", model_args={"api_key": "s3cret", "size": 4}, tasks=[str(task)], command=command
    )
    assert "s3cret" not in (run.folder / "manifest.json").read_text()
    kept = get_manifest(run)
    run.close()
    assert kept["hidden"] == ["model_args.api_key"]
    recalled = load_options(kept, {})
    assert (recalled.missing, dict(recalled.spec.model_args)) == (("model_args.api_key",), {"size": 4})
    again = load_options(kept, {"model_args": {"api_key": "given"}})
    assert (again.missing, dict(again.spec.model_args)) == ((), {"size": 4, "api_key": "given"})


def test_resuming_adds_changes_and_keeps_the_first_start(task: Path) -> None:
    first = assay.run(model=make_model(lambda request: 1 / 0), tasks=[str(task)], command=["one"])
    first.close()
    assert not first.complete
    first.close()
    again = assay.run(model=make_model(), tasks=[str(task)], command=["two"])
    kept = get_manifest(again)
    again.close()
    assert kept["command"] == ["one"]
    assert [(sorted(start), start["command"]) for start in kept["continued"]] == [
        (["at", "command"], ["two"])
    ]
    finished = assay.run(model=make_model(), tasks=[str(task)], command=["three"])
    assert get_manifest(finished) == kept, "a finished run is not started again"
    finished.close()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_manifest_has_the_commit_of_the_task_folder_and_whether_it_is_dirty(tmp_path: Path) -> None:
    inside = tmp_path / "checkout" / "tasks" / "deep"
    path = write_task(inside)
    assert find_commits([inside]) == {}

    def git(*words: str) -> None:
        name = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(tmp_path / "checkout"), *name, *words]
        subprocess.run(command, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    git("remote", "add", "origin", "https://user:pass@example.org/tasks.git")
    ((checkout, about),) = find_commits([inside]).items()
    assert checkout == str((tmp_path / "checkout").resolve())
    assert (len(about["commit"]), about["dirty"]) == (40, False)
    assert about["origin"] == "https://***@example.org/tasks.git"
    path.write_text(path.read_text() + "\n# changed\n")
    assert find_commits([inside])[checkout]["dirty"] is True
    assert find_commits([tmp_path / "checkout"])[checkout]["dirty"] is True


# --- what changed ------------------------------------------------------------------------------------


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({"rows": ROWS[:5]}, "dataset changed (6 documents before, 5 now)"),
    "code": ({"helpers": HELPERS + "# changed\n"}, "utils.py"),
    "task": ({"metric_list": [{"metric": "exact_match", "ignore_case": True}]}, "metric exact_match"),
    "settings": ({"generation_kwargs": {"max_gen_toks": 7}}, "max_gen_toks"),
}


@pytest.mark.parametrize(("kind", "change"), CHANGES.items(), ids=CHANGES)
def test_every_change_is_named(task: Path, kind: str, change: tuple[dict[str, Any], str]) -> None:
    then = manifest(task.parent)
    keys, words = change
    write_task(task.parent, **{"helpers": HELPERS, "doc_to_text": Function("utils.text"), **keys})
    drifts = compare_manifests(then, manifest(task.parent))
    assert any(drift.kind == kind and words in drift.what for drift in drifts), drifts
    assert {drift.kind for drift in drifts} <= set(KINDS)


def test_an_unchanged_manifest_reports_no_changes(task: Path) -> None:
    assert compare_manifests(manifest(task.parent), manifest(task.parent)) == []


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        (("model", "identity", "weights"), "model"),
        (("model", "identity", "template_sha256"), "template"),
        (("versions", "packages", "numpy"), "versions"),
        (("versions", "assay"), "versions"),
        (("options", "num_fewshot"), "settings"),
        (("code", "assay.scoring"), "code"),
    ],
)
def test_changes_outside_the_task_are_separate(task: Path, where: tuple[str, ...], kind: str) -> None:
    then = manifest(task.parent)
    changed = place = json.loads(json.dumps(then))
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = "99"
    assert [drift.kind for drift in compare_manifests(then, changed)] == [kind]


# --- recalled ----------------------------------------------------------------------------------------


def test_options_override_the_manifest_and_are_reported(task: Path) -> None:
    recalled = load_options(manifest(task.parent, limit=3), {"limit": 2, "seed": (0, 1234, 1234, 1234)})
    assert (recalled.spec.limit, recalled.given) == (2, ("limit",))
    chosen = load_options(manifest(task.parent, limit=3), {"samples": {"sums": [1]}})
    assert (chosen.spec.limit, chosen.spec.samples) == (None, {"sums": [1]})


def test_relative_paths_are_resolved_from_the_original_folder(
    task: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan = plan_run(make_model(), tasks=["sums.yaml"])
    kept = json.loads(json.dumps(make_manifest(plan)))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    recalled = load_options(kept, {})
    assert recalled.spec.tasks == [str(task)]
    assert plan_run(make_model(), tasks=recalled.spec.tasks).digest == plan.digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a run manifest"),
        ('{"options": {}, "format": 99}', "newer version of Assay"),
    ],
)
def test_a_file_that_is_not_a_manifest_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DatasetError, match=message):
        read_manifest(tmp_path / "manifest.json")


def test_an_unknown_option_is_an_error(task: Path) -> None:
    kept = manifest(task.parent)
    kept["options"]["warp_speed"] = 9
    with pytest.raises(InvalidOption, match="warp_speed"):
        load_options(kept, {})


def test_a_remembered_model_has_the_identity_and_no_answers(task: Path) -> None:
    import asyncio

    kept = manifest(task.parent)
    model = RecordedModel(kept)
    plan = plan_run(model, tasks=[str(task)])
    assert plan.digest == kept["digest"]
    requests = next(iter(plan.tasks["sums"].task.render()))[1]

    async def ask() -> list[Any]:
        await model.open()
        return [outcome async for outcome in model.answer(requests)]

    (failure,) = asyncio.run(ask())
    assert failure.kind == "not asked"


def test_two_runs_with_the_same_short_id_are_distinguished(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.engine.planning.plan.build_run_name", lambda spec, model, digest: "the-same")
    assay.run(model=make_model(), tasks=[str(task)], limit=1).close()
    with pytest.raises(AssayError, match="another run is called `the-same`"):
        assay.run(model=make_model(), tasks=[str(task)], limit=2)
