"""The prompt variants of a document: the answer and the verdict with each prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.store.documents.details import read_document
from assay.store.runs.run import Run
from assay.viewer.documents.choices import build_choices
from assay.viewer.documents.filter_trace import build_filter_traces
from assay.viewer.web.pages.verdict_summary import Directions, build_verdict_summary

__all__ = ["build_variant_cards"]


def build_variant_cards(
    run: Run,
    task: str,
    position: int,
    find: Callable[[Sequence[str]], list[int]],
    directions: Directions,
) -> list[dict[str, Any]]:
    """Return the answer to a document with each prompt of its task; empty if the task does not vary."""
    variant = run.tasks.get(task, {}).get("variant")
    members = run.groups.get(variant["of"], {}).get("members", ()) if variant else ()
    cards = []
    for member in members:
        facts = run.tasks.get(member, {})
        record = read_document(run.journal, member, position, find)
        if record is None:
            continue
        likelihoods = [one for one in record.asked if one.kind == "likelihood"]
        choices = build_choices(likelihoods, record.target, record.fields)
        summary = build_verdict_summary(record, choices, build_filter_traces(record, facts), directions)
        cards.append(
            {
                "task": member,
                "name": facts.get("variant", {}).get("name", member),
                "description": facts.get("variant", {}).get("description", ""),
                "summary": summary,
                "here": member == task,
            }
        )
    return cards
