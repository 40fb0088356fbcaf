"""Verdicts on pairs of runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.core.errors import InvalidOption, UserError
from assay.store.runs.run import Run
from assay.viewer.same_model.verdict import SameModelOptions, judge_same_model
from assay.viewer.same_model.verdict_text import build_channel_table, format_evidence
from assay.viewer.text_tables import render_table_text

DOCUMENTS = 240


def make_model(name: str, wrong_share: float, noise: float = 0.0) -> Callable[[Any], str]:
    """Return a model that answers a share of the questions differently; with noise, differently each time."""
    calls = {"count": 0}

    def answer(prompt: Any) -> str:
        calls["count"] += 1
        word = str(prompt).split()[1]
        fixed = int(hashlib.sha256(f"{name} {word}".encode()).hexdigest()[:8], 16) / 16**8
        drawn = int(hashlib.sha256(f"{name} {word} {calls['count']}".encode()).hexdigest()[:8], 16) / 16**8
        return f"answer {word}" if fixed >= wrong_share and drawn >= noise else f"other {word}"

    answer.__name__ = name
    return answer


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    folder = tmp_path_factory.mktemp("same")
    task = assay.Task(
        name="words",
        documents=[
            {"question": f"say {number}", "answer": f"answer {number}"} for number in range(DOCUMENTS)
        ],
        prompt="{{question}}",
        target="{{answer}}",
        generation_kwargs={"until": ["\n"], "max_gen_toks": 8},
    )

    def run(name: Any, wrong: float = 0.0, *, noise: float = 0.0, **options: Any) -> Run:
        return assay.run(
            model=make_model(name, wrong, noise) if isinstance(name, str) else name,
            tasks=[task],
            output_path=str(folder),
            no_cache=True,
            log_samples=False,
            **options,
        )

    return run


@pytest.fixture(scope="module")
def first(evaluate: Callable[..., Run]) -> Run:
    return evaluate("first")


def test_equal_answers_are_the_same_model(first: Run, evaluate: Callable[..., Run]) -> None:
    verdict = judge_same_model(first, evaluate("second"), SameModelOptions())
    assert verdict.exit_code == 0
    assert verdict.sentence.startswith("Same: both serve the same model within 2 % (certain after 178 of 240")
    assert verdict.flips == (0, 0) and verdict.differing_texts == 0
    assert verdict.lengths is not None and verdict.lengths.first == verdict.lengths.second


def test_other_answers_are_another_model(first: Run, evaluate: Callable[..., Run]) -> None:
    verdict = judge_same_model(first, evaluate("changed", 0.3), SameModelOptions())
    assert verdict.exit_code == 3
    assert verdict.result.decided_after is not None and verdict.result.decided_after < 60
    assert "Different: their" in verdict.sentence and "wrong with probability 5 % at most" in verdict.sentence
    assert verdict.flips is not None and verdict.flips[0] == 0 and verdict.flips[1] > 40
    assert verdict.positions[0] == 1
    lines = list(format_evidence(verdict))
    assert any("lower in the second run" in line for line in lines)
    assert any("first at token 1 in the median" in line for line in lines)
    assert "scores" in render_table_text(build_channel_table(verdict), width=80)


def test_few_documents_are_not_enough_evidence(evaluate: Callable[..., Run]) -> None:
    verdict = judge_same_model(evaluate("few", limit=50), evaluate("second"), SameModelOptions())
    assert verdict.exit_code == 5 and verdict.documents == 50
    assert "Not enough evidence: 50 documents" in verdict.sentence
    assert "about 183 documents like these" in verdict.sentence
    json = verdict.as_json()
    assert json["verdict"] == "undecided" and json["result"]["decided_after"] is None


def test_a_larger_tolerance_needs_fewer_documents(first: Run, evaluate: Callable[..., Run]) -> None:
    verdict = judge_same_model(first, evaluate("second"), SameModelOptions(delta=0.1))
    assert verdict.result.decided_after is not None and verdict.result.decided_after < 40


def test_the_noise_of_a_server_is_subtracted_with_a_reference_run(evaluate: Callable[..., Run]) -> None:
    runs = [evaluate(f"noisy{number}", noise=0.2) for number in range(3)]
    alone = judge_same_model(runs[0], runs[1], SameModelOptions())
    assert alone.result.decision == "different"
    verdict = judge_same_model(runs[0], runs[1], SameModelOptions(), runs[2])
    assert verdict.noise == "reference run" and verdict.result.decision != "different"
    other = judge_same_model(runs[0], evaluate("wrong", 0.9, noise=0.2), SameModelOptions(), runs[2])
    assert other.result.decision == "different"


def test_sampled_answers_need_repeats(evaluate: Callable[..., Run]) -> None:
    sampled: dict[str, Any] = {"gen_kwargs": {"do_sample": True, "temperature": 1.0}}
    runs = [evaluate(f"sampled{number}", noise=0.3, **sampled) for number in range(2)]
    with pytest.raises(UserError, match="sampled answers differ") as raised:
        judge_same_model(runs[0], runs[1], SameModelOptions())
    assert "--repeats 2" in raised.value.hint
    repeated = [evaluate(f"repeated{number}", noise=0.3, repeats=2, **sampled) for number in range(2)]
    verdict = judge_same_model(repeated[0], repeated[1], SameModelOptions())
    assert verdict.noise == "repeats" and verdict.result.decision != "different"
    changed = evaluate("different", 0.8, noise=0.3, repeats=2, **sampled)
    assert judge_same_model(repeated[0], changed, SameModelOptions()).result.decision == "different"


def test_a_more_accurate_and_less_noisy_model_is_not_the_same(evaluate: Callable[..., Run]) -> None:
    sampled: dict[str, Any] = {"gen_kwargs": {"do_sample": True, "temperature": 1.0}}
    runs = [
        evaluate(f"accuracy{number}", noise=noise, **sampled) for number, noise in enumerate((0.4, 0.4, 0.02))
    ]
    verdict = judge_same_model(runs[0], runs[2], SameModelOptions(), runs[1])
    assert verdict.result.decision == "different" and "mean scores" in verdict.result.decided_by
    assert verdict.result.channels[0].mean > 0.25
    table = render_table_text(build_channel_table(verdict), width=100)
    assert "second minus first" in table and "+3" in table
    assert "beyond the noise of the first server" in table
    assert any("noise of the second server is unknown" in line for line in format_evidence(verdict))


def test_a_small_change_on_every_document_is_a_difference_despite_repeats(
    evaluate: Callable[..., Run],
) -> None:
    sampled: dict[str, Any] = {"gen_kwargs": {"do_sample": True, "temperature": 1.0}, "repeats": 2}
    runs = [evaluate("low", noise=0.25, **sampled), evaluate("high", noise=0.05, **sampled)]
    verdict = judge_same_model(runs[0], runs[1], SameModelOptions())
    assert verdict.result.decision == "different" and verdict.result.decided_by == ("mean scores",)


def test_reference_runs_of_both_servers_allow_to_show_that_they_are_the_same(
    evaluate: Callable[..., Run],
) -> None:
    steady = [evaluate(f"steady{number}", limit=230) for number in range(4)]
    verdict = judge_same_model(steady[0], steady[1], SameModelOptions(), steady[2], steady[3])
    assert (verdict.noise, verdict.result.decision) == ("reference runs", "same")
    assert verdict.second_reference == steady[3].id


def test_prompt_variants_of_a_document_count_as_one_document(evaluate: Callable[..., Run]) -> None:
    varied: dict[str, Any] = {"vary": ["system"], "variants": 4, "limit": 60}
    runs = [evaluate(f"varied{number}", **varied) for number in range(2)]
    verdict = judge_same_model(runs[0], runs[1], SameModelOptions())
    assert len(runs[0].tasks) == 4
    assert verdict.documents == 60 and verdict.result.decision == "undecided"
    assert {one.documents for one in verdict.result.channels} == {60}


def test_documents_of_a_cluster_are_one_piece_of_evidence(tmp_path: Path) -> None:
    task = assay.Task(
        name="passages",
        documents=[
            {"passage": number // 4, "question": f"say {number}", "answer": f"answer {number}"}
            for number in range(240)
        ],
        prompt="{{question}}",
        target="{{answer}}",
        cluster_key="passage",
        generation_kwargs={"until": ["\n"], "max_gen_toks": 8},
    )
    runs = [
        assay.run(model=make_model(name, 0.0), tasks=[task], output_path=str(tmp_path), no_cache=True)
        for name in ("one", "two")
    ]
    verdict = judge_same_model(runs[0], runs[1], SameModelOptions())
    assert (verdict.documents, verdict.clusters) == (240, 60)
    assert "60 clusters of documents show neither" in verdict.sentence


def test_other_settings_are_no_comparison(first: Run, evaluate: Callable[..., Run]) -> None:
    with pytest.raises(UserError, match="no request in common"):
        judge_same_model(first, evaluate("longer", gen_kwargs={"max_gen_toks": 9}), SameModelOptions())


def test_unknown_tasks_and_invalid_rates_are_explained(first: Run) -> None:
    with pytest.raises(UserError, match="not in both runs"):
        judge_same_model(first, first, SameModelOptions(tasks=["gsm8k"]))
    with pytest.raises(InvalidOption, match="not between 0 and"):
        SameModelOptions(alpha=0.9)


def test_a_run_and_itself_get_a_note(first: Run) -> None:
    assert any(
        "cannot differ from itself" in note
        for note in judge_same_model(first, first, SameModelOptions()).notes
    )


def test_documents_without_an_answer_are_excluded(first: Run, evaluate: Callable[..., Run]) -> None:
    def fail_often(prompt: Any) -> str:
        if str(prompt).endswith("7"):
            raise ValueError("no answer")
        return make_model("first", 0.0)(prompt)

    verdict = judge_same_model(first, evaluate(fail_often), SameModelOptions())
    assert verdict.documents == DOCUMENTS - 24
    assert any("24 documents have no answer in one of the runs" in note for note in verdict.notes)
