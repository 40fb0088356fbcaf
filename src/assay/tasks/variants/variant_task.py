"""Open a task as one of its variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from assay.core.errors import TaskError
from assay.core.records.specs import OutputType, TaskSpec
from assay.core.records.variants import VariantSpec
from assay.tasks.data.rows import Split
from assay.tasks.task import RenderingOptions, RenderingPass, Task, open_task

if TYPE_CHECKING:
    from assay.tasks.variants.choice_order import ChoiceFields, ChoiceLayout

__all__ = ["VariantTask", "apply_rendering", "describe_variant", "open_variant"]

Fields = Mapping[str, Any]
_CHECKED_ROWS = 5
_DOCUMENT_FILTERS = frozenset(("multi_choice_regex",))
"""Filters that read the choices of the document, in their original order."""


def apply_rendering(rendering: RenderingOptions, variant: VariantSpec) -> RenderingOptions:
    """Return the rendering options of a variant: few-shot seed and order, system instruction."""
    changes: dict[str, Any] = {}
    if variant.fewshot_seed is not None:
        changes["fewshot_seed"] = variant.fewshot_seed
    if variant.fewshot_order:
        changes["fewshot_order"] = variant.fewshot_order
    if variant.system_instruction is not None:
        changes["system_instruction"] = variant.system_instruction
    return replace(rendering, **changes) if changes else rendering


def open_variant(spec: TaskSpec, rendering: RenderingOptions, original: Task | None = None) -> Task:
    """Open a task as the variant that its spec names. `original` is another variant of it, which has the data.

    Raises:
        TaskError: The choices of the task cannot be permuted.
    """
    variant = spec.variant
    assert variant is not None
    if variant.fewshot_seed is not None:  # `first_n` would take the same examples
        spec = replace(spec, fewshot=replace(spec.fewshot, sampler="default"))
    rendering = apply_rendering(rendering, variant)
    if spec.config.get("class") is not None:
        _refuse_choices(spec, variant, "it is a Python class", "class")
        return open_task(spec, rendering)
    return VariantTask(spec, rendering, original)


def describe_variant(task: Task, variant: VariantSpec) -> str:
    """Return what a variant changes in the prompts of a task, as one short line."""
    return variant.describe(task.idle_factors if isinstance(task, VariantTask) else ())


class VariantTask(Task):
    """A task whose prompts are those of a variant."""

    def __init__(self, spec: TaskSpec, rendering: RenderingOptions, original: Task | None = None) -> None:
        assert spec.variant is not None
        self.variant: VariantSpec = spec.variant
        self._shared = original
        self._plain = _PlainTask(spec, rendering, None if original is None else original.splits)
        self._plain.shared = original
        self.choice_fields: ChoiceFields | None = None
        if self.variant.choice_order or self.variant.choice_letters:
            spec = self._permute_choices(spec)
        super().__init__(spec, rendering, self._plain.splits if original is not None else None)

    def start_pass(self) -> RenderingPass:
        """Start a pass over the documents, after a check of the first ones."""
        self._check_letters()
        return super().start_pass()

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """The splits of the original: data are loaded once."""
        return self._plain.splits

    @cached_property
    def rows(self) -> Split:
        """The rows of the original: `process_docs` may use random numbers, and documents must be the same."""
        return self._plain.rows

    @property
    def idle_factors(self) -> tuple[str, ...]:
        """What the variant changes without effect on the prompts of this task."""
        idle = []
        layout = None if self.choice_fields is None else self.choice_fields.layout()
        for factor in self.variant.factors:
            without = {
                "order": layout is not None and not layout.is_shown,
                "letters": layout is not None and not (layout.is_shown and layout.labelled),
                "shots": self.num_fewshot == 0 and self._plain.num_fewshot == 0,
                "system": self.bypasses_context,
            }
            if without.get(factor):
                idle.append(factor)
        return tuple(idle)

    def _permute_choices(self, spec: TaskSpec) -> TaskSpec:
        """Return the spec with functions that permute the choices and change their letters."""
        from assay.tasks.variants.choice_order import ChoiceFields

        _check_choices(spec, self.variant)
        plain = self._plain
        text, (example_text, target, choices, _) = self._find_text_functions(spec)
        where = spec.place("doc_to_text")
        layout = cache(lambda: self._find_layout(fields, where))
        variant = self.variant
        fields = ChoiceFields(
            text=plain.question,
            target=plain.target,
            choices=None if spec.doc_to_choice is None else plain.choices,
            variant=variant,
            layout=layout,
            where=where,
            native_text=text,
        )
        examples = replace(
            fields, text=plain.fewshot.compilers[0], target=target, choices=choices, native_text=example_text
        )
        self.choice_fields = fields
        has_choices = spec.doc_to_choice is not None
        return replace(
            spec,
            use_prompt=None,
            doc_to_text=fields.render_text,
            doc_to_target=fields.render_target,
            doc_to_choice=fields.render_choices if has_choices else None,
            fewshot=replace(
                spec.fewshot,
                doc_to_text=examples.render_text,
                doc_to_target=examples.render_target,
                doc_to_choice=examples.render_choices if has_choices else None,
            ),
        )

    def _find_text_functions(self, spec: TaskSpec) -> tuple[Any, tuple[Any, Any, Any, Any]]:
        """Return the question with the letters of the variant if the task writes `{{choice_list}}`, and the functions of
        few-shot examples."""
        compilers = self._plain.fewshot.compilers
        if spec.choice_column is None or not self.variant.choice_letters:
            return None, (None, *compilers[1:])
        native = _PlainTask(
            replace(spec, choice_letters=self.variant.choice_letters),
            self._plain.rendering,
            self._plain.splits,
        )
        native.shared = self._plain
        return native.question, (native.fewshot.compilers[0], *compilers[1:])

    def _find_layout(self, fields: ChoiceFields, where: str) -> ChoiceLayout:
        from assay.tasks.variants.choice_order import ChoiceLayout, find_layout

        if self._plain.shape[0]:  # the choices are the contexts: the prompt shows one at a time
            return ChoiceLayout(column=None, labelled=False)
        return find_layout(fields, self._plain.rows[0], column=self._plain.spec.choice_column, where=where)

    def _check_letters(self) -> None:
        """Refuse letters that the prompt also names elsewhere; letters in the text of some documents do not matter."""
        fields = self.choice_fields
        if fields is None or not self.variant.choice_letters or fields.native_text is not None:
            return
        layout = fields.layout()
        if not (layout.is_shown and layout.labelled):
            return
        rows = [self._plain.rows[index] for index in range(min(_CHECKED_ROWS, len(self._plain.rows)))]
        if all(fields.names_letters_elsewhere(row) for row in rows):
            raise TaskError(
                "the letters cannot be changed: the prompt names them not only in front of the choices",
                where=fields.where,
                hint="write the prompt with `choice_column` and `{{choice_letters}}`",
            )


class _PlainTask(Task):
    """The task of a variant before its choices are permuted."""

    shared: Task | None = None

    @cached_property
    def rows(self) -> Split:
        return super().rows if self.shared is None else self.shared.rows


def _check_choices(spec: TaskSpec, variant: VariantSpec) -> None:
    """Refuse tasks whose code or filters read the choices of the document in their original order."""
    if spec.output_type not in (OutputType.MULTIPLE_CHOICE, OutputType.GENERATE_UNTIL):
        _refuse_choices(spec, variant, f"it is a {spec.output_type} task", "output_type")
    if spec.process_results is not None:
        _refuse_choices(spec, variant, "its `process_results` reads the document", "process_results")
    names = [step.function for pipeline in spec.pipelines for step in pipeline.steps]
    if used := [name for name in names if name in _DOCUMENT_FILTERS]:
        _refuse_choices(spec, variant, f"its filter `{used[0]}` reads the document", "filter_list")


def _refuse_choices(spec: TaskSpec, variant: VariantSpec, why: str, key: str) -> None:
    changed: Sequence[str] = [
        word
        for word, given in (("order", variant.choice_order), ("letters", variant.choice_letters))
        if given
    ]
    if changed:
        raise TaskError(
            f"the {' and '.join(changed)} of the choices of `{spec.name}` cannot vary: {why}",
            where=spec.place(key),
            hint="vary `shots`, `template`, `delimiter` or `system` instead",
        )
