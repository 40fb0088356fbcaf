"""Tests of complete runs with a scripted model: requests, stored responses, and resumed runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.making import ROWS, Function, answer_correctly, make_model, write_choices, write_task, write_texts

import assay
from assay.core.errors import AssayError
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Outcome
from assay.store.cache.response_cache import ResponseCache
from assay.testing import ScriptedModel
from assay.user_code.executor import DirectExecutor

FAILED = Failure(request_id="", kind="timeout", message="no answer in 120 s")


def run(model: Any, *paths: Path, **options: Any) -> assay.Run:
    return assay.run(model=model, tasks=[str(path) for path in paths], **options)


def rows(finished: assay.Run, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(finished.journal.query(f"SELECT {columns} FROM {table}"))


# --- what is asked -------------------------------------------------------------------------------------


def test_every_document_is_answered_and_scored(workspace: Path) -> None:
    model = ScriptedModel()
    finished = run(model, write_task(workspace), write_choices(workspace), write_texts(workspace))
    assert len(model.asked) == 6 + 8 + 3
    assert finished.results["sums"]["exact_match,none"] == 0.0
    assert finished.outcomes("sums") == {"scored": 6}
    assert finished.outcomes("choices") == {"scored": 4}
    assert finished.finished


def test_identical_requests_are_sent_once(workspace: Path) -> None:
    model = make_model(window=2)
    finished = run(model, write_task(workspace, "one", ROWS * 3), write_task(workspace, "two"))
    assert len(model.asked) == len(ROWS)
    assert finished.outcomes("one") == {"scored": 18}
    assert finished.outcomes("two") == {"scored": 6}
    assert finished.journal.count_rows("requests") == 24
    assert finished.journal.count_rows("responses") == 6


def test_repeats_are_sent_individually(workspace: Path) -> None:
    model = make_model(lambda request: str(request.repeat))
    finished = run(model, write_task(workspace, rows=ROWS[:2], repeats=3))
    assert sorted(request.repeat for request in model.asked) == [0, 0, 1, 1, 2, 2]
    (first, _) = finished.samples("sums")
    assert first["resps"] == [["0", "1", "2"]]


def test_many_documents_stream_through_a_small_window(workspace: Path) -> None:
    many = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(1500)]
    model = make_model(window=16, in_flight=3)
    finished = run(model, write_task(workspace, rows=many))
    assert finished.results["sums"]["exact_match,none"] == 1.0
    assert len(model.asked) == 1500
    assert [row["doc_id"] for row in finished.samples("sums")] == list(range(1500))


def test_a_model_is_opened_once_and_closed(workspace: Path) -> None:
    class Careful(ScriptedModel):
        events: list[str]

        def __init__(self) -> None:
            super().__init__(answer_correctly)
            self.events = []

        async def open(self) -> None:
            self.events.append("open")

        async def close(self) -> None:
            self.events.append("close")

    model = Careful()
    run(model, write_task(workspace))
    assert model.events == ["open", "close"]
    model.events.clear()
    run(model, write_task(workspace))
    assert model.events == [], "a finished run needs no model"


def test_a_model_that_cannot_be_opened_is_an_error(workspace: Path) -> None:
    class Heavy(ScriptedModel):
        async def open(self) -> None:
            raise MemoryError("80 GB are needed")

    with pytest.raises(AssayError, match="cannot be opened: MemoryError: 80 GB are needed"):
        run(Heavy(), write_task(workspace))
    assert run(make_model(name="scripted"), write_task(workspace)).finished, (
        "the run can go on with the same identity"
    )


# --- what is remembered --------------------------------------------------------------------------------


def test_a_finished_run_sends_no_requests(workspace: Path) -> None:
    first = run(make_model(), write_task(workspace), no_cache=True)
    model = make_model()
    again = run(model, write_task(workspace), no_cache=True)
    assert model.asked == []
    assert model.opened == 0
    assert again.results == first.results
    assert again.folder == first.folder


def test_only_failed_requests_are_retried(workspace: Path) -> None:
    def mostly(request: Request) -> Any:
        return FAILED if request.document in (1, 4) else answer_correctly(request)

    path = write_task(workspace)
    first = run(make_model(mostly), path, no_cache=True)
    assert first.outcomes("sums") == {"scored": 4, "failed": 2}
    assert first.failed_requests() == (2, 6)
    (estimate,) = first.estimates
    assert (estimate.value, estimate.scored, estimate.failed) == (1.0, 4, 2)
    model = make_model()
    second = run(model, path, no_cache=True)
    assert sorted(request.document for request in model.asked) == [1, 4]
    assert second.outcomes("sums") == {"scored": 6}
    assert second.failed_requests() == (0, 6)
    assert second.journal.count_rows("failures") == 2, "what went wrong stays on record"


def test_a_failed_choice_fails_its_document_and_only_that_choice_is_retried(workspace: Path) -> None:
    from assay.core.records.responses import LogProbability

    def mostly(request: Any) -> Any:
        return (
            FAILED
            if (request.document, request.index) == (2, 1)
            else LogProbability(-float(request.index + 1))
        )

    path = write_choices(workspace)
    first = run(make_model(mostly), path)
    assert first.outcomes("choices") == {"scored": 3, "failed": 1}
    model = make_model(lambda request: LogProbability(-1.5))
    assert run(model, path).outcomes("choices") == {"scored": 4}
    assert [(request.document, request.index) for request in model.asked] == [(2, 1)]


def test_a_resumed_run_samples_the_same_few_shot_examples(workspace: Path) -> None:
    """Documents that are done are passed over, but the sampler must not notice."""

    def half(request: Request) -> Any:
        return FAILED if request.document % 2 else "1"

    path = write_task(workspace, num_fewshot=2, fewshot_split="test")
    whole, first, second = make_model(lambda request: "1"), make_model(half), make_model(lambda request: "1")
    run(whole, path, no_cache=True, output_path="whole")
    run(first, path, no_cache=True, output_path="stopped")
    run(second, path, no_cache=True, output_path="stopped")
    prompts = {request.document: request.prompt.text for request in whole.asked}
    assert len(set(prompts.values())) == 6
    assert {request.document: request.prompt.text for request in second.asked} == {
        n: prompts[n] for n in (1, 3, 5)
    }


def test_an_unanswered_task_shows_its_document_count(workspace: Path) -> None:
    finished = run(make_model(lambda request: FAILED), write_task(workspace))
    (estimate,) = finished.estimates
    assert (estimate.metric, estimate.value, estimate.scored, estimate.failed) == ("exact_match", None, 0, 6)
    assert "no value" in finished.table()


def test_the_cache_serves_other_runs_of_the_same_model(workspace: Path) -> None:
    run(make_model(), write_task(workspace / "a"))
    model = make_model()
    other = run(
        model,
        write_task(workspace / "b", "other_name", [*ROWS, {"question": "What is 9 + 1?", "answer": "10"}]),
    )
    assert [request.document for request in model.asked] == [6]
    assert other.results["other_name"]["exact_match,none"] == 1.0
    assert rows(other, "responses", "source") == [("cache",)] * 6 + [("model",)]


def test_the_cache_does_not_serve_another_model(workspace: Path) -> None:
    run(make_model(name="one"), write_task(workspace))
    model = make_model(lambda request: "7", name="two")
    assert run(model, write_task(workspace)).results["sums"]["exact_match,none"] == 0.0
    assert len(model.asked) == 6


def test_different_settings_are_different_requests(workspace: Path) -> None:
    run(make_model(), write_task(workspace))
    model = make_model()
    run(model, write_task(workspace), gen_kwargs={"max_gen_toks": 3})
    assert len(model.asked) == 6


def test_failures_are_not_cached(workspace: Path) -> None:
    run(make_model(lambda request: FAILED), write_task(workspace / "a"))
    model = make_model()
    run(model, write_task(workspace / "b", "other"))
    assert len(model.asked) == 6


def test_without_a_cache_nothing_is_read_or_written(workspace: Path, assay_home: Path) -> None:
    run(make_model(), write_task(workspace / "a"), no_cache=True)
    assert not (assay_home / "cache.sqlite").exists()
    run(make_model(), write_task(workspace / "b", "filled"))
    model = make_model()
    run(model, write_task(workspace / "c", "other"), no_cache=True)
    assert len(model.asked) == 6


def test_the_cache_can_be_stored_elsewhere(workspace: Path, assay_home: Path) -> None:
    run(make_model(), write_task(workspace), use_cache=str(workspace / "shared" / "mine.sqlite"))
    assert not (assay_home / "cache.sqlite").exists()
    cache = ResponseCache(workspace / "shared" / "mine.sqlite")
    assert len(cache) == 6
    cache.close()


def test_a_cache_that_cannot_be_opened_gives_a_hint(workspace: Path) -> None:
    (workspace / "file").write_text("in the way")
    with pytest.raises(AssayError) as caught:
        run(make_model(), write_task(workspace), use_cache="file/cache.sqlite")
    assert "--no_cache" in caught.value.hint


# --- what comes of it ----------------------------------------------------------------------------------


def test_predict_only_stores_responses_without_scoring(workspace: Path) -> None:
    finished = run(make_model(), write_task(workspace), predict_only=True)
    assert finished.results == {}
    assert finished.outcomes("sums") == {"skipped": 6}
    documents = list(finished.samples("sums"))
    assert [row["resps"] for row in documents] == [[[str(n + 1)]] for n in range(6)]
    assert documents[0]["metrics"] == []


COUNTING = """
class Counting:
    def apply(self, resps, docs):
        return [f"{len(docs)} of them, {doc['answer']}" for doc in docs]
"""


def test_a_cross_document_filter_sees_all_documents_after_a_resume(workspace: Path) -> None:
    many = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(300)]
    steps = [{"name": "count", "filter": [{"function": Function("utils.Counting")}]}]
    path = write_task(workspace, rows=many, helpers=COUNTING, filter_list=steps)

    def half(request: Request) -> Any:
        return FAILED if request.document % 2 else answer_correctly(request)

    first = run(make_model(half, window=8), path)
    assert {row["filtered_resps"][0].partition(" ")[0] for row in first.samples("sums")} == {"150"}
    second = run(make_model(window=8), path)
    answers = [row["filtered_resps"][0] for row in second.samples("sums")]
    assert answers == [f"300 of them, {n + 1}" for n in range(300)]


def test_only_the_document_that_cannot_be_rendered_fails(workspace: Path) -> None:
    helpers = "def text(doc):\n    return 'What is ' + {'3': None}.get(doc['answer'], doc['question'][8:])\n"
    finished = run(make_model(), write_task(workspace, helpers=helpers, doc_to_text=Function("utils.text")))
    assert finished.outcomes("sums") == {"scored": 5, "failed": 1}
    assert finished.failed_requests() == (1, 6)
    ((why,),) = finished.journal.query("SELECT why FROM outcomes WHERE outcome = 'failed'")
    assert why.startswith("not rendered: ")
    assert "TypeError" in why


def test_helper_code_that_raises_does_not_stop_the_run(workspace: Path) -> None:
    helpers = "def results(doc, results):\n    return {'exact_match': 1 / (int(doc['answer']) - 2)}\n"
    finished = run(
        make_model(), write_task(workspace, helpers=helpers, process_results=Function("utils.results"))
    )
    assert finished.outcomes("sums") == {"scored": 5, "unscored": 1}
    (estimate,) = finished.estimates
    assert (estimate.scored, estimate.unscored) == (5, 1)


def test_a_failed_window_fails_only_its_requests(workspace: Path) -> None:
    class Hiccup(ScriptedModel):
        calls = 0

        async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
            self.calls += 1
            if self.calls == 2:
                raise ConnectionError("the line went dead")
            async for outcome in super().answer(window):
                yield outcome

    finished = run(Hiccup(answer_correctly, window=2), write_task(workspace))
    assert finished.outcomes("sums") == {"scored": 4, "failed": 2}


def test_a_model_that_keeps_failing_stops_the_run_and_answers_are_kept(workspace: Path) -> None:
    class Dying(ScriptedModel):
        async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
            if len(self.asked) >= 2:
                raise ConnectionError("the line went dead")
            async for outcome in super().answer(window):
                yield outcome

    path = write_task(
        workspace, rows=[{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(20)]
    )
    with pytest.raises(AssayError, match="failed 3 times in a row"):
        run(Dying(answer_correctly, window=2), path, no_cache=True)
    model = make_model()
    assert run(model, path, no_cache=True).outcomes("sums") == {"scored": 20}
    assert len(model.asked) == 18


def test_texts_with_invalid_unicode_are_stored(workspace: Path) -> None:
    odd = [{"question": "What is 1 \ud83d?", "answer": "\udc00"}, {"question": "What is 2?", "answer": "2"}]
    finished = run(make_model(lambda request: "a \ud83d"), write_task(workspace, rows=odd))
    assert finished.outcomes("sums") == {"scored": 2}
    first = next(iter(finished.samples("sums")))
    assert first["doc"] == odd[0]
    assert first["resps"] == [["a \ufffd"]]


def test_scores_of_any_size_are_stored(workspace: Path) -> None:
    helpers = "def results(doc, results):\n    return {'exact_match': 10 ** 30}\n"
    finished = run(
        make_model(), write_task(workspace, helpers=helpers, process_results=Function("utils.results"))
    )
    assert finished.results["sums"]["exact_match,none"] == pytest.approx(1e30)


def test_evidence_that_cannot_be_stored_leaves_its_document_unscored(workspace: Path) -> None:
    helpers = (
        "def results(doc, results):\n    return {'exact_match': object() if doc['answer'] == '3' else 1.0}\n"
    )
    finished = run(
        make_model(), write_task(workspace, helpers=helpers, process_results=Function("utils.results"))
    )
    assert finished.outcomes("sums") == {"scored": 5, "unscored": 1}
    ((why,),) = finished.journal.query("SELECT why FROM verdicts WHERE kind = 'unscored'")
    assert "cannot store a value of type" in why


def test_progress_counts_requests_and_documents(workspace: Path) -> None:
    from tests.making import plan_run

    from assay.core.progress import RunProgress
    from assay.engine import run as engine
    from assay.store.journal.journal import Journal

    def mostly(request: Request) -> Any:
        return FAILED if request.document == 5 else answer_correctly(request)

    plan = plan_run(make_model(mostly), tasks=[str(write_task(workspace))])

    async def once() -> RunProgress:
        progress = RunProgress()
        journal = Journal.open_for_writing(plan.folder)
        try:
            await engine.run(plan, journal, None, progress, DirectExecutor())
        finally:
            journal.close()
        return progress

    first, second = asyncio.run(once()), asyncio.run(once())
    task = first.tasks["sums"]
    assert (first.stage, first.asked, first.cached, dict(first.failures)) == ("done", 5, 0, {"timeout": 1})
    assert (task.done, task.total, task.endings["failed"], task.scored, task.mean) == (6, 6, 1, 5, 1.0)
    assert (second.tasks["sums"].reused, second.tasks["sums"].done, second.asked) == (5, 6, 0)


def test_every_stored_response_counts_as_reused(workspace: Path) -> None:
    from tests.making import plan_run

    from assay.core.progress import RunProgress
    from assay.engine import run as engine
    from assay.store.cache.response_cache import ResponseCache
    from assay.store.journal.journal import Journal

    twice = [*ROWS, *ROWS]  # the same question for two documents: one response, two requests

    path = str(write_task(workspace, rows=twice))
    cache = ResponseCache(workspace / "cache.sqlite")

    def once(folder: str) -> RunProgress:
        plan = plan_run(make_model(), tasks=[path], output_path=folder)
        progress = RunProgress()
        journal = Journal.open_for_writing(plan.folder)
        try:
            asyncio.run(engine.run(plan, journal, cache, progress, DirectExecutor()))
        finally:
            journal.close()
        return progress

    first, second = once("one"), once("two")
    cache.close()
    assert (first.asked, first.cached) == (len(ROWS), 0)
    assert (second.asked, second.cached) == (0, len(twice))
