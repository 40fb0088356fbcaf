"""Replace each selected task by its variants, which a group of the same name reports together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, InvalidOption
from assay.core.options.run_spec import RunSpec
from assay.core.records.codec import to_plain
from assay.core.records.specs import GroupSpec, TaskSpec
from assay.core.records.variants import BASE_VARIANT, VARIANT_SEPARATOR, VariantSpec
from assay.tasks.files.selection import Selection
from assay.tasks.files.task_loader import task_from_config
from assay.tasks.files.yaml_reader import TaskFile
from assay.tasks.variants.draws import DEFAULT_COUNT, draw_variants

__all__ = ["build_variant_spec", "expand_variants", "find_family", "list_variants"]


def find_family(spec: TaskSpec) -> str:
    """Return the name of the task that a variant belongs to, or of the task itself."""
    if spec.variant is None:
        return spec.name
    return spec.name.removesuffix(f"{VARIANT_SEPARATOR}{spec.variant.name}")


def list_variants(spec: TaskSpec, options: RunSpec) -> tuple[VariantSpec, ...]:
    """Return the variants of a task in a run, the unchanged prompt first; empty if there is only one.

    Raises:
        InvalidOption: `--variants` is given, but nothing varies; or the task has no templates.
    """
    if options.vary:
        return draw_variants(spec, options.vary, options.variants or DEFAULT_COUNT, options.variant_seed)
    if options.variants is not None and options.variants > 1 and not spec.variants:
        raise InvalidOption(
            f"`{spec.name}` defines no variants",
            where="--variants",
            hint="add --vary order,shots or `variants:`",
        )
    if not spec.variants:
        return ()
    found = (VariantSpec(name=BASE_VARIANT), *spec.variants)[: options.variants]
    return found if len(found) > 1 else ()


def expand_variants(selection: Selection, options: RunSpec) -> Selection:
    """Return the selection with variants in place of tasks; the same selection if no task has any.

    Raises:
        ErrorGroup: Several tasks cannot vary.
    """
    problems: list[AssayError] = []
    tasks: dict[str, TaskSpec] = {}
    families: dict[str, GroupSpec] = {}
    for name, spec in selection.tasks.items():
        try:
            variants = list_variants(spec, options)
            members = [build_variant_spec(spec, variant) for variant in variants]
        except ErrorGroup as several:
            problems += several.errors
            continue
        except AssayError as error:
            problems.append(error)
            continue
        tasks |= {member.name: member for member in members} or {name: spec}
        if members:
            families[name] = _build_family(spec, members)
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
    if not families:
        return selection
    return replace(selection, tasks=tasks, groups={**selection.groups, **families})


def build_variant_spec(spec: TaskSpec, variant: VariantSpec) -> TaskSpec:
    """Return the spec of a variant of a task: its name, its keys and a digest of its own."""
    name = f"{spec.name}{VARIANT_SEPARATOR}{variant.name}"
    built = spec
    if variant.overrides:
        config = {key: value for key, value in spec.config.items() if key != "variants"}
        changed = task_from_config(
            TaskFile(Path(spec.path), config, spec.places), variant.overrides, name=spec.name
        )
        built = replace(
            changed, places={**spec.places, **dict.fromkeys(variant.overrides, spec.place("variants"))}
        )
    config = {key: value for key, value in built.config.items() if key != "variants"}
    config["task"] = name
    if not variant.is_base:
        config["variant"] = {"name": variant.name, **_to_plain(variant.to_json())}
    return replace(built, name=name, alias=None, variants=(), variant=variant, config=config)


def _to_plain(settings: dict[str, Any]) -> Any:
    return {key: repr(value) if callable(value) else to_plain(value) for key, value in settings.items()}


def _build_family(spec: TaskSpec, members: Sequence[TaskSpec]) -> GroupSpec:
    return GroupSpec(
        name=spec.name,
        path=spec.path,
        dialect=spec.dialect,
        alias=spec.alias,
        members=tuple(member.name for member in members),
        metadata=spec.metadata,
        is_family=True,
    )
