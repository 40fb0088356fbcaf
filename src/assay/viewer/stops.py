"""What came of `--stop_when`, in words."""

from __future__ import annotations

from assay.store.runs import Run

__all__ = ["stops_text"]


def stops_text(run: Run) -> list[str]:
    """A line for each task that had a rule: where the score of all its documents is, asked or not."""
    lines = []
    rule = str(run.facts.get("spec", {}).get("stop_when") or "")
    for task, about in run.facts.get("stopped", {}).items():
        asked, whole = about["asked"], about["documents"]
        if not about["reached"] or asked == whole:
            why = about["why_not"] or f"{rule} was not reached before the last one"
            lines.append(f"{task}: all {asked} documents were asked: {why}")
            continue
        number = about["metric"]
        if "gate:" in rule:
            upward = about.get("higher_is_better", True)
            number = (
                f"{number} minus the baseline's" if upward else f"the baseline's {number} minus this one's"
            )
        lines.append(
            f"{task}: {rule} reached after {asked} of {whole} documents, {whole - asked} saved; {number} over all of them"
            f" is between {about['low']:.4f} and {about['high']:.4f} ({100 * about['level']:g} %, looks in between allowed"
            " for)"
        )
    return lines
