"""Measure `assay same`: how often its verdicts are wrong, and how many documents they need.

Run `python -m benchmarks.same_model` to write `benchmarks/SAME_MODEL.md` (about three minutes of one core), `--fast` for a short
version that only checks that everything runs. Discrepancies are drawn from models whose true mean is known: at the tolerance,
where errors are most likely, and away from it. Every document is looked at, so the error rates are those of a test that may stop
at any time. With `--requantise FILE`, the GGUF file of SmolLM2 is written again in other quantisations, to compare them with
`assay same` (needs the package `gguf`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay.stats.comparisons.equivalence import Channel, decide_equivalence

__all__ = ["Family", "main", "measure_family", "requantise"]

Floats = NDArray[np.float64]
DELTA = 0.02
RATE = 0.05
DOCUMENTS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A way in which two models may differ: draws the channels of some documents."""

    name: str
    mean: float
    """The true mean discrepancy of the channel that differs most, or the true difference of the mean scores, without its sign."""

    draw: Callable[[np.random.Generator, int], list[Channel]]

    @property
    def wrong(self) -> tuple[str, ...]:
        """The verdicts that are wrong; at the tolerance itself only `different` is."""
        return ("different",) if self.mean <= DELTA else ("same",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    family: Family
    same: float
    different: float
    wrong: float
    median: float | None
    """Median number of documents of the samples with a verdict."""


def list_families() -> Iterator[Family]:
    """Yield all families."""
    for share in (0.0, 0.01, DELTA, DELTA + 1e-9, 0.04, 0.1, 0.3):
        yield Family(name="scores that flip", mean=share, draw=_make_flips(share))
    for mean in (DELTA, DELTA + 1e-9, 0.06):
        yield Family(name="small shifts of probabilities", mean=mean, draw=_make_shifts(mean))
    for hazard in (0.001, 0.01, 0.1):
        mean = float(np.mean(_draw_positions(np.random.default_rng(0), 200_000, hazard)))
        yield Family(name=f"texts, {hazard:g} per token", mean=mean, draw=_make_texts(hazard))
    for share in (0.0, DELTA, DELTA + 1e-9, 0.1):
        yield Family(name="sampled answers, noise subtracted", mean=share, draw=_make_sampled(share))
    for before, after, mean in (
        (0.7, 0.95, 0.25),
        (0.95, 0.7, 0.25),
        (0.7, 0.7 + DELTA + 1e-9, DELTA + 1e-9),
        (0.7, 0.7, 0.0),
    ):
        name = f"one reference run, right in {100 * before:.0f} and {100 * after:.0f} %"
        yield Family(name=name, mean=mean, draw=_make_referenced(before, after))
    for before, after, mean in ((0.8, 0.9, 0.1), (0.8, 0.8 + DELTA + 1e-9, DELTA + 1e-9), (0.8, 0.8, 0.0)):
        name = f"two repeats, right in {100 * before:.0f} and {100 * after:.0f} %"
        yield Family(name=name, mean=mean, draw=_make_repeated(before, after))
    for share in (0.0, DELTA, DELTA + 1e-9, 0.1):
        yield Family(name="five channels, one differs", mean=share, draw=_make_several(share))


def _make_flips(share: float) -> Callable[[np.random.Generator, int], list[Channel]]:
    return lambda draw, count: [
        Channel(name="scores", values=(draw.random(count) < share).astype(np.float64))
    ]


def _make_shifts(mean: float) -> Callable[[np.random.Generator, int], list[Channel]]:
    return lambda draw, count: [
        Channel(name="likelihoods", values=draw.beta(0.5, 0.5 * (1 - mean) / mean, count))
    ]


def _draw_positions(draw: np.random.Generator, count: int, hazard: float) -> Floats:
    """Return 1 / the first position that differs, 0 if it is after the end of the answer."""
    positions, lengths = draw.geometric(hazard, count), draw.integers(5, 200, count)
    return np.where(positions <= lengths, 1 / positions, 0.0)


def _make_texts(hazard: float) -> Callable[[np.random.Generator, int], list[Channel]]:
    return lambda draw, count: [Channel(name="texts", values=_draw_positions(draw, count, hazard))]


def _make_sampled(share: float) -> Callable[[np.random.Generator, int], list[Channel]]:
    """Two answers of each model, both right with a probability that differs between documents; a share of the documents is
    answered by another distribution."""

    def draw_channels(draw: np.random.Generator, count: int) -> list[Channel]:
        rates = draw.random((count, 1))
        others = np.where(
            draw.random((count, 1)) < 3 * share, 1 - rates, rates
        )  # the mean of (1 - 2p)² is 1/3
        first, second = draw.random((count, 2)) < rates, draw.random((count, 2)) < others
        between = (first[:, :, None] != second[:, None, :]).mean(axis=(1, 2))
        inside = ((first[:, 0] != first[:, 1]) * 1.0 + (second[:, 0] != second[:, 1])) / 2
        return [Channel(name="scores", values=between - inside, limits=(-1.0, 1.0))]

    return draw_channels


def _make_referenced(before: float, after: float) -> Callable[[np.random.Generator, int], list[Channel]]:
    """Sampled answers that are right with the given probabilities, and a second run of the first server."""

    def draw_channels(draw: np.random.Generator, count: int) -> list[Channel]:
        first, again = (draw.random((2, count)) < before).astype(np.float64)
        second = (draw.random(count) < after).astype(np.float64)
        between, noise = abs(second - first), abs(again - first)
        return [
            _make_mean_score(second - (first + again) / 2),
            Channel(name="scores", values=between - noise, limits=(-1.0, 1.0), upper=between - noise / 2),
        ]

    return draw_channels


def _make_repeated(before: float, after: float) -> Callable[[np.random.Generator, int], list[Channel]]:
    """Two answers of each model to every document, right with the given probabilities."""

    def draw_channels(draw: np.random.Generator, count: int) -> list[Channel]:
        first = (draw.random((count, 2)) < before).astype(np.float64)
        second = (draw.random((count, 2)) < after).astype(np.float64)
        between = abs(first[:, :, None] - second[:, None, :]).mean(axis=(1, 2))
        inside = (abs(first[:, 0] - first[:, 1]) + abs(second[:, 0] - second[:, 1])) / 2
        return [
            _make_mean_score(second.mean(axis=1) - first.mean(axis=1)),
            Channel(name="scores", values=between - inside, limits=(-1.0, 1.0)),
        ]

    return draw_channels


def _make_mean_score(differences: Floats) -> Channel:
    return Channel(name="mean scores", values=differences, limits=(-1.0, 1.0), signed=True)


def _make_several(share: float) -> Callable[[np.random.Generator, int], list[Channel]]:
    def draw_channels(draw: np.random.Generator, count: int) -> list[Channel]:
        shares = (share, min(share, DELTA), min(share, DELTA), 0.0, 0.0)
        return [
            Channel(name=str(number), values=(draw.random(count) < one).astype(np.float64))
            for number, one in enumerate(shares)
        ]

    return draw_channels


def measure_family(family: Family, samples: int) -> Row:
    """Draw samples and count the verdicts."""
    draw = np.random.default_rng(11)
    verdicts, counts = [], []
    for _ in range(samples):
        found = decide_equivalence(family.draw(draw, DOCUMENTS), delta=DELTA, alpha=RATE, beta=RATE)
        verdicts.append(found.decision)
        counts += [] if found.decided_after is None else [found.decided_after]
    return Row(
        family=family,
        same=verdicts.count("same") / samples,
        different=verdicts.count("different") / samples,
        wrong=sum(verdict in family.wrong for verdict in verdicts) / samples,
        median=float(np.median(counts)) if counts else None,
    )


def write_table(rows: list[Row], samples: int, seconds: float) -> str:
    """Return the page with the table."""
    lines = [
        "# Verdicts of `assay same`",
        "",
        f"Written by `python -m benchmarks.same_model` with {samples} samples of {DOCUMENTS} documents per row, in {seconds:.0f} s.",
        f"The tolerance is {100 * DELTA:g} %, both error rates are {100 * RATE:g} %. **wrong** is the share of wrong verdicts: `different` if"
        " the true mean discrepancy is at most the tolerance, `same` if it is above. **documents** is the median number of documents"
        " that a verdict needed; the other samples end without a verdict. Rates at the tolerance itself are the largest possible ones;"
        f" with {samples} samples, a rate of {100 * RATE:g} % is measured as {100 * RATE:g} ± {200 * (RATE * (1 - RATE) / samples) ** 0.5:.1f} %.",
        "",
        "| discrepancy | true mean | same | different | wrong | documents |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        above = " (just above)" if DELTA < row.family.mean < DELTA + 1e-6 else ""
        lines.append(
            f"| {row.family.name} | {100 * row.family.mean:.2f} %{above} | {row.same:.3f} | {row.different:.3f} | {row.wrong:.3f} |"
            f" {'' if row.median is None else f'{row.median:.0f}'} |"
        )
    return "\n".join(lines) + "\n"


def requantise(source: Path, folder: Path, kinds: tuple[str, ...] = ("Q8_0", "Q4_0")) -> list[Path]:
    """Write a GGUF file again with its quantised tensors in other quantisations."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize, quantize

    written = []
    reader = GGUFReader(source)
    for name in kinds:
        kind, path = GGMLQuantizationType[name], folder / f"{source.name.split('.')[0]}.{name}.gguf"
        writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
                continue
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
        for tensor in reader.tensors:
            data = tensor.data.copy()
            if tensor.tensor_type == GGMLQuantizationType.F32:
                writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
            else:
                numbers = dequantize(data, tensor.tensor_type).astype(np.float32)
                writer.add_tensor(tensor.name, quantize(numbers, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        written.append(path)
    return written


def main() -> int:
    """Measure all families and write the table; exit code 1 if a verdict is wrong more often than promised, beyond chance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fast", action="store_true", help="few samples; print the table instead of writing it"
    )
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument(
        "--requantise", type=Path, metavar="FILE", help="write this GGUF file in other quantisations"
    )
    given = parser.parse_args()
    if given.requantise is not None:
        for path in requantise(given.requantise, Path()):
            print(path)
        return 0
    samples = 10 if given.fast else given.samples
    start = time.monotonic()
    rows = [measure_family(family, samples) for family in list_families()]
    text = write_table(rows, samples, time.monotonic() - start)
    if given.fast:
        print(text)
        return 0
    (Path(__file__).parent / "SAME_MODEL.md").write_text(text, encoding="utf-8")
    chance = 2 * (RATE * (1 - RATE) / samples) ** 0.5
    return int(any(row.wrong > RATE + chance for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
