"""Metrics of the `evaluate` hub without the hub. Numbers marked *published* are those of the metrics' own pages."""

from __future__ import annotations

import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
from tests.working_sandbox import working_sandbox

from assay.core.errors import ErrorGroup, MissingPackage, UnsupportedRequest
from assay.core.records.specs import MetricSpec, TaskSpec
from assay.sandboxes.program_runner import allow_programs
from assay.scoring.hf_evaluate import LOCAL_METRICS, LoadedMetric, load_metric
from assay.scoring.hf_evaluate.bleu import tokenize_13a
from assay.scoring.hf_evaluate.code_eval import pass_at_k, run_candidates
from assay.scoring.hf_evaluate.squad import compute_f1, match_exactly, normalize_answer, tokenize_answer
from assay.scoring.scorer import Scorer


def allow_any_sandbox() -> Any:
    chosen = working_sandbox()
    return allow_programs(chosen["sandbox"], i_know=True, **chosen["sandbox_args"])


PUBLISHED: list[tuple[str, dict[str, Any], Any]] = [
    (
        "bleu",
        {
            "predictions": ["hello there general kenobi", "foo bar foobar"],
            "references": [["hello there general kenobi", "hello there !"], ["foo bar foobar"]],
        },
        {
            "bleu": 1.0,
            "precisions": [1.0, 1.0, 1.0, 1.0],
            "brevity_penalty": 1.0,
            "length_ratio": 1.1666666666666667,
            "translation_length": 7,
            "reference_length": 6,
        },
    ),
    (
        "rouge",
        {"predictions": ["hello there", "general kenobi"], "references": ["hello there", "general kenobi"]},
        {"rouge1": 1.0, "rouge2": 1.0, "rougeL": 1.0, "rougeLsum": 1.0},
    ),
    (
        "rouge",
        {
            "predictions": ["hello there", "general kenobi"],
            "references": [["hello", "there"], ["general kenobi", "general yoda"]],
        },
        {
            "rouge1": 0.8333333333333333,
            "rouge2": 0.5,
            "rougeL": 0.8333333333333333,
            "rougeLsum": 0.8333333333333333,
        },
    ),
    (
        "wer",
        {
            "predictions": ["this is the prediction", "there is an other sample"],
            "references": ["this is the reference", "there is another one"],
        },
        0.5,
    ),
    (
        "cer",
        {
            "predictions": ["this is the prediction", "there is an other sample"],
            "references": ["this is the reference", "there is another one"],
        },
        0.34146341463414637,
    ),
    ("accuracy", {"references": [0, 1, 2, 0, 1, 2], "predictions": [0, 1, 1, 2, 1, 0]}, {"accuracy": 0.5}),
    ("accuracy", {"references": [0, 1], "predictions": [0, 0], "normalize": False}, {"accuracy": 1.0}),
    ("f1", {"references": [0, 1, 0, 1, 0], "predictions": [0, 0, 1, 1, 0]}, {"f1": 0.5}),
    (
        "f1",
        {"references": [0, 1, 2, 0, 1, 2], "predictions": [0, 2, 1, 0, 0, 1], "average": "macro"},
        {"f1": 0.26666666666666666},
    ),
    ("precision", {"references": [0, 1, 0, 1, 0], "predictions": [0, 0, 1, 1, 0]}, {"precision": 0.5}),
    (
        "recall",
        {"references": [0, 0, 1, 1, 1], "predictions": [0, 1, 0, 1, 1]},
        {"recall": 0.6666666666666666},
    ),
    (
        "matthews_correlation",
        {"references": [1, 3, 2, 0, 3, 2], "predictions": [1, 2, 2, 0, 3, 3]},
        {"matthews_correlation": 0.5384615384615384},
    ),
    (
        "exact_match",
        {
            "references": ["the cat", "theater", "YELLING", "agent007"],
            "predictions": ["cat?", "theater", "yelling", "agent"],
            "regexes_to_ignore": ["the ", "yell"],
            "ignore_case": True,
            "ignore_punctuation": True,
        },
        {"exact_match": 0.5},
    ),
    (
        "squad_v2",
        {
            "predictions": [{"prediction_text": "1976", "id": "q", "no_answer_probability": 0.0}],
            "references": [{"answers": {"answer_start": [97], "text": ["1976"]}, "id": "q"}],
        },
        {
            "exact": 100.0,
            "f1": 100.0,
            "total": 1,
            "HasAns_exact": 100.0,
            "HasAns_f1": 100.0,
            "HasAns_total": 1,
            "best_exact": 100.0,
            "best_exact_thresh": 0.0,
            "best_f1": 100.0,
            "best_f1_thresh": 0.0,
        },
    ),
    (
        "squad",
        {
            "predictions": [{"prediction_text": "1976", "id": "q"}],
            "references": [{"answers": {"answer_start": [97], "text": ["1976"]}, "id": "q"}],
        },
        {"exact_match": 100.0, "f1": 100.0},
    ),
    (
        "chrf",
        {
            "predictions": [
                "The relationship between cats and dogs is not exactly friendly.",
                "a good bookshop is just a genteel black hole that knows how to read.",
            ],
            "references": [
                ["The relationship between dogs and cats is not exactly friendly."],
                ["A good bookshop is just a genteel Black Hole that knows how to read."],
            ],
        },
        {"score": 84.64214891738334, "char_order": 6, "word_order": 0, "beta": 2},
    ),
    (
        "ter",
        {
            "predictions": [
                "does this sentence match??",
                "what about this sentence?",
                "What did the TER metric user say to the developer?",
            ],
            "references": [
                ["does this sentence match", "does this sentence match!?!"],
                ["wHaT aBoUt ThIs SeNtEnCe?", "wHaT aBoUt ThIs SeNtEnCe?"],
                ["Your jokes are...", "...TERrible"],
            ],
            "case_sensitive": True,
        },
        {"score": 150.0, "num_edits": 15, "ref_length": 10.0},
    ),
]


@pytest.mark.parametrize(("name", "given", "expected"), PUBLISHED, ids=lambda value: str(value)[:20])
def test_published_numbers(name: str, given: dict[str, Any], expected: Any) -> None:
    found = load_metric(name).compute(**given)
    assert found == (
        pytest.approx(expected, abs=1e-12) if not isinstance(expected, dict) else _close(expected)
    )


def _close(expected: dict[str, Any]) -> Any:
    return {key: pytest.approx(value, rel=1e-9, abs=1e-12) for key, value in expected.items()}


def test_every_served_metric_can_be_loaded_where_its_package_is() -> None:
    for name in set(LOCAL_METRICS) - {"bertscore"}:
        assert isinstance(load_metric(name), LoadedMetric)


def test_a_metric_whose_package_is_missing_says_which() -> None:
    with pytest.raises(ModuleNotFoundError, match="bleurt") as caught:
        load_metric("bleurt")
    assert caught.value.name == "bleurt"


def test_other_names_are_asked_of_the_real_package() -> None:
    assert load_metric("my_metric", "a config", real=lambda name, config: (name, config)) == (
        "my_metric",
        "a config",
    )
    with pytest.raises(ModuleNotFoundError, match="does not implement the metric `my_metric`"):
        load_metric("my_metric")


def test_pairs_can_be_added_before_computing() -> None:
    measure = load_metric("exact_match")
    measure.add(prediction="a", reference="a")
    measure.add_batch(predictions=["b"], references=["c"])
    assert measure.compute() == {"exact_match": 0.5}
    assert measure.compute(predictions=["x"], references=["x"]) == {"exact_match": 1.0}


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 predictions, 2 references"):
        load_metric("wer").compute(predictions=["a"], references=["a", "b"])


def test_a_metric_that_draws_leaves_the_global_generator_alone() -> None:
    given = {"predictions": ["a b", "c d", "e f"], "references": ["a x", "c d", "y f"]}
    numpy.random.seed(1234)
    measure = load_metric("rouge")
    first, after = measure.compute(**given), numpy.random.random()
    numpy.random.seed(1234)
    assert numpy.random.random() == after
    assert measure.compute(**given) == first


def test_a_hub_metric_without_its_package_fails_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TaskSpec(name="t", metrics=(MetricSpec(metric="bleurt", arguments={"hf_evaluate": True}),))
    with pytest.raises(ErrorGroup) as caught:
        Scorer.from_spec(spec)
    assert isinstance(caught.value.errors[0], MissingPackage)


# --- bleu -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A 1,000.5% rise, e.g. 3-4.", "A 1,000.5 % rise , e . g . 3 - 4 ."),
        ("&quot;a &amp; b&quot; &lt;c&gt;", '" a & b " < c >'),
        ("line-\nbreak and\nmore<skipped>", "linebreak and more"),
        ("don't—stop 東京", "don't—stop 東京"),
        ("", ""),
    ],
)
def test_words_are_those_of_mteval_13a(line: str, words: str) -> None:
    assert tokenize_13a(line) == words.split()


def test_bleu_by_hand() -> None:
    found = load_metric("bleu").compute(predictions=["a b c d e"], references=["a b c d f g"])
    assert found["precisions"] == [4 / 5, 3 / 4, 2 / 3, 1 / 2]
    assert found["brevity_penalty"] == math.exp(1 - 6 / 5)
    assert found["bleu"] == pytest.approx(math.exp(1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_bleu_without_a_shared_fourgram_is_zero_unless_smoothed() -> None:
    given = {"predictions": ["a b c"], "references": ["a b c"]}
    assert load_metric("bleu").compute(**given)["bleu"] == 0.0
    assert load_metric("bleu").compute(**given, smooth=True)["bleu"] == 1.0


def test_bleu_of_nothing_is_an_error_as_in_evaluate() -> None:
    with pytest.raises(ZeroDivisionError):
        load_metric("bleu").compute(predictions=[""], references=["a"])


# --- squad ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "given", "same", "shared"),
    [
        ("The Cat!", "cat", 1, 1.0),
        ("a b c d", "b c x", 0, 2 * (2 / 3) * (2 / 3) / (4 / 3)),
        ("", "", 1, 1),
        ("", "something", 0, 0),
        ("red", "blue", 0, 0),
    ],
)
def test_short_answers(expected: str, given: str, same: int, shared: float) -> None:
    assert match_exactly(expected, given) == same
    assert compute_f1(expected, given) == pytest.approx(shared)


def test_what_counts_of_an_answer() -> None:
    assert normalize_answer(" An  Apple-tree, the one. ") == "appletree one"
    assert tokenize_answer("") == []


def test_unanswerable_questions_and_the_best_threshold() -> None:
    predictions = [
        {"id": "1", "prediction_text": "right", "no_answer_probability": 0.1},
        {"id": "2", "prediction_text": "wrong", "no_answer_probability": 0.9},
        {"id": "3", "prediction_text": "", "no_answer_probability": 0.5},
    ]
    references = [
        {"id": "1", "answers": {"text": ["right"]}},
        {"id": "2", "answers": {"text": []}},
        {"id": "3", "answers": {"text": []}},
    ]
    found = load_metric("squad_v2").compute(predictions=predictions, references=references)
    assert found["exact"] == pytest.approx(200 / 3)
    assert (found["HasAns_exact"], found["NoAns_exact"], found["NoAns_total"]) == (100.0, 50.0, 2)
    assert (found["best_exact"], round(found["best_exact_thresh"], 6)) == (100.0, 0.1)
    strict = load_metric("squad_v2").compute(
        predictions=predictions, references=references, no_answer_threshold=0.8
    )
    assert strict["exact"] == 100.0


# --- code -------------------------------------------------------------------------------------------


def test_pass_at_k_published() -> None:
    with allow_any_sandbox():
        scores, results = load_metric("code_eval").compute(
            references=["assert add(2,3)==5"],
            predictions=[["def add(a,b): return a*b", "def add(a, b): return a+b"]],
            k=[1, 2, 10],
        )
    assert scores == {"pass@1": 0.5, "pass@2": 1.0}
    assert [(number, one["passed"]) for number, one in results[0]] == [(0, False), (1, True)]


def test_code_is_not_run_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedRequest, match="only be executed within a run"):
        load_metric("code_eval").compute(references=["1"], predictions=[["1"]])


@pytest.mark.parametrize(
    ("total", "right", "k"), [(10, 3, 1), (10, 3, 5), (200, 17, 100), (5, 0, 2), (5, 5, 5)]
)
def test_pass_at_k_is_the_published_product(total: int, right: int, k: int) -> None:
    product = (
        1.0 if total - right < k else 1 - numpy.prod(1.0 - k / numpy.arange(total - right + 1, total + 1))
    )
    assert pass_at_k(total, right, k) == pytest.approx(float(product))


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("assert 1 + 1 == 2", "passed"),
        ("assert False, 'not so'", "failed: not so"),
        ("raise SystemExit(0)", "failed: 0"),
        ("print('passed')\nimport os\nos._exit(0)", "failed: no result"),
        ("def f(: pass", "failed: "),
        ("import subprocess\nsubprocess.Popen(['true'])", "failed: 'NoneType' object is not callable"),
        ("import os\nassert not any('KEY' in name for name in os.environ)", "passed"),
        ("x = 'a' * (1 << 40)", "failed: "),
        ("if __name__ == '__main__':\n    raise ValueError", "passed"),
    ],
)
def test_a_candidate_ends(program: str, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    with allow_any_sandbox():
        assert run_candidates([program])[0].startswith(ending)


def test_a_candidate_that_never_ends_is_ended() -> None:
    sleeping, busy, deaf = (
        "import time\ntime.sleep(60)",
        "while True: pass",
        "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(60)",
    )
    with allow_any_sandbox():
        assert run_candidates([sleeping, busy], timeout_s=0.2) == ["timed out", "timed out"]
        assert run_candidates([deaf], timeout_s=0.2) == ["timed out"]


# --- bertscore --------------------------------------------------------------------------------------


def test_bertscore_keeps_its_model_and_uses_evaluates_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class BERTScorer:
        hash = "fake"

        def __init__(self, **options: Any) -> None:
            made.append(options)

        def score(self, given: list[str], expected: list[str], **_: Any) -> Any:
            return tuple(
                numpy.array([float(one == other) for one, other in zip(given, expected, strict=True)])
                for _ in "prf"
            )

    fake = ModuleType("bert_score")
    fake.__spec__ = SimpleNamespace(name="bert_score")  # type: ignore[assignment]
    fake.BERTScorer = BERTScorer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bert_score", fake)
    measure = load_metric("bertscore")
    for _ in range(2):
        found = measure.compute(predictions=["a", "b"], references=["a", "c"], lang="en", device=None)
    assert found == {"precision": [1.0, 0.0], "recall": [1.0, 0.0], "f1": [1.0, 0.0], "hashcode": "fake"}
    assert made == [{"idf": False, "lang": "en", "model_type": None, "idf_sents": None}]
    with pytest.raises(ValueError, match="`lang` or `model_type`"):
        measure.compute(predictions=["a"], references=["a"])
