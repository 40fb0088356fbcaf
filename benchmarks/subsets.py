"""Measure `--budget`: how often the interval of a subset contains the score over all documents, and what the subset saves.

Run `python -m benchmarks.subsets` to write `benchmarks/SUBSETS.md` (about an hour of one core), with `--only NAME` to measure the
rows of some datasets again, `--fast` for a short version that only checks that everything runs. Each model of a dataset is held out in turn: the design is chosen from the other models,
and samples of the held-out model are drawn with it. The design may fall back to simple random sampling, as a run does.

There are three kinds of data: published answers of 24 models to BFCL (`$ASSAY_SHARED/oracle/bfcl`, needs the program `zstd`),
character n-gram models that are trained here and answer ARC and OpenBookQA (`$ASSAY_SHARED/hub`), and simulated models. Without
`$ASSAY_SHARED` only simulated models are measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow.parquet import read_table

from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.subsets.design import SamplingDesign, choose_design, simple_design
from assay.stats.subsets.estimates import estimate_weighted_mean

__all__ = ["Dataset", "main", "measure_dataset"]

Floats = NDArray[np.float64]
BUDGETS = (50, 100, 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Scores of several models on the same documents; only the `tested` ones are held out."""

    name: str
    scores: Floats
    names: tuple[str, ...]
    """The model of each row; all rows of a model are held out together."""

    tested: tuple[int, ...]
    is_odd: bool = False
    """Whether the tested models are unlike those of the history, which then contains none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a dataset and a budget, over all held-out models."""

    dataset: str
    documents: int
    models: int
    budget: int
    stratified: int
    """Held-out models for which the history chose strata instead of simple random sampling."""

    coverage: float
    worst_coverage: float
    bias: float
    """Mean error of the estimates, in standard errors of one estimate."""

    gain: float
    worst_gain: float
    forecast: float
    width_gain: float
    """The squared ratio of the width of Wilson's interval of a simple random sample to that of this interval."""

    plain_coverage: float


def get_shared_folder() -> Path:
    """Return the folder with the public data."""
    return Path(os.environ.get("ASSAY_SHARED", "../shared"))


def read_bfcl() -> Iterator[Dataset]:
    """Yield the verdicts on BFCL, all categories together and the larger ones alone."""
    path = get_shared_folder() / "oracle" / "bfcl" / "verdicts.jsonl.zst"
    if not path.is_file() or shutil.which("zstd") is None:
        return
    text = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout
    rows = [json.loads(line) for line in text.splitlines()]
    models = sorted({row["model"] for row in rows})
    documents = sorted({(row["category"], row["id"]) for row in rows})
    numbers = {document: index for index, document in enumerate(documents)}
    scores = np.full((len(models), len(documents)), np.nan)
    for row in rows:
        scores[models.index(row["model"]), numbers[row["category"], row["id"]]] = float(row["valid"])
    tested = tuple(range(len(models)))
    yield Dataset(name="BFCL", scores=scores, names=tuple(models), tested=tested)
    for category in ("simple_python", "parallel_multiple", "irrelevance"):
        chosen = [index for index, document in enumerate(documents) if document[0] == category]
        part = scores[:, chosen]
        answered = tuple(index for index in tested if np.isfinite(part[index]).mean() > 0.5)
        yield Dataset(name=f"BFCL {category}", scores=part, names=tuple(models), tested=answered)


class NgramModel:
    """A language model of characters: each is predicted from the `order` characters before it, with shorter contexts mixed in."""

    def __init__(self, text: str, order: int) -> None:
        self.order = order
        self.counts = [
            Counter(text[at : at + size] for at in range(len(text))) for size in range(1, order + 2)
        ]
        self.characters = sum(self.counts[0].values())

    def score(self, context: str, answer: str) -> float:
        """Return the log probability of an answer."""
        text = context[-self.order :] + answer
        total = 0.0
        for end in range(len(text) - len(answer), len(text)):
            share = (self.counts[0][text[end]] + 0.1) / (self.characters + 20)
            for size in range(1, min(self.order, end) + 1):
                before = self.counts[size - 1][text[end - size : end]]
                share = (self.counts[size][text[end - size : end + 1]] + 2 * share) / (before + 2)
            total += math.log(share)
        return total


def evaluate_ngram_models() -> Iterator[Dataset]:
    """Train n-gram models on several texts and yield their scores on ARC and OpenBookQA: right or wrong, as `acc` and `acc_norm`."""
    hub = get_shared_folder() / "hub"
    if not hub.is_dir():
        return
    arc, book = hub / "allenai/ai2_arc", hub / "allenai/openbookqa/main"
    texts = {
        "gsm8k": " ".join(row["question"] for row in read_parquet(hub / "openai/gsm8k/main", "train")),
        "wikitext": " ".join(
            row["page"] for row in read_parquet(hub / "EleutherAI/wikitext_document_level/wikitext-2-raw-v1", "test")
        ),
        "ARC": " ".join(join_answer(row) for name in ("ARC-Easy", "ARC-Challenge") for row in read_parquet(arc / name, "train")),
        "OpenBookQA": " ".join(map(join_answer, read_parquet(book, "train"))),
    }  # fmt: skip
    models = {
        f"{name} {order}": NgramModel(text, order) for name, text in texts.items() for order in (1, 3, 5)
    }
    names = tuple(name for name in models for _ in ("acc", "acc_norm"))
    for title, folder in (("n-gram models, ARC-Easy", arc / "ARC-Easy"), ("n-gram models, OpenBookQA", book)):
        columns = [answer_question(row, models.values()) for row in read_parquet(folder, "test")]
        yield Dataset(name=title, scores=np.array(columns).T, names=names, tested=tuple(range(len(names))))


def read_parquet(folder: Path, split: str) -> list[dict[str, Any]]:
    """Return the rows of a split."""
    return [row for path in sorted(folder.glob(f"{split}-*.parquet")) for row in read_table(path).to_pylist()]


def read_question(row: dict[str, Any]) -> str:
    """Return the question of a document of ARC or OpenBookQA."""
    return str(row.get("question") or row["question_stem"])


def join_answer(row: dict[str, Any]) -> str:
    """Return a question with its correct answer."""
    right = row["choices"]["label"].index(row["answerKey"])
    return f"{read_question(row)} {row['choices']['text'][right]}"


def answer_question(row: dict[str, Any], models: Iterable[NgramModel]) -> list[float]:
    """Return whether each model answers a question: with the most likely choice, and with the most likely one per character."""
    right = row["choices"]["label"].index(row["answerKey"])
    scores = []
    for model in models:
        logs = [model.score(f"{read_question(row)} ", text) for text in row["choices"]["text"]]
        per_character = [
            one / max(1, len(text)) for one, text in zip(logs, row["choices"]["text"], strict=True)
        ]
        scores += [float(np.argmax(logs) == right), float(np.argmax(per_character) == right)]
    return scores


def simulate_models(
    name: str,
    *,
    models: int,
    documents: int,
    seed: int,
    ability: float = 0.5,
    odd: str = "",
    graded: bool = False,
) -> Dataset:
    """Simulate models with an item response model of three dimensions; `odd` models answer like none of the others."""
    draw = np.random.default_rng(seed)
    difficulty, slope = draw.normal(0, 1.5, documents), np.exp(draw.normal(0, 0.4, documents))
    skills, loads = draw.normal(0, 0.7, (models, 2)), draw.normal(0, 0.7, (documents, 2))
    logits = slope * (draw.normal(ability, 1, models)[:, None] - difficulty) + skills @ loads.T
    tested = tuple(range(models))
    if odd:
        tested = tuple(range(6))
        for model in tested:
            if odd == "reversed":
                logits[model] = -logits[model]
            else:
                logits[model] = draw.normal(draw.normal(0, 1), 1.5, documents)
    shares = 1 / (1 + np.exp(-logits))
    right = (draw.random(shares.shape) < shares).astype(np.float64)
    scores = draw.beta(4 * shares, 4 * (1 - shares)) if graded else right
    return Dataset(
        name=name,
        scores=scores,
        names=tuple(f"model {index}" for index in range(models)),
        tested=tested,
        is_odd=bool(odd),
    )


def list_datasets() -> Iterator[Dataset]:
    """Yield all datasets."""
    yield from read_bfcl()
    yield from evaluate_ngram_models()
    yield simulate_models("simulated, 30 models", models=30, documents=1000, seed=1)
    yield simulate_models("simulated, 6 models", models=6, documents=800, seed=2)
    yield simulate_models("simulated, easy task", models=20, documents=500, seed=3, ability=3.5)
    yield simulate_models("simulated, graded scores", models=20, documents=600, seed=4, graded=True)
    yield simulate_models("odd models: reversed", models=24, documents=1000, seed=5, odd="reversed")
    yield simulate_models("odd models: random", models=24, documents=1000, seed=6, odd="random")


def measure_dataset(dataset: Dataset, budget: int, samples: int, seed: int = 0) -> Row:
    """Hold out each model, draw samples and measure coverage, bias and gain."""
    draw = np.random.default_rng([seed, budget])
    rows = [_measure_model(dataset, model, budget, samples, draw) for model in dataset.tested]
    coverage, plain, bias, gains, forecasts, widths, stratified = map(np.array, zip(*rows, strict=True))
    return Row(
        dataset=dataset.name,
        documents=dataset.scores.shape[1],
        models=len(dataset.tested),
        budget=budget,
        stratified=int(stratified.sum()),
        coverage=float(coverage.mean()),
        worst_coverage=float(coverage.min()),
        bias=float(bias.mean()),
        gain=float(np.median(gains)),
        worst_gain=float(gains.min()),
        forecast=float(np.median(forecasts)),
        width_gain=float(np.median(widths)),
        plain_coverage=float(plain.mean()),
    )


def _measure_model(
    dataset: Dataset, model: int, budget: int, samples: int, draw: np.random.Generator
) -> tuple[float, float, float, float, float, float, bool]:
    answered = np.isfinite(dataset.scores[model])  # one model of BFCL did not answer all documents
    scores = dataset.scores[model, answered]
    others = [
        index
        for index, name in enumerate(dataset.names)
        if (index not in dataset.tested if dataset.is_odd else name != dataset.names[model])
    ]
    design, forecast = choose_design(
        dataset.scores[np.ix_(others, answered)], budget, [dataset.names[index] for index in others]
    )
    truth = float(scores.mean())
    plain_variance = simple_design(len(scores), budget).compute_variance(scores)
    variance = design.compute_variance(scores)
    hits = plain_hits = 0
    width = plain_width = error = 0.0
    binary = bool(np.isin(scores, (0, 1)).all())
    right = round(float(scores.sum()))
    for sample in _draw_samples(design, scores, samples, draw):
        found = _estimate(design, sample)
        hits += found[1] - 1e-12 <= truth <= found[2] + 1e-12
        width += found[2] - found[1]
        error += found[0] - truth
        if binary:
            successes = draw.hypergeometric(right, len(scores) - right, budget)
            interval = wilson_interval(float(successes), budget)
        else:
            chosen = draw.choice(scores, budget, replace=False)
            interval = estimate_weighted_mean(chosen, [0] * budget, [len(scores)], limits=(0, 1)).interval
        plain_hits += interval.low <= truth <= interval.high
        plain_width += interval.high - interval.low
    gain = plain_variance / max(variance, plain_variance * 1e-3) if plain_variance > 0 else 1.0
    return (
        hits / samples,
        plain_hits / samples,
        error / samples / max(variance, 1e-12) ** 0.5,
        gain,
        1.0 if forecast is None else forecast.median,
        (plain_width / width) ** 2,
        design.is_stratified,
    )


def _draw_samples(
    design: SamplingDesign, scores: Floats, samples: int, draw: np.random.Generator
) -> Iterator[Floats]:
    """Yield the scores of the documents of each sample, stratum by stratum."""
    whole = [scores[stratum] for stratum in design.strata]
    if np.isin(scores, (0, 1)).all():
        right = [round(float(one.sum())) for one in whole]
        found = [
            draw.hypergeometric(successes, len(one) - successes, count, samples)
            for successes, one, count in zip(right, whole, design.counts, strict=True)
        ]
        order = np.concatenate([np.arange(count) for count in design.counts])
        for counts in zip(*found, strict=True):
            yield (order < np.repeat(counts, design.counts)).astype(np.float64)
        return
    for _ in range(samples):
        yield np.concatenate(
            [draw.choice(one, count, replace=False) for one, count in zip(whole, design.counts, strict=True)]
        )


def _estimate(design: SamplingDesign, sample: Floats) -> tuple[float, float, float]:
    found = estimate_weighted_mean(
        sample,
        [number for number, count in enumerate(design.counts) for _ in range(count)],
        [len(stratum) for stratum in design.strata],
        limits=(0.0, 1.0),
    )
    return found.value, found.interval.low, found.interval.high


PAGE = Path(__file__).parent / "SUBSETS.md"
HEADING = """# Subsets chosen from the runs of other models

Written by `python -m benchmarks.subsets`.

- **samples**: samples of each held-out model.
- **strata**: held-out models for which the history chose a stratified sample; the others fall back to simple random sampling.
- **coverage**: share of the 95 % intervals that contain the score over all documents, mean and worst over the held-out models. With 1,500 samples, the worst of 24 models is about one percentage point too low by chance.
- **bias**: mean error of the estimate, in standard errors.
- **gain**: documents that simple random sampling needs for the same variance, divided by the budget; exact, median and worst over the held-out models. **forecast**: the median that the plan announces, from the history alone.
- **width**: the same ratio from the widths of the intervals, against Wilson's interval of a simple random sample, whose coverage is in the last column.
- **n-gram models**: twelve character n-gram models, trained on four texts, which answer real questions; each with `acc` and `acc_norm`.

| dataset | documents | budget | samples | strata | coverage | worst | bias | gain | worst | forecast | width | plain coverage |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""


def format_row(row: Row, samples: int) -> str:
    """Return a line of the table."""
    return (
        f"| {row.dataset} | {row.documents:,} | {row.budget} | {samples} | {row.stratified} of {row.models} | {row.coverage:.3f} |"
        f" {row.worst_coverage:.3f} | {row.bias:+.3f} | {row.gain:.2f} | {row.worst_gain:.2f} | {row.forecast:.2f} |"
        f" {row.width_gain:.2f} | {row.plain_coverage:.3f} |"
    )


def read_rows(page: str) -> dict[tuple[str, str], str]:
    """Return the lines of a page by dataset and budget."""
    lines = page.removeprefix(HEADING).splitlines() if page.startswith(HEADING) else []
    return {(cells[1].strip(), cells[3].strip()): line for line in lines if len(cells := line.split("|")) > 3}


def main() -> int:
    """Measure the datasets and write the table; exit code 1 if an interval covers less than 95 % of the time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--fast", action="store_true", help="few samples; print the table instead of writing it"
    )
    parser.add_argument("--samples", type=int, default=1500)
    parser.add_argument("--only", default="", metavar="NAME", help="only datasets whose name contains NAME")
    given = parser.parse_args()
    samples = 20 if given.fast else given.samples
    lines = read_rows(PAGE.read_text("utf-8")) if given.only else {}
    missed = False
    for dataset in list_datasets():
        for budget in BUDGETS if given.only in dataset.name else ():
            if budget < dataset.scores.shape[1]:
                row = measure_dataset(dataset, budget, samples)
                missed |= row.coverage < 0.95
                lines[row.dataset, str(budget)] = format_row(row, samples)
                print(lines[row.dataset, str(budget)], flush=True)
    if not given.fast:
        PAGE.write_text(HEADING + "\n".join(lines.values()) + "\n", encoding="utf-8")
    return int(missed and not given.fast)


if __name__ == "__main__":
    raise SystemExit(main())
