"""Replay of lm_eval corpora, with a small corpus recorded by the real harness from tasks in this folder."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools.oracle.checks import CHECKS, RecordChecks, count_checks
from tools.oracle.comparison import find_difference
from tools.oracle.corpus import CorpusError, detect_harness, read_records
from tools.oracle.corpus_replay import (
    RecordSelection,
    _count_alarms_in_processor_time,
    replay,
    replay_in_processes,
)
from tools.oracle.lm_eval_values import decode_documents, encode_value, request_key

pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore")

MINI = Path(__file__).parent / "mini_lm_eval"
PROJECT = Path(__file__).parents[3]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A writable copy of the small corpus."""
    shutil.copytree(MINI, tmp_path / "corpus")
    return tmp_path / "corpus"


def change_record(corpus: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit the default record of a task, or a group's."""
    for path in corpus.glob("*.jsonl"):
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for record in records:
            if (
                record.get("task", f"group:{record.get('group')}") == name
                and record.get("variant", "default") == "default"
            ):
                change(record)
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def replay_corpus(corpus: Path, **selection: Any) -> dict[str, RecordChecks]:
    checks = replay(RecordSelection(corpus=corpus, task_root=corpus / "tasks", **selection))
    return {record.name: record for record in checks}


def test_everything_in_the_small_corpus_is_identical() -> None:
    found = replay_corpus(MINI)
    assert {name: checks.first for name, checks in found.items() if checks.first} == {}
    assert {"mini_add", "mini_facts#chat_mt_sys_fs3", "mini_class", "group:mini"} <= set(found)
    assert len(found) == 15


def test_the_small_corpus_contains_every_feature() -> None:
    """An empty corpus would replay as identical too."""
    records = {
        record["task"]: record
        for record in read_records(MINI, "tasks-*.jsonl*")
        if record["variant"] == "default"
    }
    assert records["mini_class"]["requests"][1]["type"] == "loglikelihood"
    assert records["mini_add"]["requests"][0]["repeats"] == 3
    assert records["mini_add"]["requests"][0]["args"][0].startswith("Add the numbers.\n\n")
    assert all(len(record["requests"]) >= 3 for record in records.values())


@pytest.mark.parametrize(
    ("name", "change", "check", "words"),
    [
        ("mini_add", lambda one: one["requests"][2]["args"].__setitem__(0, "?"), "requests", "[2].args[0]"),
        ("mini_add", lambda one: one["requests"].pop(), "requests", "6 items, recorded 5"),
        ("mini_add", lambda one: one["samples"][0].update(target="x"), "metrics", "[0].target"),
        ("mini_add", lambda one: one["samples"][3]["metrics"].update(exact_match=9.0), "metrics", "exact_match"),
        ("mini_facts", lambda one: one["samples"][0].update(doc_hash="0"), "metrics", "doc_hash"),
        ("mini_facts", lambda one: one["results"].update({"acc,none": 0.3}), "results", "acc,none"),
        ("mini_facts", lambda one: one["higher_is_better"].update(acc=False), "results", "higher_is_better.acc"),
        ("mini_facts", lambda one: one.update(version=7), "results", "version"),
        ("mini_facts", lambda one: one["n_samples"].update(original=99), "results", "n_samples.original"),
        ("mini_facts", lambda one: one.update(n_shot=5), "results", "n_shot"),
        ("mini_facts", lambda one: one.update(yaml_relpath="gone.yaml"), "requests", "gone.yaml"),
        ("group:mini", lambda one: one["tasks"].pop(), "requests", "tasks"),
        ("group:mini", lambda one: one.update(extra_responses={}), "requests", "without a recorded response"),
        ("group:mini", lambda one: one["results"]["mini_add"].update(alias="x"), "metrics", "mini_add.alias"),
        ("group:mini", lambda one: one["results"]["mini"].update({"acc,none": 1.0}), "results", "results.mini.acc,none"),
        ("group:mini", lambda one: one["versions"].update(mini="9"), "results", "versions.mini"),
        ("group:mini", lambda one: one["n_shot"].pop("mini"), "results", "n_shot"),
    ],
)  # fmt: skip
def test_a_difference_is_found_and_named(
    corpus: Path, name: str, change: Callable[[dict[str, Any]], None], check: str, words: str
) -> None:
    change_record(corpus, name, change)
    first = replay_corpus(corpus, task=name)[name].first
    assert first is not None and first[0] == check
    assert words in first[1]


def test_a_record_may_lack_what_is_optional(corpus: Path) -> None:
    def strip(record: dict[str, Any]) -> None:
        for key in set(record) - {
            "task",
            "yaml_relpath",
            "limit",
            "splits",
            "requests",
            "responses",
            "variant",
        }:
            del record[key]
        for request in record["requests"]:
            del request["idx"], request["repeats"]

    change_record(corpus, "mini_facts", strip)
    assert replay_corpus(corpus, task="mini_facts")["mini_facts"].first is None


def test_records_that_use_a_global_random_state_are_counted_apart(corpus: Path) -> None:
    change_record(corpus, "mini_facts", lambda record: record.update(uses_global_rng=True))
    found = replay_corpus(corpus)
    assert found["mini_facts"].excluded and found["group:mini"].excluded
    counts = count_checks(found.values())
    assert counts["total"]["results"] == {"identical": 13, "of": 13}
    assert counts["apart"]["results"] == {"identical": 2, "of": 2}


@pytest.mark.parametrize(
    ("selection", "count"),
    [({"task": "mini_add"}, 4), ({"task": "group:*"}, 1), ({"every": 5}, 4), ({"family": "nowhere"}, 0)],
)
def test_selects_a_part(selection: dict[str, Any], count: int) -> None:
    assert len(replay_corpus(MINI, **selection)) == count


def test_shares_add_up_to_the_whole() -> None:
    shares = [set(replay_corpus(MINI, share=share, shares=2)) for share in range(2)]
    assert shares[0] | shares[1] == set(replay_corpus(MINI)) and not shares[0] & shares[1]


def test_counts_have_the_documented_shape() -> None:
    counts = count_checks(
        [RecordChecks(task="a"), RecordChecks(task="b", metrics="differs", results="differs")]
    )
    assert counts["total"] == {
        "requests": {"identical": 2, "of": 2},
        "metrics": {"identical": 1, "of": 2},
        "results": {"identical": 1, "of": 2},
    }
    assert counts["tasks"]["b"] == {"requests": "identical", "metrics": "differs", "results": "differs"}


def run_command(*arguments: str, module: str = "tools.oracle.replay") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, cwd=PROJECT
    )


def test_the_command_prints_counts_and_writes_them(tmp_path: Path, corpus: Path) -> None:
    change_record(corpus, "mini_add", lambda record: record["results"].update({"exact_match,vote": 0.5}))
    found = run_command(
        str(corpus),
        "--task_root",
        str(corpus / "tasks"),
        "--jobs",
        "2",
        "--json",
        str(tmp_path / "counts.json"),
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        "requests identical 15/15",
        "metrics identical 15/15",
        "results identical 14/15",
    ]
    assert "mini_add  results: exact_match,vote" in found.stderr
    counts = json.loads((tmp_path / "counts.json").read_text("utf-8"))
    assert counts["total"]["results"] == {"identical": 14, "of": 15}
    assert set(counts["tasks"]["mini_add"]) == set(CHECKS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{empty}", "--task_root", "{mini}"], "no recorded corpus in"),
        (["{mini}", "--task_root", "{mini}", "--task", "unknown"], "no record of the corpus is selected"),
        (["{mini}", "--task_root", "{empty}/not_there"], "does not exist"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(tmp_path: Path, arguments: list[str], words: str) -> None:
    found = run_command(*(argument.format(empty=tmp_path, mini=MINI) for argument in arguments))
    assert found.returncode != 0
    assert words in found.stderr and "Traceback" not in found.stderr


# --- the small parts --------------------------------------------------------------------------------


def test_detects_the_harness_of_a_corpus(tmp_path: Path) -> None:
    assert detect_harness(MINI) == "lm_eval"
    (tmp_path / "records-00.jsonl").touch()
    assert detect_harness(tmp_path) == "lmms_eval"
    with pytest.raises(CorpusError):
        detect_harness(tmp_path / "nothing")


def test_keys_are_those_of_the_harness() -> None:
    for record in read_records(MINI, "tasks-*.jsonl*"):
        for request in record["requests"]:
            assert request_key(request["type"], request["args"]) == request["key"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1, 2.5), [1, 2.5]),
        (math.inf, {"$float": "inf"}),
        ({1: "a"}, {"1": "a"}),
        ({"b", "a"}, {"$set": ["a", "b"]}),
        (None, None),
    ],
)
def test_values_are_encoded_as_in_the_corpus(value: Any, written: Any) -> None:
    assert encode_value(value) == written


def test_tagged_values_are_decoded() -> None:
    assert decode_documents([{"a": {"$float": "-inf"}, "b": {"$set": [1]}}]) == [{"a": -math.inf, "b": {1}}]


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        (1.0, 1.0 + 1e-12, None),
        (1.0, 1.1, ": 1.0, recorded 1.1"),
        ({"a": 1}, {"b": 1}, "keys: unexpected ['a'], missing ['b']"),
        ([1], [1, 2], ": 1 items, recorded 2"),
        ("abc", "abd", ": …'abc', recorded …'abd' (character 2)"),
        (True, 1, None),
        ("1", 1, ": '1', recorded 1"),
    ],
)
def test_describes_the_first_difference(ours: Any, theirs: Any, found: str | None) -> None:
    assert find_difference(ours, theirs) == found


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="this system has no timer of processor time")
def test_alarms_of_helpers_count_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_time(*_: object) -> None:
        raise TimeoutError

    def compute() -> None:
        while True:
            pass

    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF)}
    monkeypatch.setattr(signal, "alarm", signal.alarm)  # restored after the test
    _count_alarms_in_processor_time()
    signal.signal(signal.SIGALRM, out_of_time)
    try:
        signal.alarm(1)
        time.sleep(1.2)  # waiting does not count
        assert signal.alarm(1) == 1
        with pytest.raises(TimeoutError):
            compute()
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_recording_of_an_older_version_is_identical_when_the_changes_since_then_are_undone() -> None:
    """Recorded with lm_eval 0.4.8: generation settings, white space, `ter`, and a document drawn as its own example."""
    corpus = Path(__file__).parent / "lm_eval_0_4_8"

    def find_different(as_version: str) -> dict[str, str]:
        selection = RecordSelection(corpus=corpus, task_root=corpus / "tasks", as_version=as_version)
        return {record.name: record.first[0] for record in replay_in_processes(selection, 1) if record.first}

    assert find_different("0.4.8") == {}
    assert find_different("") == {
        "old_defaults": "requests",
        "old_defaults#fs2": "requests",
        "old_examples#fs2": "requests",
    }


@pytest.mark.parametrize(
    ("version", "settings", "draws_first", "stripped", "template"),
    [
        ("0.4.3", {"until": None, "do_sample": False}, True, "remove_leading_space", "x1"),
        ("0.4.9.1", {"until": None, "do_sample": False, "temperature": 0}, True, "strip_left", "x1\n"),
        (
            "0.4.12",
            {"until": None, "do_sample": False, "temperature": 0.0, "max_gen_toks": 256},
            False,
            "remove_whitespace",
            "x1\n",
        ),
    ],
)
def test_the_changes_since_a_version_are_undone(
    version: str, settings: dict[str, Any], draws_first: bool, stripped: str, template: str
) -> None:
    script = (
        "import json, sys\n"
        "from assay.core.dialects import Dialect\n"
        "from assay.tasks.prompts.fewshot_examples import FewshotSampler\n"
        "from assay.tasks.prompts.templates import compile_template\n"
        "from tools.oracle.lm_eval_versions import apply_version\n"
        "apply_version(sys.argv[1])\n"
        "lm, rows = Dialect.LM_EVAL, [{'n': 0}, {'n': 1}, {'n': 2}]\n"
        "print(json.dumps([lm.default_generation(None), lm.may_draw_fewer_examples,\n"
        "    lm.resolve_filter('remove_whitespace'), lm.default_direction('ter', False),\n"
        "    FewshotSampler('first_n', rows, 0).pick(2, rows[0]), compile_template('x{{n}}\\n')(rows[1])]))\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script, version], capture_output=True, text=True, check=True, cwd=PROJECT
    )
    assert json.loads(completed.stdout) == [settings, draws_first, stripped, True, [0, 1], template]


def test_a_wrong_version_is_an_error() -> None:
    from tools.oracle.lm_eval_versions import apply_version

    with pytest.raises(CorpusError, match="is not a version"):
        apply_version("newest")
