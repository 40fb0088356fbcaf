"""Simulate the coverage of the interval over documents and prompt variants.

Run `python -m benchmarks.crossed_intervals` to write `benchmarks/CROSSED_INTERVALS.md` (about two minutes of one core), `--fast`
for a short version. A score is 1 if the sum of a mean, a document, a variant and their interaction is above 0, all of them
normal, so that the true mean over all documents and variants is known. `documents` is the interval that ignores the spread between
prompts: that of a single prompt, or of repeats.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from assay.stats.comparisons.crossed_pairs import compare_crossed_pairs
from assay.stats.intervals.confidence_intervals import mean_interval
from assay.stats.intervals.crossed import crossed_interval

__all__ = ["CoverageRow", "main", "simulate_coverage", "simulate_false_alarms"]

MEANS = (0.5, 0.8, 0.95)
VARIANTS = (3, 5, 10)
DOCUMENTS = (50, 200, 1000)
SPREADS = (0.0, 0.1, 0.3)
"""Standard deviation of the variants on the latent scale, where documents have 1.8 and the interaction 0.5."""

_DOCUMENT_DEVIATION = 1.8
_INTERACTION_DEVIATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """The coverage in one setting."""

    mean: float
    variants: int
    documents: int
    spread: float
    crossed: float
    """Share of samples whose interval over documents and variants contains the true mean."""

    documents_only: float
    width: float
    """Mean width of the interval over documents and variants."""


def simulate_coverage(
    mean: float, variants: int, documents: int, spread: float, *, samples: int, seed: int = 0
) -> CoverageRow:
    """Return the coverage of the 95 % intervals in one setting."""
    generator = np.random.default_rng([seed, round(1000 * mean), variants, documents, round(1000 * spread)])
    total = math.hypot(_DOCUMENT_DEVIATION, _INTERACTION_DEVIATION, spread)
    center = NormalDist().inv_cdf(mean) * total
    hits = [0, 0]
    width = 0.0
    for _ in range(samples):
        table = _draw(generator, center, documents, variants, spread)
        found = crossed_interval(table)
        alone = mean_interval(table.ravel(), np.repeat(np.arange(documents), variants))
        hits[0] += found.low <= mean <= found.high
        hits[1] += alone.low <= mean <= alone.high
        width += found.high - found.low
    return CoverageRow(
        mean=mean,
        variants=variants,
        documents=documents,
        spread=spread,
        crossed=hits[0] / samples,
        documents_only=hits[1] / samples,
        width=width / samples,
    )


def simulate_false_alarms(variants: int, documents: int, spread: float, *, samples: int) -> float:
    """Return how often two equal models, which react to prompts differently, differ at the level of 5 %."""
    generator = np.random.default_rng([1, variants, documents, round(1000 * spread)])
    alarms = 0
    for _ in range(samples):
        shared = generator.normal(0, _DOCUMENT_DEVIATION, (documents, 1))
        scores = [
            (
                shared
                + generator.normal(0, spread, (1, variants))
                + generator.normal(0, _INTERACTION_DEVIATION, (documents, variants))
                > 0
            ).astype(np.float64)
            for _ in range(2)
        ]
        alarms += compare_crossed_pairs(scores[0], scores[1]).p_value < 0.05
    return alarms / samples


def _draw(
    generator: np.random.Generator, center: float, documents: int, variants: int, spread: float
) -> np.ndarray:
    latent = (
        center
        + generator.normal(0, _DOCUMENT_DEVIATION, (documents, 1))
        + generator.normal(0, spread, (1, variants))
        + generator.normal(0, _INTERACTION_DEVIATION, (documents, variants))
    )
    return (latent > 0).astype(np.float64)


def main(*, fast: bool = False, path: Path | None = None) -> str:
    """Simulate every setting and write the page."""
    samples = 20 if fast else 600
    rows = [
        simulate_coverage(mean, variants, documents, spread, samples=samples)
        for mean in MEANS
        for variants in VARIANTS
        for documents in DOCUMENTS[: 1 if fast else None]
        for spread in SPREADS
    ]
    alarms = [
        (
            variants,
            documents,
            spread,
            simulate_false_alarms(variants, documents, spread, samples=samples),
        )
        for variants in VARIANTS
        for documents in DOCUMENTS[: 1 if fast else 2]
        for spread in SPREADS
    ]
    text = _format(rows, alarms, samples)
    if path is not None:
        path.write_text(text, encoding="utf-8")
    return text


def _format(rows: list[CoverageRow], alarms: list[tuple[int, int, float, float]], samples: int) -> str:
    crossed, alone = [row.crossed for row in rows], [row.documents_only for row in rows]
    lines = [
        "# Intervals over documents and prompt variants",
        "",
        f"Written by `python -m benchmarks.crossed_intervals`: {samples} samples per row, nominal coverage 95 %.",
        "",
        f"The interval over documents and variants covers the true mean in {min(crossed):.1%} to {max(crossed):.1%} of the samples"
        f" (mean {sum(crossed) / len(crossed):.1%}). The interval that ignores the spread between prompts covers it in {min(alone):.1%}"
        f" to {max(alone):.1%}.",
        "",
        "| mean | variants | documents | spread between prompts | documents × variants | documents only | width |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row.mean:g} | {row.variants} | {row.documents} | {row.spread:g} | {row.crossed:.3f} | {row.documents_only:.3f} | {row.width:.3f} |"
            for row in rows
        ),
        "",
        "## False alarms of `assay compare`",
        "",
        "Two equal models whose prompts shift them independently: the share of samples with p < 0.05.",
        "",
        "| variants | documents | spread between prompts | false alarms |",
        "|---|---|---|---|",
        *(
            f"| {variants} | {documents} | {spread:g} | {share:.3f} |"
            for variants, documents, spread, share in alarms
        ),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true")
    given = parser.parse_args()
    print(
        main(fast=given.fast, path=None if given.fast else Path(__file__).with_name("CROSSED_INTERVALS.md"))
    )
