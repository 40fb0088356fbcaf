"""Measure how often comparisons, gates, lint findings and cost limits are wrong, by simulation with a known truth.

    python benchmarks/decision_errors.py [--draws 2000] [--write]

Prints a table; `--write` stores it in benchmarks/DECISION_ERRORS.md. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Response, Usage
from assay.engine.running.cost_ledger import CostLedger
from assay.models.prices import Price, PriceTable
from assay.stats.answer_keys import MIN_DOUBT, doubt_key, estimate_abilities
from assay.stats.comparisons.stratified import Stratum, combine_strata, compute_flip_error
from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.numerics.distributions import t_quantile
from assay.testing import ScriptedModel
from assay.viewer.analysis.near_duplicates import find_near_duplicates

Row = tuple[str, str, str, str, bool]
"""What, setting, measured, goal, whether the goal is met."""

Scores = Callable[[np.random.Generator, int], np.ndarray]

DISTRIBUTIONS: dict[str, Scores] = {
    "binary, mean .5": lambda draw, size: (draw.random(size) < 0.5).astype(float),
    "binary, mean .9": lambda draw, size: (draw.random(size) < 0.9).astype(float),
    "uniform": lambda draw, size: draw.random(size),
    "skewed (Beta .3, 3)": lambda draw, size: draw.beta(0.3, 3, size),
}


def build_stratum(steps: np.ndarray) -> Stratum:
    """Return the difference of one task, as a comparison computes it."""
    size = len(steps)
    error = float(steps.std(ddof=1)) / math.sqrt(size)
    if not error and set(np.unique(steps)) <= {-1.0, 0.0, 1.0}:
        wins, losses = int((steps > 0).sum()), int((steps < 0).sum())
        up, down = (wins + 1) / (size + 2), (losses + 1) / (size + 2)  # the floor of Bonett and Price
        error = compute_flip_error(wins, losses, size) or math.sqrt(
            (up + down - (up - down) ** 2) / (size + 2)
        )
    return Stratum(value=float(steps.mean()), stderr=error, degrees=size - 1)


def measure_all_tasks(draws: int) -> Iterator[Row]:
    """Measure false positives and coverage of the row of all tasks."""
    draw = np.random.default_rng(1)
    for name, make in DISTRIBUTIONS.items():
        for tasks, documents in ((2, 4), (5, 4), (2, 10), (20, 5), (2, 50)):
            wrong = 0
            for _ in range(draws):
                steps = [make(draw, documents) - make(draw, documents) for _ in range(tasks)]
                wrong += combine_strata([build_stratum(one) for one in steps]).p_value < 0.05
            share = wrong / draws
            setting = f"{tasks} tasks of {documents} documents, {name}"
            yield (
                "compare, all tasks: false positives at 5 %",
                setting,
                f"{share:.3f}",
                "≤ .065",
                share <= 0.065,
            )


def measure_floors(draws: int) -> Iterator[Row]:
    """Measure how often a gate lets a model pass that is worse than its minimum."""
    draw = np.random.default_rng(2)
    for size in (30, 100, 500):
        right = draw.binomial(size, 0.69, draws)
        bounds = {count: wilson_interval(int(count), size).low for count in np.unique(right)}
        by_interval = float(np.mean([bounds[count] >= 0.7 for count in right]))
        by_point = float(np.mean(right / size >= 0.7))
        shown = f"{by_interval:.3f} (by points {by_point:.2f})"
        yield "gate --min .7: a model of .69 passes", f"{size} documents", shown, "≤ .04", by_interval <= 0.04


def measure_noise_floors(draws: int) -> Iterator[Row]:
    """Measure how often one more run of the baseline is below its noise floor."""
    draw = np.random.default_rng(3)
    for runs in (2, 3, 5, 10):
        scores = draw.normal(0.7, 0.01, (draws, runs + 1))
        spread = scores[:, :runs].std(axis=1, ddof=1)
        floors = t_quantile(0.95, runs - 1) * spread * math.sqrt(2)
        share = float((scores[:, 0] - scores[:, runs] > floors).mean())
        yield (
            "gate: noise floor exceeded by the same model",
            f"{runs} baselines",
            f"{share:.3f}",
            "≤ .06",
            share <= 0.06,
        )


def measure_wrong_keys() -> Iterator[Row]:
    """Measure precision and recall of wrong keys, planted in 3 % of documents."""
    for middle, accuracy in ((1.5, ".73"), (0.7, ".62")):
        for models in (4, 8, 16):
            hits = reports = planted = 0
            for seed in range(3):
                answers, keys, wrong = _simulate_answers(models, middle, seed)
                abilities = estimate_abilities(answers == keys)
                found = [
                    doubt_key(answers[:, at].tolist(), int(keys[at]), abilities, choices=4).probability
                    > MIN_DOUBT
                    for at in range(len(keys))
                ]
                hits += int((np.array(found) & wrong).sum())
                reports, planted = reports + sum(found), planted + int(wrong.sum())
            shown = f"precision {hits / max(reports, 1):.2f}, recall {hits / planted:.2f}"
            yield "lint-benchmark: wrong keys", f"{models} models, mean accuracy {accuracy}", shown, "", True


def _simulate_answers(
    models: int, middle: float, seed: int, documents: int = 1000, choices: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return answers, keys and which keys are wrong; models share 60 % of their mistakes."""
    draw = np.random.default_rng(seed)
    difficulties, truth = draw.normal(0, 1.5, documents), draw.integers(0, choices, documents)
    wrong = draw.random(documents) < 0.03
    keys = np.where(wrong, (truth + draw.integers(1, choices, documents)) % choices, truth)
    tempting = (truth + draw.integers(1, choices, documents)) % choices
    answers = np.empty((models, documents), dtype=int)
    for model, ability in enumerate(np.linspace(middle - 1.2, middle + 1.2, models)):
        knows = draw.random(documents) < 1 / (1 + np.exp(difficulties - ability))
        other = (truth + draw.integers(1, choices, documents)) % choices
        answers[model] = np.where(knows, truth, np.where(draw.random(documents) < 0.6, tempting, other))
    return answers, keys, wrong


def measure_near_duplicates() -> Iterator[Row]:
    """Measure recall and CPU time of near-duplicates among a hundred thousand texts."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(5000)]
    texts = [" ".join(draw.choices(words, k=draw.randint(12, 40))) for _ in range(100_000)]
    planted = range(50_000, 100_000, 50)
    for index in planted:
        text = texts[index - 50_000]
        at = draw.randrange(len(text) - 2)
        changed = (
            text.upper(),
            text.replace(" ", "  ") + " !",
            text[:at] + "x" + text[at + 1 :],
            text[:at] + text[at + 2 :],
        )
        texts[index] = changed[index // 50 % 4]
    started = time.process_time()
    found = dict(find_near_duplicates(texts))
    seconds = time.process_time() - started
    hits = sum(found.get(index) == index - 50_000 for index in planted)
    shown = f"recall {hits / len(planted):.3f}, {len(found) - hits} false, {seconds:.1f} s"
    met = hits >= 0.99 * len(planted) and seconds < 30
    yield "lint-benchmark: near-duplicates", "1,000 planted among 100,000", shown, "recall ≥ .99, < 30 s", met


class _PaidModel(ScriptedModel):
    billed_as = "x/y"

    def __init__(self, limit: int | None) -> None:
        super().__init__()
        self._limit = limit

    def find_output_limit(self, request: Generate) -> int | None:
        return self._limit


def measure_cost_limits(runs: int = 40) -> Iterator[Row]:
    """Measure by how many requests `--max_cost` is exceeded, with up to 256 requests in flight."""
    cases: dict[str, tuple[int | None, Callable[[random.Random], int]]] = {
        "answers up to the limit": (10_000, lambda draw: draw.randint(1, 10_000)),
        "all answers at the limit": (10_000, lambda draw: 10_000),
        "short answers": (10_000, lambda draw: draw.randint(1, 200)),
        "no limit known": (None, lambda draw: draw.randint(4_000, 6_000)),
        "a server that ignores the limit": (1_000, lambda draw: draw.randint(4_000, 5_000)),
        "reasoning that the limit does not count": (32, lambda draw: draw.randint(200, 6_000)),
        "no limit known, few long answers": (
            None,
            lambda draw: min(60_000, int(draw.lognormvariate(6, 1.2))),
        ),
    }
    for name, (limit, length) in cases.items():
        worst = used = 0.0
        for seed in range(runs):
            over, share = asyncio.run(_spend(limit, length, seed))
            worst, used = max(worst, over), used + share / runs
        shown = f"{worst:.2f} requests, {100 * used:.0f} % of the budget used"
        yield "--max_cost: largest overshoot", name, shown, "≤ 1 request", worst <= 1


async def _spend(limit: int | None, length: Callable[[random.Random], int], seed: int) -> tuple[float, float]:
    """Return the overshoot in requests of the highest cost, and the share of the budget that was used."""
    draw = random.Random(seed)
    ledger = CostLedger(PriceTable(({"x/y": Price(input=0, output=10)},)), limit_usd=1.0)
    account = ledger.account(_PaidModel(limit))
    waiting = [
        Generate(task="t", document=n, prompt=Prompt.of_text(f"{n}"), settings=Settings({}))
        for n in range(3_000)
    ]
    flying: list[Generate] = []
    highest = 0.0
    while not ledger.is_exhausted and waiting:
        room = 256 - len(flying)
        count = len(flying)
        while room and (
            admitted := account.reserve(waiting[:room])
        ):  # windows are admitted before the first answer
            flying += admitted
            waiting = waiting[len(admitted) :]
            room -= len(admitted)
        if not count and not flying:
            break
        request = flying.pop(draw.randrange(len(flying)))
        tokens = length(draw)
        highest = max(highest, tokens * 10 / 1e6)
        account.charge(Response(request_id=request.id, value="", usage=Usage(0, tokens)))
    for request in flying:
        tokens = length(draw)
        highest = max(highest, tokens * 10 / 1e6)
        account.charge(Response(request_id=request.id, value="", usage=Usage(0, tokens)))
    return max(0.0, ledger.spent_usd - 1.0) / highest, ledger.spent_usd


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [
        *measure_all_tasks(options.draws),
        *measure_floors(50 * options.draws),
        *measure_noise_floors(10 * options.draws),
        *measure_wrong_keys(),
        *measure_near_duplicates(),
        *measure_cost_limits(),
    ]
    lines = ["| what | setting | measured | goal | |", "|---|---|---|---|---|"]
    for what, setting, measured, goal, met in rows:
        lines.append(
            f"| {what} | {setting} | {measured} | {goal} | {('met' if met else '**missed**') if goal else ''} |"
        )
    text = "\n".join(lines) + "\n"
    if options.write:
        head = (
            "# Errors of comparisons, gates, lint findings and cost limits\n\n"
            f"Simulated with a known truth by `python benchmarks/decision_errors.py --draws {options.draws} --write`: "
            f"{options.draws} comparisons per row, {50 * options.draws} gates, {10 * options.draws} noise floors.\n\n"
        )
        (Path(__file__).parent / "DECISION_ERRORS.md").write_text(head + text, "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
