"""Prompt variants in results: the worst and the best variant, and how stable the documents are."""

from __future__ import annotations

from typing import Any

from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.number_format import format_float

__all__ = [
    "build_variant_rows",
    "find_variant_facts",
    "format_extremes",
    "format_variant_notes",
]


def find_variant_facts(run: Run, estimate: Estimate) -> dict[str, Any] | None:
    """Return what the run stores about the variants behind an estimate; None if its task does not vary."""
    for facts in run.facts.get("variants") or ():
        if (facts["task"], facts["pipeline"], facts["metric"]) == (
            estimate.task,
            estimate.pipeline,
            estimate.metric,
        ):
            return dict(facts)
    return None


def format_extremes(run: Run, estimate: Estimate) -> str:
    """Return the scores of the worst and the best variant; empty if the task does not vary."""
    facts = find_variant_facts(run, estimate)
    if facts is None:
        return ""
    return f"{format_float(facts['worst']['value'])} – {format_float(facts['best']['value'])}"


def format_variant_notes(run: Run) -> list[str]:
    """Return lines below the table: the spread between prompts, stability, and what each variant changes.

    `arc: acc over 5 prompts: worst v2 0.4100, best base 0.5200; standard deviation between prompts 0.0310; 61 of 100
    documents keep their verdict; consistency rate 0.7240`
    """
    lines, described = [], set()
    for facts in run.facts.get("variants") or ():
        name = facts["metric"] + (f" ({facts['pipeline']})" if facts["pipeline"] != "none" else "")
        worst, best = facts["worst"], facts["best"]
        parts = [
            f"{facts['task']}: {name} over {len(facts['variants'])} prompts: worst {worst['name']} {format_float(worst['value'])},"
            f" best {best['name']} {format_float(best['value'])}"
        ]
        if "variant_deviation" in facts:
            parts.append(f"standard deviation between prompts {format_float(facts['variant_deviation'])}")
        if "always_the_same" in facts:
            parts.append(f"{facts['always_the_same']} of {facts['documents']} documents keep their score")
        if "consistency_rate" in facts:
            parts.append(f"consistency rate {format_float(facts['consistency_rate'])}")
        lines.append("; ".join(parts))
        settings = tuple((one["name"], one["description"]) for one in facts["variants"])
        if settings not in described:
            described.add(settings)
            lines += [f"  {variant}: {text}" for variant, text in settings if text != "unchanged"]
    return lines


def build_variant_rows(run: Run) -> list[dict[str, Any]]:
    """Return one entry per task and metric with variants, for the page of a run."""
    rows = []
    for facts in run.facts.get("variants") or ():
        low, high = facts["worst"]["name"], facts["best"]["name"]
        rows.append(
            {
                **facts,
                "variants": [
                    {**one, "mark": "worst" if one["name"] == low else "best" if one["name"] == high else ""}
                    for one in facts["variants"]
                ],
            }
        )
    return rows
