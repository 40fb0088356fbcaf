"""The evidence of a verdict as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from assay.viewer.same_model.verdict import MEAN_SCORE, SameModelVerdict
from assay.viewer.text_tables import Column, TextTable

__all__ = ["build_channel_table", "format_evidence"]

_MEANINGS = {
    MEAN_SCORE: "second minus first",
    "scores": "mean difference of the scores",
    "texts": "1 / position of the first differing token",
    "likelihoods": "distance of the probabilities of the choices",
    "tool calls": "answers with valid calls in one run only",
    "endings": "answers with another finish reason",
}
_SCORES_BEYOND_NOISE = {
    "reference run": "difference beyond the noise of the first server",
    "reference runs": "mean squared difference of the expected scores",
    "repeats": "mean squared difference of the expected scores",
}
"""What the discrepancy of scores of 0 and 1 measures if noise is subtracted."""


def build_channel_table(verdict: SameModelVerdict) -> TextTable:
    """Build the table of channels: mean discrepancy per document and its bounds."""
    table = TextTable(
        columns=[
            Column(title="evidence"),
            Column(title="documents", justify="right"),
            Column(title="discrepancy", justify="right"),
            Column(title="bounds", justify="right"),
            Column(title="measures", wrap=True, fold=1),
        ]
    )
    for one in verdict.result.channels:
        table.add_row(
            one.name,
            str(one.documents),
            f"{100 * one.mean:{'+' if one.signed else ''}.2f} %",
            (
                f"{100 * one.low:+.2f} to {100 * one.high:+.2f} %"
                if one.signed
                else f"{100 * one.low:.2f} – {100 * one.high:.2f} %"
            ),
            _SCORES_BEYOND_NOISE[verdict.noise]
            if one.name == "scores" and verdict.noise
            else _MEANINGS.get(one.name, ""),
            style="bold" if one.name in verdict.result.decided_by else "",
        )
    return table


def format_evidence(verdict: SameModelVerdict) -> Iterator[str]:
    """Yield one line per kind of evidence."""
    if verdict.flips is not None:
        wins, losses = verdict.flips
        yield f"scores: {wins + losses} of {verdict.documents} documents differ: {wins} higher and {losses} lower in the second run"
    if verdict.texts:
        line = f"texts: {verdict.differing_texts} of {verdict.texts} answers differ"
        if verdict.positions:
            middle = verdict.positions[len(verdict.positions) // 2]
            line += f", first at token {middle} in the median (earliest {verdict.positions[0]})"
        yield line
    if verdict.largest_shift is not None:
        yield f"likelihoods: the largest difference of a log probability is {verdict.largest_shift:.3g}"
    if verdict.lengths is not None:
        yield f"lengths: {verdict.lengths.first:.0f} and {verdict.lengths.second:.0f} characters on average"
    if verdict.endings:
        counts = ", ".join(f"{name} {one} and {other}" for name, (one, other) in verdict.endings.items())
        yield f"finish reasons: {counts}"
    if verdict.noise:
        yield f"the discrepancy of the model with itself is subtracted ({verdict.noise})"
        if verdict.noise == "reference run":
            yield (
                "the noise of the second server is unknown: the upper bounds assume that it has none; a second --reference RUN (of the"
                " second server) or --repeats 2 makes `same` easier to show"
            )
    elif verdict.texts:
        yield (
            "greedy answers: no noise is subtracted; servers that batch requests can differ from themselves, and --reference RUN"
            " (a second run of the first server) accounts for it"
        )
