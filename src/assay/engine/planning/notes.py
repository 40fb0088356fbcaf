"""Collect notes: things that do not stop a run but are worth knowing before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.core.options.run_spec import RunSpec
from assay.core.options.stop_rules import parse_stop_rule
from assay.core.ports import Model, SupportsTargets
from assay.engine.planning.records import PlannedTask
from assay.engine.planning.setup.oracle_targets import has_no_target
from assay.engine.results.stop_metrics import list_stop_warnings
from assay.engine.running.cost_ledger import get_billing_name
from assay.models.prices import load_prices
from assay.scoring.result_keys import find_metrics_without_values
from assay.tasks.files.helper_functions import may_draw_at_random
from assay.tasks.prompts.field_compilers import find_unrendered_template

__all__ = ["collect_notes"]


def collect_notes(spec: RunSpec, model: Model, tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Return one line for each note."""
    stops = [] if spec.stop_when is None else list_stop_warnings(parse_stop_rule(spec.stop_when), tasks)
    return [
        *_note_options_without_effect(spec, tasks),
        *_note_dropped_system_messages(spec, model, tasks),
        *_note_unusable_targets(model, tasks),
        *_note_unrendered_choices(tasks),
        *_note_missing_token_logprobs(spec, model),
        *_note_missing_prices(spec, model, tasks),
        *_note_misspelled_metrics(spec, tasks),
        *_note_global_randomness(tasks),
        *_note_unweighted_repeats(tasks),
        *stops,
    ]


def _note_unweighted_repeats(tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note tasks without metrics of repeated answers."""
    found = [name for name, one in tasks.items() if one.spec.repeats > 1 and one.has_unequal_weights]
    if not found:
        return []
    return [
        f"{_format_names(found)}: no metrics of repeated answers (pass@k and others): the documents of a stratified subset"
        " have different weights"
    ]


def _note_global_randomness(tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note tasks whose prompts or scores may depend on the global random generators."""
    drawing = [name for name, planned in tasks.items() if may_draw_at_random(planned.spec)]
    scoring = [
        name
        for name, planned in tasks.items()
        if getattr(planned.spec.process_results, "may_draw_at_random", False)
    ]
    notes = []
    if drawing:
        notes.append(
            f"{_format_names(drawing)}: the code of the task may draw from the global random generators; documents and"
            " prompts depend on the list of tasks and on --seed, as in lm-eval"
        )
    if scoring:
        notes.append(
            f"{_format_names(scoring)}: `process_results` may draw from the global random generators; each document has"
            " its own seed, so scores can differ from those of lm-eval"
        )
    return notes


def _note_dropped_system_messages(spec: RunSpec, model: Model, tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note system messages that the chat template drops."""
    if not spec.apply_chat_template or model.traits.system:
        return []
    found = {"--system_instruction": list(tasks) if spec.system_instruction else []}
    found["`description`"] = [name for name, planned in tasks.items() if planned.spec.description]
    return [
        f"{_format_names(names)}: the chat template of `{model.name}` has no system message, so {what} is dropped"
        for what, names in found.items()
        if names
    ]


def _note_options_without_effect(spec: RunSpec, tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note options that affect no prompt of a task."""
    given = {"--num_fewshot": spec.num_fewshot, "--system_instruction": spec.system_instruction}
    flags = " and ".join(flag for flag, value in given.items() if value)
    alone = [name for name, planned in tasks.items() if planned.task.bypasses_context]
    if not flags or not alone:
        return []
    return [
        f"{_format_names(alone)}: chat models get only the media and the question, so {flags} has no effect"
    ]


def _note_unrendered_choices(tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note choices that look like templates but are not rendered."""
    found = [
        name for name, one in tasks.items() if find_unrendered_template(one.spec.config.get("doc_to_choice"))
    ]
    if not found:
        return []
    return [f"{_format_names(found)}: choices in a list are not rendered as templates; see `assay check`"]


def _note_misspelled_metrics(spec: RunSpec, tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note metrics without a value that are no error because the task runs in other harnesses."""
    if spec.predict_only:
        return []
    return [
        f"{name}: {error.what}; {error.hint}"
        for name, planned in tasks.items()
        for error in find_metrics_without_values(planned.spec)
    ]


def _note_missing_token_logprobs(spec: RunSpec, model: Model) -> list[str]:
    """Note that the model does not return token log probabilities."""
    if not spec.token_logprobs or model.traits.tokens:
        return []
    return [f"--token_logprobs: `{model.name}` does not return token log probabilities"]


def _note_missing_prices(spec: RunSpec, model: Model, tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note agents whose cost is limited although the model has no price."""
    limited = [
        name
        for name, planned in tasks.items()
        if planned.spec.agent is not None and planned.spec.agent.limits.max_cost is not None
    ]
    if not limited:
        return []
    prices = load_prices(spec.prices)
    billed = get_billing_name(model, prices)
    if billed and prices.find(billed) is not None:
        return []
    return [
        f"{_format_names(limited)}: `{model.name}` has no price, so `max_cost` stops no agent unless the server reports"
        " costs; --prices adds prices"
    ]


def _note_unusable_targets(model: Model, tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Note tasks for which the target may not score 1.0."""
    if not isinstance(model, SupportsTargets):
        return []
    without = [name for name, planned in tasks.items() if has_no_target(planned.spec)]
    partial = [
        name for name, planned in tasks.items() if name not in without and not planned.spec.target_is_answer
    ]
    own = [
        name
        for name, planned in tasks.items()
        if name not in (*without, *partial)
        and (planned.spec.process_results is not None or planned.task.is_dialogue or planned.scorer.panels)
    ]
    notes = []
    if without:
        notes.append(f"{_format_names(without)}: no `doc_to_target`, so `{model.name}` cannot answer")
    if partial:
        notes.append(
            f"{_format_names(partial)}: the target is not a complete answer, so `{model.name}` does not get the full score"
        )
    if own:
        notes.append(
            f"{_format_names(own)}: scored by task code, a judge or a dialogue; the target scores 1.0 only if that accepts it as an answer"
        )
    return notes


def _format_names(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
