from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Assay
from tests.making import make_model, write_task

import assay
from assay.store.documents.score_tables import ScoreTableSource
from assay.viewer.analysis.power import PowerOptions, analyse_power
from assay.viewer.comparison.sources import open_source


@pytest.fixture
def runs(make_run: Callable[..., str], workspace: Path) -> list[str]:
    """Three runs of a hundred sums with other mistakes each."""
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "text": n // 10} for n in range(100)]
    task = str(write_task(workspace, "sums", rows))
    return [
        make_run("a", lambda document: document % 2 == 0, task),
        make_run("b", lambda document: document % 4 == 0, task),
        make_run("c", lambda document: document % 5 == 0, task),
    ]


def found(assay_command: Assay, *arguments: str) -> dict[str, object]:
    called = assay_command("power", *arguments, "--json")
    assert called.code == 0, called.err
    (row,) = json.loads(called.out)
    return dict(row)


def test_without_runs_the_worst_case_is_assumed(assay_command: Assay) -> None:
    row = found(assay_command, "--effect", "3", "--correlation", "0")
    assert row["needed"] == [[3.0, 4433]]  # 4361 by the normal approximation
    assert row["test"] == "exact McNemar"
    assert "worst case" in assay_command("power").out


def test_pilot_runs_give_the_variances(assay_command: Assay, runs: list[str]) -> None:
    one = found(assay_command, runs[0])
    two = found(assay_command, runs[0], runs[1])
    three = found(assay_command, *runs)
    assert one["spread"] == pytest.approx(50.0, rel=0.02)
    assert two["spread"] == pytest.approx(100 * (0.265 - 0.245**2) ** 0.5, rel=0.02)
    assert two["correlation"] == pytest.approx(0.577, abs=0.01)
    assert "3 runs as repeats" in str(three["how"])
    assert found(assay_command, *runs, "--repeats", "9")["detectable"] < three["detectable"]  # type: ignore[operator]


def test_more_documents_detect_smaller_differences(assay_command: Assay, runs: list[str]) -> None:
    few, many = (found(assay_command, runs[0], runs[1], "--documents", count) for count in ("100", "400"))
    assert few["detectable"] == pytest.approx(2 * float(str(many["detectable"])), rel=0.1)


def test_five_documents_detect_nothing(assay_command: Assay) -> None:
    assert found(assay_command, "--documents", "5")["detectable"] is None
    assert "so few documents" in assay_command("power", "--documents", "5").out


def test_clusters_increase_the_required_documents(
    assay_command: Assay, make_run: Callable[..., str], workspace: Path
) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "text": n // 10} for n in range(100)]
    task = str(write_task(workspace, "sums", rows))
    alike = make_run("a", lambda document: document // 10 % 2 == 0, task)
    spread = make_run("b", lambda document: document % 2 == 0, task)
    assert found(assay_command, alike, "--cluster_by", "text")["design_effect"] == pytest.approx(11, rel=0.01)
    assert found(assay_command, spread, "--cluster_by", "text")["design_effect"] == 1.0


def test_repeats_of_a_pilot_give_the_sampling_variance(tmp_path: Path) -> None:
    """Simulated: documents of known difficulty, answered eight times; what is needed is what Miller's formula says."""
    draw = np.random.default_rng(5)
    chances = draw.random(400)
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(400)]
    sampled = {"until": ["\n"], "do_sample": True, "temperature": 1.0}
    task = str(write_task(tmp_path, "sums", rows, repeats=8, generation_kwargs=sampled))

    def pilot(place: str, seed: int) -> ScoreTableSource:
        right = np.random.default_rng(seed).random((400, 8)) < chances[:, None]
        model = make_model(
            lambda asked: str(asked.document + 1) if right[asked.document, asked.repeat] else "no"
        )
        run = assay.run(model=model, tasks=[task], no_cache=True, output_path=str(tmp_path / place))
        return open_source(run)

    sources = [pilot("a", 1), pilot("b", 2)]
    within = float((chances * (1 - chances)).mean())
    for repeats in (1, 8):
        (row,) = analyse_power(sources, PowerOptions(repeats=repeats))
        wanted = 100 * (2 * within / repeats) ** 0.5  # equally good on every document: all of it is sampling
        assert row.spread == pytest.approx(wanted, rel=0.1)
        assert "8 and 8 answers" in row.how
    (alone,) = analyse_power(sources[:1], PowerOptions(repeats=8, correlation=0.0))
    assert alone.spread == pytest.approx(100 * (2 * (chances.var() + within / 8)) ** 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--power", "80"], "80 is not between 0 and 1"),
        (["--effect", "-1"], "greater than 0"),
        (["--repeats", "0"], "at least one repeat"),
    ],
)
def test_invalid_arguments_are_reported(assay_command: Assay, arguments: list[str], said: str) -> None:
    called = assay_command("power", *arguments)
    assert called.code == 2
    assert said in called.err


def test_an_unknown_task_is_an_error(assay_command: Assay, runs: list[str]) -> None:
    for pilots, which in ((runs[:1], "the run"), (runs[:2], "both runs"), (runs, "all runs")):
        called = assay_command("power", *pilots, "--tasks", "sums,nope")
        assert called.code == 2
        assert f"no task of {which} is called `nope`" in called.err
        assert "available: sums" in called.err
