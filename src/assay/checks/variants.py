"""Check the prompt variants of a task: each must render, and differ from the unchanged prompt."""

from __future__ import annotations

from itertools import islice

from assay.checks.findings import Findings, collect_errors
from assay.tasks.task import Task
from assay.tasks.variants.expansion import build_variant_spec
from assay.tasks.variants.variant_task import open_variant

__all__ = ["check_variants"]


def check_variants(task: Task, count: int | None, findings: Findings) -> None:
    """Render the first `count` documents of a task (None: all) with each of its variants."""
    plain = _render(task, count) if task.spec.variants else ()
    for number, variant in enumerate(task.spec.variants):
        place = task.spec.places.get(f"variants[{number}]", task.spec.place("variants"))
        with collect_errors(findings, "variant", task.spec):
            opened = open_variant(build_variant_spec(task.spec, variant), task.rendering, task)
            if _render(opened, count) == plain:
                findings.warning(
                    "variant",
                    f"the variant `{variant.name}` has the same prompts as the task",
                    place,
                    "`fewshot_seed` needs few-shot examples, `choice_order` needs choices in the prompt",
                )


def _render(task: Task, count: int | None) -> tuple[str, ...]:
    rendering = task.start_pass()
    documents = list(islice(task.documents(), count))
    return tuple(request.id for document in documents for request in rendering.render_requests(document))
