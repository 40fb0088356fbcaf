"""Check that the prompt variants of a plan differ, leave out equal ones, and describe what does not vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from assay.core.errors import AssayError, InvalidOption, TaskError
from assay.core.fingerprints import digest_json
from assay.core.options.run_spec import RunSpec
from assay.core.records.documents import Document
from assay.core.records.specs import GroupSpec, OutputType
from assay.engine.planning.records import PlannedTask
from assay.scoring.pipelines import Pipeline
from assay.tasks.data.rows import iterate_rows
from assay.tasks.letter_choices import asks_for_letters
from assay.tasks.task import Task
from assay.tasks.variants.definitions import TEMPLATE_KEYS
from assay.tasks.variants.expansion import find_family
from assay.tasks.variants.variant_task import VariantTask
from assay.user_code.timeouts import current_timer

__all__ = ["describe_idle_factors", "drop_equal_variants", "find_variant_problems", "refuse_varied_subsets"]

_CHECKED_DOCUMENTS = 8
_ANSWER_FRAMES = (
    "@",
    "(@)",
    "@.",
    "Answer: @",
    "ANSWER: @",
    "Final answer: @",
    "answer is @",
    "The answer is @.",
    "The answer is (@).",
    "The best answer is @.",
    "The correct answer is @.",
    "The correct answer is (@).",
    "#### @",
    "**@**",
    "\\boxed{@}",
    "<answer>@</answer>",
)
"""Answers of models, with `@` in place of the letter."""


def refuse_varied_subsets(options: RunSpec, groups: Mapping[str, GroupSpec]) -> None:
    """Refuse subsets of tasks with several prompts: their means over documents and prompts have no weights.

    Raises:
        InvalidOption: A task of the run has several prompts.
    """
    given = [name for name in ("budget", "subset") if getattr(options, name) is not None]
    varied = [name for name, group in groups.items() if group.is_family]
    if given and varied:
        raise InvalidOption(
            f"a weighted subset needs one prompt per document, and `{varied[0]}` has several",
            where=f"--{given[0]}",
            hint="use --limit or --samples, or ask one prompt: no --vary, and --variants 1 if the task defines variants",
        )


def find_variant_problems(
    options: RunSpec, groups: Mapping[str, GroupSpec], tasks: Mapping[str, PlannedTask]
) -> Iterator[AssayError]:
    """Yield an error for each task whose variants all have the same prompts or whose filters do not extract other letters, and for
    options that need one prompt."""
    if options.stop_when is not None and any(group.is_family for group in groups.values()):
        yield InvalidOption(
            "a stop rule needs one prompt per document",
            where="--stop_when",
            hint="remove --stop_when, or use --variants 1 without --vary",
        )
        return
    for name, group in groups.items():
        if not group.is_family or any(member not in tasks for member in group.members):
            continue
        try:
            for member in group.members:
                _check_letters(tasks[member])
        except TaskError as error:
            yield error
        prompts = {_read_prompts(tasks[member].task) for member in group.members}
        if len(prompts) == 1:
            factors = dict.fromkeys(
                factor
                for member in group.members
                if (variant := tasks[member].spec.variant) is not None
                for factor in variant.factors
            )
            yield InvalidOption(
                f"the prompts of `{name}` do not vary: {', '.join(factors)} has no effect on this task",
                where="--vary",
                hint="`order` and `letters` need choices in the prompt, `shots` needs few-shot examples",
            )


def _check_letters(planned: PlannedTask) -> None:
    """Check that the filters extract the letters of a variant from every kind of answer from which they extract the original
    ones, and from at least one. Otherwise correct answers would be wrong.

    Raises:
        TaskError: A filter does not extract them.
    """
    task = planned.task
    if not isinstance(task, VariantTask) or task.choice_fields is None or not len(task.rows):
        return
    if planned.spec.output_type is not OutputType.GENERATE_UNTIL:
        return
    row = task.rows[0]
    letters = task.choice_fields.list_letters(row)
    for pipeline in planned.scorer.pipelines if letters else ():
        kept = _find_kept_letters(pipeline, planned, row, letters)
        if (True, False) in kept or not any(varied for _, varied in kept):
            raise TaskError(
                f"the letters of `{find_family(planned.spec)}` cannot vary: its filter `{pipeline.name}` does not extract"
                f" {' '.join(letter for _, letter in letters)}",
                where=planned.spec.place("filter_list"),
                hint="vary `order` instead, or define a variant with `choice_letters` and its own `filter_list`",
            )


def _find_kept_letters(
    pipeline: Pipeline, planned: PlannedTask, row: Mapping[str, Any], letters: Sequence[tuple[str, str]]
) -> list[tuple[bool, bool]]:
    """Return for each kind of answer whether the filters extract all original letters, and all of the variant; in another case if
    they never keep it."""
    found = [
        [
            [_extract(pipeline, planned, row, frame.replace("@", letter)) for letter in pair]
            for pair in letters
        ]
        for frame in _ANSWER_FRAMES
    ]
    kept: list[tuple[bool, bool]] = []
    for convert in (str, str.lower):
        kept = [
            (
                all(
                    convert(told[0]) == convert(pair[0]) for told, pair in zip(answers, letters, strict=True)
                ),
                all(
                    convert(told[1]) == convert(pair[1]) for told, pair in zip(answers, letters, strict=True)
                ),
            )
            for answers in found
        ]
        if any(map(any, kept)):
            break
    return kept


def _extract(pipeline: Pipeline, planned: PlannedTask, row: Mapping[str, Any], answer: str) -> str:
    """Return the letter that the filters extract from an answer; empty if they fail."""
    try:
        with current_timer():
            (told,) = pipeline.apply([[answer] * planned.spec.repeats], [row])
    except Exception:  # noqa: BLE001 - user code: a filter of the task
        return ""
    if isinstance(told, list) and told:
        told = told[0]
    return told.strip(" \t\n().:[]*") if isinstance(told, str) else ""


def _read_prompts(task: Task) -> tuple[str, ...]:
    """Return the ids of the requests of the first documents, also of those that are not selected."""
    rendering = task.start_pass()
    rows = islice(iterate_rows(task.rows), _CHECKED_DOCUMENTS)
    documents = [Document(task=task.name, index=index, fields=row) for index, row in enumerate(rows)]
    return tuple(request.id for document in documents for request in rendering.render_requests(document))


def drop_equal_variants(
    options: RunSpec, groups: Mapping[str, GroupSpec], tasks: Mapping[str, PlannedTask]
) -> tuple[dict[str, GroupSpec], dict[str, PlannedTask], list[str]]:
    """Leave out each variant of `--vary` with the prompts of an earlier one, and return the notes about them.

    A prompt that counts twice would make the interval of the mean over prompts too narrow. Variants whose order or few-shot
    examples are drawn for each document are kept: they coincide by chance.
    """
    kept_groups, kept_tasks, notes = dict(groups), dict(tasks), []
    for name, group in groups.items():
        if not group.is_family or not options.vary:
            continue
        first: dict[str, str] = {}
        """Digest of the prompts -> the variant."""

        same: dict[str, list[str]] = {}
        for member in group.members:
            variant = tasks[member].spec.variant
            assert variant is not None
            if _draws_documents(tasks[member]):
                continue
            templates = [f"{key}={variant.overrides.get(key)!r}" for key in sorted(TEMPLATE_KEYS)]
            key = digest_json([templates, *_read_prompts(tasks[member].task)])
            found = first.setdefault(key, variant.name)
            if found != variant.name:
                same.setdefault(found, []).append(variant.name)
                del kept_tasks[member]
        if same:
            kept_groups[name] = replace(
                group, members=tuple(member for member in group.members if member in kept_tasks)
            )
            listed = "; ".join(f"{', '.join(names)} as {found}" for found, names in same.items())
            notes.append(f"{name}: variants with the same prompts are left out: {listed}")
    return kept_groups, kept_tasks, notes


def _draws_documents(planned: PlannedTask) -> bool:
    """Whether a variant draws the order of the choices or the few-shot examples at random, with an effect on this task."""
    variant, task = planned.spec.variant, planned.task
    idle = task.idle_factors if isinstance(task, VariantTask) else ()
    return variant is not None and bool({"order", "shots"} & set(variant.factors) - set(idle))


def describe_idle_factors(tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Return a note for each factor that has no effect on a task."""
    found: dict[str, dict[str, None]] = {}
    for planned in tasks.values():
        task = planned.task
        if isinstance(task, VariantTask) and not asks_for_letters(task):
            for factor in task.idle_factors:
                found.setdefault(factor, {})[find_family(planned.spec)] = None
    reasons = {
        "order": "the prompt does not list the choices",
        "letters": "the answers are not letters in front of the choices",
        "shots": "there are no few-shot examples",
        "system": "the task writes its own messages",
    }
    return [
        f"{', '.join(list(names)[:3])}{', …' if len(names) > 3 else ''}: `{factor}` does not vary: {reasons[factor]}"
        for factor, names in found.items()
    ]
