"""Replay of lmms_eval corpora, with a small corpus recorded by the real harness."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools.oracle.checks import RecordChecks, count_checks
from tools.oracle.corpus_replay import RecordSelection, replay
from tools.oracle.lmms_eval_environment import RecordingEnvironment, find_package_mismatch
from tools.oracle.lmms_eval_values import Media, encode_value

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore")

MINI = Path(__file__).parent / "mini_lmms_eval"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A writable copy of the small corpus."""
    shutil.copytree(MINI, tmp_path / "corpus")
    return tmp_path / "corpus"


def change_record(corpus: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    path = corpus / "records-00.jsonl"
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for record in records:
        if record["task"] == name:
            change(record)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def replay_corpus(corpus: Path, **selection: Any) -> dict[str, RecordChecks]:
    checks = replay(RecordSelection(corpus=corpus, task_root=corpus / "tasks", **selection))
    return {record.name: record for record in checks}


def test_the_small_corpus_is_identical_and_the_process_is_restored() -> None:
    before = (os.environ.copy(), Path.cwd(), socket.socket.connect, time.sleep, datasets.load_dataset)
    found = replay_corpus(MINI)
    assert {name: checks.first for name, checks in found.items() if checks.first} == {}
    assert set(found) == {
        "mini_choices",
        "mini_letters",
        "mini_messages",
        "mini_pictures",
        "group:mini_group",
        "tag:mini_tag",
    }
    after = (os.environ.copy(), Path.cwd(), socket.socket.connect, time.sleep, datasets.load_dataset)
    assert after == before


def first(one: dict[str, Any], *path: Any) -> Any:
    for key in path:
        one = one[key]
    return one


@pytest.mark.parametrize(
    ("name", "change", "check", "words"),
    [
        ("mini_pictures", lambda one: one["requests"][1].update(ctx="?"), "requests", "[1].ctx"),
        ("mini_pictures", lambda one: one["requests"][1].update(visuals=[]), "requests", "[1].visuals"),
        (
            "mini_pictures",
            lambda one: first(one, "requests", 0, "visuals", 0).update(sha256="0"),
            "requests",
            "sha256",
        ),
        (
            "mini_pictures",
            lambda one: first(one, "requests", 0, "generation_kwargs").update(until=[]),
            "requests",
            "until",
        ),
        ("mini_choices", lambda one: one["requests"][2].update(continuation="x"), "requests", "continuation"),
        ("mini_messages", lambda one: first(one, "messages", 0, "messages").pop(), "requests", "messages[0]"),
        ("mini_messages", lambda one: one["per_model_text"]["qwen3_vl"].reverse(), "requests", "qwen3_vl[0]"),
        (
            "mini_messages",
            lambda one: one["generation_kwargs"]["qwen2_5_vl"].update(max_new_tokens=1),
            "requests",
            "generation_kwargs.qwen2_5_vl",
        ),
        ("mini_pictures", lambda one: one["per_doc"][0].update(target="x"), "requests", "per_doc[0].target"),
        (
            "mini_pictures",
            lambda one: first(one, "samples", 0, "metrics", "clustered").update(score=7.0),
            "metrics",
            "score",
        ),
        (
            "mini_letters",
            lambda one: one["samples"][0].update(filtered_resps=["?"]),
            "metrics",
            "filtered_resps",
        ),
        (
            "mini_pictures",
            lambda one: first(one, "alt_samples", 0, "metrics").update(unlisted="z"),
            "metrics",
            "alt_samples[0]",
        ),
        (
            "mini_pictures",
            lambda one: one["results"].update({"clustered_stderr_clustered,none": 0.5}),
            "results",
            "clustered_stderr_clustered",
        ),
        (
            "mini_pictures",
            lambda one: first(one, "results", "by_room,none").update({"room 0": 2}),
            "results",
            "room 0",
        ),
        (
            "mini_choices",
            lambda one: one["results"].update({"acc_stderr,none": 0.0}),
            "results",
            "acc_stderr",
        ),
        (
            "mini_choices",
            lambda one: one["higher_is_better"].update(acc=False),
            "results",
            "higher_is_better",
        ),
        ("mini_choices", lambda one: one["n_samples"].update(effective=1), "results", "n_samples.effective"),
    ],
)
def test_a_change_in_the_record_is_found(
    corpus: Path, name: str, change: Callable[[dict[str, Any]], Any], check: str, words: str
) -> None:
    change_record(corpus, name, change)
    found = replay_corpus(corpus, task=name)[name].first
    assert found is not None
    assert found[0] == check
    assert words in found[1]


def test_the_small_corpus_contains_every_feature() -> None:
    """An empty corpus would replay as identical too."""
    lines = (MINI / "records-00.jsonl").read_text("utf-8").splitlines()
    records = {record["task"]: record for record in map(json.loads, lines)}
    pictures = records["mini_pictures"]
    assert pictures["requests"][1]["visuals"][0]["mode"] == "L"
    assert "picture" not in pictures["requests"][0]["ctx"]
    assert "'picture'" in records["mini_messages"]["requests"][0]["ctx"]
    assert isinstance(pictures["results"]["clustered_stderr_clustered,none"], float)
    assert pictures["results"]["unlisted,none"] == []
    assert "<think>" in json.dumps(pictures["responses"])
    assert "<think>" not in json.dumps(pictures["samples"])
    assert len(records["mini_letters"]["requests"]) == 12
    assert "unused" not in records["mini_letters"]["requests"][0]["ctx"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"network_attempted": True}, "scoring calls a judge over the network"),
        ({"nondeterministic": True}, "scores are not deterministic"),
    ],
)
def test_scores_that_cannot_be_compared_are_counted_apart(
    corpus: Path, flags: dict[str, Any], reason: str
) -> None:
    def change(one: dict[str, Any]) -> None:
        one["flags"] = flags
        one["results"]["acc,none"] = 9.0

    change_record(corpus, "mini_choices", change)
    found = count_checks(replay_corpus(corpus).values())
    assert found["scores_apart"] == {reason: 1}
    assert found["total"]["requests"] == {"identical": 4, "of": 4}
    assert found["total"]["results"] == {"identical": 3, "of": 3}
    assert found["apart"]["results"] == {"identical": 0, "of": 1}
    assert found["groups"] == {"identical": 2, "of": 2}


def test_a_skipped_metric_is_not_compared(corpus: Path) -> None:
    def change(one: dict[str, Any]) -> None:
        one["skipped_metrics"] = {"acc_norm": "needs a JVM"}
        one["results"]["acc_norm,none"] = "?"

    change_record(corpus, "mini_choices", change)
    assert replay_corpus(corpus, task="mini_choices")["mini_choices"].first is None


def test_a_group_or_tag_that_differs_is_found(corpus: Path) -> None:
    path = corpus / "groups.json"
    recorded = json.loads(path.read_text("utf-8"))
    recorded["groups"]["mini_group"]["task"].pop()
    recorded["tags"]["mini_tag"].append("mini_letters")
    path.write_text(json.dumps(recorded), "utf-8")
    found = replay_corpus(corpus, task="[gt]*:*")
    assert "2 items, recorded 1" in str(found["group:mini_group"].requests)
    assert "missing ['mini_letters']" in str(found["tag:mini_tag"].requests)


def test_a_record_of_other_packages_names_them() -> None:
    assert find_package_mismatch({"deps": ["yaml"], "flags": {}}) == ""
    mismatches = {
        find_package_mismatch({"flags": {"env_variant": "antlr411"}}),
        find_package_mismatch({"deps": ["math_verify"], "flags": {}}),
    }
    assert any("recorded with antlr4" in words for words in mismatches)


def test_values_are_encoded_as_in_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    media = Media(MINI)
    record = json.loads((MINI / "records-00.jsonl").read_text("utf-8").splitlines()[-1])
    picture = record["docs"][0]["picture"]
    assert encode_value(media.decode(picture)) == picture
    written = {
        "nan": {"__float__": "nan"},
        "set": {"__set__": ["a", "b"]},
        "bytes": {"__bytes_b64__": "YQ=="},
        "pairs": {"__dict__": [[1, "x"]]},
        "path": "$HF_HOME/a",
        "here": "$WORK/b",
    }
    assert encode_value(media.decode(written)) == written
    assert encode_value((1, 2.5, None)) == [1, 2.5, None]


def test_helpers_load_splits_and_files_of_the_record_in_processes_too(tmp_path: Path) -> None:
    dill = pytest.importorskip("dill")
    hub = pytest.importorskip("huggingface_hub")
    (tmp_path / "clip.mp4").write_bytes(b"clip")
    environment = RecordingEnvironment()
    try:
        record = {"files": {"$HF_HOME/snap/owner--name/videos/a.mp4": "clip.mp4"}}
        rows = datasets.Dataset.from_list([{"n": 1}])
        with environment.prepare(record, tmp_path, datasets.DatasetDict(test=rows)):
            load = datasets.load_dataset
            assert load("owner/name", split="test")[0] == {"n": 1}
            assert load("owner/name", split="all")[0] == {"n": 1}, "every split has the same documents"
            assert set(load("owner/name")) == {"test"}
            file = hub.hf_hub_download(repo_id="owner/name", filename="videos/a.mp4", repo_type="dataset")
            assert Path(file).read_bytes() == b"clip"
            assert dill.loads(dill.dumps(load))("owner/name", split="test")[0] == {"n": 1}
    finally:
        environment.close()
